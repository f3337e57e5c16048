//! What is sent: one JSON object, the same to a webhook and to a command.

use redrive::{StatusPage, Time, timestamp};
use serde_json::{Value, json};

use super::facts::Pill;
use super::groups::{GroupNews, GroupsFound};
use super::kind::AlertKind;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoticeState {
    Firing,
    Resolved,
}

impl NoticeState {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Firing => "firing",
            Self::Resolved => "resolved",
        }
    }
}

/// Something to tell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    pub kind: AlertKind,
    pub state: NoticeState,
    /// `None`: it is about the whole process.
    pub pipeline: Option<String>,
    pub at: Time,
    pub since: Time,
    pub summary: String,
    pub value: Option<u64>,
    pub limit: Option<u64>,
    /// Where to see whether it is the service's fault.
    pub status_pages: &'static [StatusPage],
    /// Poison pills that were found since the last notice of that kind; at most [`PILLS_MAX`].
    pub pills: Vec<Pill>,
    /// Groups that came up since the last notice of that kind.
    pub groups: GroupsFound,
}

/// Pills in one notice. Those beyond are counted in the metrics and listed by `redrive dlq inspect`.
pub const PILLS_MAX: usize = 20;

impl Notice {
    /// The same for every copy of this notice, and for no other: a receiver can tell repeats from news.
    pub fn id(&self) -> String {
        let pipeline = self.pipeline.as_deref().unwrap_or("-");
        format!("alert/{}/{pipeline}/{}/{}", self.kind.name(), self.at.as_millis(), self.state.name())
    }

    pub fn to_json(&self) -> Value {
        let mut body = json!({
            "alert": self.kind.name(),
            "state": self.state.name(),
            "severity": self.kind.severity().name(),
            "pipeline": self.pipeline,
            "at": timestamp::print(self.at),
            "since": timestamp::print(self.since),
            "summary": self.summary,
            // The one field that chat services look for.
            "text": format!("[{}] {} {}", self.state.name(), self.kind.severity().name(), self.summary),
            "value": self.value,
            "limit": self.limit,
            "runbook": self.kind.runbook(),
            "version": env!("CARGO_PKG_VERSION"),
        });
        if self.kind == AlertKind::PoisonPill {
            body["quarantined"] = self.pills.iter().map(pill).collect();
        }
        if matches!(self.kind, AlertKind::NewGroup | AlertKind::GroupRegressed) {
            body["groups"] = self.groups.named.iter().map(GroupNews::to_json).collect();
            body["more_groups"] = self.groups.more.into();
        }
        if !self.status_pages.is_empty() {
            let page = |page: &StatusPage| json!({ "service": page.service, "url": page.url });
            body["status_pages"] = self.status_pages.iter().map(page).collect();
        }
        body
    }
}

fn pill(pill: &Pill) -> Value {
    json!({
        "message_id": pill.message_id,
        "crash_count": pill.crash_count,
        "first_crash_at": pill.first_crash_at.map(timestamp::print),
        "last_crash_at": pill.last_crash_at.map(timestamp::print),
        "quarantined_at": timestamp::print(pill.quarantined_at),
        "attempts": pill.attempts,
    })
}
