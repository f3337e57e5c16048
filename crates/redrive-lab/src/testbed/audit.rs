//! Checks whether every produced id ended exactly once or is still pending, from the counts of the downstream, the
//! stored letters and the engine.

use serde::{Deserialize, Serialize};

use super::letters::LetterSet;
use super::trace::EngineCounts;

/// What the lab observed about one id.
#[derive(Clone, Copy, Debug, Default)]
#[allow(
    clippy::struct_excessive_bools,
    reason = "each is a fact of its own, and any of them may be true beside any other"
)]
pub struct IdFacts {
    pub arrived: bool,
    pub succeeded: bool,
    /// Whether it was applied more than once.
    pub twice: bool,
    /// Whether a hook announced a letter.
    pub announced: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Audit {
    /// Ids that were offered and accepted.
    pub produced: u64,
    /// Ids that the downstream applied.
    pub succeeded: u64,
    /// Ids that have a stored letter and were not applied.
    pub dead: u64,
    /// Ids that have not ended.
    pub pending: u64,
    /// Ids that the downstream applied more than once.
    pub applied_twice: u64,
    /// Ids that were applied and also have a letter.
    pub applied_and_dead: u64,
    /// Ids whose letter was announced but is not stored.
    #[serde(default)]
    pub announced_only: u64,
    /// Ids whose letter is stored but was never announced.
    #[serde(default)]
    pub unannounced: u64,
    /// Letters beyond the first of an id.
    #[serde(default)]
    pub letters_twice: u64,
    /// Letters of ids that were not produced.
    #[serde(default)]
    pub letters_strange: u64,
    /// The engine's counts of accepted messages, pending messages and letters.
    pub engine_accepted: u64,
    pub engine_pending: u64,
    pub engine_letters: u64,
}

impl Audit {
    /// Audits the facts about each id, in the order of their numbers.
    pub fn by_id(ids: impl Iterator<Item = IdFacts>, letters: &LetterSet, engine: EngineCounts) -> Self {
        let mut audit = Self {
            letters_twice: letters.twice,
            letters_strange: letters.strange,
            engine_accepted: engine.accepted,
            engine_pending: engine.pending,
            engine_letters: engine.letters,
            ..Self::default()
        };
        for (number, id) in (0..).zip(ids) {
            let has_letter = letters.has(number);
            if !id.arrived {
                audit.letters_strange += u64::from(has_letter);
                continue;
            }
            audit.produced += 1;
            audit.succeeded += u64::from(id.succeeded);
            audit.dead += u64::from(has_letter && !id.succeeded);
            audit.pending += u64::from(!has_letter && !id.succeeded);
            audit.applied_twice += u64::from(id.twice);
            audit.applied_and_dead += u64::from(has_letter && id.succeeded);
            audit.announced_only += u64::from(id.announced && !has_letter);
            audit.unannounced += u64::from(has_letter && !id.announced);
        }
        audit
    }

    pub fn balances(&self) -> bool {
        self.produced == self.succeeded + self.dead + self.pending
            && self.applied_twice == 0
            && self.applied_and_dead == 0
            && [self.announced_only, self.unannounced, self.letters_twice, self.letters_strange] == [0; 4]
            && self.engine_accepted == self.produced
            && self.engine_pending == self.pending
            && self.engine_letters == self.dead
    }

    #[must_use]
    pub fn plus(self, other: &Self) -> Self {
        Self {
            produced: self.produced + other.produced,
            succeeded: self.succeeded + other.succeeded,
            dead: self.dead + other.dead,
            pending: self.pending + other.pending,
            applied_twice: self.applied_twice + other.applied_twice,
            applied_and_dead: self.applied_and_dead + other.applied_and_dead,
            announced_only: self.announced_only + other.announced_only,
            unannounced: self.unannounced + other.unannounced,
            letters_twice: self.letters_twice + other.letters_twice,
            letters_strange: self.letters_strange + other.letters_strange,
            engine_accepted: self.engine_accepted + other.engine_accepted,
            engine_pending: self.engine_pending + other.engine_pending,
            engine_letters: self.engine_letters + other.engine_letters,
        }
    }
}

impl std::fmt::Display for Audit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { produced, succeeded, dead, pending, .. } = self;
        write!(f, "produced {produced} = succeeded {succeeded} + dead {dead} + pending {pending}")?;
        if self.balances() {
            return write!(f, "   ✓");
        }
        write!(
            f,
            "   ✗ does not balance: applied twice {}, applied and dead {}, letters announced and not stored {}, stored and not \
             announced {}, stored twice {}, of strange ids {}, engine: accepted {}, pending {}, letters {}",
            self.applied_twice,
            self.applied_and_dead,
            self.announced_only,
            self.unannounced,
            self.letters_twice,
            self.letters_strange,
            self.engine_accepted,
            self.engine_pending,
            self.engine_letters
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: Audit = Audit {
        produced: 10,
        succeeded: 7,
        dead: 2,
        pending: 1,
        applied_twice: 0,
        applied_and_dead: 0,
        announced_only: 0,
        unannounced: 0,
        letters_twice: 0,
        letters_strange: 0,
        engine_accepted: 10,
        engine_pending: 1,
        engine_letters: 2,
    };

    #[test]
    fn an_id_that_is_lost_doubled_or_counted_otherwise_by_the_engine_does_not_balance() {
        assert!(GOOD.balances(), "{GOOD}");
        for bad in [
            Audit { succeeded: 6, ..GOOD },
            Audit { applied_twice: 1, ..GOOD },
            Audit { applied_and_dead: 1, ..GOOD },
            Audit { announced_only: 1, ..GOOD },
            Audit { unannounced: 1, ..GOOD },
            Audit { letters_twice: 1, ..GOOD },
            Audit { letters_strange: 1, ..GOOD },
            Audit { engine_pending: 2, ..GOOD },
            Audit { engine_letters: 1, ..GOOD },
            Audit { engine_accepted: 9, ..GOOD },
        ] {
            assert!(!bad.balances(), "{bad}");
            assert!(bad.to_string().contains('✗'));
        }
    }

    /// Ten ids: 0 to 6 were applied, 7 and 8 are dead, 9 is pending.
    fn audited(letters: &[u64], counted: u64) -> Audit {
        let ids = (0..10).map(|number| IdFacts {
            arrived: true,
            succeeded: number < 7,
            announced: number == 7 || number == 8,
            ..IdFacts::default()
        });
        let engine = EngineCounts { accepted: 10, pending: 1, letters: counted };
        Audit::by_id(ids, &LetterSet::new(10, letters), engine)
    }

    #[test]
    fn letters_count_by_id_where_they_are_stored_and_not_where_they_are_announced() {
        assert_eq!(audited(&[8, 7], 2), GOOD);
        // The engine still counts two.
        let lost = audited(&[7], 2);
        assert_eq!((lost.announced_only, lost.dead, lost.pending), (1, 1, 2));
        for bad in
            [lost, audited(&[7], 1), audited(&[7, 9], 2), audited(&[7, 8, 8], 2), audited(&[7, 8, 11], 2)]
        {
            assert!(!bad.balances(), "{bad}");
        }
        assert_eq!(audited(&[7, 8, 3], 3).applied_and_dead, 1);
    }
}
