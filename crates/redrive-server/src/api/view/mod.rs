//! Views of pipelines, messages and letters for the API. Pure: converts engine values to API types.

mod attention;
pub(crate) mod condition;
mod health;
mod recent;

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use redrive::internal::engine::Attempt;
use redrive::internal::letters::correlation_id;
use redrive::internal::letters::select::LetterIds;
use redrive::letters::redact::{self, Redaction, Secrets};
use redrive::replay::{ReplayView, StoppedReplays};
use redrive::{
    Counts, DeliveryOrder, Letter, LetterState, MessagePhase, MessageState, Policy, Reason, Time, messages,
};
use redrive_api::{
    AttemptView, Backoff, Instant, LetterCounts, LetterView, ListedMessage, MessageView, Payload, Pending,
    PipelineView, PolicyView, StoreHealth,
};
use redrive_core::text::secret_header::is_secret_header;
use redrive_core::{Class, Message, Schedule, duration};
use serde::Serialize;
use serde_json::Value;

use self::recent::p99_ms;
use crate::service::Served;

/// An optional name from the engine.
fn named(name: Option<&'static str>) -> Option<String> {
    name.map(str::to_owned)
}

/// The numbers of letters by state.
pub fn letter_counts(counts: &Counts) -> LetterCounts {
    LetterCounts {
        open: counts.letters_open,
        replaying: counts.letters_replaying,
        succeeded: counts.letters_succeeded,
        discarded: counts.letters_discarded,
        erased: counts.letters_erased,
    }
}

/// A pipeline with its figures.
pub fn pipeline(served: &Served, replays: &[ReplayView]) -> PipelineView {
    let figures = &served.handle.figures();
    let counts = figures.pending;
    let paused = served.handle.is_paused();
    let ordering = match served.handle.ordering() {
        DeliveryOrder::None => "none",
        DeliveryOrder::Key => "key",
    };
    PipelineView {
        name: served.handle.name().to_owned(),
        paused,
        mode: served.handle.mode().name().to_owned(),
        ordering: ordering.to_owned(),
        engine: served.engine.clone(),
        source: served.source.clone(),
        sink: served.handle.sink().name.to_owned(),
        target: served.handle.sink().target.as_deref().map(str::to_owned),
        policy: policy(served.handle.policy()),
        pending: Pending {
            ready: counts.ready,
            delayed: counts.delayed,
            key_wait: counts.key_wait,
            in_flight: counts.in_flight,
            held: counts.held,
        },
        letters: letter_counts(&figures.pending),
        oldest_pending: figures.oldest_pending.map(Instant),
        oldest_letter: figures.oldest_letter.map(Instant),
        succeeded: figures.succeeded,
        dead: figures.dead.total(),
        retried: figures.retried(),
        attempts: figures.attempts.total(),
        late_p99_ms: p99_ms(&figures.retry_lateness),
        end_to_end_p99_ms: p99_ms(&figures.end_to_end),
        recent: recent::recent(&figures.recent),
        attention: attention::notices(
            served.handle.name(),
            paused,
            figures,
            &attention::Circumstances {
                outage_gate: served.handle.policy().outage_gate(),
                subscriptions: served.subscription_counts(),
                stopped_replays: StoppedReplays::of(served.handle.name(), replays).as_ref(),
                status_pages: served.handle.sink().status_pages,
            },
            served.handle.now(),
        ),
        breaker: figures.health.breaker.state.name().to_owned(),
        health: health::sink_health(figures),
        store: StoreHealth {
            damaged: figures.upkeep.damaged,
            scrubbed: figures.upkeep.scrubbed.map(Instant),
            index_rebuilds: figures.upkeep.index_rebuilds,
        },
        condition: condition::condition(&figures.condition),
    }
}

