//! The policy under which a letter died, stored with it as a small JSON object with the names of the configuration.

use std::sync::Arc;
use std::time::Duration;

use redrive_core::{Policy, Schedule, duration};
use serde_json::{Map, Value, json};

/// Longer ones are not stored. A policy with the maximum number of tiers stays below this.
pub const OPTIONS_BYTES_MAX: usize = 4 * 1024;

/// The resolved policy: attempts, delays, timeout, time to live.
pub fn options_of(policy: &Policy, timeout: Duration) -> Option<Arc<str>> {
    let mut options = Map::new();
    options.insert("attempts".to_owned(), json!(policy.retries().saturating_add(1)));
    match policy.schedule() {
        Schedule::Tiers(tiers) => {
            let tiers: Vec<String> = tiers.iter().map(|tier| duration::print(*tier)).collect();
            options.insert("tiers".to_owned(), json!(tiers));
        }
        Schedule::Exponential { base, multiplier, cap } => {
            let (base, cap) = (duration::print(*base), cap.map(duration::print));
            let backoff = json!({ "base": base, "multiplier": multiplier, "cap": cap });
            options.insert("backoff".to_owned(), backoff);
        }
        Schedule::Fixed(delay) => {
            options.insert("backoff".to_owned(), json!({ "fixed": duration::print(*delay) }));
        }
        Schedule::Custom(_) => drop(options.insert("backoff".to_owned(), json!("custom"))),
    }
    options.insert("jitter".to_owned(), json!(policy.jitter().to_string()));
    options.insert("timeout".to_owned(), json!(duration::print(timeout)));
    options.insert("ttl".to_owned(), json!(policy.ttl().map(duration::print)));
    options.insert("hold_max".to_owned(), json!(duration::print(policy.hold_max())));
    options.insert("classify".to_owned(), json!(policy.classify()));
    let text = Value::Object(options).to_string();
    (text.len() <= OPTIONS_BYTES_MAX).then(|| text.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_options_of_a_letter_are_the_resolved_policy_in_the_words_of_the_configuration() {
        let policy = Policy::fixed("60s").retries(3).ttl("1h").jitter("none").build().unwrap();
        let options = options_of(&policy, Duration::from_secs(5)).unwrap();
        let options: Value = serde_json::from_str(&options).unwrap();
        assert_eq!((&options["attempts"], &options["ttl"]), (&json!(4), &json!("1h")));
        assert_eq!((&options["backoff"], &options["timeout"]), (&json!({ "fixed": "1m" }), &json!("5s")));
    }
}
