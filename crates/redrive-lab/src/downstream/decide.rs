//! Decides whether a call fails: a pure function of the switches and the call.

use super::{StubFailure, Switches};
use crate::fate::{Fate, Rates};
use crate::seed;

/// Salts for the independent draws of a call.
const FAILS: u64 = 1;
const LATENCY: u64 = 2;

/// The input of the decision.
#[derive(Clone, Copy, Debug)]
pub(super) struct StubCall<'a> {
    pub(super) id: &'a str,
    /// Counted from 1.
    pub(super) attempt: u32,
    /// The fate in the payload.
    pub(super) mark: Fate,
}

/// Whether the downstream accepts the call, outages aside. The same seed gives the same answers to the same calls.
///
/// Failures by `fail_rate` are drawn per id, not per call: an order fails on its first attempts and then succeeds, so
/// no order can fail forever by chance.
pub(super) fn decide(switches: &Switches, seed: u64, call: StubCall<'_>) -> Result<(), StubFailure> {
    if switches.poison_detect && call.mark == Fate::Poison {
        return Err(StubFailure::Poison);
    }
    let attempt = u8::try_from(call.attempt).unwrap_or(u8::MAX);
    let marked =
        switches.obey_marks && matches!(call.mark, Fate::Transient { .. }) && call.mark.fails(attempt);
    let rates = Rates { transient: switches.fail_rate, ..Rates::NONE };
    let drawn = || rates.fate_of_number(seed::draw(seed, call.id, FAILS)).fails(attempt);
    if marked || drawn() {
        return Err(StubFailure::Transient { attempt: call.attempt, retry_after: switches.retry_after });
    }
    Ok(())
}

/// The random number that decides the latency of the call.
pub(super) fn latency_number(seed: u64, call: StubCall<'_>) -> redrive_core::Random {
    redrive_core::Random(seed::draw(seed, call.id, LATENCY.wrapping_add(u64::from(call.attempt) << 8)))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use redrive_core::Ratio;

    use super::*;
    use crate::downstream::failure::FailureKind;

    fn kind(switches: &Switches, seed: u64, attempt: u32, mark: Fate, id: &str) -> Option<FailureKind> {
        decide(switches, seed, StubCall { id, attempt, mark }).err().map(|failure| failure.kind())
    }

    #[test]
    fn marks_and_switches_decide() {
        use FailureKind::{Poison, Transient};
        let as_it_starts = Switches::default();
        let fixed = Switches { poison_detect: false, ..Switches::default() };
        let deaf = Switches { obey_marks: false, ..Switches::default() };
        let all_fail = Switches { fail_rate: Ratio::WHOLE, ..Switches::default() };
        let twice = Fate::Transient { failures: 2 };
        for (switches, attempt, mark, expected) in [
            (&as_it_starts, 1, Fate::Success, None),
            (&as_it_starts, 1, Fate::Poison, Some(Poison)),
            (&as_it_starts, 1_000, Fate::Poison, Some(Poison)),
            (&as_it_starts, 2, twice, Some(Transient)),
            (&as_it_starts, 3, twice, None),
            (&fixed, 1, Fate::Poison, None),
            (&fixed, 1, twice, Some(Transient)),
            (&deaf, 1, twice, None),
            (&deaf, 1, Fate::Poison, Some(Poison)),
            (&all_fail, 1, Fate::Success, Some(Transient)),
            (&all_fail, 3, Fate::Success, None),
            (&all_fail, 1, Fate::Poison, Some(Poison)),
        ] {
            let found = kind(switches, 1, attempt, mark, "o-1");
            assert_eq!(found, expected, "{switches:?} {attempt} {mark:?}");
        }
    }

    proptest! {
        /// Transient failures end by attempt 3 at any seed and rate, so a replay can always succeed.
        #[test]
        fn no_order_fails_by_rate_more_than_twice(seed: u64, id in "[a-z0-9-]{1,20}", percent in 0_u16..=100, attempt in 3_u32..) {
            let switches = Switches { fail_rate: Ratio::percent(percent), ..Switches::default() };
            prop_assert_eq!(kind(&switches, seed, attempt, Fate::Success, &id), None);
        }
    }

    #[test]
    fn the_fail_rate_is_the_share_of_orders_that_fail_at_first_and_follows_the_seed() {
        let switches = Switches { fail_rate: Ratio::percent(15), ..Switches::default() };
        let failing = |seed: u64| -> Vec<u64> {
            (0..20_000)
                .filter(|n| kind(&switches, seed, 1, Fate::Success, &format!("o-{n}")).is_some())
                .collect()
        };
        let (one, two) = (failing(1), failing(2));
        assert!((2_800..3_200).contains(&one.len()), "{}", one.len());
        assert_eq!(one, failing(1));
        assert_ne!(one, two);
    }

    /// With a shared draw, every poison order would also be a transient one.
    #[test]
    fn who_fails_at_first_does_not_depend_on_who_is_poison() {
        let switches = Switches { fail_rate: Ratio::percent(15), ..Switches::default() };
        let poison: Vec<String> =
            (0..100_000).map(crate::order::id).filter(|id| Fate::of(id) == Fate::Poison).collect();
        let both = poison.iter().filter(|id| kind(&switches, 1, 1, Fate::Success, id).is_some()).count();
        let share = both as f64 / poison.len() as f64;
        assert!((0.10..0.20).contains(&share), "{share}");
    }
}
