//! Decides which records the producer gets next: one burst per partition at a time.
//!
//! With idempotence librdkafka keeps one request per partition in flight, because its limit of five counts records.
//! While more records wait behind that request, its broker thread polls without sleeping (librdkafka issues 2565 and
//! 3692) and uses a whole core until the broker answers. So the records wait here instead, and leave together in the
//! next batch.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

/// Smaller than a batch of librdkafka with its default settings.
const RECORDS_MAX: usize = 5_000;
const BYTES_MAX: usize = 900_000;
/// A record in a batch of its own counts as this many.
const ALONE: usize = RECORDS_MAX / 4;

/// Names the queue of a partition.
pub(super) type QueueId = usize;

/// How much of a burst is used up.
#[derive(Debug, Default)]
pub(super) struct Burst {
    records: usize,
    bytes: usize,
}

impl Burst {
    /// Counts a record that was handed over.
    pub fn add(&mut self, bytes: usize, is_alone: bool) {
        self.records += if is_alone { ALONE } else { 1 };
        self.bytes += bytes;
    }

    pub fn is_full(&self) -> bool {
        self.records >= RECORDS_MAX || self.bytes >= BYTES_MAX
    }
}

#[derive(Debug, Default)]
struct Queue {
    /// Slots of the outbox, in sending order.
    waiting: VecDeque<usize>,
    /// How many records were handed to the producer and not reported yet.
    at_producer: usize,
}

/// The records of all partitions that were not handed to the producer yet.
#[derive(Debug, Default)]
pub(super) struct Bursts {
    ids: HashMap<Arc<str>, HashMap<i32, QueueId>>,
    queues: Vec<Queue>,
    /// Queues whose next burst may leave.
    ready: VecDeque<QueueId>,
}

impl Bursts {
    pub fn queue(&mut self, topic: &Arc<str>, partition: i32) -> QueueId {
        if let Some(id) = self.ids.get(topic).and_then(|partitions| partitions.get(&partition)) {
            return *id;
        }
        self.queues.push(Queue::default());
        let id = self.queues.len() - 1;
        self.ids.entry(Arc::clone(topic)).or_default().insert(partition, id);
        id
    }

    /// Appends a slot to the queue of its partition.
    pub fn push(&mut self, id: QueueId, slot: usize) {
        let queue = &mut self.queues[id];
        queue.waiting.push_back(slot);
        if queue.at_producer == 0 && queue.waiting.len() == 1 {
            self.ready.push_back(id);
        }
    }

    /// Returns the next partition that may hand over a burst.
    pub fn next_ready(&mut self) -> Option<QueueId> {
        self.ready.pop_front()
    }

    pub fn pop(&mut self, id: QueueId) -> Option<usize> {
        self.queues[id].waiting.pop_front()
    }

    /// Notes that the slot popped last was handed to the producer.
    pub fn handed_over(&mut self, id: QueueId) {
        self.queues[id].at_producer += 1;
    }

    /// Puts back the slot popped last, because the producer has no room for it.
    pub fn put_back(&mut self, id: QueueId, slot: usize) {
        self.queues[id].waiting.push_front(slot);
    }

    /// Notes that the burst of this partition was handed over, as far as there was room.
    pub fn burst_over(&mut self, id: QueueId) {
        let queue = &self.queues[id];
        if queue.at_producer == 0 && !queue.waiting.is_empty() {
            self.ready.push_back(id);
        }
    }

    /// Notes that the producer has reported on one record.
    pub fn reported(&mut self, id: QueueId) {
        let queue = &mut self.queues[id];
        queue.at_producer = queue.at_producer.saturating_sub(1);
        if queue.at_producer == 0 && !queue.waiting.is_empty() {
            self.ready.push_back(id);
        }
    }

    /// Whether something waits that no report of the producer will release.
    pub fn has_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// Forgets everything, after the producer was replaced.
    pub fn clear(&mut self) {
        self.ready.clear();
        for queue in &mut self.queues {
            *queue = Queue::default();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Hands over everything that may leave, at most `room` records.
    fn flush(bursts: &mut Bursts, mut room: usize) -> Vec<usize> {
        let mut left = Vec::new();
        for _ in 0..bursts.ready.len() {
            let Some(id) = bursts.next_ready() else { break };
            let mut burst = Burst::default();
            while !burst.is_full()
                && let Some(slot) = bursts.pop(id)
            {
                if room == 0 {
                    bursts.put_back(id, slot);
                    break;
                }
                room -= 1;
                bursts.handed_over(id);
                burst.add(100, false);
                left.push(slot);
            }
            bursts.burst_over(id);
        }
        left
    }

    #[test]
    fn what_is_sent_while_a_burst_is_on_its_way_leaves_together_when_it_is_acknowledged() {
        let mut bursts = Bursts::default();
        let id = bursts.queue(&"retry".into(), 0);
        [1, 2].into_iter().for_each(|slot| bursts.push(id, slot));
        assert_eq!(flush(&mut bursts, 99), [1, 2]);
        [3, 4, 5].into_iter().for_each(|slot| bursts.push(id, slot));
        assert!(!bursts.has_ready());
        bursts.reported(id);
        assert_eq!(flush(&mut bursts, 99), [0_usize; 0]);
        bursts.reported(id);
        assert_eq!(flush(&mut bursts, 99), [3, 4, 5]);
    }

    #[test]
    fn a_partition_does_not_wait_for_another() {
        let mut bursts = Bursts::default();
        let topic = "retry".into();
        let (slow, quick) = (bursts.queue(&topic, 0), bursts.queue(&topic, 1));
        assert_eq!(bursts.queue(&topic, 0), slow);
        bursts.push(slow, 1);
        assert_eq!(flush(&mut bursts, 99), [1]);
        bursts.push(slow, 2);
        bursts.push(quick, 3);
        assert_eq!(flush(&mut bursts, 99), [3]);
    }

    #[test]
    fn a_producer_without_room_is_offered_the_same_record_again() {
        let mut bursts = Bursts::default();
        let id = bursts.queue(&"retry".into(), 0);
        [1, 2, 3].into_iter().for_each(|slot| bursts.push(id, slot));
        assert_eq!(flush(&mut bursts, 0), [0_usize; 0]);
        assert!(bursts.has_ready());
        assert_eq!(flush(&mut bursts, 2), [1, 2]);
        assert!(!bursts.has_ready());
        bursts.reported(id);
        bursts.reported(id);
        assert_eq!(flush(&mut bursts, 2), [3]);
    }

    #[test]
    fn a_burst_ends_before_a_batch_of_the_client_does() {
        let mut bursts = Bursts::default();
        let id = bursts.queue(&"retry".into(), 0);
        (0..7_000).for_each(|slot| bursts.push(id, slot));
        assert_eq!(flush(&mut bursts, usize::MAX).len(), RECORDS_MAX);
        let mut burst = Burst::default();
        burst.add(BYTES_MAX, false);
        assert!(burst.is_full());
        let mut burst = Burst::default();
        (0..4).for_each(|_| burst.add(1, true));
        assert!(burst.is_full());
    }
}
