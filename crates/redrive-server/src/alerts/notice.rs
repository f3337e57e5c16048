//! The message of an alert: one JSON object, the same for a webhook and a command.

use redrive::{StatusPage, Time};
use redrive_api::{AlertNotice, Instant, QuarantinedPill, ServiceStatusPage};
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

/// A notification.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    pub kind: AlertKind,
    pub state: NoticeState,
    /// `None` if it concerns the whole process.
    pub pipeline: Option<String>,
    pub at: Time,
    pub since: Time,
    pub summary: String,
    pub value: Option<u64>,
    pub limit: Option<u64>,
    /// Status pages that show whether the service is at fault.
    pub status_pages: &'static [StatusPage],
    /// Poison pills found since the last notice of that kind; at most [`PILLS_MAX`].
    pub pills: Vec<Pill>,
    /// Groups that appeared since the last notice of that kind.
    pub groups: GroupsFound,
}

/// The maximum number of pills in one notice. Further ones are counted in the metrics and listed by
/// `redrive dlq inspect`.
pub const PILLS_MAX: usize = 20;

impl Notice {
    /// The same for every copy of this notice, and different for any other: a receiver can recognise repeats.
    pub fn id(&self) -> String {
        let pipeline = self.pipeline.as_deref().unwrap_or("-");
        format!("alert/{}/{pipeline}/{}/{}", self.kind.name(), self.at.as_millis(), self.state.name())
    }

    pub fn to_json(&self) -> Value {
        json!(self.view())
    }

    fn view(&self) -> AlertNotice {
        let (state, severity) = (self.state.name(), self.kind.severity().name());
        let has_groups = matches!(self.kind, AlertKind::NewGroup | AlertKind::GroupRegressed);
        let page = |page: &StatusPage| ServiceStatusPage {
            service: page.service.to_string(),
            url: page.url.to_string(),
        };
        AlertNotice {
            alert: self.kind.name().to_owned(),
            state: state.to_owned(),
            severity: severity.to_owned(),
            pipeline: self.pipeline.clone(),
            at: self.at.into(),
            since: self.since.into(),
            summary: self.summary.clone(),
            text: format!("[{state}] {severity} {}", self.summary),
            value: self.value,
            limit: self.limit,
            runbook: self.kind.runbook().to_string(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            quarantined: (self.kind == AlertKind::PoisonPill).then(|| self.pills.iter().map(pill).collect()),
            groups: has_groups.then(|| self.groups.named.iter().map(GroupNews::view).collect()),
            more_groups: has_groups.then_some(self.groups.more),
            status_pages: self.status_pages.iter().map(page).collect(),
        }
    }
}

fn pill(pill: &Pill) -> QuarantinedPill {
    QuarantinedPill {
        message_id: pill.message_id.clone(),
        crash_count: pill.crash_count,
        first_crash_at: pill.first_crash_at.map(Instant),
        last_crash_at: pill.last_crash_at.map(Instant),
        quarantined_at: pill.quarantined_at.into(),
        attempts: pill.attempts,
    }
}
