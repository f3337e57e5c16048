//! One line of the log of actions.

use std::fmt;

use redrive_core::Time;
use serde_json::{Value, json};

use super::ranges;
use crate::engine::GroupMark;
use crate::timestamp;

/// Everything that can be done to a pipeline and its letters: each kind of change has a name here. May grow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ActionKind {
    /// A replay job was started.
    Replay,
    /// A replay job was paused.
    ReplayPause,
    /// A replay job was resumed.
    ReplayResume,
    /// A replay job was aborted.
    ReplayAbort,
    /// Auto-replay was stopped by failures.
    AutoReplayStop,
    /// Letters were discarded.
    Discard,
    /// A discard was undone.
    Undo,
    /// Letters were edited.
    Edit,
    /// An edit was undone.
    EditUndo,
    /// The contents of letters were erased for good.
    Erase,
    /// Finished letters were deleted ahead of time.
    Compact,
    /// Letters that died elsewhere were imported.
    Import,
    /// A pipeline was paused.
    Pause,
    /// A pipeline was resumed.
    Resume,
    /// The missing part of a store was given up as lost.
    AcceptLoss,
    /// A message was made due.
    RetryNow,
    /// A message was made a dead letter.
    Cancel,
    /// A breaker was made to probe now.
    BreakerProbe,
    /// A breaker was closed by hand.
    BreakerClose,
    /// A group of letters was acknowledged.
    GroupAcknowledge,
    /// A group of letters was resolved.
    GroupResolve,
    /// A group of letters was snoozed.
    GroupSnooze,
    /// A decision about a group of letters was taken back.
    GroupReopen,
    /// An endpoint was flagged as dead.
    SubscriptionFlag,
    /// An endpoint was purged.
    SubscriptionPurge,
    /// A purge was undone.
    SubscriptionUndo,
    /// Purging goes on after the guard stopped it.
    SubscriptionResume,
    /// An endpoint was removed.
    SubscriptionRemove,
}

impl ActionKind {
    /// All kinds, in the order of the documentation.
    pub const ALL: [Self; 28] = [
        Self::Replay,
        Self::ReplayPause,
        Self::ReplayResume,
        Self::ReplayAbort,
        Self::AutoReplayStop,
        Self::Discard,
        Self::Undo,
        Self::Edit,
        Self::EditUndo,
        Self::Erase,
        Self::Compact,
        Self::Import,
        Self::Pause,
        Self::Resume,
        Self::AcceptLoss,
        Self::RetryNow,
        Self::Cancel,
        Self::BreakerProbe,
        Self::BreakerClose,
        Self::GroupAcknowledge,
        Self::GroupResolve,
        Self::GroupSnooze,
        Self::GroupReopen,
        Self::SubscriptionFlag,
        Self::SubscriptionPurge,
        Self::SubscriptionUndo,
        Self::SubscriptionResume,
        Self::SubscriptionRemove,
    ];

    /// The name in the log and in the API.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Replay => "replay",
            Self::ReplayPause => "replay_pause",
            Self::ReplayResume => "replay_resume",
            Self::ReplayAbort => "replay_abort",
            Self::AutoReplayStop => "auto_replay_stop",
            Self::Discard => "discard",
            Self::Undo => "undo",
            Self::Edit => "edit",
            Self::EditUndo => "edit_undo",
            Self::Erase => "erase",
            Self::Compact => "compact",
            Self::Import => "import",
            Self::Pause => "pause",
            Self::Resume => "resume",
            Self::AcceptLoss => "accept_loss",
            Self::RetryNow => "retry_now",
            Self::Cancel => "cancel",
            Self::BreakerProbe => "breaker_probe",
            Self::BreakerClose => "breaker_close",
            Self::GroupAcknowledge => "group_acknowledge",
            Self::GroupResolve => "group_resolve",
            Self::GroupSnooze => "group_snooze",
            Self::GroupReopen => "group_reopen",
            Self::SubscriptionFlag => "subscription_flag",
            Self::SubscriptionPurge => "subscription_purge",
            Self::SubscriptionUndo => "subscription_undo",
            Self::SubscriptionResume => "subscription_resume",
            Self::SubscriptionRemove => "subscription_remove",
        }
    }

    /// The kind of this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// The field that holds this kind's count: `letters` or `subscriptions`.
    pub const fn counts(self) -> &'static str {
        match self {
            Self::SubscriptionFlag
            | Self::SubscriptionPurge
            | Self::SubscriptionUndo
            | Self::SubscriptionResume
            | Self::SubscriptionRemove => "subscriptions",
            _ => "letters",
        }
    }
}

