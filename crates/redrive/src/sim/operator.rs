//! What people do in the simulated world: pause, replay, resume a replay, discard and take it back.

use super::checkers::{self, Broken, Check};
use super::witness::State;
use super::world::{Step, World};
use crate::engine::{Engine, LetterChange, LetterState, ReplayJob, ReplayTarget};

impl World {
    pub(super) fn operate(&mut self) -> Check {
        match self.rng.below(10) {
            0..5 => self.replay_new(),
            5..7 => self.replay_resumed(),
            7..9 => self.change(LetterChange::Discard),
            _ => self.change(LetterChange::Undo),
        }
    }

    fn letters(&self) -> Vec<u64> {
        let letters = self.witness.records.iter().filter(|(_, r)| matches!(r.state, State::Letter(_)));
        letters.map(|(seq, _)| *seq).collect()
    }

    /// A new job over all letters there are, and one number that is no letter.
    fn replay_new(&mut self) -> Check {
        let mut ids = self.letters();
        ids.push(self.rng.below(u64::from(self.offered) + 2));
        let id = self.jobs.len() as u64 + 1;
        self.jobs.push((id, ids.clone()));
        self.replay(id, &ids)
    }

    /// A job that was killed goes over its frozen selection again.
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
        let answers = self.engine.replay(&job, ids, now).map_err(broken)?;
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
        let answers = self.engine.change_letters(&change, &[seq], now).map_err(broken)?;
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

fn broken(error: impl std::fmt::Display) -> Broken {
    Broken { checker: "conservation", detail: error.to_string() }
}
