//! Actions of operators in the simulation: pause, replay, resume a replay, discard and undo, steer waiting messages.

use super::checkers::{self, Broken, Check};
use super::witness::State;
use super::world::{Step, World};
use crate::engine::{
    Claimed, Deliver, KeepLetters, LetterChange, LetterState, PendingState, Query, ReplayJob, ReplayTarget,
};

impl World {
    pub(super) fn operate(&mut self) -> Check {
        match self.rng.below(12) {
            0..5 => self.replay_new(),
            5..7 => self.replay_resumed(),
            7..9 => self.change(LetterChange::Discard),
            9 => self.change(LetterChange::Undo),
            _ => self.steer(),
        }
    }

    fn letters(&self) -> Vec<u64> {
        let letters = self.witness.records.iter().filter(|(_, r)| matches!(r.state, State::Letter(_)));
        letters.map(|(seq, _)| *seq).collect()
    }

    /// Starts a job with all letters, and one number that may not be a letter.
    fn replay_new(&mut self) -> Check {
        let mut ids = self.letters();
        ids.push(self.rng.below(u64::from(self.offered) + 2));
        let id = self.jobs.len() as u64 + 1;
        self.jobs.push((id, ids.clone()));
        self.replay(id, &ids)
    }

    /// A killed job goes through its frozen selection again.
    fn replay_resumed(&mut self) -> Check {
        if self.jobs.is_empty() {
            return Ok(());
        }
        let at = self.rng.below(self.jobs.len() as u64) as usize;
        let (id, ids) = self.jobs[at].clone();
        self.replay(id, &ids)
    }

    fn replay(&mut self, id: u64, ids: &[u64]) -> Check {
        let force = self.rng.chance(20);
        let delay = std::time::Duration::from_millis(self.rng.pick(&[0, 1_000, 20_000]));
        let job = ReplayJob { id, due: self.now().plus(delay), force, target: ReplayTarget::Pipeline };
        self.note(Step::Replay { job: id, letters: ids.len(), force });
        let now = self.now();
        let answers = self.engine.replay(&job, ids, now.into()).map_err(broken)?;
        for (seq, answer) in ids.iter().zip(answers) {
            checkers::replay_once(self.witness.records.get(seq), id, force, answer)?;
            if answer == crate::engine::ReplayAnswer::Replayed {
                self.record(*seq)?.replayed(id, job.due);
            }
        }
        Ok(())
    }

    fn change(&mut self, change: LetterChange) -> Check {
        let (from, to, step) = match change {
            LetterChange::Discard => {
                (LetterState::Open, LetterState::Discarded, Step::Discard { letters: 1 })
            }
            LetterChange::Undo => (LetterState::Discarded, LetterState::Open, Step::Undo { letters: 1 }),
        };
        let ids = self.letters();
        if ids.is_empty() {
            return Ok(());
        }
        let seq = self.rng.pick(&ids);
        self.note(step);
        let now = self.now();
        let answers = self.engine.change_letters(&change, &[seq], now.into()).map_err(broken)?;
        let record = self.record(seq)?;
        let may = record.state == State::Letter(from);
        if answers != [may] {
            return Err(Broken {
                checker: "conservation",
                detail: format!("{change:?} of {seq}: {answers:?}"),
            });
        }
        if may {
            record.state = State::Letter(to);
        }
        Ok(())
    }
}

impl World {
    /// Cancels a waiting message, or makes it due if it waits for its time.
    fn steer(&mut self) -> Check {
        let state = self.rng.pick(&[
            PendingState::Ready,
            PendingState::Held,
            PendingState::Delayed,
            PendingState::KeyWait,
        ]);
        let listed = self.engine.scan_pending(state, None, 64, 64).map_err(broken)?.messages;
        if listed.is_empty() {
            return Ok(());
        }
        let at = listed[self.rng.below(listed.len() as u64) as usize].at;
        let now = self.now();
        let Claimed::Taken(delivery) = self.engine.claim(&at, now).map_err(broken)? else {
            let detail = format!("{at:?} is listed and cannot be claimed");
            return Err(Broken { checker: "conservation", detail });
        };
        let record = self.record(at.number)?;
        checkers::conservation_of_delivery(record, &delivery)?;
        record.handed_out(&delivery);
        let waits = matches!(state, PendingState::Held | PendingState::Delayed);
        let is_cancelled = !waits || self.rng.chance(30);
        self.note(Step::Steer { seq: at.number, is_cancelled });
        if is_cancelled {
            self.machine.cancel(*delivery, now);
        } else if delivery.suspect.is_some() {
            // Like the dispatch thread: a suspect stays a suspect.
            self.machine.let_go(*delivery);
        } else {
            self.machine.make_due(*delivery, now);
        }
        self.give().map(drop)
    }
}

fn broken(error: impl std::fmt::Display) -> Broken {
    Broken { checker: "conservation", detail: error.to_string() }
}
