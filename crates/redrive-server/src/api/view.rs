//! What the API shows of pipelines, messages and letters. Pure: values in, what is written as JSON out.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use redrive::engine::Attempt;
use redrive::letters::correlation_id;
use redrive::letters::redact::{REDACTED, Redaction};
use redrive::letters::select::LetterIds;
use redrive::messages::ListedMessage;
use redrive::replay::{ReplayView, StoppedReplays};
use redrive::{
    Counts, Letter, LetterState, MessagePhase, MessageState, Ordering, Policy, Reason, Time, timestamp,
};
use redrive_core::text::secret_header::is_secret_header;
use redrive_core::{Class, Message, Schedule, duration};
use serde::Serialize;
use serde_json::{Value, json};

use super::view_attention::{self, Notice};
use super::view_condition::ConditionView;
use super::view_health::HealthView;
use super::view_recent::{RecentView, p99_ms};
use crate::service::Served;

/// A time as text, or none.
pub fn time(time: Option<Time>) -> Option<String> {
    time.map(timestamp::print)
}

/// A pipeline with its figures. The order of fields here is that of the answer.
#[derive(Debug, Serialize)]
pub struct PipelineView<'a> {
    name: &'a str,
    paused: bool,
    mode: &'static str,
    ordering: &'static str,
    engine: &'a str,
    sink: &'a str,
    /// Where the sink delivers to, in words.
    #[serde(skip_serializing_if = "Option::is_none")]
    target: Option<&'a str>,
    policy: PolicyView,
    pending: PendingView,
    letters: LetterCounts,
    oldest_pending: Option<String>,
    oldest_letter: Option<String>,
    succeeded: u64,
    dead: u64,
    retried: u64,
    attempts: u64,
    /// Since the process started, as the metrics have them; `recent` forgets.
    late_p99_ms: Option<f64>,
    end_to_end_p99_ms: Option<f64>,
    recent: RecentView,
    attention: Vec<Notice>,
    breaker: &'static str,
    health: HealthView,
    condition: ConditionView,
    store: StoreView,
}

/// What the store has found about itself.
#[derive(Debug, Serialize)]
struct StoreView {
    /// Damaged places that the last scrub found.
    damaged: u64,
    /// When everything was last read; null if that has not happened yet, or if it never does.
    scrubbed: Option<String>,
    /// How often the index was rebuilt since the process started.
    index_rebuilds: u64,
}

#[derive(Debug, Serialize)]
struct PendingView {
    ready: u64,
    delayed: u64,
    key_wait: u64,
    in_flight: u64,
    held: u64,
}

/// Letters by state.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct LetterCounts {
    pub open: u64,
    pub replaying: u64,
    pub succeeded: u64,
    pub discarded: u64,
    pub erased: u64,
}

impl From<&Counts> for LetterCounts {
    fn from(counts: &Counts) -> Self {
        Self {
            open: counts.letters_open,
            replaying: counts.letters_replaying,
            succeeded: counts.letters_succeeded,
            discarded: counts.letters_discarded,
            erased: counts.letters_erased,
        }
    }
}

pub fn pipeline<'a>(served: &'a Served, replays: &[ReplayView]) -> PipelineView<'a> {
    let figures = &served.handle.figures();
    let counts = figures.pending;
    let paused = served.handle.is_paused();
    PipelineView {
        name: served.handle.name(),
        paused,
        mode: served.handle.mode().name(),
        ordering: match served.handle.ordering() {
            Ordering::None => "none",
            Ordering::Key => "key",
        },
        engine: &served.engine,
        sink: served.handle.sink().name,
        target: served.handle.sink().target.as_deref(),
        policy: PolicyView::of(served.handle.policy()),
        pending: PendingView {
            ready: counts.ready,
            delayed: counts.delayed,
            key_wait: counts.key_wait,
            in_flight: counts.in_flight,
            held: counts.held,
        },
        letters: (&figures.pending).into(),
        oldest_pending: time(figures.oldest_pending),
        oldest_letter: time(figures.oldest_letter),
        succeeded: figures.succeeded,
        dead: figures.dead.total(),
        retried: figures.retried(),
        attempts: figures.attempts.total(),
        late_p99_ms: p99_ms(&figures.retry_lateness),
        end_to_end_p99_ms: p99_ms(&figures.end_to_end),
        recent: (&figures.recent).into(),
        attention: view_attention::notices(
            served.handle.name(),
            paused,
            figures,
            &view_attention::Circumstances {
                outage_gate: served.handle.policy().outage_gate(),
                subscriptions: served.subscription_counts(),
                stopped_replays: StoppedReplays::of(served.handle.name(), replays).as_ref(),
                status_pages: served.handle.sink().status_pages,
            },
            served.handle.now(),
        ),
        breaker: figures.health.breaker.state.name(),
        health: HealthView::of(figures),
        store: StoreView {
            damaged: figures.upkeep.damaged,
            scrubbed: time(figures.upkeep.scrubbed),
            index_rebuilds: figures.upkeep.index_rebuilds,
        },
        condition: (&figures.condition).into(),
    }
}

