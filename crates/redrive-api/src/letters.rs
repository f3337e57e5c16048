//! Dead letters: listing, counting, editing, discarding and importing them.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::{AttemptView, Instant, Payload, TakenByReplay};

/// Letters by state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct LetterCounts {
    pub open: u64,
    pub replaying: u64,
    pub succeeded: u64,
    pub discarded: u64,
    pub erased: u64,
}

/// A dead letter with its history.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[allow(clippy::option_option)] // absent where it was not asked for, null where there is none
#[schemars(rename = "Letter")]
#[serde(default)]
pub struct LetterView {
    pub id: String,
    /// The pipeline it died in.
    pub queue: String,
    /// What kind of message it is, from a header `ce_type`, `ce-type`, `x-message-type`, `message-type` or `type`.
    #[serde(rename = "type")]
    pub kind: Option<String>,
    pub message: String,
    /// The same as in the log.
    pub correlation_id: String,
    pub key: Option<String>,
    /// Set if the key is not text.
    #[schemars(extend("contentEncoding" = "base64"))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key_base64: Option<String>,
    pub tenant: Option<String>,
    #[schemars(extend("enum" = ["open", "replaying", "succeeded", "discarded", "erased"]))]
    pub state: String,
    pub reason: String,
    pub class: Option<String>,
    #[schemars(extend("enum" = ["transient", "permanent", null]))]
    pub error_class: Option<String>,
    pub attempts: u32,
    pub replays: u32,
    pub error: Option<String>,
    /// The group it is counted in.
    pub group: String,
    /// The error without its variable parts, or the name given by a rule.
    pub group_error: String,
    pub dead_at: Instant,
    pub created: Instant,
    pub first_seen: Option<Instant>,
    pub deadline: Option<Instant>,
    /// How long it was deferred or held without using up attempts.
    pub held_ms: u64,
    /// How often its handler, its process or its receiver crashed while it ran.
    pub crashes: u32,
    pub first_crash: Option<Instant>,
    pub last_crash: Option<Instant>,
    /// The resolved policy when it died: attempts, tiers or backoff, jitter, timeout, ttl, hold_max, classify. Null
    /// for letters from before it was stored.
    #[schemars(with = "Option<Map<String, Value>>")]
    pub options: Option<Value>,
    /// What the pipeline's `redact` has replaced; left out if nothing was.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub redacted: Vec<String>,
    /// Where it came from, on engines that read a source.
    pub origin: Option<String>,
    pub headers: BTreeMap<String, String>,
    /// Absent if it was not requested, null if there is none.
    #[schemars(with = "Option<Payload>")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub payload: Option<Option<Payload>>,
    /// Edits that were not undone, the latest last.
    pub edits: Vec<String>,
    /// The id under which its message was accepted, if an edit has given it a different one since.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub accepted_as: Option<String>,
    /// For a single letter that was edited: its payload before the first edit.
    #[schemars(with = "Option<Payload>")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub original: Option<Option<Payload>>,
    /// For a single letter that was edited: its headers before the first edit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub original_headers: Option<BTreeMap<String, String>>,
    pub history: Vec<AttemptView>,
}

/// A page of letters. Clients that pass letters on unread take `LetterPage<serde_json::Value>`.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Letters", bound = "L: JsonSchema + Default")]
#[serde(default)]
pub struct LetterPage<L = LetterView> {
    pub letters: Vec<L>,
    /// The cursor of the next page.
    pub next: Option<String>,
    pub scanned: u64,
}

/// Counts of letters: all of them by state, the open ones by reason and class.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct LetterStats {
    pub open: u64,
    pub replaying: u64,
    pub succeeded: u64,
    pub discarded: u64,
    pub erased: u64,
    pub by_reason: BTreeMap<String, u64>,
    pub by_class: BTreeMap<String, u64>,
    /// Open letters by tenant, the most first; those beyond the first 100 are combined as `(others)`.
    pub by_tenant: Vec<LettersOfTenant>,
    pub oldest: Option<Instant>,
    /// The number of open letters that the counts by reason, class and tenant are based on: all of them, unless there
    /// are so many that counting took too long.
    pub scanned: u64,
}

/// The open letters of one tenant.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct LettersOfTenant {
    pub tenant: String,
    pub letters: u64,
    /// When the oldest of them died.
    pub oldest: Option<Instant>,
}

/// The answer to an edit, or to the undo of one.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[expect(clippy::large_enum_variant, reason = "made once for an answer")]
#[serde(untagged)]
pub enum EditAnswer {
    Edited(Edited),
    Undone(EditUndone),
}

