//! The engine of one pipeline: reacts when partitions come and go, when records arrive, and as time passes.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use redrive::internal::engine::{
    Announced, Delivery, EngineError, Event, Grouping, LetterState, ProblemKind, Receipt,
};
use redrive::timestamp;
use redrive_core::{Reason, Time};

use crate::backlog::lane::{PartitionLane, ReadState, ReadStopped};
use crate::backlog::lanes::Lanes;
use crate::backlog::queue::{Backlog, Dispatch};
use crate::clock::{Interval, wall_time};
use crate::commit::commits::{CommitAnswer, Commits, RunId, last_commit, note_overflows};
use crate::commit::progress::chunk_key;
use crate::commit::tickets::Tickets;
use crate::consume::begin::BEGUN;
use crate::consume::mailbox::{
    Assigned, FailKind, LaneEnd, LaneStart, Mailbox, Note, Order, PartitionCommit,
};
use crate::consume::ownership::{Ownership, Revocation};
use crate::consume::poll::Poller;
use crate::crash::ledger::CrashLedger;
use crate::duplicates::detector::Duplicates;
use crate::duplicates::twins::TwinOrder;
use crate::group::control::Control;
use crate::group::status::GroupStatus;
use crate::letters::KafkaLetters;
use crate::options::KafkaPipeline;
use crate::produce::after::AfterWrite;
use crate::produce::copies::{Copies, SpoolUse};
use crate::produce::transit::Transit;
use crate::produce::unwritten::Unwritten;
use crate::record::{CopyRecord, Polled};
use crate::topics::LaneKind;
use crate::topics::trim::Trimmer;

/// How the final commit ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum LastCommit {
    Accepted,
    Failed(String),
}

/// Periodic work that no event triggers.
#[derive(Debug)]
pub(super) struct Upkeep {
    pub watch: Interval,
    pub progress: Interval,
    pub stragglers: Interval,
    /// How long a waiting message may hold up the committed offset.
    pub straggler_after: Duration,
}

/// The Kafka engine of one pipeline. [`crate::stores::KafkaStores`] creates it.
#[derive(Debug)]
pub struct KafkaEngine {
    pub(super) pipeline: KafkaPipeline,
    pub(super) source: Arc<str>,
    /// The name of this process for others.
    pub(super) name: String,
    /// The directory of the files of [`redrive::internal::engine::Deliver::keep_reminder`].
    pub(super) state_dir: PathBuf,

    pub(super) mailbox: Arc<Mailbox>,
    pub(super) poller: Poller,
    pub(super) ownership: Ownership,
    pub(super) lanes: Lanes,
    pub(super) backlog: Backlog,
    pub(super) duplicates: Duplicates,
    pub(super) ledger: CrashLedger,
    /// How letters are grouped.
    pub(super) grouping: Grouping,
    /// The policy that is stored with letters.
    pub(super) letter_options: Option<Arc<str>>,
    pub(super) copies: Copies,
    pub(super) transit: Transit,
    pub(super) unwritten: Unwritten,
    pub(super) tickets: Tickets,
    pub(super) commits: Commits,
    pub(super) letters: KafkaLetters,
    pub(super) control: Control,
    pub(super) group: GroupStatus,
    /// Trims finished records for as long as it lives.
    pub(super) trimmer: Trimmer,
    /// When the partitions of the lanes were assigned.
    pub(super) assigned_at: Time,
    pub(super) upkeep: Upkeep,

    /// The share of the work, until it is reported.
    pub(super) share: Option<(u32, u32)>,
    pub(super) now: Time,
    pub(super) gated: bool,
    pub(super) failed: Option<(String, FailKind)>,
    pub(super) closed: bool,
    pub(super) last_answer: Option<LastCommit>,
    pub(super) notes: Vec<Note>,
}

impl KafkaEngine {
    /// Sets how long marks may wait for a commit; the default is 100 ms.
    pub fn commit_every(&mut self, span: Duration) {
        self.commits.set_interval(span);
    }