/// The policy in the terms of the configuration.
fn policy(policy: &Policy) -> PolicyView {
    let (tiers, backoff) = match policy.schedule() {
        Schedule::Tiers(tiers) => (Some(tiers.iter().map(|tier| duration::print(*tier)).collect()), None),
        Schedule::Exponential { base, multiplier, cap } => {
            let (base, cap) = (duration::print(*base), cap.map(duration::print));
            (None, Some(Backoff::Exponential { base, multiplier: *multiplier, cap }))
        }
        Schedule::Fixed(delay) => (None, Some(Backoff::Fixed { fixed: duration::print(*delay) })),
        Schedule::Custom(_) => (None, Some(Backoff::Custom("custom".to_owned()))),
    };
    PolicyView {
        tiers,
        backoff,
        retries: policy.retries(),
        jitter: policy.jitter().to_string(),
        ttl: policy.ttl().map(duration::print),
        hold_max: duration::print(policy.hold_max()),
        outage_gate: Some(policy.outage_gate()),
        timeout: duration::print(policy.timeout()),
        concurrency: policy.concurrency(),
        classify: if policy.classify() { "on" } else { "off" }.to_owned(),
    }
}

/// A message in a listing.
pub fn listed(ids: LetterIds<'_>, listed: &messages::ListedMessage, with_payload: bool) -> ListedMessage {
    let (found, message) = (&listed.found, listed.message());
    let last = found.history.attempts().pop();
    ListedMessage {
        id: message.id().to_owned(),
        correlation_id: correlation_id(message),
        number: ids.text(found.at.number),
        state: listed.state.name().to_owned(),
        key: message.key().map(text),
        tenant: message.tenant().map(str::to_owned),
        attempts: found.meta.attempts,
        replays: found.meta.replays,
        created: Instant(found.meta.created),
        due: found.due.map(Instant),
        deadline: found.meta.deadline.map(Instant),
        held_ms: found.meta.held_ms,
        class: named(last.as_ref().map(|attempt| attempt.class.name())),
        error: last.map(|attempt| attempt.error),
        headers: headers(message),
        redacted: Vec::new(),
        payload: with_payload.then(|| message.payload().map(payload)),
    }
}

/// The current state of a message, with the result of each attempt.
pub fn message(ids: LetterIds<'_>, message: &MessageState) -> MessageView {
    let with_what_followed = |(index, failed): (usize, &Attempt)| {
        let (decision, delay_ms) = followed(message, failed, message.history.get(index + 1));
        AttemptView { decision: Some(decision.to_owned()), delay_ms, ..attempt(failed) }
    };
    MessageView {
        id: message.id.clone(),
        continued_as: None,
        accepted_as: None,
        state: message.state.name().to_owned(),
        attempts: is_counted(message).then_some(message.attempts),
        due: message.due.map(Instant),
        deadline: message.deadline.map(Instant),
        history: message.history.iter().enumerate().map(with_what_followed).collect(),
        letter: message.letter.map(|number| ids.text(number)),
        reason: named(message.reason.map(Reason::name)),
    }
}

/// Adds the ids that the letter knows to a message.
pub fn with_ids_of(view: MessageView, letter: &Letter) -> MessageView {
    let other = |id: &str| (id != view.id).then(|| id.to_owned());
    let (continued_as, accepted_as) = (other(letter.message.id()), other(letter.accepted_id()));
    MessageView { continued_as, accepted_as, ..view }
}

/// Whether the number of attempts is known.
fn is_counted(message: &MessageState) -> bool {
    message.state != MessagePhase::Succeeded || message.letter.is_some()
}

