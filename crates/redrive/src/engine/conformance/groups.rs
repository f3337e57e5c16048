//! Compares the group counts of the engine, which it updates as letters come and go, with counts taken from the
//! letters.

use std::collections::BTreeMap;

use redrive_core::{GroupId, Reason, Time};

use super::check::{Check, violation};
use super::suite::{Suite, failed};
use crate::engine::letter::{Letter, LetterState};

impl Suite {
    /// `shown` has all letters, or all open ones.
    pub(super) fn groups(&mut self, shown: &[Letter]) -> Check {
        let open: Vec<&Letter> = shown.iter().filter(|letter| letter.state == LetterState::Open).collect();
        let mut counted: BTreeMap<GroupId, Vec<(Time, u64)>> = BTreeMap::new();
        for letter in &open {
            counted.entry(letter.group.group).or_default().push((letter.dead_at, letter.id));
            let expected = self.model.options.grouping.of(letter.reason, letter.history.attempts().last());
            if letter.reason != Reason::Corrupt && letter.group != expected {
                return violation(
                    "groups",
                    format!("{} is in {:?}, not {expected:?}", letter.id, letter.group),
                );
            }
        }
        let now = self.now;
        let engine = self.harness.engine();
        let found = engine.groups(now).map_err(failed)?;
        if found.len() != counted.len() {
            return violation("groups", format!("found {found:?}, counted {counted:?}"));
        }
        for figures in found {
            let letters = counted.remove(&figures.group).unwrap_or_default();
            let numbers: Vec<u64> = letters.iter().map(|(_, id)| *id).collect();
            if (figures.open, figures.oldest) != (letters.len() as u64, letters.iter().min().copied()) {
                return violation("groups", format!("{figures:?}, but its letters are {letters:?}"));
            }
            let mut paged: Vec<u64> = Vec::new();
            loop {
                let page =
                    engine.letters_in_group(figures.group, paged.last().copied(), 2).map_err(failed)?;
                if page.is_empty() {
                    break;
                }
                paged.extend(page);
            }
            let since = letters.first().map_or(Time::ZERO, |(dead_at, _)| *dead_at);
            let later = letters.iter().filter(|(dead_at, _)| *dead_at > since).count() as u64;
            let found = engine.open_since(figures.group, since, u64::MAX).map_err(failed)?;
            if paged != numbers || found != later {
                return violation(
                    "groups",
                    format!("{paged:?}, {found} later; letters {letters:?}, {later} later"),
                );
            }
        }
        let oldest = engine.oldest().map_err(failed)?.letter;
        let expected = open.iter().map(|letter| letter.dead_at).min();
        if oldest != expected {
            return violation("groups", format!("the oldest is of {oldest:?}, not {expected:?}"));
        }
        Ok(())
    }
}
