//! Limits the call rate of each endpoint: a number per second, with bursts of a tenth of a second's worth.
//!
//! A message that has to wait gets a time slot after those given before, so that messages come back one by one and not
//! all at once; a message that has waited goes before one that has not. A slot is not binding: its message may die or
//! go elsewhere, so an endpoint that gets no calls is free, whatever slots were given.

use std::collections::HashMap;

use crate::Time;

/// The maximum number of remembered endpoints. An endpoint is remembered only while earlier calls delay new ones.
const REMEMBERED_MAX: usize = 100_000;
/// How far calls may run ahead of an even pace.
const AT_ONCE_US: u64 = 100_000;
/// How late a message with a slot may come before the slot no longer delays others.
const LATE_US: u64 = 1_000_000;
/// The slowest rate: one call per hour.
pub const RATE_MIN: f64 = 1.0 / 3_600.0;

/// Spaces calls evenly.
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
    /// The last slot given to messages that wait for the first time.
    last: u64,
    /// The last slot given to messages that came back too early.
    last_again: u64,
}

impl Pace {
    /// Limits each endpoint to `per_second` calls.
    pub fn new(per_second: f64) -> Self {
        Self { gap_us: ((1e6 / per_second.max(RATE_MIN)) as u64).max(1), known: HashMap::new() }
    }

    /// When a message may go; `None` means now. The slot is reserved unless it is after `latest`, when the message no
    /// longer needs it. `waited` says whether it had a slot before.
    pub fn ask(&mut self, endpoint: u64, waited: bool, now: Time, latest: Time) -> Option<Time> {
        let now = us(now);
        let turns = self.known.get_mut(&endpoint)?;
        let nobody_came = turns.next + self.gap_us + LATE_US < now;
        let clock_went_back = turns.next > now + AT_ONCE_US + self.gap_us;
        if nobody_came || clock_went_back {
            self.known.remove(&endpoint);
            return None;
        }
        let is_early = turns.next > now + AT_ONCE_US;
        let others_wait = !waited && turns.last.max(turns.last_again) > now;
        if !is_early && !others_wait {
            return None;
        }
        let line = if waited { turns.last_again } else { turns.last.max(turns.last_again) };
        let place = turns.next.max(line + self.gap_us).max(now);
        if place <= us(latest) {
            *(if waited { &mut turns.last_again } else { &mut turns.last }) = place;
        }
        Some(Time::from_millis(place.div_ceil(1_000)))
    }

    /// The endpoints at which messages wait for their slot, and the time of the last slot. Scans all.
    pub fn waits(&self, now: Time) -> impl Iterator<Item = (u64, Time)> {
        let now = us(now);
        self.known.iter().filter_map(move |(endpoint, turns)| {
            let last = turns.last.max(turns.last_again);
            let nobody_came = turns.next + self.gap_us + LATE_US < now;
            (last > now && !nobody_came).then(|| (*endpoint, Time::from_millis(last.div_ceil(1_000))))
        })
    }

    /// Records the start of a call.
    pub fn started(&mut self, endpoint: u64, now: Time) {
        let now = us(now);
        if self.known.len() >= REMEMBERED_MAX {
            self.known.retain(|_, turns| turns.next.max(turns.last) > now);
            // With this many at once, forgetting all allows a few early calls but avoids scanning them for each call.
            if self.known.len() > REMEMBERED_MAX / 2 {
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

    /// Asks whether a message may go, and starts its call if so.
    fn goes(pace: &mut Pace, ms: u64, waited: bool) -> Option<Time> {
        let wait = pace.ask(TO, waited, at(ms), Time::MAX);
        if wait.is_none() {
            pace.started(TO, at(ms));
        }
        wait
    }

    #[test]
    fn whoever_waits_has_a_place_of_its_own() {
        let mut pace = Pace::new(20.0);
        assert!((0..3).all(|_| goes(&mut pace, 0, false).is_none()), "a tenth of a second's worth, and one");
        assert_eq!([0, 0].map(|ms| goes(&mut pace, ms, false)), [Some(at(150)), Some(at(200))]);
        assert_eq!(goes(&mut pace, 140, false), Some(at(250)), "not before those that wait");
        assert_eq!([150, 200, 250].map(|ms| goes(&mut pace, ms, true)), [None; 3]);
        assert_eq!(goes(&mut pace, 301, false), None, "no message waits any more");
        assert_eq!(pace.ask(8, false, at(301), Time::MAX), None, "others are others");
    }

    /// More messages arrived at once than may wait: the excess becomes dead letters, including some that had a slot.
    #[test]
    fn places_that_nobody_comes_back_to_keep_nobody_waiting() {
        let mut pace = Pace::new(1.0);
        pace.started(TO, at(0));
        let latest = at(3_600_000);
        let places = (0..1_000_000).filter_map(|_| pace.ask(TO, false, at(0), latest));
        assert_eq!(places.filter(|place| *place <= latest).count(), 3_600);
        assert_eq!(pace.ask(TO, false, at(0), Time::MAX), Some(at(3_601_000)));
        assert_eq!(pace.ask(TO, false, at(2_900), latest), Some(at(3_602_000)), "they may be late");
        assert_eq!(goes(&mut pace, 3_100, false), None, "but not for ever");
    }

    #[test]
    fn a_clock_that_was_wrong_for_a_moment_freezes_nothing() {
        let mut pace = Pace::new(20.0);
        pace.started(TO, at(365 * 86_400_000));
        assert_eq!(goes(&mut pace, 0, false), None);
        let mut pace = Pace::new(crate::text::rate::parse("0.000000000000001/h").unwrap());
        assert_eq!([goes(&mut pace, 0, false), goes(&mut pace, 10, false)], [None, Some(at(3_600_000))]);
    }

    /// An endpoint recovers from an outage: its messages were deferred, and new ones arrive at the full rate.
    #[test]
    fn whoever_waited_goes_before_newcomers() {
        let mut pace = Pace::new(1.0);
        pace.started(TO, at(0));
        let mut waiting: std::collections::BTreeSet<(u64, u32)> = (0..10).map(|i| (1, i)).collect();
        let mut newcomers = 0;
        for now in (1..60).map(|second| second * 1_000 + 999) {
            while let Some((ms, i)) = waiting.pop_first() {
                if ms > now {
                    waiting.insert((ms, i));
                    break;
                }
                if let Some(due) = goes(&mut pace, ms, true) {
                    waiting.insert((due.since(at(0)).as_millis() as u64, i));
                }
            }
            newcomers += u32::from(goes(&mut pace, now, false).is_none());
        }
        assert!(waiting.is_empty(), "{newcomers} newcomers went, {} still wait", waiting.len());
    }

    #[test]
    fn many_endpoints_take_no_more_room_than_some() {
        let mut pace = Pace::new(1.0);
        (0..250_000).for_each(|endpoint| pace.started(endpoint, at(endpoint)));
        assert!(pace.known.len() <= REMEMBERED_MAX);
    }

    proptest! {
        /// Whenever messages arrive, and however late they come back: never more calls than the rate and the burst
        /// allow.
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
            prop_assert_eq!(went.len(), arrivals.len(), "no message waits for ever");
            prop_assert!(looks <= arrivals.len() * 8, "{} looks for {} messages", looks, arrivals.len());
            let most = per_second as usize + per_second as usize / 10 + 2;
            for (first, ms) in went.iter().enumerate() {
                let within = went[first..].iter().take_while(|other| **other < ms + 1_000).count();
                prop_assert!(within <= most, "{} calls within a second", within);
            }
        }
    }
}
