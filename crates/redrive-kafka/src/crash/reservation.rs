//! How far messages of a partition may be handed out. No I/O.
//!
//! What may run is committed before it runs, so that after a crash the next process knows every message that can have
//! caused it. Waiting for a commit with each message would be slow, so somewhat more than was handed out is reserved,
//! and renewed with the commits that are made anyway. A reserved message that never ran is suspected without cause, so
//! no more is reserved than needed.

use std::time::{Duration, Instant};

/// Reserved in advance for a partition with little traffic.
pub const ADVANCE_MIN: u64 = 32;
pub const ADVANCE_MAX: u64 = 16_384;
/// A reservation lasts for about this long at the recent rate.
const LASTS_MS: u64 = 300;
const WINDOW: Duration = Duration::from_millis(100);

/// How much is reserved in advance. It follows the rate, and doubles if it was too little.
#[derive(Clone, Copy, Debug)]
pub struct Advance {
    size: u64,
    /// When the rate was last measured, and how many had been handed out by then.
    looked: Option<(Instant, u64)>,
}

impl Default for Advance {
    fn default() -> Self {
        Self { size: ADVANCE_MIN, looked: None }
    }
}

impl Advance {
    /// Returns the next advance. `handed` counts what was handed out so far; `starved` if something had to wait for a
    /// reservation.
    pub fn next(&mut self, now: Instant, handed: u64, starved: bool) -> u64 {
        let (at, before) = *self.looked.get_or_insert((now, handed));
        let elapsed = now.duration_since(at);
        if elapsed >= WINDOW {
            let elapsed = u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX).max(1);
            let lasting = handed.saturating_sub(before).saturating_mul(LASTS_MS) / elapsed;
            self.size = if starved { lasting.max(self.size * 2) } else { lasting };
            self.looked = Some((now, handed));
        } else if starved {
            self.size *= 2;
        }
        self.size = self.size.clamp(ADVANCE_MIN, ADVANCE_MAX);
        self.size
    }

    pub fn size(&self) -> u64 {
        self.size
    }
}

/// The messages of one partition that may be handed out.
#[derive(Clone, Copy, Debug)]
pub struct Reservation {
    /// Offsets below this may be handed out: a commit that says so was accepted.
    granted: u64,
    /// For a tier: messages due by this time may be handed out.
    due_granted: u64,
    /// For a tier: the due time to reserve with the next commit.
    due_wanted: u64,
    advance: Advance,
    /// How much had been handed out at the last renewal.
    renewed_at: u64,
    starved: bool,
    /// Whether everything may be handed out, because nothing will be suspected.
    is_unlimited: bool,
}

impl Reservation {
    /// For messages that cannot kill the process: nothing has to be committed before they run.
    pub fn unlimited() -> Self {
        Self { is_unlimited: true, ..Self::starting_at(0, None) }
    }

    pub fn is_unlimited(&self) -> bool {
        self.is_unlimited
    }

    /// Starts with what an earlier owner reserved, which stays reserved.
    pub fn starting_at(offset: u64, due_by: Option<u64>) -> Self {
        let due = due_by.unwrap_or(0);
        Self {
            granted: offset,
            due_granted: due,
            due_wanted: due,
            advance: Advance::default(),
            renewed_at: offset,
            starved: false,
            is_unlimited: false,
        }
    }

    /// Whether a fresh record may be handed out. If not, the reservation is renewed soon.
    pub fn admits(&mut self, offset: u64) -> bool {
        let admits = self.is_unlimited || offset < self.granted;
        self.starved |= !admits;
        admits
    }

    pub fn admits_due(&self, due: u64) -> bool {
        self.is_unlimited || due <= self.due_granted
    }

    pub fn due_granted(&self) -> u64 {
        self.due_granted.max(self.due_wanted)
    }

    pub fn want_due(&mut self, due: u64) {
        self.due_wanted = self.due_wanted.max(due);
    }

    /// Whether more is needed at once: `met` is one past the last record that was read, `taken` one past the last that
    /// was handed out.
    pub fn is_low(&self, taken: u64, met: u64) -> bool {
        let is_short = met > self.granted && self.granted < taken + self.advance.size() / 2;
        !self.is_unlimited && (self.starved || is_short)
    }

    /// Whether a commit would change the reservation: more is needed, or much less than is reserved.
    pub fn has_news(&self, taken: u64, met: u64, at_least: u64) -> bool {
        let too_wide = !self.is_unlimited
            && taken == self.renewed_at
            && self.granted > at_least.max(taken + ADVANCE_MIN);
        self.is_low(taken, met) || too_wide
    }

    /// Like [`Self::has_news`], for due times.
    pub fn has_due_news(&self) -> bool {
        self.due_wanted > self.due_granted
    }

    /// Returns what the next commit reserves: offsets below the first number, and messages due by the second.
    pub fn renew(&mut self, now: Instant, taken: u64, at_least: u64) -> (u64, u64) {
        if self.is_unlimited {
            return (0, 0);
        }
        let advance = self.advance.next(now, taken, self.starved);
        self.starved = false;
        self.renewed_at = taken;
        let to = (taken + advance).max(at_least);
        // It may be less than before, and a reduction counts from the moment when others may read it.
        self.granted = self.granted.min(to);
        (to, self.due_wanted)
    }

    /// Notes that a commit with this reservation was accepted.
    pub fn grant(&mut self, to: u64, due: u64) {
        self.granted = to;
        self.due_granted = self.due_granted.max(due);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_handed_out_before_its_reservation_is_committed() {
        let now = Instant::now();
        let mut reservation = Reservation::starting_at(10, None);
        assert!(!reservation.admits(10) && reservation.is_low(10, 11));
        let (to, _) = reservation.renew(now, 10, 0);
        assert!(!reservation.admits(10), "the commit is not answered");
        reservation.grant(to, 0);
        assert!(reservation.admits(10) && reservation.admits(to - 1) && !reservation.admits(to));
    }

    #[test]
    fn it_grows_with_the_need_and_shrinks_with_the_rate() {
        let mut now = Instant::now();
        let mut reservation = Reservation::starting_at(0, None);
        let (mut taken, mut rounds) = (0, 0);
        while taken < 100_000 {
            let starved = !reservation.admits(taken);
            if starved {
                rounds += 1;
                let (to, _) = reservation.renew(now, taken, 0);
                reservation.grant(to, 0);
            }
            taken += u64::from(!starved);
        }
        assert!(rounds < 30, "{rounds}");
        for _ in 0..3 {
            now += WINDOW;
            let (to, _) = reservation.renew(now, taken, 0);
            reservation.grant(to, 0);
        }
        assert!(!reservation.admits(taken + ADVANCE_MIN) && reservation.admits(taken + ADVANCE_MIN - 1));
        let mut still = reservation;
        still.starved = false;
        assert!(!still.has_news(taken, taken, 0), "a partition that rests needs no commit");
    }

    #[test]
    fn what_can_end_no_process_waits_for_no_commit() {
        let mut reservation = Reservation::unlimited();
        assert!(reservation.admits(u64::MAX) && reservation.admits_due(u64::MAX));
        assert!(!reservation.has_news(7, 1_000, 0) && !reservation.has_due_news());
        assert_eq!(reservation.renew(Instant::now(), 7, 0), (0, 0), "no message may be suspected");
    }

    #[test]
    fn less_counts_at_once_and_more_only_when_committed() {
        let now = Instant::now();
        let mut reservation = Reservation::starting_at(0, None);
        reservation.grant(10_000, 0);
        let (to, _) = reservation.renew(now, 5, 0);
        assert!(to < 10_000 && !reservation.admits(to));
    }
}
