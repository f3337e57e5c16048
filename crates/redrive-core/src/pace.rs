//! How often one endpoint may be called: a rate per second for each, with a tenth of a second's worth at once.
//!
//! Whoever has to wait gets a place behind those that wait already, so that they come back one after the other and not all
//! at once; and whoever comes back goes before whoever has not waited yet.

use std::collections::HashMap;

use crate::Time;

/// Endpoints that are remembered. One is remembered only while calls to it are in its way.
const REMEMBERED_MAX: usize = 100_000;
/// So far ahead of an even pace calls may be.
const AT_ONCE_US: u64 = 100_000;

#[derive(Clone, Debug)]
pub struct Pace {
    gap_us: u64,
    known: HashMap<u64, Turns>,
}

/// Times in microseconds.
#[derive(Clone, Copy, Debug, Default)]
struct Turns {
    /// When the next call would be in time at an even pace.
    next: u64,
    /// The last place of those that wait for the first time …
    last: u64,
    /// … and of those that came back too early.
    last_again: u64,
}

impl Pace {
    /// `per_second` is above zero.
    pub fn new(per_second: f64) -> Self {
        Self { gap_us: ((1e6 / per_second) as u64).max(1), known: HashMap::new() }
    }

    /// When a message may go, if that is not now: it has its place then. `waited` if it had one before.
    pub fn ask(&mut self, endpoint: u64, now: Time, waited: bool) -> Option<Time> {
        let now = us(now);
        let turns = self.known.get_mut(&endpoint)?;
        let is_early = turns.next > now + AT_ONCE_US;
        let others_wait = !waited && turns.last > now;
        if !is_early && !others_wait {
            return None;
        }
        let before = if waited { &mut turns.last_again } else { &mut turns.last };
        *before = turns.next.max(*before).max(now) + self.gap_us;
        Some(Time::from_millis(before.div_ceil(1_000)))
    }

    /// A call begins.
    pub fn started(&mut self, endpoint: u64, now: Time) {
        let now = us(now);
        if self.known.len() >= REMEMBERED_MAX {
            self.known.retain(|_, turns| turns.next.max(turns.last) > now);
            // So many at once: rather a few calls too early than more memory.
            if self.known.len() >= REMEMBERED_MAX {
                self.known.clear();
            }
        }
        let turns = self.known.entry(endpoint).or_default();
        turns.next = turns.next.max(now) + self.gap_us;
    }
}

fn us(time: Time) -> u64 {
    time.as_millis().saturating_mul(1_000)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TO: u64 = 7;

    fn at(ms: u64) -> Time {
        Time::from_millis(1_800_000_000_000 + ms)
    }

    /// Whether it may go; if so, it does.
    fn goes(pace: &mut Pace, ms: u64, waited: bool) -> Option<Time> {
        let wait = pace.ask(TO, at(ms), waited);
        if wait.is_none() {
            pace.started(TO, at(ms));
        }
        wait
    }

    #[test]
    fn whoever_waits_has_a_place_of_its_own() {
        let mut pace = Pace::new(20.0);
        assert!((0..3).all(|_| goes(&mut pace, 0, false).is_none()), "a tenth of a second's worth, and one");
        assert_eq!([0, 0].map(|ms| goes(&mut pace, ms, false)), [Some(at(200)), Some(at(250))]);
        assert_eq!(goes(&mut pace, 180, false), Some(at(300)), "not before those that wait");
        assert_eq!(goes(&mut pace, 200, true), None);
        assert_eq!(goes(&mut pace, 250, true), None);
        assert_eq!(goes(&mut pace, 301, false), None, "nobody waits any more");
        assert_eq!(pace.ask(8, at(301), false), None, "others are others");
    }

    #[test]
    fn many_endpoints_take_no_more_room_than_some() {
        let mut pace = Pace::new(1.0);
        (0..250_000).for_each(|endpoint| pace.started(endpoint, at(endpoint)));
        assert!(pace.known.len() <= REMEMBERED_MAX);
    }

    proptest! {
        /// Whenever messages come, and however late they come back: never more than the rate and what may go at once.
        #[test]
        fn no_second_has_more_calls_than_the_rate(
            per_second in 1u32..500, arrivals in prop::collection::vec(0u64..3_000, 1..400), late_ms in 0u64..50
        ) {
            let mut pace = Pace::new(f64::from(per_second));
            let mut waiting: std::collections::BTreeSet<(u64, usize, bool)> =
                arrivals.iter().enumerate().map(|(i, ms)| (*ms, i, false)).collect();
            let mut went = Vec::new();
            let mut looks = 0;
            while let Some((ms, i, waited)) = waiting.pop_first() {
                looks += 1;
                match goes(&mut pace, ms, waited) {
                    None => went.push(ms),
                    Some(due) => drop(waiting.insert((due.since(at(0)).as_millis() as u64 + late_ms, i, true))),
                }
            }
            prop_assert_eq!(went.len(), arrivals.len(), "nobody waits for ever");
            prop_assert!(looks <= arrivals.len() * 8, "{} looks for {} messages", looks, arrivals.len());
            let most = per_second as usize + per_second as usize / 10 + 2;
            for (first, ms) in went.iter().enumerate() {
                let within = went[first..].iter().take_while(|other| **other < ms + 1_000).count();
                prop_assert!(within <= most, "{} calls within a second", within);
            }
        }
    }
}
