//! Imports of letters, compared with the model: each is imported once, however often it is offered.

use std::collections::BTreeSet;

use redrive_core::{Class, FailureKind, Message, Meta, Reason, Time};

use super::check::{Check, Violation, violation};
use super::command::Pick;
use super::situation::Situation;
use super::suite::{Suite, failed};
use crate::engine::EngineError;
use crate::engine::history::{Attempt, History};
use crate::engine::import::{ForeignLetter, ImportAnswer};
use crate::engine::letter::LetterState;

impl Suite {
    /// Imports foreign letters, some of them repeatedly, sometimes one twice in the same batch.
    pub(super) fn import(&mut self, which: &[Pick], dry_run: bool) -> Check {
        let mut foreign: Vec<u64> = which.iter().map(|pick| self.foreign(*pick)).collect();
        if which[0].is_multiple_of(5) {
            foreign.push(foreign[0]);
        }
        let letters = foreign.iter().map(|number| letter(*number)).collect::<Result<Vec<_>, _>>()?;
        let answers = match self.harness.engine().import(letters, dry_run, self.now.into()) {
            // Nothing was changed.
            Err(EngineError::Unavailable(_)) => return Ok(()),
            answers => answers.map_err(failed)?,
        };
        if answers.len() != foreign.len() {
            return violation("import", format!("{} answers for {} letters", answers.len(), foreign.len()));
        }
        let mut batch = BTreeSet::new();
        for (number, answer) in foreign.into_iter().zip(answers) {
            let is_first = batch.insert(number);
            self.imported(number, is_first, answer, dry_run)?;
        }
        Ok(())
    }

    /// Checks that a letter that was just edited cannot be imported again in its original form.
    pub(super) fn offer_again(&mut self, id: u64) -> Check {
        let made = self.imports.made.iter().find(|(_, seq)| **seq == id).map(|(number, _)| *number);
        let Some(number) = made.filter(|_| self.stays(id)) else { return Ok(()) };
        let answers = self.harness.engine().import(vec![letter(number)?], true, self.now.into());
        match answers {
            Err(EngineError::Unavailable(_)) => Ok(()),
            answers => answers
                .map_err(failed)?
                .into_iter()
                .try_for_each(|one| self.imported(number, true, one, true)),
        }
    }

    /// The number of a new foreign letter, or of one that was imported before.
    fn foreign(&mut self, which: Pick) -> u64 {
        let known: Vec<u64> =
            self.imports.made.iter().filter(|(_, seq)| self.stays(**seq)).map(|(n, _)| *n).collect();
        if !known.is_empty() && which.is_multiple_of(3) {
            return known[usize::from(which / 3) % known.len()];
        }
        self.imports.last += 1;
        self.imports.last
    }

    /// Whether a letter certainly exists, edited or not. One that succeeded may be purged.
    fn stays(&self, seq: u64) -> bool {
        let is_kept = |situation: &Situation| {
            situation.letter_state().is_some_and(|state| state != LetterState::Succeeded)
        };
        let tracked = self.model.messages.get(&seq);
        tracked.is_some_and(|tracked| !tracked.twin && tracked.candidates().all(is_kept))
    }

    fn imported(&mut self, number: u64, is_first: bool, answer: ImportAnswer, dry_run: bool) -> Check {
        let made = self.imports.made.get(&number).copied();
        match (answer, made) {
            (ImportAnswer::Already { number: told }, Some(seq)) if told == Some(seq) => Ok(()),
            // An earlier one of the same batch need not have a number yet.
            (ImportAnswer::Already { number: None }, _) if !is_first => Ok(()),
            (ImportAnswer::Imported { number: None, group }, None) if is_first && dry_run => {
                self.in_group(number, &group)
            }
            (ImportAnswer::Imported { number: Some(seq), group }, None) if is_first && !dry_run => {
                self.in_group(number, &group)?;
                self.imports.made.insert(number, seq);
                self.model.imported(seq, letter(number)?, self.now)
            }
            (answer, made) => violation(
                "import_once",
                format!(
                    "f{number}: {answer:?}; first in its batch: {is_first}, dry run: {dry_run}, known is {made:?}"
                ),
            ),
        }
    }

    fn in_group(&self, number: u64, group: &redrive_core::Fingerprint) -> Check {
        let history = letter(number)?.history;
        let expected = self.model.options.grouping.of(Reason::Imported, history.attempts().last());
        if *group == expected {
            return Ok(());
        }
        violation("groups", format!("f{number} would be in {group:?}, not {expected:?}"))
    }
}

/// The foreign letter with this number, always the same. It has no key, because other commands test how replays affect
/// key order.
fn letter(number: u64) -> Result<ForeignLetter, Violation> {
    let at = Time::from_millis(900_000_000 + number);
    let attempt = Attempt {
        number: 3,
        at,
        took_ms: 0,
        class: Class::Permanent,
        kind: FailureKind::Other,
        code: None,
        counted: true,
        ambiguous: false,
        error: format!(
            "java.lang.IllegalStateException: kind {}",
            if number.is_multiple_of(2) { "a" } else { "b" }
        ),
    };
    let message =
        Message::builder(format!("f{number}")).created(at).payload(format!("foreign {number}")).build();
    Ok(ForeignLetter {
        message: message.map_err(|error| Violation::new("import", error.to_string()))?,
        origin: None,
        meta: Meta { created: at, attempts: 3, first_failed: Some(at), ..Meta::default() },
        history: History::default().with(&attempt),
    })
}
