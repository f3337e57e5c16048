//! Counters for closed vocabularies: one field per word, so that counting is an addition and nothing can grow.

use redrive_core::{Class, Reason};

/// Ended calls by outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct ByClass {
    /// Calls that succeeded.
    pub ok: u64,
    failed: [u64; Class::ALL.len()],
}

/// Dead letters by reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct ByReason {
    counts: [u64; Reason::ALL.len()],
}

impl ByClass {
    /// Failed calls of a class.
    pub fn get(&self, class: Class) -> u64 {
        Class::ALL
            .into_iter()
            .zip(self.failed)
            .find(|(known, _)| *known == class)
            .map_or(0, |(_, count)| count)
    }

    pub(crate) fn add(&mut self, class: Class) {
        if let Some(at) = Class::ALL.iter().position(|known| *known == class) {
            self.failed[at] += 1;
        }
    }

    /// Every class with its count, `ok` first, under the names used in metrics and logs.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let failed = Class::ALL.into_iter().map(Class::name).zip(self.failed);
        std::iter::once(("ok", self.ok)).chain(failed)
    }

    /// All calls.
    pub fn total(&self) -> u64 {
        self.ok + self.failed.iter().sum::<u64>()
    }
}

impl ByReason {
    /// Dead letters with this reason.
    pub fn get(&self, reason: Reason) -> u64 {
        self.iter().find(|(known, _)| *known == reason).map_or(0, |(_, count)| count)
    }

    pub(crate) fn add(&mut self, reason: Reason) {
        if let Some(at) = Reason::ALL.iter().position(|known| *known == reason) {
            self.counts[at] += 1;
        }
    }

    /// Every reason with its count.
    pub fn iter(&self) -> impl Iterator<Item = (Reason, u64)> {
        Reason::ALL.into_iter().zip(self.counts)
    }

    /// All dead letters.
    pub fn total(&self) -> u64 {
        self.counts.iter().sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_has_a_counter_of_its_own() {
        let (mut classes, mut reasons) = (ByClass { ok: 2, ..ByClass::default() }, ByReason::default());
        Class::ALL.into_iter().for_each(|class| classes.add(class));
        Reason::ALL.into_iter().for_each(|reason| reasons.add(reason));
        reasons.add(Reason::Gone);
        assert!(Class::ALL.into_iter().all(|class| classes.get(class) == 1));
        assert_eq!((reasons.get(Reason::Gone), reasons.get(Reason::Corrupt)), (2, 1));
        assert_eq!((classes.total(), reasons.total()), (2 + 7, Reason::ALL.len() as u64 + 1));
        assert_eq!(classes.iter().next(), Some(("ok", 2)));
    }
}
