//! What the polling thread told: partitions come and go, records arrive, commits are answered.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Instant;

use redrive::engine::completion::CompletionSet;
use redrive::engine::{Event, Execution, LastEnd, ProblemKind};
use redrive::timestamp;

use super::engine::{Claim, DueReserve, KafkaEngine, LastCommit, Target, Then};
use crate::backlog::lane::{Lane, Read, Stopped};
use crate::clock::wall_time;
use crate::consume::begin::BEGUN;
use crate::consume::mailbox::{Assigned, FailKind, LaneEnd, LaneStart, Note};
use crate::crash::started;
use crate::crash::suspects::Suspected;
use crate::produce::{Body, Production};
use crate::record::origin_of;
use crate::topics::LaneKind;

impl KafkaEngine {
    /// Hears everything and sends what has to be sent, without telling what is durable.
    pub fn listen(&mut self) {
        self.notice_gap();
        self.hear();
        self.outbox.poll(&mut self.ended);
        self.absorb_ended();
        self.mind_unwritten();
        self.tend();
        self.started.flush();
    }

    /// Hears everything, sends what has to be sent, and says what is durable.
    pub(crate) fn absorb(&mut self, out: &mut Vec<Event>) {
        self.listen();
        out.extend(self.share.take().map(|(owned, all)| Event::Share { owned, all }));
        self.tickets.durable(&self.lanes, self.epoch, !self.unwritten.is_empty(), out);
        let waits = !self.tickets.is_empty()
            || self.claim != Claim::Ours
            || self.outbox.holds()
            || self.twins.is_reading()
            || self.unsure.is_some();
        if waits || self.lanes.iter().any(Lane::has_news) {
            self.mailbox.remind();
        }
    }

    /// A process that was frozen does not know what the group has done meanwhile; a commit that is taken tells.
    pub(crate) fn notice_gap(&mut self) {
        let now = Instant::now();
        if now.duration_since(self.heard) > self.gap_max && !self.lanes.is_empty() {
            self.unsure = Some(self.rounds);
        }
        self.heard = now;
    }

    pub(crate) fn hear(&mut self) {
        let mut notes = std::mem::take(&mut self.notes);
        self.mailbox.hear(&mut notes);
        for note in notes.drain(..) {
            self.hear_one(note);
        }
        self.notes = notes;
        if !self.closed && self.failed.is_none() && !self.poller.is_running() {
            self.fail("the polling thread has ended".to_owned(), FailKind::Unavailable);
        }
    }

    fn hear_one(&mut self, note: Note) {
        match note {
            Note::Assigned { epoch, began } => {
                let Assigned { lanes, partitions, letter_ends, died, is_first, overtaken } = *began;
                (self.letter_ends, self.died) = (letter_ends, died);
                self.assigned(epoch, lanes);
                self.know_partitions(&partitions);
                if is_first {
                    self.leave_a_trace();
                }
                self.count_overtaken(overtaken);
                self.share = self.share_of(&partitions);
            }
            Note::Wanted { epoch } if epoch == self.epoch => {
                self.claim = Claim::Wanted { until: Instant::now() + self.drain };
                // Who is asked to give something up has it.
                self.unsure = None;
                self.settle_what_waited();
            }
            Note::Gone { epoch } if epoch == self.epoch => self.gone(),
            Note::Records { epoch, lane, records } if epoch == self.epoch => {
                self.goes_on(lane);
                self.arrived(lane, records);
            }
            Note::End { epoch, lane } if epoch == self.epoch => {
                self.goes_on(lane);
                self.lanes[lane].end_met();
                self.lanes[lane].read = Read::AtEnd;
                self.open_read_partitions();
                self.start_when_read();
            }
            Note::Ends { epoch, ends } if epoch == self.epoch => {
                for LaneEnd { lane, end, is_met } in ends {
                    let lane = &mut self.lanes[lane];
                    if is_met {
                        lane.is_empty_up_to(end);
                    }
                    // The end of a topic that is written in transactions is no record.
                    if lane.kind != LaneKind::Replay {
                        lane.end = lane.end.max(end);
                        if lane.next >= end {
                            lane.end_met();
                        }
                    }
                }
                self.open_read_partitions();
                self.start_when_read();
            }
            Note::Committed { round: u64::MAX, problem } => {
                self.last_answer = Some(problem.map_or(LastCommit::Kept, LastCommit::Failed));
            }
            Note::Committed { round, problem } => self.commit_answered(round, problem),
            Note::Stopped { epoch, lane, kind, problem } if epoch == self.epoch => {
                self.stopped(lane, kind, problem);
            }
            Note::Failed { problem, kind } => self.fail(problem, kind),
            // Of an assignment that is over.
            Note::Wanted { .. }
            | Note::Gone { .. }
            | Note::Records { .. }
            | Note::End { .. }
            | Note::Ends { .. }
            | Note::Stopped { .. } => {}
        }
    }

