//! Groups of dead letters.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Instant, LetterView};

/// Dead letters with the same fingerprint.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Group")]
#[serde(default)]
pub struct GroupView {
    /// `g` and eight letters or digits, or `other`.
    pub id: String,
    #[schemars(extend("enum" = ["open", "regressed", "acknowledged", "snoozed", "resolved"]))]
    pub state: String,
    pub open: u64,
    /// Letters that died within the last minute.
    pub per_minute: u64,
    pub oldest: Option<Instant>,
    /// Class, reason, status and sink of the sample; null for `other`, whose letters have nothing in common.
    pub class: Option<String>,
    pub reason: Option<String>,
    pub status: Option<u64>,
    pub sink: Option<String>,
    /// The normalised error, or the name given by a rule.
    pub error: String,
    /// The `[[pipeline.group]]` that made the group, if any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rule: Option<RuleView>,
    /// The version of the fingerprint.
    pub version: Option<u8>,
    /// The letter that has been open for the longest.
    pub sample: Option<String>,
    pub note: Option<String>,
    pub by: Option<String>,
    pub at: Option<Instant>,
    pub until: Option<Instant>,
    pub more: Option<u64>,
}

/// A `[[pipeline.group]]`.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "GroupRule")]
#[serde(default)]
pub struct RuleView {
    /// Null if the rule is no longer configured.
    #[serde(rename = "match")]
    pub pattern: Option<String>,
    #[serde(rename = "as")]
    pub name: String,
}

/// A group with a few of its letters.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "GroupDetail", bound = "L: JsonSchema + Default")]
#[serde(default)]
pub struct GroupDetail<L = LetterView> {
    #[serde(flatten)]
    pub group: GroupView,
    /// A few of its open letters, without their payloads.
    pub letters: Vec<L>,
}

/// The groups of a pipeline.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Groups {
    pub groups: Vec<GroupView>,
    /// The number of open letters in all groups.
    pub open: u64,
}

/// A decision about a group.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GroupDecision {
    #[schemars(extend("enum" = ["open", "acknowledged", "resolved", "snoozed"]))]
    pub state: String,
    /// For a snooze: a time, or a span such as 2d.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<String>,
    /// For a snooze: until this many more letters are open.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub more: Option<u64>,
    /// If it is left out, the note stays as it was.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}
