//! The facts about one message of a run.

/// Calls are counted in buckets of this length.
pub const BUCKET_MS: u32 = 100;
/// A time that never came.
pub const NEVER: u32 = u32::MAX;

/// One message. Times are milliseconds since the run began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MessageRecord {
    pub arrived_ms: u32,
    /// When its first call began.
    pub first_ms: u32,
    /// When it was applied or became a dead letter.
    pub ended_ms: u32,
    /// Its position in the sequence of all effects.
    pub order: u32,
    pub calls: u16,
    pub successes: u8,
    pub deaths: u8,
}

impl MessageRecord {
    pub const fn has_arrived(&self) -> bool {
        self.arrived_ms != NEVER
    }

    pub const fn has_started(&self) -> bool {
        self.first_ms != NEVER
    }

    pub const fn is_dead(&self) -> bool {
        self.deaths > 0
    }

    pub const fn has_succeeded(&self) -> bool {
        self.successes > 0
    }

    pub const fn has_ended(&self) -> bool {
        self.is_dead() || self.has_succeeded()
    }

    /// From arrival to its end.
    pub fn took_ms(&self) -> u32 {
        self.ended_ms.saturating_sub(self.arrived_ms)
    }
}