impl fmt::Display for ActionKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// One recorded action.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Action {
    /// When it was done.
    pub at: Time,
    /// The name of the token that authorized it.
    pub actor: String,
    /// What was done.
    pub action: ActionKind,
    /// The object it made or changed: `r-31`, `d-9`, `e-12`.
    pub id: Option<String>,
    /// The pipeline it was done to.
    pub pipeline: String,
    /// How many letters it concerns; endpoints, for an action on subscriptions.
    pub letters: u64,
    /// The reason given by the actor, or another remark.
    pub note: Option<String>,
    /// The letters themselves, in order, if undoing the action needs them.
    pub ids: Vec<u64>,
    /// The changed parts of the letters: JSON pointers and headers, never values.
    pub fields: Vec<String>,
    /// What was decided about a group of letters.
    pub mark: Option<GroupMark>,
    /// Which record this is of an action that is recorded twice: as asked for, and as done.
    pub step: ActionStep,
}

/// The step of an action that a record describes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum ActionStep {
    /// The action has one record, written before the first change.
    #[default]
    Whole,
    /// The action was asked for. Until a second record says what was done, it is unfinished.
    Asked,
    /// The action is finished; this record says what was done.
    Done,
}

impl ActionStep {
    const fn name(self) -> Option<&'static str> {
        match self {
            Self::Whole => None,
            Self::Asked => Some("asked"),
            Self::Done => Some("done"),
        }
    }

    /// A step name written by a later version reads as `Whole`.
    fn from_name(name: &str) -> Self {
        let named = [Self::Asked, Self::Done].into_iter().find(|step| step.name() == Some(name));
        named.unwrap_or_default()
    }
}

impl Action {
    /// An action without letters.
    pub fn new(at: Time, actor: &str, action: ActionKind, pipeline: &str) -> Self {
        let (actor, pipeline) = (actor.to_owned(), pipeline.to_owned());
        Self {
            at,
            actor,
            action,
            id: None,
            pipeline,
            letters: 0,
            note: None,
            ids: Vec::new(),
            fields: Vec::new(),
            mark: None,
            step: ActionStep::Whole,
        }
    }

    /// Sets the object it made or changed, and how many letters or endpoints are affected.
    #[must_use]
    pub fn of(self, id: impl Into<String>, letters: u64) -> Self {
        Self { id: Some(id.into()), letters, ..self }
    }

    /// Adds the reason that was given.
    #[must_use]
    pub fn note(self, note: impl Into<String>) -> Self {
        Self { note: Some(note.into()), ..self }
    }

    /// Whether this record is the outcome of the action that `earlier` announced.
    pub(super) fn corrects(&self, earlier: &Self) -> bool {
        self.is_outcome()
            && earlier.action == self.action
            && self.id == earlier.id
            && self.pipeline == earlier.pipeline
    }

    /// Whether it replaces an earlier record. Of the two records that earlier versions wrote for an edit, only the
    /// outcome has a note.
    pub(super) fn is_outcome(&self) -> bool {
        self.step == ActionStep::Done || (self.action == ActionKind::Edit && self.note.is_some())
    }

    /// Decides which of two records of an action counts: the one with the higher rank, or the later one if they are
    /// equal. An outcome outranks a request. If two processes recorded an outcome, the one that recorded too early
    /// counted fewer letters.
    pub(super) fn rank(&self) -> (bool, u64) {
        let is_done = self.step == ActionStep::Done;
        (is_done, if is_done { self.letters } else { 0 })
    }

    /// The action as it is stored in the file, but without the ids of its letters. This is the form shown to people.
    pub fn to_json(&self) -> Value {
        let mut value = json!({
            "at": timestamp::print(self.at),
            "actor": self.actor,
            "action": self.action.name(),
            "id": self.id,
            "pipeline": self.pipeline,
            (self.action.counts()): self.letters,
            "note": self.note,
        });
        if !self.fields.is_empty() {
            value["fields"] = json!(self.fields);
        }
        if self.step == ActionStep::Asked {
            value["unfinished"] = json!(true);
        }
        value
    }

