//! What the API shows of pipelines, messages and letters. Pure: values in, JSON out.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use redrive::engine::{Attempt, MessagePhase, MessageState};
use redrive::figures::Figures;
use redrive::{Letter, LetterState, Ordering, Policy, Time};
use redrive_core::{Class, Schedule, duration};
use serde_json::{Map, Value, json};

use crate::service::Served;
use redrive::timestamp;

/// A time, or null.
pub fn time(time: Option<Time>) -> Value {
    time.map_or(Value::Null, |time| Value::String(timestamp::print(time)))
}

/// A pipeline with its figures.
pub fn pipeline(served: &Served, figures: &Figures) -> Value {
    let pending = figures.pending;
    let letters: Map<String, Value> =
        figures.letters().iter().map(|(state, count)| (state.name().to_owned(), json!(count))).collect();
    let p99_ms = |quantile: Option<f64>| quantile.map(|seconds| (seconds * 1e6).round() / 1e3);
    json!({
        "name": served.handle.name(),
        "paused": served.handle.is_paused(),
        "mode": served.handle.mode().name(),
        "ordering": match served.handle.ordering() { Ordering::None => "none", Ordering::Key => "key" },
        "engine": served.engine,
        "sink": served.sink,
        "policy": policy(served.handle.policy()),
        "pending": {
            "ready": pending.ready,
            "delayed": pending.delayed,
            "key_wait": pending.key_wait,
            "in_flight": pending.in_flight,
            "held": figures.held,
        },
        "letters": letters,
        "oldest_pending": time(figures.oldest_pending),
        "oldest_letter": time(figures.oldest_letter),
        "succeeded": figures.succeeded,
        "dead": figures.dead.total(),
        "retried": figures.retried(),
        "attempts": figures.attempts.total(),
        "late_p99_ms": p99_ms(figures.retry_lateness.quantile(0.99)),
        "end_to_end_p99_ms": p99_ms(figures.end_to_end.quantile(0.99)),
        "breaker": "closed",
    })
}

/// The policy in the words of the configuration.
fn policy(policy: &Policy) -> Value {
    let mut fields = Map::new();
    let mut set = |name: &str, value: Value| fields.insert(name.to_owned(), value);
    match policy.schedule() {
        Schedule::Tiers(tiers) => {
            let tiers: Vec<String> = tiers.iter().map(|tier| duration::print(*tier)).collect();
            set("tiers", json!(tiers));
        }
        Schedule::Exponential { base, multiplier, cap } => {
            let (base, cap) = (duration::print(*base), cap.map(duration::print));
            set("backoff", json!({ "base": base, "multiplier": multiplier, "cap": cap }));
        }
        Schedule::Fixed(delay) => {
            set("backoff", json!({ "fixed": duration::print(*delay) }));
        }
        Schedule::Custom(_) => {
            set("backoff", json!("custom"));
        }
    }
    set("retries", json!(policy.retries()));
    set("jitter", json!(policy.jitter().to_string()));
    set("ttl", json!(policy.ttl().map(duration::print)));
    set("hold_max", json!(duration::print(policy.hold_max())));
    set("timeout", json!(duration::print(policy.timeout())));
    set("concurrency", json!(policy.concurrency()));
    set("classify", json!(if policy.classify() { "on" } else { "off" }));
    Value::Object(fields)
}

/// A message as it is now, with what became of each attempt.
pub fn message(message: &MessageState) -> Value {
    let mut history: Vec<Value> = Vec::with_capacity(message.history.len());
    for (index, attempt) in message.history.iter().enumerate() {
        let next = message.history.get(index + 1);
        let mut entry = self::attempt(attempt);
        let decided = decided(message, attempt, next);
        entry["decision"] = json!(decided.decision);
        if let Some(delay_ms) = decided.delay_ms {
            entry["delay_ms"] = json!(delay_ms);
        }
        history.push(entry);
    }
    let mut view = json!({
        "id": message.id,
        "state": message.state.name(),
        "attempts": message.attempts,
        "due": time(message.due),
        "deadline": time(message.deadline),
        "history": history,
    });
    if let Some(letter) = message.letter {
        view["letter"] = json!(letter);
    }
    if let Some(reason) = message.reason {
        view["reason"] = json!(reason.name());
    }
    view
}

struct Decided {
    decision: &'static str,
    delay_ms: Option<u64>,
}