    /// Sets how long a waiting message may hold up the committed offset before it is rewritten; the default is ten
    /// minutes.
    pub fn move_stragglers_after(&mut self, span: Duration) {
        self.upkeep.straggler_after = span;
        self.upkeep.stragglers.shorten(span);
    }

    /// Sets how often spooled records are offered again; the default is half a minute.
    pub fn offer_spooled_every(&mut self, span: Duration) {
        self.copies.offer_spooled_every(span, Instant::now());
    }

    /// Returns the first unread offset of a partition; `None` if the partition is not ours.
    pub fn read_up_to(&self, topic: &str, partition: i32) -> Option<u64> {
        let lane = self.lanes.iter().find(|lane| lane.partition == partition && *lane.topic == *topic)?;
        Some(lane.next)
    }

    /// Whether this engine handed out a delivery that is not settled yet.
    pub fn owns(&self, delivery: &Delivery) -> bool {
        let receipt = &delivery.receipt;
        self.lanes.of_receipt(receipt).is_some_and(|at| self.lanes[at].out.contains_key(&receipt.at))
    }

    /// Whether partitions are assigned, each was read to its end once, and all letters are known.
    pub fn has_caught_up(&self) -> bool {
        self.letters.are_loaded()
            && self.control.is_known()
            && !self.lanes.is_empty()
            && self.ownership.is_ours()
            && self.lanes.iter().all(PartitionLane::has_ended)
    }

    /// Returns the error that stopped the engine, if any.
    pub(super) fn check(&self) -> Result<(), EngineError> {
        match &self.failed {
            None => Ok(()),
            Some((problem, FailKind::Owned)) => Err(EngineError::Owned(problem.clone())),
            Some((problem, FailKind::Unavailable)) => Err(EngineError::Unavailable(problem.clone())),
            Some((problem, FailKind::Refused(fix))) => {
                Err(EngineError::Directory { problem: problem.clone(), fix })
            }
        }
    }

    fn fail(&mut self, problem: String, kind: FailKind) {
        tracing::error!(pipeline = %self.pipeline.name, problem, "the Kafka engine stops");
        self.failed.get_or_insert((problem, kind));
    }

    /// Handles everything that happened and sends what has to be sent, without reporting what is durable.
    pub fn process_events(&mut self) {
        self.notice_gap();
        self.handle_notes();
        self.copies.poll();
        self.handle_written();
        self.hold_unwritten();
        self.maintain();
        self.copies.flush();
        self.ledger.flush();
    }

    /// Does the same as [`Self::process_events`], and reports what is durable.
    pub(super) fn report(&mut self, out: &mut Vec<Event>) {
        self.process_events();
        out.extend(self.share.take().map(|(owned, all)| Event::Share { owned, all }));
        self.tickets.durable(&self.lanes, !self.unwritten.is_empty(), out);
        let waits = !self.tickets.is_empty()
            || !self.ownership.is_certain()
            || self.copies.needs_polling()
            || self.duplicates.is_reading();
        if waits || self.lanes.iter().any(PartitionLane::has_news) {
            self.mailbox.request_wake();
        }
    }

    pub(super) fn notice_gap(&mut self) {
        self.ownership.notice_gap(Instant::now(), self.commits.rounds(), !self.lanes.is_empty());
    }

    /// Handles what the polling thread reported.
    pub(super) fn handle_notes(&mut self) {
        let mut notes = std::mem::take(&mut self.notes);
        self.mailbox.drain(&mut notes);
        for note in notes.drain(..) {
            self.handle_note(note);
        }
        self.notes = notes;
        if !self.closed && self.failed.is_none() && !self.poller.is_running() {
            self.fail("the polling thread has ended".to_owned(), FailKind::Unavailable);
        }
    }

