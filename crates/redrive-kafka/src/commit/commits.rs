//! Commits: when one is due, what it says about each partition, and what its answer makes durable.

use std::sync::Arc;
use std::time::{Duration, Instant};

use redrive_core::Time;

use super::done::{BegunCommit, Covers};
use super::progress::CommitStanding;
use crate::backlog::lane::PartitionLane;
use crate::backlog::lanes::Lanes;
use crate::consume::mailbox::{Order, PartitionCommit};
use crate::topics::LaneKind;

/// The committing process, as its notes name it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RunId {
    /// Set if the local file of this run says exactly what runs.
    pub exact: Option<u64>,
    pub id: u64,
}

/// A commit that has not been answered yet.
#[derive(Debug)]
struct Pending {
    round: u64,
    epoch: u32,
    lanes: Vec<Covered>,
}

/// What a commit says about a lane.
#[derive(Debug)]
struct Covered {
    lane: usize,
    done: Covers,
    /// What is reserved, by offset and by due time.
    reserved: (u64, u64),
    /// What was known about suspects.
    changes: u64,
}

#[derive(Debug)]
pub(crate) struct Commits {
    pending: Option<Pending>,
    /// Whether the last commit failed; then the next is not hurried.
    has_failed: bool,
    rounds: u64,
    every: Duration,
    last: Instant,
}

/// How a commit was answered.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum CommitAnswer {
    /// The answer is no longer awaited.
    Stale,
    Failed(String),
    Accepted,
}

impl Commits {
    pub fn new(now: Instant, every: Duration) -> Self {
        Self { pending: None, has_failed: false, rounds: 0, every, last: now }
    }

    pub fn set_interval(&mut self, every: Duration) {
        self.every = every;
    }

    /// Returns how many commits were begun.
    pub fn rounds(&self) -> u64 {
        self.rounds
    }

    /// Returns the next commit if it is time: at each interval, and at once if something waits for it, unless the last
    /// one failed. `everything` commits lanes without news too.
    pub fn next(&mut self, lanes: &mut Lanes, now: Instant, everything: bool, run: RunId) -> Option<Order> {
        if self.pending.is_some() {
            return None;
        }
        let is_time = now.duration_since(self.last) >= self.every;
        if !is_time && (self.has_failed || !lanes.iter().any(PartitionLane::is_urgent)) {
            return None;
        }
        let mut places = Vec::new();
        let mut covered = Vec::new();
        for (at, lane) in lanes.iter_mut().enumerate().filter(|(_, lane)| everything || lane.has_news()) {
            let (taken, due) = lane.reserved.renew(now, lane.taken, lane.suspected.below());
            let is_limited = !lane.reserved.is_unlimited();
            let until = (lane.kind != LaneKind::Source && is_limited).then_some(due);
            let (by, named, out) = (lane.vouched(run.exact), Some(lane.suspected.named()), lane.out.len());
            let standing = CommitStanding { clean: false, taken, until, by, of: Some(run.id), named, out };
            let BegunCommit { offset, note, covers } = lane.done.begin_commit(&standing);
            lane.noted_out = out;
            lane.hurries = false;
            let changes = lane.suspected.changes();
            covered.push(Covered { lane: at, done: covers, reserved: (taken, due), changes });
            let (topic, partition) = (Arc::clone(&lane.topic), lane.partition);
            places.push(PartitionCommit { topic, partition, offset, note });
        }
        if places.is_empty() {
            return None;
        }
        self.last = now;
        self.rounds += 1;
        let (epoch, round) = (lanes.epoch(), self.rounds);
        self.pending = Some(Pending { round, epoch, lanes: covered });
        Some(Order::Commit { epoch, round, places })
    }

    pub fn answered(&mut self, lanes: &mut Lanes, round: u64, problem: Option<String>) -> CommitAnswer {
        let Some(pending) = self.pending.take_if(|pending| pending.round == round) else {
            return CommitAnswer::Stale;
        };
        self.has_failed = problem.is_some();
        if let Some(problem) = problem {
            return CommitAnswer::Failed(problem);
        }
        if pending.epoch != lanes.epoch() {
            return CommitAnswer::Stale;
        }
        for Covered { lane, done, reserved: (to, due), changes } in pending.lanes {
            let lane = &mut lanes[lane];
            lane.done.accepted(done);
            lane.reserved.grant(to, due);
            lane.suspected.committed(changes);
        }
        CommitAnswer::Accepted
    }

