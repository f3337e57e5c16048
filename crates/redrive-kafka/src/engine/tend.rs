//! What has to be done every now and then: commits, bitmaps, stragglers, and letting partitions go.

use std::sync::Arc;
use std::time::{Duration, Instant};

use redrive_core::Time;

use super::engine::{Claim, Committing, Covered, KafkaEngine, Then};
use crate::backlog::lane::{Lane, Writing};
use crate::commit::progress::{CHUNK, Standing, chunk_bytes, chunk_key, note};
use crate::consume::mailbox::{Order, Place};
use crate::produce::{Body, Production};
use crate::topics::LaneKind;

const PROGRESS_EVERY: Duration = Duration::from_secs(1);
const WATCH_EVERY: Duration = Duration::from_secs(1);
pub(crate) const TEND_EVERY: Duration = Duration::from_secs(5);
/// A waiting message this many records behind, or that holds the committed offset up for this long, is written again.
const STRAGGLER_OFFSETS: u64 = 1_000_000;
pub(crate) const STRAGGLER_AFTER: Duration = Duration::from_mins(10);
/// Stragglers that are moved in one go.
const STRAGGLERS_MAX: usize = 1_000;

impl KafkaEngine {
    pub(crate) fn tend(&mut self) {
        let now = Instant::now();
        if now.duration_since(self.last_watch) >= WATCH_EVERY {
            self.last_watch = now;
            self.watch_stopped(now);
        }
        match self.claim {
            Claim::Ours => {}
            Claim::Wanted { until } => return self.let_go_when_done(now > until),
            Claim::LetGo => return,
        }
        self.start_when_read();
        self.reserve_dues(now);
        self.release_followed();
        self.commit_when_due(now);
        if now.duration_since(self.last_progress) >= PROGRESS_EVERY {
            self.last_progress = now;
            self.lanes.iter_mut().for_each(|lane| drop(lane.stopped.take_if(|stopped| stopped.is_over(now))));
            self.write_progress();
        }
        self.offer_spooled(now);
        if now.duration_since(self.last_tending) >= self.tend_every {
            self.last_tending = now;
            self.move_stragglers(now);
        }
    }

    /// Commits are made every now and then; at once if somebody waits for one, unless the last one failed.
    pub(crate) fn commit_when_due(&mut self, now: Instant) {
        if self.committing.is_some() || self.claim != Claim::Ours {
            return;
        }
        let is_time = now.duration_since(self.last_commit) >= self.commit_every;
        if is_time || (!self.refused && self.lanes.iter().any(Lane::is_urgent)) {
            self.commit(now);
        }
    }

    /// Commits every lane that has news.
    fn commit(&mut self, now: Instant) {
        let (unsure, run, id) = (self.unsure.is_some(), self.started.run(), self.started.id());
        let mut places = Vec::new();
        let mut covered = Vec::new();
        for (at, lane) in self.lanes.iter_mut().enumerate().filter(|(_, lane)| unsure || lane.has_news()) {
            let (taken, due) = lane.reserved.renew(now, lane.taken, lane.suspected.below());
            let is_limited = !lane.reserved.is_unlimited();
            let until = (lane.kind != LaneKind::Source && is_limited).then_some(due);
            let (by, named, out) = (lane.vouched(run), Some(lane.suspected.named()), lane.out.len());
            let standing = Standing { clean: false, taken, until, by, of: Some(id), named, out };
            let (note, whole) = note(&standing, &lane.done);
            lane.overflows = !whole;
            if !whole {
                lane.note_falls_short();
            }
            lane.noted_out = out;
            lane.hurries = false;
            let offset = lane.done.prefix();
            let (marks, changes) = (lane.marks, lane.suspected.changes());
            covered.push(Covered { lane: at, marks, offset, whole, reserved: (taken, due), changes });
            places.push(Place { topic: Arc::clone(&lane.topic), partition: lane.partition, offset, note });
        }
        if places.is_empty() {
            return;
        }
        self.last_commit = now;
        self.rounds += 1;
        self.committing = Some(Committing { round: self.rounds, epoch: self.epoch, lanes: covered });
        self.mailbox.order(Order::Commit { epoch: self.epoch, round: self.rounds, places });
    }

    pub(crate) fn commit_answered(&mut self, round: u64, problem: Option<String>) {
        let Some(committing) = self.committing.take_if(|committing| committing.round == round) else {
            return;
        };
        if let Some(problem) = problem {
            tracing::warn!(pipeline = %self.pipeline.name, problem, "a commit failed; the next one says the same again");
            self.refused = true;
            self.traffic.commit_failures += 1;
            return;
        }
        self.refused = false;
        if committing.epoch != self.epoch {
            return;
        }
        for Covered { lane, marks, offset, whole, reserved: (to, due), changes } in committing.lanes {
            let lane = &mut self.lanes[lane];
            lane.committed(marks, offset, whole);
            lane.reserved.grant(to, due);
            lane.suspected.committed(changes);
        }
        if self.unsure.is_some_and(|gap| round > gap) {
            self.unsure = None;
            self.settle_what_waited();
        }
    }

