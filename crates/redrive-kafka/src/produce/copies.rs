//! Everything this engine writes (retries, letters, successes and bitmaps) until it is acknowledged or refused.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rdkafka::error::RDKafkaErrorCode;
use redrive_core::Time;

use super::after::{AfterWrite, Mark};
use super::cut;
use super::outbox::{Failing, Outbox};
use super::producer::{Body, Production, WriteOutcome};
use super::spool::{Spool, Spooled};
use super::targets::TargetTopics;
use crate::record::{CopyRecord, Origin};

/// Whether a spooled record is still needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SpoolUse {
    Offer,
    Later,
    Never,
}

#[derive(Debug)]
pub(crate) struct Copies {
    outbox: Outbox<AfterWrite>,
    /// Acknowledged, refused or given up, but not handled yet.
    ended: Vec<(Production<AfterWrite>, WriteOutcome)>,
    spool: Spool,
    topics: TargetTopics,
}

impl Copies {
    pub fn new(outbox: Outbox<AfterWrite>, spool: Spool, topics: TargetTopics) -> Self {
        Self { outbox, ended: Vec::new(), spool, topics }
    }

    pub fn topics(&self) -> &TargetTopics {
        &self.topics
    }

    pub fn topics_mut(&mut self) -> &mut TargetTopics {
        &mut self.topics
    }

    /// Writes a retry to the tier that fits its delay.
    pub fn retry(&mut self, copy: CopyRecord, attempts: u32, delay: Duration, from: Origin, mark: Mark) {
        let tier = self.topics.tier(attempts, delay);
        let (topic, partition) = (Arc::clone(&tier.name), tier.partition(copy.origin.partition));
        self.write_copy(topic, partition, copy, from, mark);
    }

    pub fn letter(&mut self, copy: CopyRecord, from: Origin, mark: Mark) {
        let letters = self.topics.letters();
        let (topic, partition) = (Arc::clone(&letters.name), letters.partition(copy.origin.partition));
        self.write_copy(topic, partition, copy, from, mark);
    }

    fn write_copy(&mut self, topic: Arc<str>, partition: i32, copy: CopyRecord, from: Origin, mark: Mark) {
        let body = Body::Copy { copy: Box::new(copy), from: Some(from) };
        self.send(Production { topic, partition, body, then: AfterWrite::Mark(mark) });
    }

    /// Writes the success of a replayed letter.
    pub fn success(&mut self, key: String, value: Vec<u8>, mark: Mark) {
        let states = self.topics.letter_states();
        let (topic, partition) = (Arc::clone(&states.name), states.partition((mark.number >> 48) as i32));
        let body = Body::Plain { key, value: Some(value) };
        self.send(Production { topic, partition, body, then: AfterWrite::Mark(mark) });
    }

    /// Writes or deletes a record of `T.progress` for a source or tier partition.
    pub fn progress(&mut self, partition: i32, key: String, value: Option<Vec<u8>>, then: AfterWrite) {
        let progress = self.topics.progress();
        let (topic, partition) = (Arc::clone(&progress.name), progress.partition(partition));
        self.send(Production { topic, partition, body: Body::Plain { key, value }, then });
    }

    fn send(&mut self, production: Production<AfterWrite>) {
        self.outbox.send(production);
    }

    /// Hands over what was written since the last call.
    pub fn flush(&mut self) {
        self.outbox.flush(&mut self.ended);
    }

    /// Collects acknowledgements and resends what has to be.
    pub fn poll(&mut self) {
        self.outbox.poll(&mut self.ended);
    }

    /// Takes what has ended since the last call; return the list with [`Self::reuse`].
    pub fn take_ended(&mut self) -> Vec<(Production<AfterWrite>, WriteOutcome)> {
        std::mem::take(&mut self.ended)
    }

    /// Takes the emptied list back. Returns whether more has ended in the meantime.
    pub fn reuse(&mut self, emptied: Vec<(Production<AfterWrite>, WriteOutcome)>) -> bool {
        if self.ended.is_empty() {
            self.ended = emptied;
            return false;
        }
        true
    }

