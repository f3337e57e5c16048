//! Records that were sent and are not acknowledged yet; failed ones are resent.
//!
//! A record is refused only for a reason of its own: it is too large, or invalid. After any other error, such as a
//! missing permission or topic, or an unreachable broker, it is resent until it is written, however long that takes.
//!
//! When an acknowledgement is lost, the copy may exist. It is resent, which can create a twin but never loses a
//! message.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rdkafka::ClientConfig;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::producer::{Producer as _, ThreadedProducer};

use super::bursts::{Burst, Bursts, QueueId};
use super::producer::{Body, DeliveryReport, Production, ReportCollector, WriteOutcome, connect, send};
use crate::client::problems::ProblemLog;
use crate::client::threads::ClientThreads;
use crate::consume::mailbox::Mailbox;
use crate::locked::locked;

/// Time until a copy is resent after its first error; it doubles with each further one, up to the maximum.
const AGAIN_AFTER: Duration = Duration::from_millis(250);
const AGAIN_AFTER_MAX: Duration = Duration::from_secs(5);
const GENERATION_BITS: u32 = 16;
const SLOT_MASK: usize = usize::MAX >> GENERATION_BITS;

/// A production that could not be written so far.
#[derive(Clone, Copy, Debug)]
pub struct Failing<'a, T> {
    pub topic: &'a str,
    pub partition: i32,
    pub then: &'a T,
    pub code: RDKafkaErrorCode,
}

struct OutboxEntry<T> {
    production: Production<T>,
    queue: QueueId,
    /// The last error, and how many there were.
    failed: Option<(RDKafkaErrorCode, u32)>,
    /// Whether a batch with it was refused: it is sent alone then, so that it is not blamed for another record.
    is_alone: bool,
}

/// Everything that is in flight.
pub struct Outbox<T> {
    config: ClientConfig,
    mailbox: Arc<Mailbox>,
    producer: ThreadedProducer<ReportCollector>,
    /// Puts each record into a batch of its own; created when first needed.
    single: Option<ThreadedProducer<ReportCollector>>,
    reports: Arc<Mutex<Vec<DeliveryReport>>>,
    /// Number of the current producer: reports of earlier ones are ignored.
    generation: usize,
    slots: Vec<Option<OutboxEntry<T>>>,
    unused: Vec<usize>,
    /// Those that were not handed to the producer yet.
    bursts: Bursts,
    /// Those that failed, by the time at which they are resent.
    failed: BTreeSet<(Instant, usize)>,
    /// How many have failed and are not written yet, including those being resent.
    failing: usize,
    heard: Vec<DeliveryReport>,
    problems: ProblemLog,
    /// Threads that drop replaced producers.
    ending: ClientThreads,
}

impl<T> std::fmt::Debug for Outbox<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Outbox").field("on_their_way", &self.len()).finish_non_exhaustive()
    }
}

impl<T> Outbox<T> {
    pub fn new(config: ClientConfig, mailbox: &Arc<Mailbox>) -> Result<Self, KafkaError> {
        let reports = Arc::new(Mutex::new(Vec::new()));
        let producer = connect(&config, &reports, mailbox)?;
        Ok(Self {
            config,
            mailbox: Arc::clone(mailbox),
            producer,
            single: None,
            reports,
            generation: 0,
            slots: Vec::new(),
            unused: Vec::new(),
            bursts: Bursts::default(),
            failed: BTreeSet::new(),
            failing: 0,
            heard: Vec::new(),
            problems: ProblemLog::default(),
            ending: ClientThreads::default(),
        })
    }

    pub fn len(&self) -> usize {
        self.slots.len() - self.unused.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns what every production in flight will do.
    pub fn pending(&self) -> impl Iterator<Item = &T> {
        self.slots.iter().flatten().map(|slot| &slot.production.then)
    }

    /// Returns how many have failed and are not written yet.
    pub fn failing_count(&self) -> usize {
        self.failing
    }

    /// Returns those that have failed and are not written yet.
    pub fn failing(&self) -> impl Iterator<Item = Failing<'_, T>> {
        let slots = self.slots.iter().flatten().filter(|_| self.failing > 0);
        slots.filter_map(|OutboxEntry { production, failed, .. }| {
            let Production { topic, partition, then, .. } = production;
            Some(Failing { topic, partition: *partition, then, code: failed.as_ref()?.0 })
        })
    }

    /// Takes a record that leaves with [`Self::flush`]; [`Self::poll`] reports the outcome.
    pub fn send(&mut self, production: Production<T>) {
        let at = self.take_in(production, false);
        self.enqueue(at);
    }

    /// Takes a record that was refused for good. It is retried anyway, because nothing else can be done.
    pub fn hold(&mut self, production: Production<T>, code: RDKafkaErrorCode) {
        let slot = self.take_in(production, true);
        if let Some(held) = &mut self.slots[slot] {
            held.failed = Some((code, u32::MAX / 2));
            self.failing += 1;
        }
        self.failed.insert((Instant::now() + AGAIN_AFTER_MAX, slot));
    }

