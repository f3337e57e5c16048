//! The actions of an operator on letters (list, search, replay, discard and undo), compared with the model.

use redrive_core::{Class, Reason, Time};

use super::check::{Check, violation};
use super::command::{How, Pick};
use super::situation::{LineMembership, Position, Wait};
use super::suite::{Suite, failed};
use crate::engine::EngineError;
use crate::engine::letter::{Letter, LetterChange, LetterState, ReplayAnswer, ReplayJob, ReplayTarget};

impl Suite {
    /// Lists the letters page by page; both shown and missing letters are checked.
    pub(super) fn letters(&mut self, state: Option<LetterState>, page: usize) -> Check {
        let mut shown: Vec<Letter> = Vec::new();
        loop {
            let after = shown.last().map(|letter| letter.id);
            let more = self.harness.engine().letters(state, after, page).map_err(failed)?;
            if more.len() > page {
                return violation("letters", format!("{} letters on a page of {page}", more.len()));
            }
            let last = more.len() < page;
            for letter in more {
                if shown.last().is_some_and(|before| before.id >= letter.id) {
                    return violation("letters", format!("{} is listed out of order", letter.id));
                }
                if state.is_some_and(|state| letter.state != state) {
                    return violation(
                        "letters",
                        format!("{} is {:?}, asked was {state:?}", letter.id, letter.state),
                    );
                }
                self.model.check_letter(&letter)?;
                shown.push(letter);
            }
            if last {
                break;
            }
        }
        self.scan(state, page, &shown)?;
        self.letters_by_id(&shown)?;
        if state.is_none_or(|state| state == LetterState::Open) {
            self.groups(&shown)?;
        }
        for (seq, tracked) in &mut self.model.messages {
            let listed = shown.binary_search_by_key(seq, |letter| letter.id).is_ok();
            let before = tracked.clone();
            let visible =
                |shown: Option<LetterState>| shown.is_some_and(|s| state.is_none_or(|wanted| wanted == s));
            if !tracked.keep(|situation| visible(situation.letter_state()) == listed) {
                return violation("letters", format!("{seq} is listed: {listed}; known is {before:?}"));
            }
        }
        Ok(())
    }

    /// Checks that the index of ids, if the engine has one, misses no letter.
    fn letters_by_id(&mut self, shown: &[Letter]) -> Check {
        for letter in shown.iter().filter(|letter| letter.reason != Reason::Corrupt) {
            let id = letter.message.id();
            if let Some(found) = self.harness.engine().letters_of(id).map_err(failed)?
                && (!found.contains(&letter.id) || !found.is_sorted())
            {
                return violation("letters", format!("{} of {id} is not among {found:?}", letter.id));
            }
        }
        Ok(())
    }

    /// Checks that a bounded scan finds the same letters, however little it looks at per call.
    fn scan(&mut self, state: Option<LetterState>, page: usize, shown: &[Letter]) -> Check {
        let (mut found, mut after) = (Vec::new(), None);
        loop {
            let scan = self.harness.engine().scan_letters(state, after, page, 2).map_err(failed)?;
            if scan.scanned > 2 || scan.letters.len() > page {
                return violation("letters", format!("looked at {} of 2, page {page}", scan.scanned));
            }
            found.extend(scan.letters.into_iter().map(|letter| letter.id));
            if scan.next.is_none() {
                break;
            }
            if scan.next <= after {
                return violation("letters", format!("the search stands still at {after:?}"));
            }
            after = scan.next;
        }
        let listed: Vec<u64> = shown.iter().map(|letter| letter.id).collect();
        if found == listed {
            return Ok(());
        }
        violation("letters", format!("a search found {found:?}, listed are {listed:?}"))
    }

    pub(super) fn letter(&mut self, which: Pick) -> Check {
        let id = self.letter_id(which);
        let shown = self.harness.engine().letter(id).map_err(failed)?;
        if let Some(letter) = shown {
            if letter.id != id {
                return violation("letters", format!("asked for {id}, got {}", letter.id));
            }
            return self.model.check_letter(&letter);
        }
        let Some(tracked) = self.model.messages.get_mut(&id) else { return Ok(()) };
        let before = tracked.clone();
        if !tracked.keep(|situation| situation.letter.is_none()) {
            return violation("letters", format!("{id} is not found; known is {before:?}"));
        }
        Ok(())
    }

    /// Mostly a letter, sometimes a message that is not a letter, or an unused number.
    pub(super) fn letter_id(&self, which: Pick) -> u64 {
        let wanted = |any: bool| {
            let messages = self.model.messages.iter();
            let letters = messages.filter(move |(_, t)| any || t.candidates().any(|s| s.letter.is_some()));
            letters.map(|(seq, _)| *seq).collect::<Vec<u64>>()
        };
        let ids = wanted(which.is_multiple_of(8));
        match ids.len() {
            0 => u64::from(which),
            _ if which % 32 == 7 => u64::MAX / 2,
            len => ids[usize::from(which / 32) % len],
        }
    }