/// The result of an edit, or of its dry run.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Edited {
    /// The edit's name, for undoing it; null if nothing was changed.
    pub edit: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub edited: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub would_edit: Option<u64>,
    pub ambiguous: u64,
    pub unchanged: u64,
    pub not_json: SkippedLetters,
    pub refused: SkippedLetters,
    /// Letters in `ids` that are not open, and so were left alone.
    pub not_open: Vec<NotOpenLetter>,
    /// The first letter, and its changes.
    pub first: Option<FirstEdited>,
}

/// The result of undoing an edit.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct EditUndone {
    pub restored: u64,
    pub skipped: u64,
    /// The letters that stay as they are, by reason: undone_already, edited_again, replayed, discarded, erased,
    /// not_applied, gone, damaged.
    pub skipped_by_reason: BTreeMap<String, SkippedLetters>,
}

/// Letters that were not changed.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct SkippedLetters {
    pub count: u64,
    /// The first few of them.
    pub letters: Vec<String>,
    pub why: Option<String>,
}

/// A named letter that is not open, and so was left alone.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct NotOpenLetter {
    pub letter: String,
    #[schemars(extend("enum" = ["replaying", "succeeded", "discarded", "erased"]))]
    pub state: String,
}

/// The first letter of an edit.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct FirstEdited {
    pub letter: String,
    pub differences: Vec<DifferenceView>,
}

/// One value of a message before and after an edit.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Difference")]
#[serde(default)]
pub struct DifferenceView {
    pub at: String,
    pub field: Option<String>,
    pub before: Option<String>,
    pub after: Option<String>,
}

/// The answer to a discard.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum DiscardAnswer {
    Would(WouldDiscard),
    Done(Discarded),
}

/// The result of a dry run of a discard.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct WouldDiscard {
    pub would_discard: u64,
    /// Letters in `ids` that are not open, and so would be left alone.
    #[serde(default)]
    pub not_open: Vec<NotOpenLetter>,
    /// Those of `would_discard` that wait in replays, which would skip them.
    #[serde(default)]
    pub taken: Vec<TakenByReplay>,
}

/// The result of a discard.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Discarded {
    /// The discard's name, for undoing it; null if nothing was discarded.
    pub id: Option<String>,
    pub discarded: u64,
    pub undo_until: Option<Instant>,
    /// Letters in `ids` that are not open, and so were left alone.
    pub not_open: Vec<NotOpenLetter>,
}

/// The result of undoing a discard.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Undone")]
#[serde(default)]
pub struct Restored {
    /// Letters that are open again.
    pub restored: u64,
}

/// The answer to a request to erase.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum EraseAnswer {
    Would(WouldErase),
    Done(Erased),
}

/// The result of a dry run of an erasure.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct WouldErase {
    pub would_erase: u64,
    /// Letters that would be refused because they are being replayed.
    #[serde(default)]
    pub in_replay: u64,
    /// Letters that were erased before.
    #[serde(default)]
    pub already: u64,
}

/// The result of an erasure, and the copies that remain.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Erased {
    pub erased: u64,
    /// Letters that were erased before.
    pub already: u64,
    /// Letters that were refused because they are being replayed.
    pub in_replay: u64,
    /// Parts of the storage that are still being overwritten; 0 when it is complete.
    pub parts_left: u64,
    /// Copies that Redrive cannot overwrite, and how long they remain; one sentence each.
    pub remains: Vec<String>,
}

/// The result of deleting finished letters.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Compacted {
    pub deleted: u64,
    /// Parts of the storage that are still being overwritten; 0 when it is complete.
    pub parts_left: u64,
    /// Copies that Redrive cannot overwrite, and how long they remain; one sentence each.
    pub remains: Vec<String>,
}

/// The result of an import, or of its dry run.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ImportedLetters {
    pub dry_run: bool,
    pub imported: u64,
    pub already_there: u64,
    pub refused: u64,
    /// Lines that were refused, counted from 1; at most 1,000.
    pub problems: Vec<LineProblem>,
    /// Lines whose times were in the future and were set to the time of the import; at most 1,000.
    pub notes: Vec<LineProblem>,
    /// The groups of the imported letters, the largest first.
    pub groups: Vec<ImportedGroup>,
}

/// A line that was refused.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct LineProblem {
    pub line: usize,
    pub problem: String,
}

/// A group of imported letters.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ImportedGroup {
    pub id: String,
    pub error: String,
    pub letters: u64,
}