/// The policy in the words of the configuration.
#[derive(Debug, Serialize)]
struct PolicyView {
    #[serde(skip_serializing_if = "Option::is_none")]
    tiers: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    backoff: Option<Value>,
    retries: u32,
    jitter: String,
    ttl: Option<String>,
    hold_max: String,
    /// Whether nothing is given up for exhaustion while the sink is unhealthy.
    outage_gate: bool,
    timeout: String,
    concurrency: u32,
    classify: &'static str,
}

impl PolicyView {
    fn of(policy: &Policy) -> Self {
        let (tiers, backoff) = match policy.schedule() {
            Schedule::Tiers(tiers) => (Some(tiers.iter().map(|tier| duration::print(*tier)).collect()), None),
            Schedule::Exponential { base, multiplier, cap } => {
                let (base, cap) = (duration::print(*base), cap.map(duration::print));
                (None, Some(json!({ "base": base, "multiplier": multiplier, "cap": cap })))
            }
            Schedule::Fixed(delay) => (None, Some(json!({ "fixed": duration::print(*delay) }))),
            Schedule::Custom(_) => (None, Some(json!("custom"))),
        };
        Self {
            tiers,
            backoff,
            retries: policy.retries(),
            jitter: policy.jitter().to_string(),
            ttl: policy.ttl().map(duration::print),
            hold_max: duration::print(policy.hold_max()),
            outage_gate: policy.outage_gate(),
            timeout: duration::print(policy.timeout()),
            concurrency: policy.concurrency(),
            classify: if policy.classify() { "on" } else { "off" },
        }
    }
}

/// A message of a listing.
#[derive(Debug, Serialize)]
pub struct ListedView {
    id: String,
    correlation_id: String,
    /// Its name where ids repeat: `orders/17`, or on Kafka the place of its record, `orders/7/1182`.
    number: String,
    state: &'static str,
    key: Option<String>,
    tenant: Option<String>,
    attempts: u32,
    replays: u32,
    created: String,
    due: Option<String>,
    deadline: Option<String>,
    /// For how long it was put off or kept back without using up attempts.
    held_ms: u64,
    class: Option<&'static str>,
    error: Option<String>,
    headers: BTreeMap<String, String>,
    /// Left out where it was not asked for; null where there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    payload: Option<Value>,
}

pub fn listed(ids: LetterIds<'_>, listed: &ListedMessage, with_payload: bool) -> ListedView {
    let (found, message) = (&listed.found, listed.message());
    let last = found.history.attempts().pop();
    ListedView {
        id: message.id().to_owned(),
        correlation_id: correlation_id(message),
        number: ids.text(found.at.number),
        state: listed.state.name(),
        key: message.key().map(text),
        tenant: message.tenant().map(str::to_owned),
        attempts: found.meta.attempts,
        replays: found.meta.replays,
        created: timestamp::print(found.meta.created),
        due: time(found.due),
        deadline: time(found.meta.deadline),
        held_ms: found.meta.held_ms,
        class: last.as_ref().map(|attempt| attempt.class.name()),
        error: last.map(|attempt| attempt.error),
        headers: headers(message),
        payload: with_payload.then(|| message.payload().map_or(Value::Null, payload)),
    }
}

/// A message as it is now, with what became of each attempt.
#[derive(Debug, Serialize)]
pub struct MessageView {
    id: String,
    /// The id under which it goes on since an edit, if it was asked for by the one it was accepted under.
    #[serde(skip_serializing_if = "Option::is_none")]
    continued_as: Option<String>,
    /// The id that it was accepted under, if an edit has given it another one since.
    #[serde(skip_serializing_if = "Option::is_none")]
    accepted_as: Option<String>,
    state: &'static str,
    /// Null for one that was delivered and never was a letter: of it nothing but that is stored.
    attempts: Option<u32>,
    due: Option<String>,
    deadline: Option<String>,
    history: Vec<AttemptView>,
    #[serde(skip_serializing_if = "Option::is_none")]
    letter: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'static str>,
}