    /// `record` is the id of the shared record that other processes see.
    pub(super) fn to_line(&self, record: Option<&str>) -> String {
        let mut value = self.to_json();
        if let Some(record) = record {
            value["record"] = json!(record);
        }
        if !self.ids.is_empty() {
            value["ids"] = json!(ranges::print(&self.ids));
        }
        if let Some(mark) = &self.mark {
            value["mark"] = mark.to_json();
        }
        if let Some(step) = self.step.name() {
            value["step"] = json!(step);
        }
        format!("{value}\n")
    }

    /// Parses a line. `with_ids` says whether to read the ids of the letters, which may be many.
    pub(super) fn from_line(line: &str, with_ids: bool) -> Option<Self> {
        Self::with_record(line, with_ids).map(|(action, _)| action)
    }

    /// Like [`Self::from_line`], with the id of the shared record that other processes see.
    pub(super) fn with_record(line: &str, with_ids: bool) -> Option<(Self, Option<String>)> {
        let value: Value = serde_json::from_str(line).ok()?;
        let text = |key: &str| value.get(key)?.as_str().map(str::to_owned);
        let ids = match value.get("ids").filter(|_| with_ids) {
            Some(ids) => ranges::parse(ids.as_str()?)?,
            None => Vec::new(),
        };
        let kind = ActionKind::from_name(&text("action")?)?;
        let action = Self {
            at: timestamp::parse(&text("at")?)?,
            actor: text("actor")?,
            action: kind,
            id: text("id"),
            pipeline: text("pipeline")?,
            letters: value.get(kind.counts()).or_else(|| value.get("letters"))?.as_u64()?,
            note: text("note"),
            ids,
            fields: match value.get("fields").and_then(Value::as_array) {
                Some(fields) => {
                    fields.iter().map(|field| field.as_str().map(str::to_owned)).collect::<Option<_>>()?
                }
                None => Vec::new(),
            },
            mark: value.get("mark").and_then(GroupMark::from_json),
            step: text("step").map(|step| ActionStep::from_name(&step)).unwrap_or_default(),
        };
        Some((action, text("record")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_comes_back_as_it_was_written() {
        let at = Time::from_millis(1_700_000_000_123);
        for kind in ActionKind::ALL {
            let plain = Action::new(at, "ops@example.com", kind, "orders");
            let full = plain.clone().of("d-9", 4).note("GDPR\n\"881\"");
            let fields = vec!["/currency".to_owned(), "header x-src".to_owned()];
            let full = Action { ids: vec![1, 2, 3, 9], fields, ..full };
            let asked = Action { step: ActionStep::Asked, ..full.clone() };
            let done = Action { step: ActionStep::Done, ..full.clone() };
            for action in [plain, full, asked, done] {
                let line = action.to_line(None);
                assert_eq!(line.matches('\n').count(), 1, "one action, one line");
                assert_eq!(Action::from_line(line.trim_end(), true), Some(action.clone()));
                let shared = Action::with_record(&action.to_line(Some("7-a")), true);
                assert_eq!(shared, Some((action.clone(), Some("7-a".to_owned()))));
                assert_eq!(Action::from_line(&line, false), Some(Action { ids: Vec::new(), ..action }));
            }
        }
    }

    #[test]
    fn what_people_see_has_the_fields_of_the_interface() {
        let action = Action::new(Time::ZERO, "ops", ActionKind::Replay, "orders").of("r-31", 300);
        let expected = json!({
            "at": "1970-01-01T00:00:00.000Z",
            "actor": "ops",
            "action": "replay",
            "id": "r-31",
            "pipeline": "orders",
            "letters": 300,
            "note": null,
        });
        assert_eq!(action.to_json(), expected);
        let undone = Action::new(Time::ZERO, "ops", ActionKind::SubscriptionUndo, "push").of("since 1h", 3);
        assert_eq!((&undone.to_json()["subscriptions"], undone.to_json().get("letters")), (&json!(3), None));
    }
}