    fn handle_note(&mut self, note: Note) {
        let epoch_now = self.lanes.epoch();
        match note {
            Note::Assigned { epoch, began } => self.begin(epoch, *began),
            Note::Wanted { epoch } if epoch == epoch_now => {
                self.ownership.revoked(Instant::now());
                self.settle_deferred();
            }
            Note::Gone { epoch } if epoch == epoch_now => self.gone(),
            Note::Records { epoch, lane, records } if epoch == epoch_now => {
                self.lanes[lane].resumed();
                self.arrived(lane, records);
            }
            Note::End { epoch, lane } if epoch == epoch_now => {
                let lane = &mut self.lanes[lane];
                lane.resumed();
                lane.end_met();
                lane.read = ReadState::AtEnd;
                self.lane_ended();
            }
            Note::Ends { epoch, ends } if epoch == epoch_now => {
                for LaneEnd { lane, end, is_met } in ends {
                    self.lanes[lane].ends_at(end, is_met);
                }
                self.lane_ended();
            }
            Note::Committed { round: u64::MAX, problem } => {
                self.last_answer = Some(problem.map_or(LastCommit::Accepted, LastCommit::Failed));
            }
            Note::Committed { round, problem } => self.commit_answered(round, problem),
            Note::Stopped { epoch, lane, kind, problem } if epoch == epoch_now => {
                self.stopped(lane, kind, problem);
            }
            Note::Failed { problem, kind } => self.fail(problem, kind),
            // These belong to an assignment that is over.
            Note::Wanted { .. }
            | Note::Gone { .. }
            | Note::Records { .. }
            | Note::End { .. }
            | Note::Ends { .. }
            | Note::Stopped { .. } => {}
        }
    }

    /// Handles newly assigned partitions.
    fn begin(&mut self, epoch: u32, began: Assigned) {
        let Assigned { lanes, partitions, letter_ends, died, is_first, overtaken } = began;
        self.duplicates.learn(letter_ends, died);
        self.assigned(epoch, lanes);
        self.copies.topics_mut().update(&partitions);
        if is_first {
            self.record_first_run();
        }
        self.backlog.keys_mut().count_overtaken(overtaken, &self.pipeline.name);
        self.share = self.lanes.share(&partitions);
    }

    fn assigned(&mut self, epoch: u32, starts: Vec<LaneStart>) {
        self.gone();
        self.group.count_rebalance();
        let begin = |start: LaneStart| {
            let LaneStart { kind, topic, partition, done, suspected, written, room } = start;
            let lane = if self.ledger.is_needed() {
                let suspected = self.ledger.suspects(kind, &topic, partition, &done, suspected);
                PartitionLane::new(kind, topic, partition, done, suspected, room)
            } else {
                PartitionLane::new(kind, topic, partition, done, suspected, room).without_suspects()
            };
            lane.with_bitmaps(written)
        };
        let lanes = starts.into_iter().map(begin).collect();
        self.lanes.begin(epoch, lanes);
        self.assigned_at = wall_time();
        self.ledger.begin(&self.lanes);
        self.backlog.hold_back(&self.lanes, &self.copies.topics().beside_source());
        self.duplicates.begin(Instant::now());
        self.start_when_read();
        let (sources, lanes) = (self.lanes.sources().count(), self.lanes.len());
        tracing::info!(pipeline = %self.pipeline.name, sources, lanes, "partitions assigned");
    }

    /// Records that the pipeline has run, in case its group is found without offsets one day.
    fn record_first_run(&mut self) {
        let said = serde_json::json!({ "group": self.group.name(), "at": timestamp::print(wall_time()) });
        let value = Some(said.to_string().into_bytes());
        self.copies.progress(0, BEGUN.to_owned(), value, AfterWrite::Nothing);
    }

    /// Drops everything that is known about the partitions, which are gone.
    fn gone(&mut self) {
        self.backlog.keys_mut().count_voided(&self.lanes, &self.pipeline.name);
        for lane in self.lanes.end() {
            self.ledger.remember(lane);
        }
        self.backlog.clear();
        self.transit.clear();
        self.unwritten.clear();
        self.copies.give_up_failed();
        self.duplicates.clear();
        self.ownership.reset();
        self.commits.clear();
        // Deferred batches belong to an assignment that is over, so this settles nothing.
        self.settle_deferred();
        self.handle_written();
    }