pub fn message(ids: LetterIds<'_>, message: &MessageState) -> MessageView {
    let with_what_followed = |(index, attempt): (usize, &Attempt)| {
        let (decision, delay_ms) = followed(message, attempt, message.history.get(index + 1));
        AttemptView { decision: Some(decision), delay_ms, ..AttemptView::of(attempt) }
    };
    MessageView {
        id: message.id.clone(),
        continued_as: None,
        accepted_as: None,
        state: message.state.name(),
        attempts: is_counted(message).then_some(message.attempts),
        due: time(message.due),
        deadline: time(message.deadline),
        history: message.history.iter().enumerate().map(with_what_followed).collect(),
        letter: message.letter.map(|number| ids.text(number)),
        reason: message.reason.map(Reason::name),
    }
}

impl MessageView {
    /// With the ids that its letter knows.
    #[must_use]
    pub fn with_ids_of(self, letter: &Letter) -> Self {
        let other = |id: &str| (id != self.id).then(|| id.to_owned());
        let (continued_as, accepted_as) = (other(letter.message.id()), other(letter.accepted_id()));
        Self { continued_as, accepted_as, ..self }
    }
}

/// Whether the number of its attempts is known.
fn is_counted(message: &MessageState) -> bool {
    message.state != MessagePhase::Succeeded || message.letter.is_some()
}

/// What was decided after an attempt and the wait that came of it, as far as its successor or the message's state shows
/// it: a history keeps how attempts ended, and what followed follows from that.
fn followed(
    message: &MessageState,
    attempt: &Attempt,
    next: Option<&Attempt>,
) -> (&'static str, Option<u64>) {
    let ended = attempt.at.as_millis().saturating_add(u64::from(attempt.took_ms));
    let waited = |until: Time| Some(until.as_millis().saturating_sub(ended));
    match (next, message.state) {
        // A number that starts again is the first attempt of a replay: the one before it was the last of its life.
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
#[derive(Debug, Serialize)]
pub struct AttemptView {
    attempt: u32,
    at: String,
    took_ms: u32,
    class: &'static str,
    /// `status`, `timeout`, `refused`, `reset` or `other`.
    kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<u16>,
    /// The receiver's own word for the failure.
    #[serde(skip_serializing_if = "Option::is_none")]
    code: Option<String>,
    error: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    decision: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    delay_ms: Option<u64>,
    counted: bool,
    ambiguous: bool,
}

impl AttemptView {
    fn of(attempt: &Attempt) -> Self {
        Self {
            attempt: attempt.number,
            at: timestamp::print(attempt.at),
            took_ms: attempt.took_ms,
            class: attempt.class.name(),
            kind: attempt.kind.name(),
            status: attempt.kind.status(),
            code: attempt.code.clone(),
            error: attempt.error.clone(),
            decision: None,
            delay_ms: None,
            counted: attempt.counted,
            ambiguous: attempt.ambiguous,
        }
    }
}

/// A dead letter with its story.
#[derive(Debug, Serialize)]
pub struct LetterView {
    id: String,
    /// The pipeline it died in.
    queue: String,
    /// What kind of message it is, if a header says so.
    #[serde(rename = "type")]
    kind: Option<String>,
    message: String,
    correlation_id: String,
    key: Option<String>,
    /// The bytes of a key that is not text.
    #[serde(skip_serializing_if = "Option::is_none")]
    key_base64: Option<String>,
    tenant: Option<String>,
    state: &'static str,
    reason: &'static str,
    class: Option<&'static str>,
    error_class: Option<&'static str>,
    attempts: u32,
    replays: u32,
    error: Option<String>,
    group: String,
    group_error: String,
    dead_at: String,
    created: String,
    first_seen: Option<String>,
    deadline: Option<String>,
    /// For how long it was put off or kept back without using up attempts.
    held_ms: u64,
    /// How often its handler, its process or its receiver ended while it ran, and when last.
    crashes: u32,
    first_crash: Option<String>,
    last_crash: Option<String>,
    /// The resolved policy at its death; null for letters from before it was stored.
    options: Option<Value>,
    /// Where it came from, on engines with a source of their own.
    origin: Option<String>,
    headers: BTreeMap<String, String>,
    /// Left out where it was not asked for; null where there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    payload: Option<Value>,
    /// The edits that made the message what it is, the latest last.
    edits: Vec<String>,
    /// The id that its message was accepted under, if an edit has given it another one since.
    #[serde(skip_serializing_if = "Option::is_none")]
    accepted_as: Option<String>,
    /// The payload as it came in, for one letter that was edited.
    #[serde(skip_serializing_if = "Option::is_none")]
    original: Option<Value>,
    /// The headers as they came in, for one letter that was edited.
    #[serde(skip_serializing_if = "Option::is_none")]
    original_headers: Option<BTreeMap<String, String>>,
    history: Vec<AttemptView>,
}

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
        state: letter.state.name(),
        reason: letter.reason.name(),
        class: class.map(Class::name),
        error_class: class.map(|class| class.family().name()),
        attempts: letter.meta.attempts,
        replays: letter.meta.replays,
        error: last.map(|attempt| attempt.error.clone()),
        group: letter.group.group.to_string(),
        group_error: letter.group.title.clone(),
        dead_at: timestamp::print(letter.dead_at),
        created: timestamp::print(message.created()),
        first_seen: time(letter.meta.first_failed),
        deadline: time(letter.meta.deadline),
        held_ms: letter.meta.held_ms,
        crashes: letter.meta.crashes,
        first_crash: first_crash(letter, &history),
        last_crash: time(letter.meta.last_crash),
        options: letter.options.as_deref().and_then(|options| serde_json::from_str(options).ok()),
        origin: None,
        headers: headers(message),
        payload: with_payload.then(|| message.payload().map_or(Value::Null, payload)),
        edits: letter.edits.clone(),
        accepted_as: (letter.accepted_id() != message.id()).then(|| letter.accepted_id().to_owned()),
        original: None,
        original_headers: None,
        history: history.iter().map(AttemptView::of).collect(),
    }
}

