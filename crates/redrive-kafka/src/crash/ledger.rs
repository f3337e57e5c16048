//! Records what runs in this process before it runs, and derives from the traces of earlier owners which message may
//! have killed one.

use std::collections::{BTreeSet, HashMap};
use std::path::Path;
use std::sync::Arc;

use redrive::internal::engine::completion::CompletionSet;
use redrive::internal::engine::{Delivery, Execution, LastEnd, Receipt, StoreOptions};
use redrive_core::Time;

use super::started::{self, StartedFile};
use super::suspects::Suspected;
use crate::backlog::lane::PartitionLane;
use crate::backlog::lanes::Lanes;
use crate::topics::LaneKind;

#[derive(Debug)]
pub(crate) struct CrashLedger {
    started: StartedFile,
    /// The suspects of partitions that this process lost; losing a partition does not clear them.
    before: HashMap<(Arc<str>, i32), Suspected>,
    /// Whether messages run in this process and can kill it.
    in_process: bool,
    last_end: LastEnd,
}

impl CrashLedger {
    pub fn open(dir: &Path, pipeline: &str, options: &StoreOptions) -> Self {
        let in_process = options.execution == Execution::InProcess;
        let started =
            if in_process { StartedFile::open(dir, pipeline) } else { StartedFile::off(dir, pipeline) };
        Self { started, before: HashMap::new(), in_process, last_end: options.last_end }
    }

    /// Whether a message can kill this process. If so, what may run is committed before it runs.
    pub fn is_needed(&self) -> bool {
        self.in_process
    }

    /// Returns the id of this run if its file can be relied on.
    pub fn run(&self) -> Option<u64> {
        self.started.run()
    }

    /// Returns the id of this run, whether or not its file can be relied on.
    pub fn id(&self) -> u64 {
        self.started.id()
    }

    /// Begins the file with everything in flight in newly assigned partitions, before anything is committed in the name
    /// of this run.
    pub fn begin(&mut self, lanes: &Lanes) {
        self.started.begin(lanes.iter().flat_map(PartitionLane::open_marks));
    }

    /// Remembers the suspects of a partition that is gone.
    pub fn remember(&mut self, lane: PartitionLane) {
        self.before.insert((lane.topic, lane.partition), lane.suspected);
    }

    /// Returns the suspects of a partition, from the note of its last owner, the local file and this process.
    pub fn suspects(
        &mut self,
        kind: LaneKind,
        topic: &Arc<str>,
        partition: i32,
        done: &CompletionSet,
        mut suspected: Suspected,
    ) -> Suspected {
        let before = self.before.remove(&(Arc::clone(topic), partition));
        let is_own = suspected.of_run() == Some(self.started.id());
        if let Some(before) = before.filter(|_| is_own) {
            if kind == LaneKind::Source {
                tracing::info!(%topic, partition, "the partition was lost, and has come back to this process");
            }
            return before.of_the_living();
        }
        let place = started::place(topic, partition);
        if let Some((ran, alone)) = suspected.by().and_then(|run| self.started.left_by(run, place)) {
            match self.last_end {
                LastEnd::FromOutside => suspected.ended_from_outside(|at| done.contains(at)),
                // An end that is not known to have come from outside may have been caused by a message.
                _ => suspected.narrow(ran.into_iter().filter(|at| !done.contains(*at)).collect(), alone),
            }
        }
        if !is_own && suspected.below() > done.prefix() {
            let (from, to) = (done.prefix(), suspected.below());
            tracing::info!(%topic, partition, from, to, "the last owner did not end in order");
        }
        suspected
    }

    /// Records what is handed out, for the next process on this machine.
    pub fn handed_out(&mut self, lanes: &Lanes, taken: &[Delivery]) {
        if taken.is_empty() || !self.in_process {
            return;
        }
        if self.started.is_full() {
            return self.begin(lanes);
        }
        for delivery in taken {
            let Receipt { lane, at, .. } = delivery.receipt;
            self.started.started(lanes[lane as usize].place, at);
        }
        self.started.flush();
    }

