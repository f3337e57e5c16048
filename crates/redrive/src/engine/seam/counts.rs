//! How many messages an engine holds, in which state, and how old the oldest are.

use redrive_core::Time;

/// How many messages are in which state right now. The first five are a partition: every message that is not terminal is
/// in exactly one of them. docs/lifecycle.md says what each means.
///
/// ```
/// let counts = redrive::Counts { ready: 2, held: 40, in_flight: 8, letters_open: 3, ..redrive::Counts::default() };
/// assert_eq!(counts.pending(), 50);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Counts {
    /// May start, and waits for a free place.
    pub ready: u64,
    /// Waits for its due time, or has come due and waits for a free place.
    pub delayed: u64,
    /// Like delayed, but because it was deferred: see `Meta::deferred`.
    pub held: u64,
    /// Waits behind an earlier message of its key.
    pub key_wait: u64,
    /// Handed out, and not durably settled.
    pub in_flight: u64,
    /// Of those in flight, the ones whose verdict was given.
    pub settling: Settling,
    /// Open letters.
    pub letters_open: u64,
    /// Letters that were put back and are not delivered yet.
    pub letters_replaying: u64,
    /// Letters that were delivered after a replay.
    pub letters_succeeded: u64,
    /// Letters that were given up.
    pub letters_discarded: u64,
    /// Letters whose content is gone for good.
    pub letters_erased: u64,
    /// How many messages were ever accepted by what is counted here; zero where messages enter elsewhere.
    pub accepted: u64,
    /// Keys whose order was not preserved, since the engine was opened. Always zero on engines with one owner.
    pub key_order_voided: u64,
}

impl Counts {
    /// Messages that are not terminal.
    pub fn pending(&self) -> u64 {
        self.waiting() + self.in_flight
    }

    /// Of these, those that are not in flight.
    pub fn waiting(&self) -> u64 {
        self.ready + self.delayed + self.held + self.key_wait
    }

    /// The counts of a pipeline in which nothing may start: what would be ready or delayed is held. Who waits for its key
    /// still does.
    #[must_use]
    pub fn all_held(self) -> Self {
        Self { ready: 0, delayed: 0, held: self.held + self.ready + self.delayed, ..self }
    }

    /// The counts with every message where its verdict puts it, durable or not.
    #[must_use]
    pub fn as_decided(self) -> Self {
        let Settling { over, delayed, held } = self.settling;
        Self {
            delayed: self.delayed + delayed,
            held: self.held + held,
            in_flight: self.in_flight.saturating_sub(over + delayed + held),
            settling: Settling::default(),
            ..self
        }
    }

    /// The counts with at most `permits` in flight: a delivery without a permit was not started and is ready.
    #[must_use]
    pub fn in_flight_at_most(self, permits: u64) -> Self {
        let in_flight = self.in_flight.min(permits);
        Self { ready: self.ready + (self.in_flight - in_flight), in_flight, ..self }
    }
}

/// Deliveries whose verdict was given and is not durable yet, by where it puts them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Settling {
    /// Delivered, or dead.
    pub over: u64,
    /// To wait for their due time.
    pub delayed: u64,
    /// To be held.
    pub held: u64,
}

/// How old the oldest of its kind is, as far as the engine knows without a search.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Oldest {
    /// When the oldest message was made that waits, among those the engine would hand out next.
    pub pending: Option<Time>,
    /// When the oldest message was made that may start and has not; only where there are no partitions that say it.
    pub ready: Option<Time>,
    /// When the letter died that has been open for longest.
    pub letter: Option<Time>,
}