    /// Awaits no answer any more, after the partitions were taken away.
    pub fn clear(&mut self) {
        self.pending = None;
    }
}

/// Returns the state of every lane for the last commit of an assignment. `next_due` is when the first waiting message
/// is due.
pub(crate) fn last_commit(lanes: &Lanes, next_due: Option<Time>, run: RunId) -> Vec<PartitionCommit> {
    let commit = |lane: &PartitionLane| {
        let due_by = lane.suspected.due_by();
        let is_early = |due: Time| due_by.is_some_and(|by| due.as_millis() <= by);
        let waits = !lane.out.is_empty() || next_due.is_some_and(is_early);
        let leaves = !lane.suspected.is_exact() && (waits || !lane.has_ended());
        let note = lane.done.last_note(&lane.standing_at_end(leaves, run.exact, run.id));
        let (topic, partition) = (Arc::clone(&lane.topic), lane.partition);
        PartitionCommit { topic, partition, offset: lane.done.prefix(), note }
    };
    lanes.iter().map(commit).collect()
}

/// Notes, before the last commit, which lanes need bitmaps because their completions do not fit into a note.
pub(crate) fn note_overflows(lanes: &mut Lanes) {
    for lane in lanes.iter_mut() {
        let standing = CommitStanding {
            taken: lane.taken,
            named: Some(lane.suspected.named()),
            ..CommitStanding::default()
        };
        lane.done.measure_note(&standing);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backlog::lanes::tests::lanes;

    const RUN: RunId = RunId { exact: None, id: 7 };
    const EVERY: Duration = Duration::from_millis(100);

    #[test]
    fn a_commit_makes_its_marks_durable_once_it_is_accepted() {
        let (mut lanes, now) = (lanes(), Instant::now());
        let mut commits = Commits::new(now, EVERY);
        lanes[0].done.mark(0);
        assert!(commits.next(&mut lanes, now, false, RUN).is_none(), "it is not time yet");
        let order = commits.next(&mut lanes, now + EVERY, false, RUN);
        let Some(Order::Commit { round: 1, places, .. }) = order else { panic!("a commit") };
        assert_eq!((places.len(), places[0].offset), (1, 1));
        assert!(commits.next(&mut lanes, now + EVERY * 2, false, RUN).is_none(), "one at a time");
        assert!(!lanes[0].done.is_durable(1));
        assert_eq!(commits.answered(&mut lanes, 1, None), CommitAnswer::Accepted);
        assert!(lanes[0].done.is_durable(1));
        assert_eq!(commits.answered(&mut lanes, 1, None), CommitAnswer::Stale);
    }

    #[test]
    fn a_failed_commit_is_said_again_and_not_hurried() {
        let (mut lanes, now) = (lanes(), Instant::now());
        let mut commits = Commits::new(now, EVERY);
        lanes[0].done.mark(0);
        assert!(commits.next(&mut lanes, now + EVERY, false, RUN).is_some());
        let failed = commits.answered(&mut lanes, 1, Some("no".to_owned()));
        assert_eq!(failed, CommitAnswer::Failed("no".to_owned()));
        lanes[0].hurries = true;
        assert!(commits.next(&mut lanes, now + EVERY, false, RUN).is_none());
        assert!(commits.next(&mut lanes, now + EVERY * 2, false, RUN).is_some());
    }

    #[test]
    fn an_answer_for_an_assignment_that_is_over_changes_nothing() {
        let (mut lanes, now) = (lanes(), Instant::now());
        let mut commits = Commits::new(now, EVERY);
        lanes[0].done.mark(0);
        assert!(commits.next(&mut lanes, now + EVERY, false, RUN).is_some());
        lanes.end();
        assert_eq!(commits.answered(&mut lanes, 1, None), CommitAnswer::Stale);
    }
}