/// When its handler, its process or its receiver ended for the first time while it ran, as far as that is remembered.
fn first_crash(letter: &Letter, history: &[Attempt]) -> Option<String> {
    if letter.meta.crashes == 0 {
        return None;
    }
    let first = match history.first() {
        Some(attempt) if attempt.class != Class::Crash => {
            history.iter().find(|attempt| attempt.class == Class::Crash).map(|attempt| attempt.at)
        }
        // A suspect has no attempt of its first crash, but its first failure is that one.
        _ => letter.meta.first_failed,
    };
    time(first.or(letter.meta.last_crash))
}

impl LetterView {
    /// The same letter with the place it came from.
    #[must_use]
    pub fn from(self, origin: Option<String>) -> Self {
        Self { origin, ..self }
    }

    /// The same letter with the message that it had before its first edit.
    #[must_use]
    pub fn edited_from(self, original: Option<&Message>) -> Self {
        let original_headers = original.map(headers);
        let original = original.map(|message| message.payload().map_or(Value::Null, payload));
        Self { original, original_headers, ..self }
    }
}

/// A view without what its pipeline redacts.
pub fn redacted(redaction: &Redaction, view: &impl Serialize) -> Value {
    let mut value = serde_json::to_value(view).unwrap_or_default();
    redaction.redact(&mut value);
    value
}

/// A view of a message of which only the story is known: the texts of errors may quote what is redacted.
pub fn without_errors(view: &impl Serialize) -> Value {
    let mut value = serde_json::to_value(view).unwrap_or_default();
    let attempts = value.get_mut("history").and_then(Value::as_array_mut);
    for error in attempts.into_iter().flatten().filter_map(|attempt| attempt.get_mut("error")) {
        *error = Value::from(REDACTED);
    }
    value
}

/// `{"utf8":…}` or `{"base64":…}`.
pub fn payload(bytes: &[u8]) -> Value {
    match std::str::from_utf8(bytes) {
        Ok(text) => json!({ "utf8": text }),
        Err(_) => json!({ "base64": STANDARD.encode(bytes) }),
    }
}

/// Bytes that are text nearly always: as text, with what is not replaced.
fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The state of this name.
pub fn letter_state(name: &str) -> Option<LetterState> {
    LetterState::ALL.into_iter().find(|state| state.name() == name)
}

/// The headers of a message by name. Values of a name that is there more than once stand behind each other with commas, as
/// HTTP has it. Values of secrets are not shown: whoever may read letters must not be able to forge webhooks.
/// Headers that say what kind of message it is, in the order in which they are looked for.
const KIND_HEADERS: [&str; 5] = ["ce_type", "ce-type", "x-message-type", "message-type", "type"];

fn kind(message: &Message) -> Option<String> {
    let named = |wanted: &str| message.headers().find(|(name, _)| name.eq_ignore_ascii_case(wanted));
    KIND_HEADERS.into_iter().find_map(named).map(|(_, value)| text(value))
}

fn headers(message: &Message) -> BTreeMap<String, String> {
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
        assert_eq!(payload(b"{}"), json!({ "utf8": "{}" }));
        assert_eq!(payload(&[0xff, 0]), json!({ "base64": "/wA=" }));
    }
}
