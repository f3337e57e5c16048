//! Messages that wait for their due time, from all tiers together, ordered by due time.
//!
//! A record is read as soon as it is written, however late it is due, so that none waits behind one that is due later.
//! Memory is bounded; beyond the bound, the bytes of messages that are due later go into a file.

use std::collections::BTreeMap;
use std::ops::Bound;

use redrive_core::Time;

use crate::backlog::spill::{Spill, Spilled};
use crate::record::WaitingMessage;

/// Bytes of waiting messages in memory.
pub const MEMORY_MAX: usize = 48 << 20;
/// Messages due within this time stay in memory, up to twice the bound.
const NEAR_MS: u64 = 2_000;

/// Where the bytes of a waiting message are.
#[derive(Debug)]
enum EntryBytes {
    Memory(Box<WaitingMessage>),
    File(Spilled),
}

#[derive(Debug)]
struct TimedEntry {
    lane: usize,
    offset: u64,
    number: u64,
    deferred: bool,
    held: EntryBytes,
}

/// A due message, with the lane it came from.
#[derive(Debug)]
pub struct Due {
    pub lane: usize,
    pub waiting: WaitingMessage,
}

#[derive(Debug)]
pub struct LookAhead {
    entries: BTreeMap<(u64, u64), TimedEntry>,
    /// The entries of lanes from which nothing may start for now.
    parked: BTreeMap<usize, BTreeMap<(u64, u64), TimedEntry>>,
    arrivals: u64,
    memory: usize,
    memory_max: usize,
    /// How many of the entries were deferred.
    deferred: usize,
    spill: Spill,
}

impl LookAhead {
    pub fn new(spill: Spill) -> Self {
        Self {
            entries: BTreeMap::new(),
            parked: BTreeMap::new(),
            arrivals: 0,
            memory: 0,
            memory_max: MEMORY_MAX,
            deferred: 0,
            spill,
        }
    }

    #[cfg(test)]
    fn with_memory_max(self, memory_max: usize) -> Self {
        Self { memory_max, ..self }
    }

    pub fn put(&mut self, lane: usize, waiting: WaitingMessage, now: Time) {
        let due = waiting.due.unwrap_or_default().as_millis();
        let (offset, number, deferred) = (waiting.offset, waiting.number, waiting.meta.deferred);
        let bytes = waiting.bytes();
        let far = due > now.as_millis().saturating_add(NEAR_MS);
        let full = self.memory + bytes > self.memory_max;
        let overfull = self.memory + bytes > self.memory_max * 2;
        let held = if (far && full) || overfull {
            match self.spill.write(&waiting) {
                Some(spilled) => EntryBytes::File(spilled),
                None => EntryBytes::Memory(Box::new(waiting)),
            }
        } else {
            EntryBytes::Memory(Box::new(waiting))
        };
        if matches!(held, EntryBytes::Memory(_)) {
            self.memory += bytes;
        }
        self.arrivals += 1;
        self.deferred += usize::from(deferred);
        let entries = self.parked.get_mut(&lane).unwrap_or(&mut self.entries);
        entries.insert((due, self.arrivals), TimedEntry { lane, offset, number, deferred, held });
    }

    /// Hands out nothing from this lane until [`Self::unpark`].
    pub fn park(&mut self, lane: usize) {
        let of_lane = self.entries.extract_if(.., |_, entry| entry.lane == lane).collect();
        self.parked.insert(lane, of_lane);
    }

    pub fn unpark(&mut self, lane: usize) {
        self.entries.append(&mut self.parked.remove(&lane).unwrap_or_default());
    }

    /// Returns the next due message; if the file lost its bytes, its lane and offset instead.
    pub fn pop_due(&mut self, now: Time) -> Option<Result<Due, (usize, u64)>> {
        let first = self.entries.first_entry()?;
        if first.key().0 > now.as_millis() {
            return None;
        }
        let entry = first.remove();
        let (lane, offset) = (entry.lane, entry.offset);
        Some(self.taken_out(entry).map(|waiting| Due { lane, waiting }).ok_or((lane, offset)))
    }

    /// Returns the message of a removed entry; `None` if the file has lost it.
    fn taken_out(&mut self, entry: TimedEntry) -> Option<WaitingMessage> {
        self.deferred -= usize::from(entry.deferred);
        match entry.held {
            EntryBytes::Memory(waiting) => {
                self.memory -= waiting.bytes();
                Some(*waiting)
            }
            EntryBytes::File(spilled) => {
                let waiting = self.spill.read(&spilled);
                self.spill.free(&spilled);
                waiting
            }
        }
    }