    /// Handles a copy that Kafka will never accept as it is: it becomes a truncated letter, or is retried forever if
    /// nothing is left to truncate. Returns the due time of a retry that became a letter.
    pub fn refused(&mut self, production: Production<AfterWrite>, code: RDKafkaErrorCode) -> Option<Time> {
        let letters = self.topics.letters();
        let Some(cut) = cut::truncated(&production, letters, code) else {
            self.outbox.hold(production, code);
            return None;
        };
        if let Some((whole, from)) = &cut.to_spool {
            let (topic, partition) = (&cut.letter.topic, cut.letter.partition);
            self.spool.keep(topic, partition, whole, from.as_ref(), &code.to_string());
        }
        self.send(cut.letter);
        cut.was_retry
    }

    /// Offers spooled records again, as far as `needed` allows.
    pub fn offer_spooled(&mut self, now: Instant, needed: impl Fn(&CopyRecord, bool) -> SpoolUse) {
        let is_spooled = |then: &AfterWrite| matches!(then, AfterWrite::Spooled(_));
        if self.spool.is_empty() || self.outbox.pending().any(is_spooled) {
            return;
        }
        for Spooled { path, topic, partition, body, has_letter } in self.spool.next_offers(now) {
            let Body::Copy { copy, .. } = &body else { continue };
            match needed(copy, has_letter) {
                SpoolUse::Later => {}
                SpoolUse::Never => self.spool.forget(&path, now),
                SpoolUse::Offer => {
                    tracing::info!(path = %path.display(), %topic, "offering a refused record again");
                    self.send(Production { topic, partition, body, then: AfterWrite::Spooled(path) });
                }
            }
        }
    }

    /// Notes that a spooled record was accepted.
    pub fn spooled_stored(&mut self, path: &Path, now: Instant) {
        self.spool.forget(path, now);
    }

    pub fn spooled(&self) -> usize {
        self.spool.len()
    }

    pub fn offer_spooled_every(&mut self, span: Duration, now: Instant) {
        self.spool.offer_every(span, now);
    }

    /// Whether the record at this offset is being replaced by a copy that is not acknowledged yet.
    pub fn is_replacing(&self, epoch: u32, lane: usize, offset: u64) -> bool {
        self.marks().any(|mark| (mark.lane, mark.epoch, mark.offset) == (lane, epoch, offset))
    }

    /// Whether a copy of an earlier assignment is not acknowledged yet.
    pub fn has_earlier(&self, epoch: u32) -> bool {
        self.marks().any(|mark| mark.epoch != epoch)
    }

    /// Whether a copy of this assignment is in flight that may still be written soon.
    pub fn is_busy(&self, epoch: u32) -> bool {
        let failing = self.outbox.failing().filter_map(|failing| mark_of(failing.then));
        let failing = failing.filter(|mark| mark.epoch == epoch).count();
        self.marks().filter(|mark| mark.epoch == epoch).count() > failing
    }

    fn marks(&self) -> impl Iterator<Item = &Mark> {
        self.outbox.pending().filter_map(mark_of)
    }

    pub fn failing(&self) -> impl Iterator<Item = Failing<'_, AfterWrite>> {
        self.outbox.failing()
    }

    pub fn is_failing(&self) -> bool {
        self.outbox.failing_count() > 0
    }

    /// Whether everything that is not written yet has failed at least once.
    pub fn is_stuck(&self) -> bool {
        self.outbox.failing_count() == self.outbox.len()
    }

    pub fn is_empty(&self) -> bool {
        self.outbox.is_empty()
    }

    /// Whether something has to be resent that no event would wake the engine for.
    pub fn needs_polling(&self) -> bool {
        self.outbox.holds()
    }

    /// Gives up failed copies of partitions that are gone: their records are not done, and the next owner has them.
    pub fn give_up_failed(&mut self) {
        let is_of_lane =
            |then: &AfterWrite| matches!(then, AfterWrite::Mark(_) | AfterWrite::Progress { .. });
        self.outbox.give_up(is_of_lane, &mut self.ended);
    }
}

fn mark_of(then: &AfterWrite) -> Option<&Mark> {
    match then {
        AfterWrite::Mark(mark) => Some(mark),
        AfterWrite::Progress { .. } | AfterWrite::Spooled(_) | AfterWrite::Nothing => None,
    }
}
