//! Key order: which message of a key may start, and which ones wait behind it. No I/O.
//!
//! Keys are told apart by hash; two keys with the same hash merely wait for each other. Every unfinished message is in
//! the line of its key, ordered by number, whether it is in memory, in a tier, or being written to one. The first one
//! may start when nothing else of the key runs.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use redrive::internal::engine::numbers::NumberMap;
use redrive_core::Message;
use xxhash_rust::xxh3::xxh3_64;

use crate::record::WaitingMessage;

#[derive(Debug, Default)]
struct KeyQueue {
    /// Unfinished records of each number; more than one only after a crash.
    members: BTreeMap<u64, u32>,
    running: Option<u64>,
    /// Messages that had to wait, by number, lane and offset.
    blocked: BTreeMap<(u64, usize, u64), WaitingMessage>,
}

#[derive(Debug, Default)]
pub struct Keys {
    lines: NumberMap<u64, KeyQueue>,
    /// Keys with a blocked message whose turn may have come.
    free: VecDeque<u64>,
    /// Letters of each key that are open, or may be reopened.
    letters: NumberMap<u64, BTreeSet<u64>>,
    /// Keys from which nothing starts for now: one of their letters was requeued elsewhere and has not been read here
    /// yet.
    held: BTreeSet<u64>,
    blocked: usize,
}

/// The hash of a message's key, if it has one.
pub fn hash_of(message: &Message) -> Option<u64> {
    message.key().map(xxh3_64)
}

impl Keys {
    /// Notes that a record of the key was read, or is being written.
    pub fn join(&mut self, key: u64, number: u64) {
        *self.lines.entry(key).or_default().members.entry(number).or_default() += 1;
    }

    /// Starts a message if it is its turn; otherwise keeps it waiting here.
    pub fn start(&mut self, key: u64, lane: usize, waiting: WaitingMessage) -> Option<WaitingMessage> {
        let line = self.lines.entry(key).or_default();
        let number = waiting.number;
        let is_first = line.members.first_key_value().is_none_or(|(first, _)| *first >= number);
        if line.running.is_none() && is_first && !self.held.contains(&key) {
            line.running = Some(number);
            return Some(waiting);
        }
        line.blocked.insert((number, lane, waiting.offset), waiting);
        self.blocked += 1;
        None
    }

    /// Notes that the running message has come back or is finished.
    pub fn stop(&mut self, key: u64, number: u64) {
        if let Some(line) = self.lines.get_mut(&key) {
            line.running = line.running.filter(|running| *running != number);
            self.look(key);
        }
    }

    /// Notes that a record of the key is finished.
    pub fn leave(&mut self, key: u64, number: u64) {
        let Some(line) = self.lines.get_mut(&key) else { return };
        if let Some(count) = line.members.get_mut(&number) {
            *count -= 1;
            if *count == 0 {
                line.members.remove(&number);
            }
        }
        if line.members.is_empty() && line.running.is_none() && line.blocked.is_empty() {
            self.lines.remove(&key);
        } else {
            self.look(key);
        }
    }

    /// Queues the key for [`Self::next_free`] if one of its blocked messages may start.
    fn look(&mut self, key: u64) {
        if self.lines.get(&key).is_some_and(|line| line.next().is_some()) {
            self.free.push_back(key);
        }
    }

    /// Starts and returns the next blocked message whose turn has come.
    pub fn next_free(&mut self) -> Option<(usize, WaitingMessage)> {
        while let Some(key) = self.free.pop_front() {
            let Some(line) = self.lines.get_mut(&key).filter(|_| !self.held.contains(&key)) else { continue };
            let Some(place) = line.next() else { continue };
            let Some(waiting) = line.blocked.remove(&place) else { continue };
            line.running = Some(place.0);
            self.blocked -= 1;
            return Some((place.1, waiting));
        }
        None
    }

    /// Makes a message from [`Self::next_free`] wait again, until [`Self::wake`].
    pub fn wait_again(&mut self, key: u64, lane: usize, waiting: WaitingMessage) {
        let line = self.lines.entry(key).or_default();
        line.running = line.running.filter(|running| *running != waiting.number);
        line.blocked.insert((waiting.number, lane, waiting.offset), waiting);
        self.blocked += 1;
    }

    /// Rechecks a key whose messages may start again.
    pub fn wake(&mut self, key: u64) {
        self.look(key);
    }

    /// Returns roughly how many messages [`Self::next_free`] could start.
    pub fn free(&self) -> usize {
        self.free.len()
    }

    /// Returns the first `limit` blocked messages after `after`, by key and number. It scans all keys, so it is for
    /// people only.
    pub fn blocked_after(
        &self,
        after: Option<(u64, u64)>,
        limit: usize,
    ) -> BTreeMap<(u64, u64), &WaitingMessage> {
        let mut first = BTreeMap::new();
        for (key, line) in &self.lines {
            for ((number, ..), waiting) in &line.blocked {
                let place = (*key, *number);
                if after.is_some_and(|after| place <= after) {
                    continue;
                }
                first.insert(place, waiting);
                if first.len() > limit {
                    first.pop_last();
                }
            }
        }
        first
    }