    fn assigned(&mut self, epoch: u32, starts: Vec<LaneStart>) {
        self.gone();
        self.epoch = epoch;
        self.traffic.rebalances += 1;
        for start in starts {
            let LaneStart { kind, topic, partition, done, suspected, written, room } = start;
            self.by_name.insert((Arc::clone(&topic), partition), self.lanes.len());
            let lane = match self.options.execution {
                Execution::InProcess => {
                    let suspected = self.still_suspected(&topic, partition, &done, suspected);
                    Lane::new(kind, topic, partition, done, suspected, room)
                }
                Execution::Elsewhere => {
                    Lane::new(kind, topic, partition, done, suspected, room).without_suspects()
                }
            };
            self.lanes.push(Lane { written, ..lane });
        }
        // Before anything is committed in the name of this run.
        self.started.begin(self.lanes.iter().flat_map(Lane::open_marks));
        if self.is_ordered() {
            self.hold_back_partitions();
        }
        self.unsure = None;
        self.twins.begin(Instant::now());
        self.start_when_read();
        let sources = self.lanes.iter().filter(|lane| lane.kind == LaneKind::Source).count();
        tracing::info!(pipeline = %self.pipeline.name, sources, lanes = self.lanes.len(), "partitions assigned");
    }

    /// Who is suspected of a partition, as far as the note of its last owner, the local file and this process know.
    fn still_suspected(
        &mut self,
        topic: &Arc<str>,
        partition: i32,
        done: &CompletionSet,
        mut suspected: Suspected,
    ) -> Suspected {
        let place = started::place(topic, partition);
        let before = self.suspected_before.remove(&(Arc::clone(topic), partition));
        let own = suspected.of_run() == Some(self.started.id());
        if let Some(before) = before.filter(|_| own) {
            if *topic == self.source {
                tracing::info!(%topic, partition, "the partition was lost, and has come back to this process");
            }
            return before.of_the_living();
        }
        if let Some((ran, alone)) = suspected.by().and_then(|run| self.started.left_by(run, place)) {
            match self.options.last_end {
                LastEnd::Unknown => {
                    suspected.narrow(ran.into_iter().filter(|at| !done.contains(*at)).collect(), alone);
                }
                LastEnd::FromOutside => suspected.ended_from_outside(|at| done.contains(at)),
            }
        }
        if !own && suspected.below() > done.prefix() {
            let (from, to) = (done.prefix(), suspected.below());
            tracing::info!(%topic, partition, from, to, "the last owner did not end in order");
        }
        suspected
    }

    /// Says that the pipeline has run, for whoever finds its group without offsets one day.
    fn leave_a_trace(&mut self) {
        let said = serde_json::json!({ "group": self.group, "at": timestamp::print(wall_time()) });
        let body = Body::Plain { key: BEGUN.to_owned(), value: Some(said.to_string().into_bytes()) };
        let topic = Arc::clone(&self.progress.name);
        self.outbox.send(Production { topic, partition: 0, body, then: Then::Nothing }, &mut self.ended);
    }

    /// Topics may have grown since the last time.
    fn know_partitions(&mut self, partitions: &HashMap<Arc<str>, i32>) {
        let others = [&mut self.replay_topic, &mut self.dlq, &mut self.dlq_state, &mut self.progress];
        for target in self.tiers.iter_mut().map(|(_, target)| target).chain(others) {
            if let Some(count) = partitions.get(&target.name) {
                target.partitions = *count;
            }
        }
    }

    /// How much of the pipeline's work is ours, by partitions.
    fn share_of(&self, partitions: &HashMap<Arc<str>, i32>) -> Option<(u32, u32)> {
        let topics: HashSet<&Arc<str>> = self.lanes.iter().map(|lane| &lane.topic).collect();
        let all: i32 = topics.into_iter().filter_map(|topic| partitions.get(topic)).sum();
        let (owned, all) = (u32::try_from(self.lanes.len()).ok()?, u32::try_from(all).ok()?);
        (owned > 0 && owned <= all).then_some((owned, all))
    }

