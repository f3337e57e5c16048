//! What the records of a partition are.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LaneKind {
    Source,
    /// Retries that wait for their time; also in a tier that is no longer configured.
    Tier,
    /// Letters that were put back.
    Replay,
}
