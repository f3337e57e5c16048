//! The JSON of the API as types. Fields that are not known here are ignored, fields that are not there have their
//! empty value: a newer or older processor can still be read.

use std::collections::BTreeMap;

use redrive::Time;
use serde::{Deserialize, Deserializer, de};
use serde_json::Value;

use crate::exit::Exit;
use crate::output::instant;

/// An answer twice: as it came, for `--json`, and as what we understand of it.
#[derive(Clone, Debug)]
pub struct Answer<T> {
    pub json: Value,
    pub view: T,
}

/// An instant of the API.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Instant(pub Time);

impl<'de> Deserialize<'de> for Instant {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let at = instant::parse(&text)
            .ok_or_else(|| de::Error::invalid_value(de::Unexpected::Str(&text), &"an RFC 3339 time"))?;
        Ok(Self(at))
    }
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Pipelines {
    pub pipelines: Vec<PipelineView>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct PipelineView {
    pub name: String,
    pub paused: bool,
    pub sink: String,
    pub target: Option<String>,
    pub pending: Pending,
    pub letters: LetterCounts,
    pub oldest_pending: Option<Instant>,
    pub oldest_letter: Option<Instant>,
    pub succeeded: u64,
    pub dead: u64,
    pub retried: u64,
    pub attempts: u64,
    pub recent: Recent,
    pub attention: Vec<AttentionNotice>,
    /// `closed`, `open` or `half_open`.
    pub breaker: String,
    pub health: Health,
    pub policy: Policy,
    pub condition: Condition,
}

/// The last minutes, without what messages were held.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Recent {
    /// Zero if the processor does not say.
    pub window_s: u64,
    pub end_to_end_p99_ms: Option<f64>,
    pub late_p99_ms: Option<f64>,
    pub held: u64,
    pub held_p99_ms: Option<f64>,
    pub failed: Vec<FailedKind>,
    pub failed_replayed: u64,
}

/// Failed attempts of one kind.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct FailedKind {
    pub kind: String,
    pub attempts: u64,
}

/// Something that needs attention.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct AttentionNotice {
    pub subject: String,
    pub short: String,
    pub text: String,
    pub command: Option<String>,
    pub links: Vec<String>,
}

/// What is asked of a policy here.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Policy {
    pub outage_gate: Option<bool>,
}

/// How the engine stands beside its messages.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Condition {
    pub spooled: u64,
    pub letter_twins: u64,
    pub foreign_letters: u64,
    pub passed_over: u64,
    pub letters_loading: bool,
    pub problems: Vec<ConditionProblem>,
}

/// Something that keeps messages from moving.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct ConditionProblem {
    pub place: String,
    pub problem: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Health {
    pub since: Option<Instant>,
    pub reason: Option<String>,
    pub next_probe: Option<Instant>,
    pub rounds: u32,
    pub probes: u32,
    pub permits: u64,
    pub permits_max: u64,
    pub budget_remaining: Option<u32>,
    pub waits_until: Option<Instant>,
    pub endpoints: Option<Endpoints>,
    pub if_closed_now: Option<Recovery>,
    pub incident: Option<Incident>,
    pub history: Vec<HealthChange>,
}

/// Endpoints whose messages wait, for a sink with an endpoint per message.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Endpoints {
    pub waiting: u64,
    pub waits: Vec<EndpointWait>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct EndpointWait {
    pub unit: String,
    pub hash: String,
    pub why: String,
    pub until: Option<Instant>,
    pub rounds: u32,
    pub queued: u64,
}

/// What would happen if the sink were back now.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Recovery {
    pub permits_from: u64,
    pub permits_to: u64,
    pub ramp_seconds: u64,
    pub rate_per_second: Option<f64>,
    pub live_per_second: f64,
    pub backlog_seconds: Option<u64>,
}