    /// Reacts to a lane that was read to its end.
    fn lane_ended(&mut self) {
        self.backlog.release_read(&self.lanes, &self.copies.topics().beside_source());
        self.start_when_read();
    }

    /// Starts deliveries once the tiers are read, so that duplicates are known, or after a time limit.
    fn start_when_read(&mut self) {
        if !self.duplicates.is_reading() {
            return;
        }
        let unread = |lane: &PartitionLane| {
            lane.kind != LaneKind::Source
                && lane.stopped.is_none()
                && (!lane.has_ended() || lane.next < lane.late_end)
        };
        let waits = self.lanes.iter().any(unread) || self.copies.has_earlier(self.lanes.epoch());
        if waits && !self.duplicates.is_late(Instant::now()) {
            return;
        }
        // The blocked keys are known only after all letters are read, however long that takes.
        let are_letters_read =
            || self.letters.are_loaded() && self.letters.are_read_up_to(self.duplicates.letter_ends());
        if self.backlog.keys().blocks() && !are_letters_read() {
            return;
        }
        self.learn_blocked_keys();
        self.duplicates.tiers_read(&self.lanes, &self.source);
    }

    /// Learns the keys of letters that earlier owners left.
    fn learn_blocked_keys(&mut self) {
        if !self.backlog.keys().blocks() {
            return;
        }
        let known = self.backlog.keys().known_letters();
        for number in self.letters.at_rest(|number| !known.contains(&number)) {
            match self.letters.letter(number) {
                // A letter that died elsewhere was never ahead of the messages of its key here.
                Ok(Some(letter)) if letter.reason == Reason::Imported => {}
                Ok(Some(letter)) => self.backlog.keys_mut().letter_opened(&letter.message, number),
                Ok(None) => {}
                Err(error) => return self.fail(error.to_string(), FailKind::Unavailable),
            }
        }
    }

    fn stopped(&mut self, at: usize, kind: ProblemKind, problem: String) {
        let lane = &mut self.lanes[at];
        if lane.stopped.as_ref().is_none_or(|before| before.problem != problem) {
            tracing::error!(
                topic = %lane.topic, partition = lane.partition, from = lane.next, problem,
                "nothing more of this partition is read"
            );
        }
        lane.stopped = Some(ReadStopped { kind, problem, heard: Instant::now() });
        self.start_when_read();
    }

    /// Takes in records that were read from a lane.
    fn arrived(&mut self, at: usize, records: Vec<Polled>) {
        let mut skipped = Vec::new();
        self.group.count_read(&self.lanes[at], records.len() as u64);
        let (read, is_source) = (Instant::now(), self.lanes[at].kind == LaneKind::Source);
        for Polled { mut waiting, bytes, replaces } in records {
            let (number, offset) = (waiting.number, waiting.offset);
            let is_news = self.lanes[at].meet(offset);
            let expected = self.transit.read(!is_source, waiting.due, at, offset, number);
            if !is_news {
                self.lanes.free(at, bytes);
                continue;
            }
            let replaces = replaces.filter(|_| !expected.acknowledged && !expected.copied);
            let (copies, epoch) = (&self.copies, self.lanes.epoch());
            let is_replacing = |lane, offset| copies.is_replacing(epoch, lane, offset);
            let order = self.duplicates.observe(&self.lanes, at, &waiting, replaces, &is_replacing);
            match order {
                TwinOrder::First => {}
                // It stays where it is, and is skipped when its turn comes.
                TwinOrder::Further { lane, offset } => {
                    self.mark(lane, offset, None);
                    skipped.push((lane, offset));
                }
                TwinOrder::Behind => {
                    self.mark(at, offset, None);
                    skipped.push((at, offset));
                }
            }
            if waiting.meta.replays > 0 {
                self.backlog.keys_mut().replay_read(&waiting);
            }
            if order == TwinOrder::Behind {
                self.lanes.free_fresh(at, bytes);
                continue;
            }
            if order == TwinOrder::First
                && !expected.acknowledged
                && !expected.replayed
                && let Some(key) = self.backlog.keys().key_of(&waiting.message)
            {
                self.backlog.keys_mut().join(key, number);
            }
            if is_source {
                waiting.arrived = Some(read);
            }
            self.backlog.put(&mut self.lanes, at, waiting, self.now);
        }
        self.duplicates.skip(&self.lanes, &skipped);
    }