    /// Takes out the message with this number, whatever its due time. It scans all entries, so it is for people only.
    pub fn take(&mut self, number: u64) -> Option<(usize, WaitingMessage)> {
        let entry =
            std::iter::once(&mut self.entries).chain(self.parked.values_mut()).find_map(|entries| {
                let key = *entries.iter().find(|(_, entry)| entry.number == number)?.0;
                entries.remove(&key)
            })?;
        let lane = entry.lane;
        self.taken_out(entry).map(|waiting| (lane, waiting))
    }

    /// Returns the entries after this key in due order, each with its message if that can be read.
    pub fn after(
        &self,
        after: Option<(u64, u64)>,
    ) -> impl Iterator<Item = ((u64, u64), Option<WaitingMessage>)> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let all = std::iter::once(&self.entries).chain(self.parked.values());
        let mut parts: Vec<_> =
            all.map(|entries| entries.range((from, Bound::Unbounded)).peekable()).collect();
        std::iter::from_fn(move || {
            let heads = parts.iter_mut().enumerate().filter_map(|(at, part)| Some((*part.peek()?.0, at)));
            let (_, at) = heads.min()?;
            let (key, entry) = parts[at].next()?;
            let waiting = match &entry.held {
                EntryBytes::Memory(waiting) => Some((**waiting).clone()),
                EntryBytes::File(spilled) => self.spill.read(spilled),
            };
            Some((*key, waiting))
        })
    }

    /// Returns how many were deferred.
    pub fn held(&self) -> usize {
        self.deferred
    }

    /// Counts the due messages, up to `limit`.
    pub fn due_count(&self, now: Time, limit: usize) -> usize {
        self.entries.range(..=(now.as_millis(), u64::MAX)).take(limit).count()
    }

    pub fn next_due(&self) -> Option<Time> {
        self.entries.first_key_value().map(|((due, _), _)| Time::from_millis(*due))
    }

    /// Returns lane and due time of the next entries: at most `limit`, due by `latest`.
    pub fn coming(&self, limit: usize, latest: u64) -> impl Iterator<Item = (usize, u64)> {
        self.entries.range(..=(latest, u64::MAX)).take(limit).map(|((due, _), entry)| (entry.lane, *due))
    }

    pub fn len(&self) -> usize {
        self.entries.len() + self.parked.values().map(BTreeMap::len).sum::<usize>()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns those in memory that come due first.
    pub fn first(&self, limit: usize) -> impl Iterator<Item = &WaitingMessage> {
        self.entries.values().take(limit).filter_map(|entry| match &entry.held {
            EntryBytes::Memory(waiting) => Some(&**waiting),
            EntryBytes::File(_) => None,
        })
    }

    /// Takes out the entries of a lane below `offset`, which are to be rewritten at the end of a tier.
    pub fn take_stragglers(&mut self, lane: usize, below: u64, limit: usize) -> Vec<WaitingMessage> {
        let stragglers: Vec<(u64, u64)> = self
            .entries
            .iter()
            .filter(|(_, entry)| entry.lane == lane && entry.offset < below)
            .map(|(key, _)| *key)
            .take(limit)
            .collect();
        stragglers
            .into_iter()
            .filter_map(|key| {
                let entry = self.entries.remove(&key)?;
                self.taken_out(entry)
            })
            .collect()
    }

    pub fn clear(&mut self) {
        self.entries.clear();
        self.parked.clear();
        (self.memory, self.deferred) = (0, 0);
        self.spill.clear();
    }
}

#[cfg(test)]
mod tests {
    use redrive::internal::engine::history::History;
    use redrive_core::{Message, Meta};

    use super::*;
    use crate::record::Carried;

    fn waiting(offset: u64, due: u64) -> WaitingMessage {
        WaitingMessage {
            offset,
            number: offset,
            message: Message::builder(format!("m{offset}")).payload(vec![7; 300]).key("k").build().unwrap(),
            meta: Meta { attempts: offset as u32, created: Time::from_millis(due), ..Meta::default() },
            history: History::default(),
            due: Some(Time::from_millis(due)),
            arrived: None,
            doomed: None,
            carried: Carried { topic: Some("orders".into()), job: Some(offset) },
        }
    }