    fn take_in(&mut self, production: Production<T>, is_alone: bool) -> usize {
        let queue = self.bursts.queue(&production.topic, production.partition);
        let at = self.unused.pop().unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() - 1
        });
        self.slots[at] = Some(OutboxEntry { production, queue, failed: None, is_alone });
        at
    }

    fn enqueue(&mut self, at: usize) {
        if let Some(slot) = &self.slots[at] {
            self.bursts.push(slot.queue, at);
        }
    }

    /// Hands the next burst of each partition to the producer, unless one of that partition is in flight.
    pub fn flush(&mut self, ended: &mut Vec<(Production<T>, WriteOutcome)>) {
        while let Some(queue) = self.bursts.next_ready() {
            let mut burst = Burst::default();
            let mut has_room = true;
            while has_room
                && !burst.is_full()
                && let Some(at) = self.bursts.pop(queue)
            {
                has_room = self.give(at, &mut burst, ended);
            }
            self.bursts.burst_over(queue);
            if !has_room {
                break;
            }
        }
    }

    /// Hands a record to the producer. Returns whether there was room for it.
    fn give(&mut self, at: usize, burst: &mut Burst, ended: &mut Vec<(Production<T>, WriteOutcome)>) -> bool {
        let is_alone = self.slots[at].as_ref().is_some_and(|slot| slot.is_alone);
        if is_alone && self.single.is_none() {
            let mut config = self.config.clone();
            config.set("batch.num.messages", "1");
            self.single = connect(&config, &self.reports, &self.mailbox).ok();
        }
        let producer = self.single.as_ref().filter(|_| is_alone).unwrap_or(&self.producer);
        let Some(slot) = self.slots[at].as_ref() else { return true };
        let opaque = (self.generation << (usize::BITS - GENERATION_BITS)) | at;
        let Err(error) = send(producer, &slot.production, opaque) else {
            burst.add(slot.production.bytes(), is_alone);
            self.bursts.handed_over(slot.queue);
            return true;
        };
        match error.rdkafka_error_code() {
            Some(RDKafkaErrorCode::QueueFull) => {
                self.bursts.put_back(slot.queue, at);
                return false;
            }
            // The client itself checked this one record.
            Some(code) if slot.is_refused_by(code) => self.end(at, WriteOutcome::Refused(code), ended),
            code => self.fail(at, code.unwrap_or(RDKafkaErrorCode::Unknown)),
        }
        true
    }

    /// Schedules a record to be resent.
    fn fail(&mut self, at: usize, code: RDKafkaErrorCode) {
        let now = Instant::now();
        let Some(slot) = self.slots[at].as_mut() else { return };
        let times = slot.failed.map_or(0, |(_, times)| times).saturating_add(1);
        self.failing += usize::from(slot.failed.is_none());
        slot.failed = Some((code, times));
        self.failed.insert((now + again_after(times), at));
        if let Some(times) = self.problems.times(&KafkaError::MessageProduction(code), now) {
            let Production { topic, partition, .. } = &slot.production;
            tracing::error!(%code, %topic, partition, times, "a record could not be written yet; it is tried again");
        }
    }

    fn end(&mut self, at: usize, how: WriteOutcome, ended: &mut Vec<(Production<T>, WriteOutcome)>) {
        if let Some(slot) = self.slots[at].take() {
            self.failing -= usize::from(slot.failed.is_some());
            self.unused.push(at);
            ended.push((slot.production, how));
        }
    }

    /// Gives up productions that have failed, are not in flight now, and for which `unneeded` holds.
    pub fn give_up(&mut self, unneeded: impl Fn(&T) -> bool, ended: &mut Vec<(Production<T>, WriteOutcome)>) {
        let is_unneeded = |(_, at): &(Instant, usize)| {
            self.slots[*at].as_ref().is_some_and(|slot| unneeded(&slot.production.then))
        };
        let found: Vec<(Instant, usize)> =
            self.failed.iter().filter(|entry| is_unneeded(entry)).copied().collect();
        for entry in found {
            self.failed.remove(&entry);
            self.end(entry.1, WriteOutcome::GivenUp, ended);
        }
    }

    /// Handles delivery reports and resends what has to be.
    pub fn poll(&mut self, ended: &mut Vec<(Production<T>, WriteOutcome)>) {
        let mut heard = std::mem::take(&mut self.heard);
        std::mem::swap(&mut *locked(&self.reports), &mut heard);
        let (mut fatal, mut failed) = (false, false);
        for DeliveryReport { opaque, result } in heard.drain(..) {
            let (generation, at) = (opaque >> (usize::BITS - GENERATION_BITS), opaque & SLOT_MASK);
            if generation != self.generation {
                continue;
            }
            if let Some(slot) = &self.slots[at] {
                self.bursts.reported(slot.queue);
            }
            match result {
                Ok((partition, offset)) => self.end(at, WriteOutcome::Stored { partition, offset }, ended),
                Err(code) => {
                    failed = true;
                    // A producer that times out may never recover: after a broker had no leader for a while, one was
                    // seen to wait without end.
                    fatal |= matches!(code, RDKafkaErrorCode::Fatal | RDKafkaErrorCode::MessageTimedOut);
                    self.failed_with(at, code, ended);
                }
            }
        }
        self.heard = heard;
        if fatal || (failed && self.producer.client().fatal_error().is_some()) {
            self.begin_anew();
        }
        self.send_again(ended);
    }

    fn failed_with(
        &mut self,
        at: usize,
        code: RDKafkaErrorCode,
        ended: &mut Vec<(Production<T>, WriteOutcome)>,
    ) {
        match self.slots[at].as_mut() {
            Some(slot) if slot.is_refused_by(code) && slot.is_alone => {
                self.end(at, WriteOutcome::Refused(code), ended);
            }
            Some(slot) if slot.is_refused_by(code) => {
                slot.is_alone = true;
                self.enqueue(at);
            }
            // Another record of its batch was refused.
            Some(slot) if code == RDKafkaErrorCode::InvalidDifferentRecord => {
                slot.is_alone = true;
                self.enqueue(at);
            }
            _ => self.fail(at, code),
        }
    }

    fn send_again(&mut self, ended: &mut Vec<(Production<T>, WriteOutcome)>) {
        let now = Instant::now();
        while let Some((_, slot)) = self.failed.first().copied().filter(|(at, _)| *at <= now) {
            self.failed.pop_first();
            self.enqueue(slot);
        }
        self.flush(ended);
    }

    /// Whether something has to be resent that no event would trigger.
    pub fn holds(&self) -> bool {
        self.bursts.has_ready() || !self.failed.is_empty()
    }

    /// Replaces the producer, which is useless after a fatal error. It is unknown whether its last records were
    /// written.
    pub fn begin_anew(&mut self) {
        match connect(&self.config, &self.reports, &self.mailbox) {
            Ok(producer) => {
                tracing::warn!("recreated the Kafka producer; resending unacknowledged records");
                let old = (std::mem::replace(&mut self.producer, producer), self.single.take());
                // Dropping the old producer waits for its threads.
                self.ending.spawn("end-producer", move || drop(old));
                self.generation = (self.generation + 1) & ((1 << GENERATION_BITS) - 1);
                let waits: BTreeSet<usize> = self.failed.iter().map(|(_, slot)| *slot).collect();
                self.bursts.clear();
                for at in (0..self.slots.len()).filter(|at| !waits.contains(at)) {
                    self.enqueue(at);
                }
            }
            Err(error) => tracing::error!(%error, "the Kafka producer cannot be recreated"),
        }
    }
}

