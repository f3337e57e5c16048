//! Key order as the options demand it: which messages wait for their key, which keys are blocked by an open letter, and
//! how often order could not be guaranteed.
//!
//! With `block_key`, once a message of a key has died, nothing of that key is delivered until the letter is replayed or
//! discarded, by any process.

use std::collections::{BTreeMap, HashSet};

use redrive::internal::engine::{AfterDead, DeliveryOrder, LetterState, StoreOptions};
use redrive_core::Message;

use super::keys::{Keys, hash_of};
use super::lanes::Lanes;
use crate::record::WaitingMessage;

/// Looks up the state of a letter by its number.
pub(crate) type LetterStates<'a> = &'a dyn Fn(u64) -> Option<LetterState>;

#[derive(Debug)]
pub(crate) struct KeyOrder {
    keys: Keys,
    is_ordered: bool,
    blocks: bool,
    /// How often the order of a key could not be guaranteed, since the start.
    voided: u64,
}

impl KeyOrder {
    pub fn new(options: &StoreOptions) -> Self {
        let is_ordered = options.ordering == DeliveryOrder::Key;
        let blocks = is_ordered && options.after_dead == AfterDead::BlockKey;
        Self { keys: Keys::default(), is_ordered, blocks, voided: 0 }
    }

    pub fn is_ordered(&self) -> bool {
        self.is_ordered
    }

    /// Whether an open letter blocks its key.
    pub fn blocks(&self) -> bool {
        self.blocks
    }

    /// The key that a message has to wait for, where keys are ordered.
    pub fn key_of(&self, message: &Message) -> Option<u64> {
        if self.is_ordered { hash_of(message) } else { None }
    }

    /// Notes that a record of a message was read, or is being written.
    pub fn join(&mut self, key: u64, number: u64) {
        self.keys.join(key, number);
    }

    /// Notes that the running message has come back.
    pub fn stop(&mut self, key: Option<u64>, number: u64) {
        if let Some(key) = key {
            self.keys.stop(key, number);
        }
    }

    /// Notes that a record of a message is finished.
    pub fn leave(&mut self, key: Option<u64>, number: u64) {
        if let Some(key) = key {
            self.keys.leave(key, number);
        }
    }

    /// Notes that a message was delivered.
    pub fn finish(&mut self, key: Option<u64>, number: u64) {
        self.stop(key, number);
        self.leave(key, number);
    }

    /// Notes that a message became a letter. A letter can be replayed, and its replay read, before the letter's write
    /// is acknowledged; such a letter blocks nothing.
    pub fn died(&mut self, key: Option<u64>, number: u64, states: LetterStates<'_>) {
        let Some(key) = key else { return };
        if self.blocks && states(number) != Some(LetterState::Replaying) {
            self.keys.letter_opened(key, number);
        }
        self.finish(Some(key), number);
    }

    /// Starts a message if it is its turn; otherwise keeps it waiting here.
    pub fn start(
        &mut self,
        key: u64,
        lane: usize,
        waiting: WaitingMessage,
        states: LetterStates<'_>,
    ) -> Option<WaitingMessage> {
        self.follow_letters(key, states);
        self.keys.start(key, lane, waiting)
    }

    /// Starts and returns the next waiting message whose turn has come.
    pub fn next_free(&mut self) -> Option<(usize, WaitingMessage)> {
        self.keys.next_free()
    }

    /// Returns roughly how many messages [`Self::next_free`] could start.
    pub fn free(&self) -> usize {
        self.keys.free()
    }

    /// Makes a message from [`Self::next_free`] wait again, until [`Self::wake`].
    pub fn wait_again(&mut self, key: u64, lane: usize, waiting: WaitingMessage) {
        self.keys.wait_again(key, lane, waiting);
    }

    pub fn wake(&mut self, key: u64) {
        self.keys.wake(key);
    }

    /// Whether an earlier message of the key is an open letter.
    pub fn is_blocked(&self, key: Option<u64>, number: u64, states: LetterStates<'_>) -> bool {
        key.is_some_and(|key| {
            self.keys.is_blocked(key, number, |letter| states(letter) == Some(LetterState::Open))
        })
    }

    /// Follows changes that others made to the letters of a key. A replayed letter goes first: the key is held until
    /// the replayed record is read here.
    fn follow_letters(&mut self, key: u64, states: LetterStates<'_>) {
        if !self.keys.has_letters(key) {
            return;
        }
        let mut is_coming = false;
        for number in self.keys.letters_of(key) {
            match states(number) {
                Some(LetterState::Open | LetterState::Discarded) => {}
                Some(LetterState::Replaying) => is_coming = true,
                Some(LetterState::Succeeded | LetterState::Erased) | None => {
                    self.keys.letter_resolved(key, number);
                }
            }
        }
        if is_coming {
            self.keys.hold(key);
        } else {
            self.keys.release(key);
        }
    }

