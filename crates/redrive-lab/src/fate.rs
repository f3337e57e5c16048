//! The fate of a message, decided by its id alone: the same in every run and for every compared system.

use redrive_core::Ratio;

/// This many of 10,000 ids are poison.
pub const POISON: u64 = 100;
/// This many of 10,000 ids fail at first.
pub const TRANSIENT: u64 = 1_500;
const OF: u64 = 10_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    Success,
    /// The first `failures` attempts fail, the next one succeeds.
    Transient {
        failures: u8,
    },
    /// Every attempt fails.
    Poison,
}

/// Shares of the fates; the rest succeeds at once. Together at most 100 %.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rates {
    pub poison: Ratio,
    pub transient: Ratio,
}

impl Rates {
    /// The rates of the common workload: 1 % poison, 15 % transient.
    pub const WORKLOAD: Self = Self { poison: Ratio::percent(1), transient: Ratio::percent(15) };
    pub const NONE: Self = Self { poison: Ratio::ZERO, transient: Ratio::ZERO };

    /// The fate of the message with this id. Raising a rate only adds ids to those already chosen.
    pub fn fate(self, id: &str) -> Fate {
        self.fate_of_number(fnv1a64(id.as_bytes()))
    }

    /// The fate that a drawn number selects.
    pub fn fate_of_number(self, drawn: u64) -> Fate {
        // Out of 10,000: ratios are stored in hundredths of a percent.
        Fate::chosen(drawn % OF, self.poison.of_ms(OF), self.transient.of_ms(OF))
    }
}

impl Fate {
    /// The fate of the message with this id in the common workload.
    pub fn of(id: &str) -> Self {
        Self::chosen(fnv1a64(id.as_bytes()) % OF, POISON, TRANSIENT)
    }

    /// Poison below `poison`, transient in the next `transient` numbers.
    fn chosen(r: u64, poison: u64, transient: u64) -> Self {
        if r < poison {
            Self::Poison
        } else if r < poison + transient {
            Self::Transient { failures: if r.is_multiple_of(3) { 2 } else { 1 } }
        } else {
            Self::Success
        }
    }

    /// Whether attempt `attempt`, counted from 1, fails.
    pub fn fails(self, attempt: u8) -> bool {
        match self {
            Self::Success => false,
            Self::Transient { failures } => attempt <= failures,
            Self::Poison => true,
        }
    }
}

/// 64-bit FNV-1a: simple enough to implement in every language of the comparison.
pub fn fnv1a64(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::order;

    const SAMPLE: u64 = 100_000;

    fn share(is: impl Fn(Fate) -> bool) -> f64 {
        let hits = (0..SAMPLE).filter(|i| is(Fate::of(&order::id(*i)))).count();
        hits as f64 / SAMPLE as f64
    }

    #[test]
    fn the_hash_is_the_published_one() {
        assert_eq!(fnv1a64(b""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(fnv1a64(b"a"), 0xaf63_dc4c_8601_ec8c);
        assert_eq!(fnv1a64(b"foobar"), 0x8594_4171_f739_67e8);
    }

    #[test]
    fn about_one_in_a_hundred_is_poison_and_fifteen_are_transient() {
        let poison = share(|fate| fate == Fate::Poison);
        assert!((0.008..0.012).contains(&poison), "{poison}");
        let transient = share(|fate| matches!(fate, Fate::Transient { .. }));
        assert!((0.145..0.155).contains(&transient), "{transient}");
        let twice = share(|fate| fate == Fate::Transient { failures: 2 });
        assert!((0.045..0.055).contains(&twice), "{twice}");
    }

    /// Changing the fates would make all published figures incomparable.
    #[test]
    fn fates_are_the_same_every_run() {
        let fates: Vec<Fate> = (0..SAMPLE).map(|i| Fate::of(&order::id(i))).collect();
        let again: Vec<Fate> = (0..SAMPLE).map(|i| Fate::of(&order::id(i))).collect();
        assert_eq!(fates, again);
        let count = |wanted: fn(&Fate) -> bool| fates.iter().filter(|fate| wanted(fate)).count();
        let poison = count(|fate| *fate == Fate::Poison);
        let transient = count(|fate| matches!(fate, Fate::Transient { .. }));
        assert_eq!((poison, transient), (1_013, 15_082));
    }

    #[test]
    fn the_rates_of_the_workload_give_its_fates() {
        for i in 0..SAMPLE {
            let id = order::id(i);
            assert_eq!(Rates::WORKLOAD.fate(&id), Fate::of(&id), "{id}");
            assert_eq!(Rates::NONE.fate(&id), Fate::Success);
        }
    }

    #[test]
    fn a_higher_rate_keeps_the_poison_of_a_lower_one() {
        let [low, high] =
            [1, 5].map(|percent| Rates { poison: Ratio::percent(percent), transient: Ratio::percent(15) });
        let poison = |rates: Rates| move |i: &u64| rates.fate(&order::id(*i)) == Fate::Poison;
        assert!((0..SAMPLE).filter(poison(low)).all(|i| poison(high)(&i)));
        let count = (0..SAMPLE).filter(poison(high)).count();
        assert!((4_800..5_200).contains(&count), "{count}");
    }

    #[test]
    fn transient_messages_succeed_after_their_failures_and_poison_never() {
        let twice = Fate::Transient { failures: 2 };
        assert_eq!([1, 2, 3].map(|attempt| twice.fails(attempt)), [true, true, false]);
        assert_eq!([1, 4, 200].map(|attempt| Fate::Poison.fails(attempt)), [true, true, true]);
        assert!(!Fate::Success.fails(1));
    }
}