impl<T> OutboxEntry<T> {
    /// Whether this record can never be written as it is.
    fn is_refused_by(&self, code: RDKafkaErrorCode) -> bool {
        matches!(self.production.body, Body::Copy { .. }) && is_of_record(code)
    }
}

fn again_after(times: u32) -> Duration {
    AGAIN_AFTER
        .saturating_mul(1_u32.checked_shl(times.saturating_sub(1)).unwrap_or(u32::MAX))
        .min(AGAIN_AFTER_MAX)
}

/// Whether the record itself is refused. Everything else can be repaired without changing it: permissions, topics,
/// quotas, brokers.
fn is_of_record(code: RDKafkaErrorCode) -> bool {
    matches!(
        code,
        RDKafkaErrorCode::MessageSizeTooLarge
            | RDKafkaErrorCode::InvalidMessageSize
            | RDKafkaErrorCode::InvalidRecord
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_the_record_itself_makes_impossible_is_refused_for_good() {
        use RDKafkaErrorCode as Code;
        assert!([Code::MessageSizeTooLarge, Code::InvalidRecord].into_iter().all(is_of_record));
        let others = [
            Code::TopicAuthorizationFailed,
            Code::ClusterAuthorizationFailed,
            Code::UnknownTopicOrPartition,
            Code::UnknownTopic,
            Code::ThrottlingQuotaExceeded,
            Code::PolicyViolation,
            Code::ProducerFenced,
            Code::NotEnoughReplicas,
            Code::MessageTimedOut,
        ];
        assert!(!others.into_iter().any(is_of_record));
    }

    #[test]
    fn a_record_is_tried_again_ever_more_seldom_but_always() {
        let spans: Vec<u128> = [1, 2, 3, 5, 6, 40, u32::MAX].map(|n| again_after(n).as_millis()).to_vec();
        assert_eq!(spans, [250, 500, 1_000, 4_000, 5_000, 5_000, 5_000]);
    }
}