    /// Whether messages may be handed out at all.
    fn may_start(&self) -> bool {
        !self.gated
            && !self.control.holds()
            && !self.closed
            && self.ownership.is_certain()
            && !self.duplicates.is_reading()
    }

    /// Hands out messages that may start: all, or only due ones.
    pub(super) fn hand_out(&mut self, now: Time, room: usize, only_due: bool, out: &mut Vec<Delivery>) {
        self.now = now;
        if !self.may_start() || (room == 0 && !only_due) {
            return;
        }
        let (first, letters) = (out.len(), &self.letters);
        let letters = |number| letters.state_of(number);
        let mut with = Dispatch { lanes: &mut self.lanes, letters: &letters, now };
        if only_due {
            self.backlog.hand_out_due(&mut with, room, out);
        } else {
            self.backlog.hand_out(&mut with, room, out);
        }
        self.ledger.handed_out(&self.lanes, &out[first..]);
        // Something may have had to wait for a reservation.
        let now = Instant::now();
        self.reserve(now);
        self.commit_when_due(now);
    }

    /// Announces that a suspect is about to run alone. That, and that nothing else runs, has to be committed first.
    /// Those that come after it are announced with it, so that not each of them waits for a commit.
    pub(super) fn announce_alone(&mut self, next: &[Receipt], now: Time) -> Announced {
        let first = next.first().filter(|_| self.ownership.is_ours());
        let Some((first, at)) = first.and_then(|first| Some((first, self.lanes.of_receipt(first)?))) else {
            return Announced::Gone;
        };
        let is_committed = CrashLedger::announce(&mut self.lanes, next, now);
        if self.ownership.is_unsure() || !is_committed {
            self.commit_when_due(Instant::now());
            return Announced::NotYet;
        }
        self.ledger.runs_alone(&mut self.lanes[at], first.at);
        Announced::Yes
    }

    fn reserve(&mut self, now: Instant) {
        if self.ledger.is_needed() && !self.duplicates.is_reading() {
            self.backlog.reserve(&mut self.lanes, now, self.now);
        }
    }

    fn maintain(&mut self) {
        let now = Instant::now();
        if self.upkeep.watch.is_due(now) {
            self.group.watch(&mut self.lanes, now);
        }
        match self.ownership.revocation(now) {
            Revocation::None => {}
            Revocation::Drain { is_late } => return self.release_when_drained(is_late),
            Revocation::Done => return,
        }
        self.start_when_read();
        self.reserve(now);
        let letters = &self.letters;
        self.backlog.keys_mut().release_followed(&|number| letters.state_of(number));
        self.commit_when_due(now);
        if self.upkeep.progress.is_due(now) {
            self.lanes.iter_mut().for_each(|lane| drop(lane.stopped.take_if(|stopped| stopped.is_over(now))));
            self.write_progress();
        }
        self.offer_spooled(now);
        if self.upkeep.stragglers.is_due(now) {
            self.move_stragglers(now);
        }
    }

    fn run_id(&self) -> RunId {
        RunId { exact: self.ledger.run(), id: self.ledger.id() }
    }

    fn commit_when_due(&mut self, now: Instant) {
        if !self.ownership.is_ours() {
            return;
        }
        let run = self.run_id();
        if let Some(order) = self.commits.next(&mut self.lanes, now, self.ownership.is_unsure(), run) {
            self.mailbox.order(order);
        }
    }