    #[test]
    fn messages_come_in_the_order_of_their_times_also_out_of_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let spill = Spill::new(dir.path(), "orders");
        let mut ahead = LookAhead::new(spill).with_memory_max(2_000);
        let dues: Vec<u64> = (0..50).map(|n| 10_000 + (n * 37) % 50).collect();
        for (offset, due) in dues.iter().enumerate() {
            ahead.put(1, waiting(offset as u64, *due), Time::ZERO);
        }
        assert!(ahead.memory <= 2_500, "{}", ahead.memory);
        assert!(ahead.pop_due(Time::from_millis(9_999)).is_none());
        let mut last = 0;
        for _ in 0..50 {
            let Due { lane, waiting: got } = ahead.pop_due(Time::from_millis(20_000)).unwrap().unwrap();
            let expected = waiting(got.offset, dues[got.offset as usize]);
            assert_eq!(lane, 1);
            assert_eq!(
                (&got.message, got.meta, &got.carried),
                (&expected.message, expected.meta, &expected.carried)
            );
            assert_eq!(
                (got.number, got.due, &got.history),
                (expected.number, expected.due, &expected.history)
            );
            assert!(got.due.unwrap().as_millis() >= last);
            last = got.due.unwrap().as_millis();
        }
        assert_eq!((ahead.len(), ahead.memory), (0, 0));
    }

    #[test]
    fn stragglers_of_one_lane_are_taken_out() {
        let dir = tempfile::tempdir().unwrap();
        let mut ahead = LookAhead::new(Spill::new(dir.path(), "orders"));
        ahead.put(0, waiting(1, 50_000), Time::ZERO);
        ahead.put(1, waiting(2, 50_000), Time::ZERO);
        ahead.put(0, waiting(3, 10), Time::ZERO);
        let offsets: Vec<u64> = ahead.take_stragglers(0, 3, 10).iter().map(|w| w.offset).collect();
        assert_eq!(offsets, [1]);
        assert_eq!(ahead.len(), 2);
    }

    #[test]
    fn nothing_of_a_parked_lane_comes_and_nothing_of_it_is_lost() {
        let dir = tempfile::tempdir().unwrap();
        let mut ahead = LookAhead::new(Spill::new(dir.path(), "orders"));
        let come = |ahead: &mut LookAhead| {
            let mut offsets = Vec::new();
            while let Some(Ok(due)) = ahead.pop_due(Time::from_millis(100)) {
                offsets.push(due.waiting.offset);
            }
            offsets
        };
        (1..5).for_each(|n| ahead.put(n as usize % 2, waiting(n, n), Time::ZERO));
        ahead.park(1);
        ahead.put(1, waiting(5, 5), Time::ZERO);
        assert_eq!((come(&mut ahead), ahead.len()), (vec![2, 4], 3));
        assert_eq!(ahead.next_due(), None, "time alone brings nothing");
        ahead.unpark(1);
        assert_eq!((come(&mut ahead), ahead.len()), (vec![1, 3, 5], 0));
    }

    /// Compares the look-ahead with the delay index of the embedded engine; see ADR 15.
    #[test]
    #[ignore = "a measurement"]
    fn beside_the_delay_index() {
        use std::collections::BTreeMap;
        use std::convert::Infallible;
        use std::sync::Arc;
        use std::time::Instant;

        use redrive::internal::engine::delay::{DelayIndex, DelayKey};
        use redrive::internal::engine::overlay::Far;

        /// No table behind the index: Kafka is the source of truth.
        struct Nothing;
        impl Far<DelayKey, Arc<WaitingMessage>> for Nothing {
            type Error = Infallible;
            fn get(&self, _: &DelayKey) -> Result<Option<Arc<WaitingMessage>>, Infallible> {
                Ok(None)
            }
            fn range(
                &self,
                _: &DelayKey,
                _: Option<&DelayKey>,
                _: usize,
            ) -> Result<Vec<(DelayKey, Arc<WaitingMessage>)>, Infallible> {
                Ok(Vec::new())
            }
        }

        const COUNT: u64 = 200_000;
        let due = |n: u64| 10_000 + (n * 7_919) % COUNT;
        let all: BTreeMap<u64, WaitingMessage> = (0..COUNT).map(|n| (n, waiting(n, due(n)))).collect();
        let dir = tempfile::tempdir().unwrap();
        let mut ahead = LookAhead::new(Spill::new(dir.path(), "orders")).with_memory_max(usize::MAX / 4);
        let inputs = all.clone();
        let began = Instant::now();
        inputs.into_iter().for_each(|(_, waiting)| ahead.put(0, waiting, Time::ZERO));
        while ahead.pop_due(Time::MAX).is_some() {}
        let plain = began.elapsed();

        let mut index = DelayIndex::<Arc<WaitingMessage>>::new(usize::MAX, 0);
        let began = Instant::now();
        all.into_iter().for_each(|(n, waiting)| index.put((due(n), n), Arc::new(waiting)));
        let changes = index.changes();
        while let Some((key, _)) = index.pop_due(Time::MAX) {
            let _ = index.remove(&key, &Nothing);
        }
        let shared = began.elapsed();
        println!(
            "{COUNT} messages in and out: look-ahead {plain:?}, delay index {shared:?} ({changes} of them held twice \
             meanwhile, {} changes left for a table afterwards)",
            index.changes()
        );
    }
}