    /// Notes that a message has run and did not kill the process, whatever becomes of its copy.
    pub fn came_back(&mut self, lane: &mut PartitionLane, offset: u64) {
        lane.suspected.settled(offset);
        self.started.ended(lane.place, offset);
    }

    /// Notes that a record is done that did not run here: another record of its message, or its letter, was found.
    pub fn cleared(&mut self, lane: &PartitionLane, offset: u64) {
        self.started.ended(lane.place, offset);
    }

    /// Notes that a delivery came back unstarted. Others that were announced with it may still run, and a suspect stays
    /// one.
    pub fn did_not_run(&mut self, lane: &mut PartitionLane, offset: u64, is_suspect: bool) {
        lane.suspected.take_turn_back(offset);
        self.started.did_not_run(lane.place, offset);
        if !is_suspect {
            self.started.ended(lane.place, offset);
        }
    }

    /// Announces the suspects that run next, one after the other, unless the first of them is announced already.
    /// Returns whether all announcements are committed.
    pub fn announce(lanes: &mut Lanes, next: &[Receipt], now: Time) -> bool {
        let is_announced = |lanes: &Lanes, first: &Receipt| {
            let at = lanes.of_receipt(first);
            at.is_some_and(|at| lanes[at].suspected.is_announced(first.at))
        };
        if !next.first().is_some_and(|first| is_announced(lanes, first)) {
            let ours: Vec<&Receipt> = next.iter().filter(|next| lanes.of_receipt(next).is_some()).collect();
            for (at, lane) in lanes.iter_mut().enumerate() {
                let here = ours.iter().filter(|next| next.lane as usize == at).map(|next| next.at);
                let here: BTreeSet<u64> = here.collect();
                if here.is_empty() {
                    lane.suspected.recall();
                } else {
                    lane.suspected.announce(here, now);
                }
            }
        }
        !lanes.iter().any(|lane| lane.suspected.is_awaited())
    }

    /// Notes that an announced suspect runs now, alone.
    pub fn runs_alone(&mut self, lane: &mut PartitionLane, offset: u64) {
        if let Some(out) = lane.out.get_mut(&offset) {
            out.waits = false;
        }
        self.started.runs_alone(lane.place, offset);
        self.started.flush();
    }

    pub fn flush(&mut self) {
        self.started.flush();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backlog::lanes::tests::lanes;
    use crate::commit::progress::CommitNote;

    fn ledger(dir: &Path) -> CrashLedger {
        CrashLedger::open(dir, "orders", &StoreOptions::default())
    }

    #[test]
    fn a_partition_that_comes_back_to_the_same_process_suspects_nothing_new() {
        let dir = tempfile::tempdir().unwrap();
        let (mut ledger, mut lanes) = (ledger(dir.path()), lanes());
        let note = CommitNote { taken: 9, of: Some(ledger.id()), ..CommitNote::default() };
        let from_note = || Suspected::after(LaneKind::Source, &note);
        let (topic, done) = ("orders".into(), CompletionSet::default());
        assert_eq!(
            ledger.suspects(LaneKind::Source, &topic, 0, &done, from_note()).below(),
            9,
            "no other source knows better"
        );
        lanes.end().into_iter().for_each(|lane| ledger.remember(lane));
        assert_eq!(
            ledger.suspects(LaneKind::Source, &topic, 0, &done, from_note()).below(),
            0,
            "the process lives"
        );
    }

    #[test]
    fn a_suspect_runs_once_its_announcement_is_committed() {
        let mut lanes = lanes();
        let next = [Receipt { lane: 0, epoch: lanes.epoch(), seq: 7, at: 7 }];
        assert!(!CrashLedger::announce(&mut lanes, &next, Time::ZERO));
        let changes = lanes[0].suspected.changes();
        lanes[0].suspected.committed(changes);
        assert!(CrashLedger::announce(&mut lanes, &next, Time::ZERO));
    }
}