/// The decision after an attempt and the resulting wait, as far as the next attempt or the message's state shows them:
/// a history only stores how attempts ended.
fn followed(
    message: &MessageState,
    attempt: &Attempt,
    next: Option<&Attempt>,
) -> (&'static str, Option<u64>) {
    let ended = attempt.at.as_millis().saturating_add(u64::from(attempt.took_ms));
    let waited = |until: Time| Some(until.as_millis().saturating_sub(ended));
    match (next, message.state) {
        // Numbers restart with the first attempt of a replay, so the previous attempt was the last one before the
        // letter.
        (Some(next), _) if next.number <= attempt.number => ("dead_letter", None),
        (Some(next), _) => ("retry_at", waited(next.at)),
        (
            None,
            MessagePhase::Dead | MessagePhase::Discarded | MessagePhase::Erased | MessagePhase::Replaying,
        ) => ("dead_letter", None),
        (None, MessagePhase::Succeeded) if message.letter.is_some() => ("dead_letter", None),
        (None, _) => ("retry_at", message.due.and_then(waited)),
    }
}

/// A failed attempt.
fn attempt(attempt: &Attempt) -> AttemptView {
    AttemptView {
        attempt: attempt.number,
        at: Instant(attempt.at),
        took_ms: attempt.took_ms,
        class: attempt.class.name().to_owned(),
        kind: attempt.kind.name().to_owned(),
        status: attempt.kind.status(),
        code: attempt.code.clone(),
        error: attempt.error.clone(),
        decision: None,
        delay_ms: None,
        counted: attempt.counted,
        ambiguous: attempt.ambiguous,
    }
}

/// A dead letter with its history. The caller adds what only the pipeline knows: its origin, and its message before the
/// first edit.
pub fn letter(ids: LetterIds<'_>, letter: &Letter, with_payload: bool) -> LetterView {
    let message = &letter.message;
    let history = letter.history.attempts();
    let last = history.last();
    let class = last.map(|attempt| attempt.class);
    LetterView {
        id: ids.text(letter.id),
        queue: ids.pipeline.to_owned(),
        kind: kind(message),
        message: message.id().to_owned(),
        correlation_id: correlation_id(message),
        key: message.key().map(text),
        key_base64: message
            .key()
            .filter(|key| std::str::from_utf8(key).is_err())
            .map(|key| STANDARD.encode(key)),
        tenant: message.tenant().map(str::to_owned),
        state: letter.state.name().to_owned(),
        reason: letter.reason.name().to_owned(),
        class: named(class.map(Class::name)),
        error_class: named(class.map(|class| class.family().name())),
        attempts: letter.meta.attempts,
        replays: letter.meta.replays,
        error: last.map(|attempt| attempt.error.clone()),
        group: letter.group.group.to_string(),
        group_error: letter.group.title.clone(),
        dead_at: Instant(letter.dead_at),
        created: Instant(message.created()),
        first_seen: letter.meta.first_failed.map(Instant),
        deadline: letter.meta.deadline.map(Instant),
        held_ms: letter.meta.held_ms,
        crashes: letter.meta.crashes,
        first_crash: letter.first_crash().map(Instant),
        last_crash: letter.meta.last_crash.map(Instant),
        options: letter.options.as_deref().and_then(|options| serde_json::from_str(options).ok()),
        redacted: Vec::new(),
        origin: None,
        headers: headers(message),
        payload: with_payload.then(|| message.payload().map(payload)),
        edits: letter.edits.clone(),
        accepted_as: (letter.accepted_id() != message.id()).then(|| letter.accepted_id().to_owned()),
        original: None,
        original_headers: None,
        history: history.iter().map(attempt).collect(),
    }
}

/// A view without what its pipeline redacts, and without copies of those values and `secrets`.
pub fn redacted(redaction: &Redaction, view: &impl Serialize, secrets: Secrets) -> Value {
    let mut value = serde_json::to_value(view).unwrap_or_default();
    redaction.redact_with(&mut value, secrets);
    value
}

/// A view of a message of which only the history is known: error texts may quote redacted values.
pub fn without_errors(view: &impl Serialize) -> Value {
    let mut value = serde_json::to_value(view).unwrap_or_default();
    value.as_object_mut().map(redact::hide_errors);
    value
}