    pub(super) fn replay(&mut self, job: u8, which: &[Pick], delay_ms: u32, force: bool) -> Check {
        let due = Time::from_millis(self.now.as_millis() + u64::from(delay_ms));
        let job = ReplayJob { id: u64::from(job), due, force, target: ReplayTarget::Pipeline };
        let mut ids: Vec<u64> = which.iter().map(|pick| self.letter_id(*pick)).collect();
        if which[0].is_multiple_of(5) {
            ids.push(ids[0]);
        }
        let answers = match self.harness.engine().replay(&job, &ids, self.now.into()) {
            // Nothing was changed.
            Err(EngineError::Unavailable(_)) => return Ok(()),
            answers => answers.map_err(failed)?,
        };
        if answers.len() != ids.len() {
            return violation("replay", format!("{} answers for {} letters", answers.len(), ids.len()));
        }
        for (id, answer) in ids.into_iter().zip(answers) {
            self.replayed(&job, id, answer)?;
        }
        Ok(())
    }

    fn replayed(&mut self, job: &ReplayJob, id: u64, answer: ReplayAnswer) -> Check {
        let high_water = self.model.high_water;
        let Some(tracked) = self.model.messages.get_mut(&id) else {
            return match answer {
                ReplayAnswer::NotFound => Ok(()),
                answer => violation("replay", format!("{id} does not exist, but {answer:?}")),
            };
        };
        let before = tracked.clone();
        if !tracked.keep(|situation| situation.replay_answer(job) == answer) {
            return violation("replay_once", format!("{id} by {job:?}: {answer:?}; known is {before:?}"));
        }
        if answer == ReplayAnswer::Replayed && !tracked.twin {
            tracked.maybe = None;
            tracked.now.meta = tracked.now.meta.replayed();
            tracked.now.at = Position::Waiting(Wait::until(job.due, high_water));
            tracked.membership = LineMembership::JOINED;
            if let Some(letter) = &mut tracked.now.letter {
                letter.state = LetterState::Replaying;
                letter.job = Some(job.id);
                letter.jobs.insert(job.id);
            }
        }
        Ok(())
    }

    /// Replays a letter and lets it die again, to produce letters that were replayed too often.
    pub(super) fn relapse(&mut self, which: Pick, job: u8, times: u8) -> Check {
        let id = self.letter_id(which);
        for time in 0..times {
            let job = ReplayJob {
                id: u64::from(job + time),
                due: self.now,
                force: false,
                target: ReplayTarget::Pipeline,
            };
            let answers = match self.harness.engine().replay(&job, &[id], self.now.into()) {
                Err(EngineError::Unavailable(_)) => return Ok(()),
                answers => answers.map_err(failed)?,
            };
            answers.into_iter().try_for_each(|answer| self.replayed(&job, id, answer))?;
            self.now = Time::from_millis(self.now.as_millis() + 2);
            self.model.high_water = self.model.high_water.max(self.now);
            self.take(30)?;
            if let Some(at) = self.flights.iter().position(|delivery| delivery.receipt.seq == id) {
                let delivery = self.flights.swap_remove(at);
                let how = How::Dead { reason: Reason::MaxRetries, class: Class::Transient };
                let settlement = self.settlement(delivery, how);
                self.give(vec![settlement])?;
            }
            self.wait()?;
        }
        Ok(())
    }

    pub(super) fn change(&mut self, discard: bool, which: &[Pick]) -> Check {
        let ids: Vec<u64> = which.iter().map(|pick| self.letter_id(*pick)).collect();
        let (change, from, to) = if discard {
            (LetterChange::Discard, LetterState::Open, LetterState::Discarded)
        } else {
            (LetterChange::Undo, LetterState::Discarded, LetterState::Open)
        };
        let answers = match self.harness.engine().change_letters(&change, &ids, self.now.into()) {
            Err(EngineError::Unavailable(_)) => return Ok(()),
            answers => answers.map_err(failed)?,
        };
        if answers.len() != ids.len() {
            return violation("letters", format!("{} answers for {} letters", answers.len(), ids.len()));
        }
        for (id, changed) in ids.into_iter().zip(answers) {
            let Some(tracked) = self.model.messages.get_mut(&id) else {
                if changed {
                    return violation("letters", format!("{id} does not exist, but was changed"));
                }
                continue;
            };
            let before = tracked.clone();
            if !tracked.keep(|situation| (situation.letter_state() == Some(from)) == changed) {
                return violation("letters", format!("{id} {change:?}: {changed}; known is {before:?}"));
            }
            if changed
                && !tracked.twin
                && let Some(letter) = &mut tracked.now.letter
            {
                letter.state = to;
            }
        }
        Ok(())
    }
}