    fn commit_answered(&mut self, round: u64, problem: Option<String>) {
        match self.commits.answered(&mut self.lanes, round, problem) {
            CommitAnswer::Stale => {}
            CommitAnswer::Failed(problem) => {
                tracing::warn!(pipeline = %self.pipeline.name, problem, "a commit failed; the next commit covers the same offsets");
                self.group.count_commit_failure();
            }
            CommitAnswer::Accepted => {
                if self.ownership.committed(round) {
                    self.settle_deferred();
                }
            }
        }
    }

    /// Writes the bitmaps of lanes whose completions do not fit into a note, and deletes those that the committed
    /// offset has passed.
    fn write_progress(&mut self) {
        let epoch = self.lanes.epoch();
        for (at, lane) in self.lanes.iter_mut().enumerate() {
            for (chunk, value) in lane.done.take_bitmaps() {
                let key = chunk_key(&lane.topic, lane.partition, chunk);
                let then = match value {
                    Some(_) => AfterWrite::Progress { lane: at, epoch },
                    None => AfterWrite::Nothing,
                };
                self.copies.progress(lane.partition, key, value, then);
            }
        }
        self.handle_written();
    }

    /// Writes, before the last commit, what its notes have no room for.
    pub(super) fn write_last_progress(&mut self) {
        note_overflows(&mut self.lanes);
        self.write_progress();
    }

    /// Offers spooled records again whose letters are still open and truncated.
    fn offer_spooled(&mut self, now: Instant) {
        if self.copies.spooled() == 0 || !self.letters.are_loaded() {
            return;
        }
        let (letters, transit) = (&self.letters, &self.transit);
        let needed = |copy: &CopyRecord, has_letter: bool| {
            let number = copy.origin.number();
            match letters.is_cut(number, copy.meta.replays) {
                Some((LetterState::Open, true)) => SpoolUse::Offer,
                _ if !has_letter => SpoolUse::Offer,
                // The letter may be reopened, or is still being written.
                Some((LetterState::Discarded, true)) => SpoolUse::Later,
                None if transit.is_finishing(number) => SpoolUse::Later,
                _ => SpoolUse::Never,
            }
        };
        self.copies.offer_spooled(now, needed);
        self.handle_written();
    }

    /// Rewrites waiting messages that hold up the committed offset.
    fn move_stragglers(&mut self, now: Instant) {
        let after = self.upkeep.straggler_after;
        for (at, waiting) in self.backlog.take_stragglers(&mut self.lanes, now, after) {
            self.move_straggler(at, waiting);
        }
        self.handle_written();
    }

    /// Holds lanes with a record that cannot be written, and resumes the others.
    fn hold_unwritten(&mut self) {
        if !self.copies.is_failing() && self.unwritten.is_empty() {
            return;
        }
        let changes = self.unwritten.update(self.copies.failing(), self.lanes.epoch());
        for at in changes.held {
            self.backlog.hold(&mut self.lanes, at);
            self.unwritten.log_held(at, &self.lanes);
        }
        self.backlog.resume(&mut self.lanes, &changes.resumed);
    }

    /// Releases revoked partitions once everything in flight is settled, or when it is too late for that.
    fn release_when_drained(&mut self, is_late: bool) {
        let epoch = self.lanes.epoch();
        let is_busy = self.lanes.iter().any(PartitionLane::is_busy) || self.copies.is_busy(epoch);
        if is_busy && !is_late {
            return;
        }
        if is_busy {
            let running = |lane: &PartitionLane| lane.out.values().filter(|out| !out.waits).count();
            let left: usize = self.lanes.iter().map(running).sum();
            tracing::warn!(left, "partitions revoked with deliveries in flight; they will be redelivered");
        }
        let places = self.last_commit();
        self.mailbox.order(Order::Release { epoch, places });
        self.ownership.released();
    }

    pub(super) fn last_commit(&self) -> Vec<PartitionCommit> {
        last_commit(&self.lanes, self.backlog.next_due(), self.run_id())
    }
}

impl Drop for KafkaEngine {
    /// Without [`redrive::internal::engine::Deliver::close`] it ends like a process that dies: nothing more is
    /// committed.
    fn drop(&mut self) {
        self.poller.abort();
    }
}