/// What was decided after an attempt, as far as its successor or the message's state shows it: a history keeps how
/// attempts ended, and what followed follows from it.
fn decided(message: &MessageState, attempt: &Attempt, next: Option<&Attempt>) -> Decided {
    let ended = attempt.at.as_millis().saturating_add(u64::from(attempt.took_ms));
    let waited = |until: Time| Some(until.as_millis().saturating_sub(ended));
    match (next, message.state) {
        // A number that starts again is the first attempt of a replay: the one before it was the last of its life.
        (Some(next), _) if next.number <= attempt.number => {
            Decided { decision: "dead_letter", delay_ms: None }
        }
        (Some(next), _) => Decided { decision: "retry_at", delay_ms: waited(next.at) },
        (None, MessagePhase::Dead | MessagePhase::Discarded | MessagePhase::Replaying) => {
            Decided { decision: "dead_letter", delay_ms: None }
        }
        (None, MessagePhase::Succeeded) if message.letter.is_some() => {
            Decided { decision: "dead_letter", delay_ms: None }
        }
        (None, _) => Decided { decision: "retry_at", delay_ms: message.due.and_then(waited) },
    }
}

/// A failed attempt.
fn attempt(attempt: &Attempt) -> Value {
    json!({
        "attempt": attempt.number,
        "at": timestamp::print(attempt.at),
        "took_ms": attempt.took_ms,
        "class": attempt.class.name(),
        "error": attempt.error,
        "counted": attempt.counted,
        "ambiguous": attempt.ambiguous,
    })
}

/// A dead letter with its story.
pub fn letter(pipeline: &str, letter: &Letter, with_payload: bool) -> Value {
    let message = &letter.message;
    let history = letter.history.attempts();
    let last = history.last();
    let class = last.map(|attempt| attempt.class);
    let headers: Map<String, Value> =
        message.headers().map(|(name, value)| (name.to_owned(), text(value))).collect();
    let mut view = json!({
        "id": format!("{pipeline}/{}", letter.id),
        "message": message.id(),
        "key": message.key().map(text),
        "tenant": message.tenant(),
        "state": letter.state.name(),
        "reason": letter.reason.name(),
        "class": class.map(Class::name),
        "error_class": class.map(|class| class.family().name()),
        "attempts": letter.meta.attempts,
        "replays": letter.meta.replays,
        "error": last.map(|attempt| attempt.error.as_str()),
        "dead_at": timestamp::print(letter.dead_at),
        "created": timestamp::print(message.created()),
        "first_seen": time(letter.meta.first_failed),
        "deadline": time(letter.meta.deadline),
        "origin": null,
        "headers": headers,
        "history": history.iter().map(attempt).collect::<Vec<_>>(),
    });
    if with_payload {
        view["payload"] = message.payload().map_or(Value::Null, payload);
    }
    view
}

/// `{"utf8":…}` or `{"base64":…}`.
pub fn payload(bytes: &[u8]) -> Value {
    match std::str::from_utf8(bytes) {
        Ok(text) => json!({ "utf8": text }),
        Err(_) => json!({ "base64": STANDARD.encode(bytes) }),
    }
}

/// Bytes that are text nearly always: as text, with what is not replaced.
fn text(bytes: &[u8]) -> Value {
    Value::String(String::from_utf8_lossy(bytes).into_owned())
}

/// The state of this name.
pub fn letter_state(name: &str) -> Option<LetterState> {
    [LetterState::Open, LetterState::Replaying, LetterState::Succeeded, LetterState::Discarded]
        .into_iter()
        .find(|state| state.name() == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failed(number: u32, at_ms: u64) -> Attempt {
        Attempt {
            number,
            at: Time::from_millis(at_ms),
            took_ms: 100,
            class: Class::Transient,
            counted: true,
            ambiguous: false,
            error: "503".to_owned(),
        }
    }

    #[test]
    fn a_history_says_what_followed_each_attempt() {
        let mut state = MessageState::new("a", MessagePhase::Delayed);
        state.due = Some(Time::from_millis(20_100));
        state.history = vec![failed(1, 1_000), failed(2, 6_100)];
        let view = message(&state);
        assert_eq!(view["history"][0]["delay_ms"], 5_000);
        assert_eq!(view["history"][1]["decision"], "retry_at");
        assert_eq!(view["history"][1]["delay_ms"], 13_900);
        assert_eq!(view["due"], "1970-01-01T00:00:20.100Z");

        state.state = MessagePhase::Dead;
        state.due = None;
        state.history.push(failed(1, 90_000));
        let view = message(&state);
        assert_eq!(view["history"][1]["decision"], "dead_letter");
        assert_eq!(view["history"][2]["decision"], "dead_letter");
        assert_eq!(view["history"][2].get("delay_ms"), None);
    }

    #[test]
    fn bytes_that_are_not_text_are_shown_as_base64() {
        assert_eq!(payload(b"{}"), json!({ "utf8": "{}" }));
        assert_eq!(payload(&[0xff, 0]), json!({ "base64": "/wA=" }));
    }
}