    /// Writes the bitmaps of lanes whose notes have no place for everything, and removes those that were passed.
    fn write_progress(&mut self) {
        for at in 0..self.lanes.len() {
            let lane = &mut self.lanes[at];
            let passed = lane.committed / CHUNK;
            lane.dirty.retain(|chunk| *chunk >= passed);
            let mut records: Vec<(u64, Option<Vec<u8>>)> = Vec::new();
            if lane.overflows && lane.writing.is_none() {
                for chunk in std::mem::take(&mut lane.dirty) {
                    records.push((chunk, Some(chunk_bytes(&lane.done, chunk))));
                    let (first, last) = lane.written.unwrap_or((chunk, chunk));
                    lane.written = Some((first.min(chunk), last.max(chunk)));
                }
                lane.writing =
                    Some(Writing { open: records.len(), marks: lane.marks, prefix: lane.done.prefix() });
                lane.keep_written();
            }
            if let Some((first, last)) = lane.written
                && first < passed
            {
                records.extend((first..passed.min(last + 1)).map(|chunk| (chunk, None)));
                lane.written = (passed <= last).then_some((passed, last));
            }
            let (topic, partition) = (Arc::clone(&lane.topic), lane.partition);
            for (chunk, value) in records {
                let then = if value.is_some() {
                    Then::Progress { lane: at, epoch: self.epoch }
                } else {
                    Then::Nothing
                };
                let body = Body::Plain { key: chunk_key(&topic, partition, chunk), value };
                let target = &self.progress;
                let production = Production {
                    topic: Arc::clone(&target.name),
                    partition: target.partition(partition),
                    body,
                    then,
                };
                self.outbox.send(production, &mut self.ended);
            }
        }
        self.absorb_ended();
    }

    pub(crate) fn progress_written(&mut self, at: usize, epoch: u32) {
        if epoch != self.epoch {
            return;
        }
        let lane = &mut self.lanes[at];
        if let Some(writing) = &mut lane.writing {
            writing.open = writing.open.saturating_sub(1);
        }
        lane.keep_written();
    }

    /// Writes far-off messages again that hold the committed offset up, unless they are being delivered.
    fn move_stragglers(&mut self, now: Instant) {
        for at in 0..self.lanes.len() {
            let lane = &mut self.lanes[at];
            if lane.kind == LaneKind::Source {
                continue;
            }
            let prefix = lane.done.prefix();
            if lane.stuck.0 != prefix || lane.next == prefix {
                lane.stuck = (prefix, Some(now));
            }
            let since = *lane.stuck.1.get_or_insert(now);
            let below = if lane.next - prefix > STRAGGLER_OFFSETS {
                lane.next - STRAGGLER_OFFSETS / 2
            } else if lane.next > prefix && now.duration_since(since) > self.straggler_after {
                prefix + 1
            } else {
                continue;
            };
            for waiting in self.ahead.take_stragglers(at, below, STRAGGLERS_MAX) {
                self.move_straggler(at, waiting);
            }
        }
        self.absorb_ended();
    }

    /// The partitions are wanted by others. Once everything that is in flight is settled, or the time for it is over,
    /// they go.
    fn let_go_when_done(&mut self, late: bool) {
        let epoch = self.epoch;
        let is_ours = |then: &&Then| matches!(then, Then::Mark { epoch: of, .. } if *of == epoch);
        // What cannot be written may never be: the next owner has the record.
        let copying = self.outbox.pending().filter(is_ours).count();
        let failing = self.outbox.failing().filter(|failing| is_ours(&failing.then)).count();
        let busy = self.lanes.iter().any(Lane::is_busy) || copying > failing;
        if busy && !late {
            return;
        }
        if busy {
            let running = |lane: &Lane| lane.out.values().filter(|out| !out.waits).count();
            let left: usize = self.lanes.iter().map(running).sum();
            tracing::warn!(left, "partitions go while deliveries run; these will be delivered again");
        }
        let places = self.last_places();
        self.mailbox.order(Order::Release { epoch, places });
        // Answered by `Gone`; until then nothing is asked twice.
        self.claim = Claim::LetGo;
    }

    /// Where every lane stands, for the last commit of an assignment.
    pub(crate) fn last_places(&self) -> Vec<Place> {
        let place = |lane: &Lane| {
            let due_by = lane.suspected.due_by();
            let is_early = |due: Time| due_by.is_some_and(|by| due.as_millis() <= by);
            let waits = !lane.out.is_empty() || self.ahead.next_due().is_some_and(is_early);
            let leaves = !lane.suspected.is_exact() && (waits || !lane.has_ended());
            let (note, _) = note(&lane.standing_at_end(leaves, &self.started), &lane.done);
            Place {
                topic: Arc::clone(&lane.topic),
                partition: lane.partition,
                offset: lane.done.prefix(),
                note,
            }
        };
        self.lanes.iter().map(place).collect()
    }

    /// Before the last commit: what the notes have no place for.
    pub(crate) fn write_last_progress(&mut self) {
        for lane in &mut self.lanes {
            let standing =
                Standing { taken: lane.taken, named: Some(lane.suspected.named()), ..Standing::default() };
            lane.overflows = !note(&standing, &lane.done).1;
        }
        self.write_progress();
    }
}