/// As text if it is UTF-8, otherwise as base64.
pub fn payload(bytes: &[u8]) -> Payload {
    match std::str::from_utf8(bytes) {
        Ok(text) => Payload::Utf8(text.to_owned()),
        Err(_) => Payload::Base64(STANDARD.encode(bytes)),
    }
}

/// Bytes that are nearly always text, converted lossily.
fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The state with this name.
pub fn letter_state(name: &str) -> Option<LetterState> {
    LetterState::ALL.into_iter().find(|state| state.name() == name)
}

/// Headers that name the type of a message, in order of precedence.
const KIND_HEADERS: [&str; 5] = ["ce_type", "ce-type", "x-message-type", "message-type", "type"];

fn kind(message: &Message) -> Option<String> {
    let named = |wanted: &str| message.headers().find(|(name, _)| name.eq_ignore_ascii_case(wanted));
    KIND_HEADERS.into_iter().find_map(named).map(|(_, value)| text(value))
}

/// The headers of a message by name. Values of repeated names are joined with commas, as in HTTP. Secret values are not
/// shown: reading letters must not enable forging webhooks.
pub fn headers(message: &Message) -> BTreeMap<String, String> {
    let mut headers = BTreeMap::<String, String>::new();
    for (name, value) in message.headers() {
        match headers.entry(name.to_owned()) {
            Entry::Vacant(place) if is_secret_header(name) => drop(place.insert("(hidden)".to_owned())),
            Entry::Occupied(_) if is_secret_header(name) => {}
            Entry::Vacant(place) => drop(place.insert(text(value))),
            Entry::Occupied(mut there) => {
                there.get_mut().push_str(", ");
                there.get_mut().push_str(&text(value));
            }
        }
    }
    headers
}

#[cfg(test)]
mod tests {
    use redrive::FailureKind;
    use serde_json::json;

    use super::*;

    fn failed(number: u32, at_ms: u64) -> Attempt {
        Attempt {
            number,
            at: Time::from_millis(at_ms),
            took_ms: 100,
            class: Class::Transient,
            kind: FailureKind::Status(503),
            code: None,
            counted: true,
            ambiguous: false,
            error: "503".to_owned(),
        }
    }

    #[test]
    fn a_header_that_holds_a_secret_by_its_name_is_not_shown() {
        let message = Message::builder("m").header("x-webhook-secret", "whsec_1").header("x-src", "web");
        let shown = headers(&message.header("X-Webhook-Secret", "whsec_2").build().unwrap());
        assert!(!shown.values().any(|value| value.contains("whsec")), "{shown:?}");
        assert_eq!(shown["x-webhook-secret"], "(hidden)");
        assert_eq!(shown["x-src"], "web");
    }

    #[test]
    fn a_history_says_what_followed_each_attempt() {
        let ids = LetterIds { pipeline: "orders", are_places: false };
        let mut state = MessageState::new("a", MessagePhase::Delayed);
        state.due = Some(Time::from_millis(20_100));
        state.history = vec![failed(1, 1_000), failed(2, 6_100)];
        let view = json!(message(ids, &state));
        assert_eq!(view["history"][0]["delay_ms"], 5_000);
        assert_eq!(view["history"][1]["decision"], "retry_at");
        assert_eq!(view["history"][1]["delay_ms"], 13_900);
        assert_eq!(view["due"], "1970-01-01T00:00:20.100Z");

        state.state = MessagePhase::Dead;
        state.due = None;
        state.history.push(failed(1, 90_000));
        let view = json!(message(ids, &state));
        assert_eq!(view["history"][1]["decision"], "dead_letter");
        assert_eq!(view["history"][2]["decision"], "dead_letter");
        assert_eq!(view["history"][2].get("delay_ms"), None);
    }

    #[test]
    fn bytes_that_are_not_text_are_shown_as_base64() {
        assert_eq!(json!(payload(b"{}")), json!({ "utf8": "{}" }));
        assert_eq!(json!(payload(&[0xff, 0])), json!({ "base64": "/wA=" }));
    }
}
