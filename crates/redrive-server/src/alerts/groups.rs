//! Groups of dead letters that are new or back, for alerts: polled every few seconds, named up to a limit, the rest
//! counted.

use std::time::{Duration, Instant};

use redrive::PipelineHandle;
use redrive::actions::Actions;
use redrive::internal::engine::GroupSummary;
use redrive::letters::Redaction;
use redrive_api::AlertedGroup;
use tokio::time::timeout;

use crate::api::groups::shown_title;
use crate::group_watch::GroupTally;

/// Querying groups costs the dispatch thread a few look-ups per group.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// A pipeline that has not answered by then is queried again later.
const ANSWER_MAX: Duration = Duration::from_secs(2);
/// The maximum number of groups that one notice names; the others are counted.
pub const GROUPS_MAX: usize = 5;
/// The maximum length of a title; a longer one is cut.
const TITLE_CHARS_MAX: usize = 200;

/// A group that is new or back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupNews {
    pub id: String,
    /// The normalised error, unless the pipeline redacts it.
    pub title: String,
    pub open: u64,
}

impl GroupNews {
    fn of(summary: &GroupSummary, redaction: &Redaction) -> Self {
        let title = shown_title(redaction, summary);
        let cut = title.chars().take(TITLE_CHARS_MAX).collect::<String>();
        let title = if cut.len() < title.len() { format!("{cut}…") } else { title };
        Self { id: summary.group().to_string(), title, open: summary.figures.open }
    }

    pub(super) fn view(&self) -> AlertedGroup {
        AlertedGroup { id: self.id.clone(), title: self.title.clone(), open: self.open }
    }
}

/// Some groups, and the number of further ones. Bounded by [`GROUPS_MAX`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GroupsFound {
    pub named: Vec<GroupNews>,
    pub more: u64,
}

impl GroupsFound {
    pub fn is_empty(&self) -> bool {
        self.named.is_empty() && self.more == 0
    }

    pub(super) fn add(&mut self, found: &Self) {
        let room = GROUPS_MAX.saturating_sub(self.named.len());
        self.named.extend(found.named.iter().take(room).cloned());
        self.more += found.more + found.named.len().saturating_sub(room) as u64;
    }

    /// `g7k2m9x4q (422: field must be one of, 12 open), … and 995 more`.
    pub(super) fn sentence(&self) -> String {
        let one = |group: &GroupNews| format!("{} ({}, {} open)", group.id, group.title, group.open);
        let named = self.named.iter().map(one).collect::<Vec<_>>().join(", ");
        if self.more > 0 { format!("{named}, and {} more", self.more) } else { named }
    }
}

/// The groups that appeared since the last poll of a pipeline.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FoundGroups {
    pub new: GroupsFound,
    pub regressed: GroupsFound,
}

/// Polls the groups of one pipeline.
#[derive(Debug, Default)]
pub struct GroupLookout {
    tally: GroupTally,
    looked_at: Option<Instant>,
}

impl GroupLookout {
    /// The news since the last poll; empty if that was a moment ago, or if the pipeline cannot answer now. Groups that
    /// existed at the first poll are not new.
    pub async fn look(
        &mut self,
        handle: &PipelineHandle,
        actions: &Actions,
        redaction: &Redaction,
    ) -> FoundGroups {
        let is_early = self.looked_at.is_some_and(|at| at.elapsed() < LOOK_EVERY);
        // While letters are being loaded, each group would look new.
        if is_early || handle.figures().condition.letters_loading {
            return FoundGroups::default();
        }
        let Ok(Ok(states)) = timeout(ANSWER_MAX, actions.group_states(handle)).await else {
            return FoundGroups::default();
        };
        self.looked_at = Some(Instant::now());
        let news = self.tally.observe(states.iter().map(|summary| (summary.group(), summary.state)));
        if news.new.is_empty() && news.regressed.is_empty() {
            return FoundGroups::default();
        }
        // With one letter of each, for their titles.
        let asked = timeout(ANSWER_MAX, actions.groups(handle)).await;
        let groups = asked.ok().and_then(Result::ok).unwrap_or_default();
        let found = |ids: &[redrive::GroupId]| {
            let named = ids.iter().filter_map(|id| groups.iter().find(|summary| summary.group() == *id));
            let named: Vec<GroupNews> =
                named.take(GROUPS_MAX).map(|summary| GroupNews::of(summary, redaction)).collect();
            GroupsFound { more: (ids.len() - named.len()) as u64, named }
        };
        FoundGroups { new: found(&news.new), regressed: found(&news.regressed) }
    }
}
