//! The letters of the memory engine: looked at and put back.

use redrive_core::Time;

use super::inner::{Inner, State};
use crate::engine::letter::{Letter, LetterStanding, LetterState, REPLAYS_MAX, ReplayAnswer, ReplayJob};
use crate::engine::message_state::{MessagePhase, MessageState};
use crate::engine::seam::EngineError;

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
        })
    }

    pub(super) fn message(&self, id: &str, now: Time) -> Result<Option<MessageState>, EngineError> {
        let Some(window) = self.options.dedup else { return Err(EngineError::NotRemembered) };
        let Some((seq, at)) = self.seen.get(id) else { return Ok(None) };
        let (entry, letter) = (&self.entries[seq], self.letters.get(seq));
        let waits = |phase| if letter.is_some() { MessagePhase::Replaying } else { phase };
        let mut due = None;
        let phase = match entry.state {
            _ if entry.in_flight.is_some() => MessagePhase::Delivering,
            State::Ready => waits(MessagePhase::Ready),
            State::Blocked | State::Released => waits(MessagePhase::KeyWait),
            State::Delayed(until) => {
                due = Some(until);
                waits(MessagePhase::Delayed)
            }
            State::Letter | State::Done => match letter {
                Some(letter) => letter.state.into(),
                None if now.since(*at) >= window => return Ok(None),
                None => return Ok(Some(MessageState::new(id, MessagePhase::Succeeded))),
            },
        };
        let told = MessageState::new(id, phase).told(&entry.meta, &entry.history);
        let (letter, reason) = (letter.map(|_| *seq), letter.map(|letter| letter.reason));
        Ok(Some(MessageState { due, letter, reason, ..told }))
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
