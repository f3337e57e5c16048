//! Keys and dead letters: with `block_key` nothing of a key is delivered after one of its messages has died, until that
//! letter is put back or discarded, by whichever process. And keys whose order could not be kept.

use std::collections::HashSet;

use redrive::engine::{AfterDead, EngineError, LetterState};

use super::engine::KafkaEngine;
use crate::backlog::keys::hash_of;
use crate::consume::mailbox::FailKind;
use crate::record::Waiting;

impl KafkaEngine {
    pub(crate) fn blocks_keys(&self) -> bool {
        self.is_ordered() && self.options.after_dead == AfterDead::BlockKey
    }

    /// Whether an earlier message of the key is an open letter. The mirror is asked, which hears of everybody's changes.
    pub(crate) fn is_blocked(&self, key: u64, number: u64) -> bool {
        let is_open = |letter| self.letters.state_of(letter) == Some(LetterState::Open);
        self.keys.is_blocked(key, number, is_open)
    }

    /// The keys of letters that are not known yet: of those before us, who had the partitions.
    fn know_blocked_keys(&mut self) -> Result<(), EngineError> {
        if !self.blocks_keys() {
            return Ok(());
        }
        let known: HashSet<u64> = self.keys.letters().collect();
        for number in self.letters.at_rest(|number| !known.contains(&number)) {
            if let Some(key) = self.letters.letter(number)?.and_then(|letter| hash_of(&letter.message)) {
                self.keys.letter_opened(key, number);
            }
        }
        Ok(())
    }

    /// The same, once partitions are assigned and all letters of their owners before are read.
    pub(crate) fn meet_blocked_keys(&mut self) {
        if let Err(error) = self.know_blocked_keys() {
            self.fail(error.to_string(), FailKind::Unavailable);
        }
    }

    /// Looks at what others did with the letters of a key. One that was put back goes first, and is waited for until its
    /// record is read here.
    pub(crate) fn follow_letters(&mut self, key: u64) {
        if !self.keys.has_letters(key) {
            return;
        }
        let mut is_coming = false;
        for number in self.keys.letters_of(key) {
            match self.letters.state_of(number) {
                Some(LetterState::Open | LetterState::Discarded) => {}
                Some(LetterState::Replaying) => is_coming = true,
                Some(LetterState::Succeeded) | None => self.keys.letter_closed(key, number),
            }
        }
        if is_coming {
            self.keys.hold(key);
        } else {
            self.keys.release(key);
        }
    }

    /// Looks again at the keys that wait for a letter to come back.
    pub(crate) fn release_followed(&mut self) {
        for key in self.keys.held() {
            self.follow_letters(key);
            if !self.keys.has_letters(key) {
                self.keys.release(key);
            }
        }
    }

    /// The record of a letter that was put back is read: it stands in its line from now on.
    pub(crate) fn letter_came_back(&mut self, waiting: &Waiting) {
        if self.blocks_keys()
            && let Some(key) = hash_of(&waiting.message)
        {
            self.keys.letter_closed(key, waiting.number);
        }
    }

    /// Partitions are gone while deliveries of them run: the next owner may overtake these.
    pub(crate) fn count_voided_keys(&mut self) {
        if !self.is_ordered() {
            return;
        }
        // A suspect that has no turn yet does not run.
        let out = self.lanes.iter().flat_map(|lane| lane.out.values());
        let running = out.filter(|out| !out.waits).filter_map(|out| out.key);
        let voided = running.collect::<HashSet<u64>>().len() as u64;
        if voided > 0 {
            self.key_order_voided += voided;
            tracing::error!(
                pipeline = %self.pipeline.name, keys = voided,
                "partitions went while deliveries of these keys ran; their order is not certain"
            );
        }
    }

    /// The source has new partitions, and this many messages waited in the tiers when the first of them was begun.
    pub(crate) fn count_overtaken(&mut self, waiting: u64) {
        if waiting > 0 {
            self.key_order_voided += waiting;
            tracing::error!(
                pipeline = %self.pipeline.name, waiting,
                "the source has new partitions, and keys have moved between partitions; later messages may overtake these \
                 waiting ones"
            );
        }
    }
}