    /// Rechecks the keys that wait for a replayed letter.
    pub fn release_followed(&mut self, states: LetterStates<'_>) {
        for key in self.keys.held() {
            self.follow_letters(key, states);
            if !self.keys.has_letters(key) {
                self.keys.release(key);
            }
        }
    }

    /// Returns the letters whose keys are known.
    pub fn known_letters(&self) -> HashSet<u64> {
        self.keys.letters().collect()
    }

    /// Notes an open letter of an earlier owner.
    pub fn letter_opened(&mut self, message: &Message, number: u64) {
        if let Some(key) = hash_of(message) {
            self.keys.letter_opened(key, number);
        }
    }

    /// Notes that this process replayed a letter: the key waits for it until its record is read.
    pub fn letter_replayed(&mut self, message: &Message, number: u64) {
        if let Some(key) = self.key_of(message) {
            self.keys.letter_resolved(key, number);
            self.keys.join(key, number);
        }
    }

    /// Notes that the record of a replayed letter was read.
    pub fn replay_read(&mut self, waiting: &WaitingMessage) {
        if self.blocks
            && let Some(key) = hash_of(&waiting.message)
        {
            self.keys.letter_resolved(key, waiting.number);
        }
    }

    /// Counts the keys whose deliveries still run although the partitions were taken away: the next owner may overtake
    /// them.
    pub fn count_voided(&mut self, lanes: &Lanes, pipeline: &str) {
        if !self.is_ordered {
            return;
        }
        // A suspect that waits for its turn does not run.
        let out = lanes.iter().flat_map(|lane| lane.out.values());
        let running = out.filter(|out| !out.waits).filter_map(|out| out.key);
        let voided = running.collect::<HashSet<u64>>().len() as u64;
        if voided > 0 {
            self.voided += voided;
            tracing::error!(
                pipeline,
                keys = voided,
                "partitions moved while these keys were in flight; their order is not guaranteed"
            );
        }
    }

    /// Counts the `waiting` messages that were in the tiers when the first of the new source partitions was assigned.
    pub fn count_overtaken(&mut self, waiting: u64, pipeline: &str) {
        if waiting > 0 {
            self.voided += waiting;
            tracing::error!(
                pipeline,
                waiting,
                "the source has new partitions, and keys have moved between partitions; later messages may overtake these \
                 waiting ones"
            );
        }
    }

    pub fn voided(&self) -> u64 {
        self.voided
    }

    /// Returns how many messages wait for their key.
    pub fn waiting(&self) -> usize {
        self.keys.blocked()
    }

    pub fn waiting_after(
        &self,
        after: Option<(u64, u64)>,
        limit: usize,
    ) -> BTreeMap<(u64, u64), &WaitingMessage> {
        self.keys.blocked_after(after, limit)
    }

    pub fn take_waiting(&mut self, number: u64) -> Option<(usize, WaitingMessage)> {
        self.keys.take_blocked(number)
    }

    /// Drops everything that waits, after the partitions were taken away. Letters are kept.
    pub fn clear(&mut self) {
        self.keys.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message() -> Message {
        Message::builder("m").key("k").build().unwrap()
    }

    fn order(ordering: DeliveryOrder, after_dead: AfterDead) -> KeyOrder {
        KeyOrder::new(&StoreOptions { ordering, after_dead, ..StoreOptions::default() })
    }

    #[test]
    fn a_letter_blocks_its_key_unless_it_is_being_replayed() {
        let mut keys = order(DeliveryOrder::Key, AfterDead::BlockKey);
        let key = keys.key_of(&message());
        keys.died(key, 5, &|_| Some(LetterState::Replaying));
        assert!(!keys.is_blocked(key, 6, &|_| Some(LetterState::Open)));
        keys.died(key, 5, &|_| None);
        assert!(keys.is_blocked(key, 6, &|_| Some(LetterState::Open)));
        assert!(!keys.is_blocked(key, 6, &|_| Some(LetterState::Discarded)));
        assert_eq!(keys.known_letters(), HashSet::from([5]));
        keys.letter_replayed(&message(), 5);
        assert!(keys.known_letters().is_empty());
    }

    #[test]
    fn without_order_no_message_has_a_key() {
        let keys = order(DeliveryOrder::None, AfterDead::BlockKey);
        assert!(keys.key_of(&message()).is_none() && !keys.blocks());
    }
}
