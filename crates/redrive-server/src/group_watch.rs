//! Metrics of groups of dead letters: how many are in each state, and how often a new one appeared or a resolved one
//! came back. Polled when metrics are scraped, but at most every few seconds.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use redrive::GroupId;
use redrive::internal::engine::{GroupState, GroupSummary};
use tokio::time::timeout;

use crate::service::Service;

/// Querying groups costs the dispatch thread a few look-ups per group.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// A pipeline that has not answered by then keeps its previous figures.
const ANSWER_MAX: Duration = Duration::from_secs(1);
/// The maximum number of known groups that are remembered.
const KNOWN_MAX: usize = 10_000;

/// The numbers of one pipeline's groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct GroupCounts {
    /// By state, in the order of [`GroupState::ALL`].
    pub by_state: [u64; GroupState::ALL.len()],
    /// Groups that appeared since the first poll.
    pub new: u64,
    /// Resolved groups that came back since then.
    pub regressed: u64,
}

/// The groups of a pipeline seen so far.
#[derive(Debug, Default)]
pub(crate) struct GroupTally {
    looked: bool,
    known: BTreeSet<GroupId>,
    regressed: BTreeSet<GroupId>,
    counts: GroupCounts,
}

/// Groups that are new or back since the previous poll.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct NewsOfGroups {
    pub(crate) new: Vec<GroupId>,
    pub(crate) regressed: Vec<GroupId>,
}

impl GroupTally {
    pub(crate) fn observe(
        &mut self,
        groups: impl IntoIterator<Item = (GroupId, GroupState)>,
    ) -> NewsOfGroups {
        let mut news = NewsOfGroups::default();
        self.counts.by_state = Default::default();
        let mut regressed = BTreeSet::new();
        for (group, state) in groups {
            let at = GroupState::ALL.iter().position(|of| *of == state).unwrap_or(0);
            self.counts.by_state[at] += 1;
            // A group that existed before the first poll is not new.
            if !self.known.contains(&group) {
                if self.looked && state == GroupState::Open {
                    news.new.push(group);
                }
                if self.known.len() < KNOWN_MAX {
                    self.known.insert(group);
                }
            }
            if state == GroupState::Regressed {
                if self.looked && !self.regressed.contains(&group) {
                    news.regressed.push(group);
                }
                regressed.insert(group);
            }
        }
        self.regressed = regressed;
        self.looked = true;
        self.counts.new += news.new.len() as u64;
        self.counts.regressed += news.regressed.len() as u64;
        news
    }
}

/// The latest figures of all pipelines.
#[derive(Debug, Default)]
pub struct GroupWatch {
    tallies: Mutex<BTreeMap<String, GroupTally>>,
    looked_at: tokio::sync::Mutex<Option<Instant>>,
}

impl GroupWatch {
    /// Polls again if the last poll is old enough. A pipeline that cannot answer keeps its previous figures.
    pub async fn refresh(&self, service: &Service) {
        let mut looked_at = self.looked_at.lock().await;
        if looked_at.is_some_and(|at| at.elapsed() < LOOK_EVERY) {
            return;
        }
        for served in &service.pipelines {
            let condition = served.handle.figures().condition;
            // While letters are being loaded, each group would look new.
            if condition.letters_loading {
                continue;
            }
            // Metrics must not wait for a busy pipeline.
            let asked = timeout(ANSWER_MAX, service.actions.group_states(&served.handle)).await;
            if let Ok(Ok(groups)) = asked {
                let states = groups.iter().map(|summary: &GroupSummary| (summary.group(), summary.state));
                let mut tallies = self.tallies.lock().unwrap_or_else(PoisonError::into_inner);
                tallies.entry(served.handle.name().to_owned()).or_default().observe(states);
            }
        }
        *looked_at = Some(Instant::now());
    }

    pub fn counts(&self, pipeline: &str) -> Option<GroupCounts> {
        let tallies = self.tallies.lock().unwrap_or_else(PoisonError::into_inner);
        tallies.get(pipeline).map(|tally| tally.counts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn new_and_regressed_groups_are_counted_once_and_not_those_that_were_there() {
        let group = GroupId::from_number;
        let (open, back, done) = (GroupState::Open, GroupState::Regressed, GroupState::Resolved);
        let mut tally = GroupTally::default();
        let news = tally.observe([(group(1), open), (group(2), back), (group(3), done)]);
        assert_eq!(news, NewsOfGroups::default());
        assert_eq!((tally.counts.new, tally.counts.regressed), (0, 0));
        for round in 0..2 {
            let seen = [(group(1), open), (group(2), back), (group(3), back), (group(4), open)];
            let news = tally.observe(seen);
            let expected = NewsOfGroups { new: vec![group(4)], regressed: vec![group(3)] };
            assert_eq!(news, if round == 0 { expected } else { NewsOfGroups::default() });
            assert_eq!((tally.counts.new, tally.counts.regressed), (1, 1));
            assert_eq!(tally.counts.by_state, [2, 2, 0, 0, 0]);
        }
        // Absent and back again: known, and resolved in between.
        tally.observe([(group(3), done)]);
        tally.observe([(group(4), open), (group(3), back)]);
        assert_eq!((tally.counts.new, tally.counts.regressed), (1, 2));
    }
}
