//! Messages, lines of keys and letters of the memory engine: looked at, and put back.

use std::collections::BTreeSet;

use redrive_core::Time;

use super::inner::{Inner, State};
use crate::engine::groups::OpenGroups;
use crate::engine::key_line::{KeyLine, WAITING_MAX};
use crate::engine::letter::{Letter, LetterStanding, LetterState, REPLAYS_MAX, ReplayAnswer, ReplayJob};
use crate::engine::message_state::{MessagePhase, MessageState};
use crate::engine::pending::PendingState;
use crate::engine::seam::{AfterDead, EngineError};

impl Inner {
    pub(super) fn replay(&mut self, job: &ReplayJob, seq: u64) -> ReplayAnswer {
        let Some(letter) = self.letters.get_mut(&seq) else { return ReplayAnswer::NotFound };
        if letter.jobs.contains(&job.id) {
            return ReplayAnswer::Already;
        }
        if letter.state != LetterState::Open {
            return ReplayAnswer::NotOpen(letter.state);
        }
        let replays = self.entries[&seq].meta.replays;
        if replays >= REPLAYS_MAX && !job.force {
            return ReplayAnswer::TooOften { replays };
        }
        letter.state = LetterState::Replaying;
        letter.job = Some(job.id);
        letter.jobs.insert(job.id);
        let entry = self.entry(seq);
        entry.meta = entry.meta.replayed();
        entry.state = State::Delayed(job.due);
        entry.due = Some(job.due);
        self.delayed.insert((job.due, seq));
        self.join_line(seq);
        ReplayAnswer::Replayed
    }

    pub(super) fn letter(&self, seq: u64) -> Option<Letter> {
        let letter = self.letters.get(&seq)?;
        let entry = &self.entries[&seq];
        Some(Letter {
            id: seq,
            state: letter.state,
            reason: letter.reason,
            dead_at: letter.dead_at,
            job: letter.job,
            message: entry.message.clone(),
            meta: entry.meta,
            history: entry.history.clone(),
            group: letter.group.clone(),
        })
    }

    /// Counted anew whenever somebody asks: this engine is plain before it is fast.
    pub(super) fn open_groups(&self) -> OpenGroups {
        let mut groups = OpenGroups::default();
        let open = self.letters.iter().filter(|(_, letter)| letter.state == LetterState::Open);
        for (seq, letter) in open {
            groups.enter(letter.group.group, letter.dead_at, *seq);
        }
        groups
    }

    pub(super) fn message(&self, id: &str, now: Time) -> Result<Option<MessageState>, EngineError> {
        let Some(window) = self.options.dedup else { return Err(EngineError::NotRemembered) };
        let Some((seq, at)) = self.seen.get(id) else { return Ok(None) };
        let (entry, letter) = (&self.entries[seq], self.letters.get(seq));
        let duplicate_of = (now.since(*at) < window).then_some(*seq);
        let waits = |phase| if letter.is_some() { MessagePhase::Replaying } else { phase };
        let mut due = None;
        let phase = match entry.state {
            _ if entry.in_flight.is_some() => MessagePhase::InFlight,
            State::Ready => waits(MessagePhase::Ready),
            State::Blocked | State::Released => waits(MessagePhase::KeyWait),
            State::Delayed(until) => {
                due = Some(until);
                waits(PendingState::timed(entry.meta.deferred).into())
            }
            State::Letter | State::Done => match letter {
                Some(letter) => letter.state.into(),
                None if now.since(*at) >= window => return Ok(None),
                None => {
                    let succeeded = MessageState::new(id, MessagePhase::Succeeded);
                    return Ok(Some(MessageState { duplicate_of, ..succeeded }));
                }
            },
        };
        let told = MessageState::new(id, phase).told(&entry.meta, &entry.history);
        let (letter, reason) = (letter.map(|_| *seq), letter.map(|letter| letter.reason));
        Ok(Some(MessageState { due, letter, reason, duplicate_of, ..told }))
    }

    pub(super) fn key_line(&self, key: &[u8]) -> Option<KeyLine> {
        let nobody = BTreeSet::new();
        let line = self.lines.get(key).unwrap_or(&nobody);
        let is_of_key = |seq: &u64| self.entries[seq].message.key() == Some(key);
        let open = self.letters.iter().filter(|(_, letter)| letter.state == LetterState::Open);
        let blocks = self.options.after_dead == AfterDead::BlockKey;
        let letters: Vec<u64> = open.map(|(seq, _)| *seq).filter(|seq| blocks && is_of_key(seq)).collect();
        let running = line.iter().find(|seq| self.entries[seq].in_flight.is_some());
        let first = running.or(line.first());
        let letter = letters.first().filter(|letter| first.is_none_or(|first| *letter < first));
        let seq = letter.or(first)?;
        let entry = &self.entries[seq];
        let (phase, due) = match entry.state {
            _ if letter.is_some() => (MessagePhase::Dead, None),
            _ if entry.in_flight.is_some() => (MessagePhase::InFlight, None),
            State::Delayed(until) => (MessagePhase::Delayed, Some(until)),
            _ => (MessagePhase::Ready, None),
        };
        let head = MessageState::new(entry.message.id(), phase).told(&entry.meta, &entry.history);
        let reason = letter.and_then(|letter| self.letters.get(letter)).map(|letter| letter.reason);
        let waiting = (line.len() + letters.len() - 1).min(WAITING_MAX) as u64;
        Some(KeyLine { head: MessageState { due, letter: letter.copied(), reason, ..head }, waiting })
    }

    pub(super) fn letter_standing(&self, job: u64, seq: u64) -> Option<LetterStanding> {
        let letter = self.letters.get(&seq)?;
        Some(LetterStanding {
            state: letter.state,
            dead_at: letter.dead_at,
            replays: self.entries[&seq].meta.replays,
            in_job: letter.jobs.contains(&job),
            is_last_job: letter.job == Some(job),
        })
    }
}
