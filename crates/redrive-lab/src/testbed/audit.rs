//! Whether every id that was produced ended exactly once or is still there. Counted twice: by the downstream and by the engine.

use serde::{Deserialize, Serialize};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Audit {
    /// Ids that were offered and accepted.
    pub produced: u64,
    /// Ids that the downstream applied.
    pub succeeded: u64,
    /// Ids that became dead letters.
    pub dead: u64,
    /// Ids without an end.
    pub pending: u64,
    /// Ids that the downstream applied more than once.
    pub applied_twice: u64,
    /// Ids that were applied and are dead letters besides.
    pub applied_and_dead: u64,
    /// What the engine says: messages accepted, pending, and letters.
    pub engine_accepted: u64,
    pub engine_pending: u64,
    pub engine_letters: u64,
}

impl Audit {
    pub fn balances(&self) -> bool {
        self.produced == self.succeeded + self.dead + self.pending
            && self.applied_twice == 0
            && self.applied_and_dead == 0
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
            "   ✗ does not balance: applied twice {}, applied and dead {}, engine: accepted {}, pending {}, letters {}",
            self.applied_twice,
            self.applied_and_dead,
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
            Audit { engine_pending: 2, ..GOOD },
            Audit { engine_letters: 1, ..GOOD },
            Audit { engine_accepted: 9, ..GOOD },
        ] {
            assert!(!bad.balances(), "{bad}");
            assert!(bad.to_string().contains('✗'));
        }
    }
}
