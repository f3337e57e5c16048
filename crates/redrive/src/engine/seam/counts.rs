//! How many messages an engine holds, in which state, and how old the oldest are.

use redrive_core::Time;

/// How many messages are in which state right now. The first five partition the pending messages: each is in exactly
/// one of them. docs/lifecycle.md says what each means.
///
/// ```
/// let counts = redrive::Counts { ready: 2, held: 40, in_flight: 8, letters_open: 3, ..redrive::Counts::default() };
/// assert_eq!(counts.pending(), 50);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Counts {
    /// Messages that may start and wait for a permit.
    pub ready: u64,
    /// Messages that wait for their due time, or have come due and wait for a permit.
    pub delayed: u64,
    /// Like `delayed`, but because they were deferred: see `Meta::deferred`.
    pub held: u64,
    /// Messages that wait behind an earlier message of their key.
    pub key_wait: u64,
    /// Messages that are handed out and not durably settled.
    pub in_flight: u64,
    /// Those in flight whose verdict has been given.
    pub settling: Settling,
    /// Open letters.
    pub letters_open: u64,
    /// Letters that were requeued and are not delivered yet.
    pub letters_replaying: u64,
    /// Letters that were delivered after a replay.
    pub letters_succeeded: u64,
    /// Letters that were given up.
    pub letters_discarded: u64,
    /// Letters whose content is gone for good.
    pub letters_erased: u64,
    /// How many messages were ever accepted through this engine; zero where messages enter elsewhere.
    pub accepted: u64,
    /// Keys whose order was not preserved since the engine was opened. Always zero on engines with one owner.
    pub key_order_voided: u64,
}

impl Counts {
    /// The number of pending messages.
    pub fn pending(&self) -> u64 {
        self.waiting() + self.in_flight
    }

    /// The pending messages that are not in flight.
    pub fn waiting(&self) -> u64 {
        self.ready + self.delayed + self.held + self.key_wait
    }

    /// The counts of a pipeline in which nothing may start: ready and delayed messages count as held. Messages that
    /// wait for their key still count as such.
    #[must_use]
    pub fn all_held(self) -> Self {
        Self { ready: 0, delayed: 0, held: self.held + self.ready + self.delayed, ..self }
    }

    /// The counts with each message in the state its verdict leads to, durable or not.
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

    /// The counts with at most `permits` in flight: a delivery without a permit was not started and counts as ready.
    #[must_use]
    pub fn in_flight_at_most(self, permits: u64) -> Self {
        let in_flight = self.in_flight.min(permits);
        Self { ready: self.ready + (self.in_flight - in_flight), in_flight, ..self }
    }
}

/// Deliveries whose verdict is not durable yet, by the state it leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Settling {
    /// Delivered or dead.
    pub over: u64,
    /// Retried after a delay.
    pub delayed: u64,
    /// Deferred.
    pub held: u64,
}

/// Times of the oldest messages and letters, as far as the engine knows them without a search.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Oldest {
    /// Creation time of the oldest waiting message, among those that the engine would hand out next.
    pub pending: Option<Time>,
    /// Creation time of the oldest message that may start and has not; only on engines whose partitions do not report
    /// it.
    pub ready: Option<Time>,
    /// Time of death of the letter that has been open longest.
    pub letter: Option<Time>,
}