    /// Takes out a message that waits for its key. It keeps its place in the line until [`Self::leave`].
    pub fn take_blocked(&mut self, number: u64) -> Option<(usize, WaitingMessage)> {
        let (place, line) = self.lines.values_mut().find_map(|line| {
            let place = line.blocked.range((number, 0, 0)..).next().map(|(place, _)| *place);
            place.filter(|place| place.0 == number).map(|place| (place, line))
        })?;
        let waiting = line.blocked.remove(&place)?;
        self.blocked -= 1;
        Some((place.1, waiting))
    }

    pub fn blocked(&self) -> usize {
        self.blocked
    }

    /// Lets nothing of the key start until [`Self::release`].
    pub fn hold(&mut self, key: u64) {
        self.held.insert(key);
    }

    pub fn release(&mut self, key: u64) {
        self.held.remove(&key);
        self.look(key);
    }

    pub fn held(&self) -> Vec<u64> {
        self.held.iter().copied().collect()
    }

    pub fn letters_of(&self, key: u64) -> Vec<u64> {
        self.letters.get(&key).map_or_else(Vec::new, |known| known.iter().copied().collect())
    }

    pub fn has_letters(&self, key: u64) -> bool {
        self.letters.contains_key(&key)
    }

    /// Returns every known letter.
    pub fn letters(&self) -> impl Iterator<Item = u64> {
        self.letters.values().flatten().copied()
    }

    /// Notes that a message became a dead letter, or that an open letter was found.
    pub fn letter_opened(&mut self, key: u64, number: u64) {
        self.letters.entry(key).or_default().insert(number);
    }

    /// Notes that a letter was requeued or resolved.
    pub fn letter_resolved(&mut self, key: u64, number: u64) {
        if let Some(open) = self.letters.get_mut(&key) {
            open.remove(&number);
            if open.is_empty() {
                self.letters.remove(&key);
            }
        }
    }

    /// Whether an earlier message of the key is a letter for which `is_open` holds.
    pub fn is_blocked(&self, key: u64, number: u64, is_open: impl Fn(u64) -> bool) -> bool {
        self.letters.get(&key).is_some_and(|known| known.range(..number).any(|letter| is_open(*letter)))
    }

    /// Drops everything that waits, after the partitions were taken away. Letters are kept.
    pub fn clear(&mut self) {
        self.lines.clear();
        self.free.clear();
        self.held.clear();
        self.blocked = 0;
    }
}

impl KeyQueue {
    /// Returns the place of the blocked message whose turn it is.
    fn next(&self) -> Option<(u64, usize, u64)> {
        let first = *self.members.first_key_value()?.0;
        let place = *self.blocked.first_key_value()?.0;
        (self.running.is_none() && place.0 <= first).then_some(place)
    }
}

#[cfg(test)]
mod tests {
    use redrive::internal::engine::history::History;
    use redrive_core::Meta;

    use super::*;
    use crate::record::Carried;

    fn waiting(number: u64) -> WaitingMessage {
        WaitingMessage {
            offset: number,
            number,
            message: Message::builder("m").key("k").build().unwrap(),
            meta: Meta::default(),
            history: History::default(),
            due: None,
            arrived: None,
            doomed: None,
            carried: Carried::default(),
        }
    }

    fn next(keys: &mut Keys) -> Option<u64> {
        keys.next_free().map(|(_, waiting)| waiting.number)
    }

    #[test]
    fn a_follower_starts_when_the_first_is_at_its_end() {
        let mut keys = Keys::default();
        keys.join(7, 1);
        keys.join(7, 2);
        assert!(keys.start(7, 0, waiting(1)).is_some());
        assert!(keys.start(7, 0, waiting(2)).is_none());
        assert_eq!((keys.blocked(), next(&mut keys)), (1, None));
        keys.stop(7, 1);
        assert_eq!(next(&mut keys), None, "it only came back, or waits in a tier");
        keys.leave(7, 1);
        assert_eq!(next(&mut keys), Some(2));
        assert_eq!(keys.blocked(), 0);
    }

    #[test]
    fn a_letter_that_was_put_back_goes_first_but_not_beside_one_that_runs() {
        let mut keys = Keys::default();
        (5..=6).for_each(|number| keys.join(7, number));
        assert!(keys.start(7, 0, waiting(5)).is_some());
        keys.join(7, 2);
        assert!(keys.start(7, 1, waiting(2)).is_none());
        keys.stop(7, 5);
        keys.leave(7, 5);
        assert_eq!(next(&mut keys), Some(2));
        assert!(keys.start(7, 0, waiting(6)).is_none());
        keys.stop(7, 2);
        keys.leave(7, 2);
        assert_eq!(next(&mut keys), Some(6));
    }

    #[test]
    fn an_open_letter_blocks_what_comes_after_it_only() {
        let mut keys = Keys::default();
        keys.letter_opened(7, 5);
        let open = |_| true;
        assert!(!keys.is_blocked(7, 4, open) && !keys.is_blocked(7, 5, open) && keys.is_blocked(7, 6, open));
        assert!(!keys.is_blocked(7, 6, |_| false), "it was discarded");
        keys.letter_resolved(7, 5);
        assert!(!keys.is_blocked(7, 6, open));
    }

    #[test]
    fn a_key_that_is_held_waits_whoever_is_first() {
        let mut keys = Keys::default();
        keys.join(7, 1);
        keys.hold(7);
        assert!(keys.start(7, 0, waiting(1)).is_none());
        assert_eq!((next(&mut keys), keys.held()), (None, vec![7]));
        keys.release(7);
        assert_eq!(next(&mut keys), Some(1));
    }
}