/// The outage that runs, or was last.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Incident {
    pub from: Option<Instant>,
    pub until: Option<Instant>,
    pub failed_attempts: u64,
    pub failed_probes: u64,
    pub dead: u64,
    pub dead_for_the_outage: u64,
    pub expired: u64,
    pub peak_per_second: u64,
    pub peak_of_limit: f64,
    pub over: bool,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct HealthChange {
    pub at: Option<Instant>,
    pub what: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Pending {
    pub ready: u64,
    pub delayed: u64,
    pub key_wait: u64,
    pub in_flight: u64,
    pub held: u64,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct LetterCounts {
    pub open: u64,
    pub replaying: u64,
    pub succeeded: u64,
    pub discarded: u64,
}

/// A page of letters; `next` is the cursor of the page after it.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct LetterPage {
    pub letters: Vec<Value>,
    pub next: Option<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct LetterView {
    pub id: String,
    pub message: String,
    pub key: Option<String>,
    pub tenant: Option<String>,
    pub state: String,
    pub reason: String,
    pub class: Option<String>,
    pub error_class: Option<String>,
    pub attempts: u64,
    pub replays: u64,
    pub error: Option<String>,
    pub group: Option<String>,
    pub group_error: Option<String>,
    pub dead_at: Option<Instant>,
    pub created: Option<Instant>,
    pub deadline: Option<Instant>,
    pub first_seen: Option<Instant>,
    pub held_ms: u64,
    pub crashes: u64,
    pub first_crash: Option<Instant>,
    pub options: Option<serde_json::Value>,
    pub last_crash: Option<Instant>,
    pub headers: BTreeMap<String, String>,
    pub payload: Option<Payload>,
    pub edits: Vec<String>,
    /// The id its message was accepted under, if an edit has given it another one since.
    pub accepted_as: Option<String>,
    pub original: Option<Payload>,
    pub original_headers: Option<BTreeMap<String, String>>,
    pub history: Vec<AttemptView>,
}

/// A group of letters; its letters only where one was asked for.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct GroupView {
    pub id: String,
    pub state: String,
    pub open: u64,
    pub per_minute: u64,
    pub oldest: Option<Instant>,
    pub class: Option<String>,
    pub reason: Option<String>,
    pub status: Option<u64>,
    pub sink: Option<String>,
    pub error: String,
    /// The rule of the configuration that has made it.
    pub rule: Option<RuleView>,
    pub version: Option<u64>,
    pub note: Option<String>,
    pub by: Option<String>,
    pub at: Option<Instant>,
    pub until: Option<Instant>,
    pub more: Option<u64>,
    pub letters: Vec<LetterView>,
}

/// A `[[pipeline.group]]`; without a pattern the configuration does not have it any more.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct RuleView {
    #[serde(rename = "match")]
    pub pattern: Option<String>,
    #[serde(rename = "as")]
    pub name: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Groups {
    pub groups: Vec<GroupView>,
    pub open: u64,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Payload {
    Utf8(String),
    Base64(String),
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct AttemptView {
    pub attempt: u64,
    pub at: Option<Instant>,
    pub took_ms: Option<f64>,
    pub class: Option<String>,
    pub error: Option<String>,
    pub counted: Option<bool>,
    pub ambiguous: bool,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct LetterStats {
    pub open: u64,
    pub replaying: u64,
    pub succeeded: u64,
    pub discarded: u64,
    pub erased: u64,
    pub by_reason: BTreeMap<String, u64>,
    pub by_class: BTreeMap<String, u64>,
    pub by_tenant: Vec<LettersOfTenant>,
    pub oldest: Option<Instant>,
    /// Open letters that reasons and classes were counted of.
    pub scanned: u64,
}

/// One message, by its id.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct MessageView {
    pub id: String,
    /// The id it goes on under since an edit, or the one it was accepted under.
    pub continued_as: Option<String>,
    pub accepted_as: Option<String>,
    pub state: String,
    /// Not known of a message that was delivered and never was a letter.
    pub attempts: Option<u64>,
    pub due: Option<Instant>,
    pub deadline: Option<Instant>,
    pub letter: Option<String>,
    pub reason: Option<String>,
    pub history: Vec<AttemptView>,
}

/// A page of messages that are pending; `next` is the cursor of the page after it.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct MessagePage {
    pub messages: Vec<Value>,
    pub next: Option<String>,
    pub unlisted: u64,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct ListedMessage {
    pub id: String,
    pub number: String,
    pub state: String,
    pub key: Option<String>,
    pub attempts: u64,
    pub created: Option<Instant>,
    pub due: Option<Instant>,
    pub class: Option<String>,
    pub error: Option<String>,
}

/// The answer to one message that was sent.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Sent {
    pub id: String,
    pub state: String,
    pub duplicate: bool,
}

/// The answer to many.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default)]
pub struct SentMany {
    pub accepted: u64,
    pub duplicates: u64,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Steered {
    pub id: String,
    pub letter: Option<String>,
}

/// Subscriptions, and how many there are of each kind.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct SubscriptionPage {
    pub purge: String,
    pub active: u64,
    pub flagged: u64,
    pub purged: u64,
    pub stored: u64,
    pub stopped: Option<PurgingStopped>,
    pub full: bool,
    pub unwritten: u64,
    pub unannounced: u64,
    pub without_key: u64,
    pub damaged: u64,
    pub subscriptions: Vec<Value>,
    pub next: Option<String>,
}

impl SubscriptionPage {
    /// Bad if somebody has to look at it.
    pub fn exit(&self) -> Exit {
        let lost = self.unwritten + self.without_key + self.damaged;
        let is_bad = self.stopped.is_some() || self.full || lost > 0;
        if is_bad { Exit::Bad } else { Exit::Ok }
    }
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct PurgingStopped {
    pub percent: f64,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct SubscriptionKeys {
    pub keys: Vec<SubscriptionKey>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct SubscriptionKey {
    pub key: Option<String>,
    pub subscriptions: u64,
    /// `None` from an older processor.
    pub configured: Option<bool>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct KeyView {
    pub key: String,
    pub blocked_by: Option<KeyHead>,
    pub waiting: u64,
}

/// The message that the others of its key wait for.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct KeyHead {
    pub id: String,
    pub state: String,
    pub attempts: u32,
    pub due: Option<Instant>,
    pub letter: Option<String>,
    pub reason: Option<String>,
    pub history: Vec<AttemptView>,
}

/// What an edit did, would do with a dry run, or undid.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Edited {
    pub edit: Option<String>,
    pub edited: Option<u64>,
    pub would_edit: Option<u64>,
    pub ambiguous: u64,
    pub unchanged: u64,
    pub not_json: SkippedLetters,
    pub refused: SkippedLetters,
    pub not_open: Vec<NotOpenLetter>,
    pub first: Option<FirstEdited>,
    pub restored: Option<u64>,
    pub skipped: Option<u64>,
    pub skipped_by_reason: BTreeMap<String, SkippedLetters>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct SkippedLetters {
    pub count: u64,
    pub letters: Vec<String>,
    pub why: Option<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct FirstEdited {
    pub letter: String,
    pub differences: Vec<DifferenceView>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct DifferenceView {
    pub at: String,
    pub field: Option<String>,
    pub before: Option<String>,
    pub after: Option<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Discarded {
    pub id: Option<String>,
    pub discarded: u64,
    pub would_discard: Option<u64>,
    pub undo_until: Option<Instant>,
    pub not_open: Vec<NotOpenLetter>,
}

/// The open letters of one tenant.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct LettersOfTenant {
    pub tenant: String,
    pub letters: u64,
    pub oldest: Option<Instant>,
}

/// A letter that was named and is not open, so that nothing was done to it.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct NotOpenLetter {
    pub letter: String,
    pub state: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct ErasedLetters {
    pub erased: u64,
    pub would_erase: Option<u64>,
    pub already: u64,
    pub in_replay: u64,
    pub parts_left: u64,
    pub remains: Vec<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct CompactedLetters {
    pub deleted: u64,
    pub remains: Vec<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct ImportedLetters {
    pub imported: u64,
    pub already_there: u64,
    pub refused: u64,
    pub problems: Vec<LineProblem>,
    pub notes: Vec<LineProblem>,
    pub groups: Vec<ImportedGroup>,
}

#[derive(Clone, Debug, Default, Deserialize)]
pub struct LineProblem {
    pub line: usize,
    pub problem: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
pub struct ImportedGroup {
    pub id: String,
    pub error: String,
    pub letters: u64,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Restored {
    pub restored: u64,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Actions {
    pub actions: Vec<Value>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct ActionView {
    pub at: Option<Instant>,
    pub actor: String,
    pub action: String,
    pub id: Option<String>,
    pub pipeline: Option<String>,
    pub letters: Option<u64>,
    /// In place of letters.
    pub subscriptions: Option<u64>,
    pub note: Option<String>,
}

/// `{"code","message","hint"}`
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Refusal {
    pub code: String,
    pub message: String,
    pub hint: Option<String>,
}
