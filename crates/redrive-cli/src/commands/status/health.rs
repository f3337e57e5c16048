//! What `status` says of the health of a sink: only what is out of the ordinary.

use redrive::{Time, timestamp};

use crate::client::answers::{Health, PipelineView};
use crate::output::{age, count};

/// The state of the breaker, unless it is closed.
pub fn head(view: &PipelineView, now: Time) -> Option<String> {
    let since = |health: &Health| {
        let since = health.since.map(|at| format!(" since {} ({})", clock(at.0), age::since(now, at.0)));
        since.unwrap_or_default()
    };
    match view.breaker.as_str() {
        "open" => Some(format!("breaker OPEN{}", since(&view.health))),
        "half_open" => Some(format!("breaker HALF OPEN{}", since(&view.health))),
        _ => None,
    }
}

/// What there is to say beyond that.
pub fn lines(view: &PipelineView, now: Time) -> Vec<String> {
    let health = &view.health;
    let mut lines = Vec::new();
    if head(view, now).is_some() {
        let mut parts = vec![health.reason.clone().unwrap_or_default()];
        if let Some(next) = health.next_probe {
            parts.push(format!("next probe {}", clock(next.0)));
        }
        if health.rounds > 0 {
            parts.push(format!("{} rounds, {} probes so far", health.rounds, health.probes));
        }
        parts.push("nothing is dead-lettered for it".to_owned());
        lines.push(parts.join("   "));
    } else if health.permits < health.permits_max {
        lines.push(format!("permits {} of {}, growing after the outage", health.permits, health.permits_max));
    }
    if let Some(why) = &health.paused_because {
        let name = &view.name;
        lines.push(format!(
            "paused by the dead-letter guard: {why}   `redrive resume {name}`, or with --dead-letter-anyway"
        ));
    }
    if health.suspects > 0 {
        lines.push(format!(
            "{} suspects of having ended the process run one at a time",
            count(health.suspects)
        ));
    }
    match health.budget_remaining {
        None => {}
        Some(0) => lines.push("the retry budget is used up".to_owned()),
        Some(left) => lines.push(format!("retry budget: {} retries left now", count(u64::from(left)))),
    }
    lines
}

/// `03:12:07`, in UTC as everywhere.
fn clock(at: Time) -> String {
    let text = timestamp::print(at);
    text.get(11..19).unwrap_or(&text).to_owned()
}