    fn gone(&mut self) {
        // Copies that are acknowledged from now on have no lane to be marked in. The next assignment has this number or a
        // later one, and nothing is begun before it.
        self.epoch = self.epoch.wrapping_add(1);
        self.count_voided_keys();
        for lane in self.lanes.drain(..) {
            self.suspected_before.insert((lane.topic, lane.partition), lane.suspected);
        }
        self.by_name.clear();
        self.ahead.clear();
        self.under_way.clear();
        // What is acknowledged from now on is not known here any more; it is met when it is read.
        self.copying.clear();
        self.ending.clear();
        self.unwritten.clear();
        // What could not be written was not written: whoever has the partition next has the record.
        self.outbox
            .give_up(|then| matches!(then, Then::Mark { .. } | Then::Progress { .. }), &mut self.ended);
        self.put_back.clear();
        self.keys.clear();
        self.held_back.clear();
        self.twins.clear();
        self.unsure = None;
        self.committing = None;
        self.dues = DueReserve::default();
        self.claim = Claim::Ours;
        self.next_source = 0;
        // What was given meanwhile is of an assignment that is over, and settles nothing.
        self.settle_what_waited();
        self.absorb_ended();
    }

    /// Where keys are ordered, nothing of a partition starts before all that waits in its tiers is known, and nothing at
    /// all if somebody else has them.
    fn hold_back_partitions(&mut self) {
        self.held_back.extend(self.lanes.iter().map(|lane| lane.partition));
        for (source, tier) in self.apart() {
            tracing::error!(
                partition = %source,
                "{tier} is not assigned to this member, so key order cannot be kept; nothing of the partition is delivered \
                 until it is"
            );
        }
        self.open_read_partitions();
    }

    /// Source partitions that are held back because a tier partition of theirs is not assigned here, each with the first of
    /// these.
    pub(crate) fn apart(&self) -> Vec<(String, String)> {
        let tiers = self.tiers.iter().map(|(_, target)| target).chain([&self.replay_topic]);
        let mut apart = Vec::new();
        for lane in self.lanes.iter().filter(|lane| lane.kind == LaneKind::Source) {
            let partition = lane.partition;
            let elsewhere = |tier: &&Target| !self.by_name.contains_key(&(Arc::clone(&tier.name), partition));
            if self.held_back.contains(&partition)
                && let Some(tier) = tiers.clone().find(elsewhere)
            {
                apart.push((format!("{}/{partition}", lane.topic), format!("{}/{partition}", tier.name)));
            }
        }
        apart
    }

    fn open_read_partitions(&mut self) {
        if self.held_back.is_empty() {
            return;
        }
        let lanes = &self.lanes;
        let (by_name, tiers, replay) = (&self.by_name, &self.tiers, &self.replay_topic);
        self.held_back.retain(|partition| {
            let here = |topic: &Arc<str>| by_name.contains_key(&(Arc::clone(topic), *partition));
            let together = tiers.iter().all(|(_, target)| here(&target.name)) && here(&replay.name);
            let unread = |lane: &Lane| {
                lane.partition == *partition && lane.kind != LaneKind::Source && !lane.has_ended()
            };
            !together || lanes.iter().any(unread)
        });
    }

    /// Nothing is started before the tiers are read, so that who is there twice is known; but not for ever.
    pub(crate) fn start_when_read(&mut self) {
        if !self.twins.is_reading() {
            return;
        }
        let unread = |lane: &Lane| {
            lane.kind != LaneKind::Source
                && lane.stopped.is_none()
                && (!lane.has_ended() || lane.next < lane.late_end)
        };
        let is_late = |then: &Then| match then {
            Then::Mark { epoch, .. } => *epoch != self.epoch,
            Then::Spooled(_) | Then::Progress { .. } | Then::Nothing => false,
        };
        let waits = self.lanes.iter().any(unread) || self.outbox.pending().any(is_late);
        if waits && !self.twins.is_late(Instant::now()) {
            return;
        }
        // Which keys are blocked is known only from all letters, however long that takes.
        if self.blocks_keys()
            && !(self.letters.are_loaded() && self.letters.are_read_up_to(&self.letter_ends))
        {
            return;
        }
        self.meet_blocked_keys();
        let (lanes, by_name, source) = (&self.lanes, &self.by_name, &self.source);
        self.twins.end(|number| {
            let origin = origin_of(number, source);
            let lane = by_name.get(&(Arc::clone(source), origin.partition));
            lane.is_some_and(|at| lanes[*at].next <= origin.offset.cast_unsigned())
        });
    }

    fn stopped(&mut self, at: usize, kind: ProblemKind, problem: String) {
        let lane = &mut self.lanes[at];
        if lane.stopped.as_ref().is_none_or(|before| before.problem != problem) {
            tracing::error!(
                topic = %lane.topic, partition = lane.partition, from = lane.next, problem,
                "nothing more of this partition is read"
            );
        }
        lane.stopped = Some(Stopped { kind, problem, heard: Instant::now() });
        self.start_when_read();
    }

    /// Something came of a lane.
    fn goes_on(&mut self, at: usize) {
        let lane = &mut self.lanes[at];
        if lane.stopped.take_if(|stopped| stopped.kind != ProblemKind::LostRange).is_some() {
            tracing::info!(topic = %lane.topic, partition = lane.partition, "the partition is read again");
        }
    }
}
