//! Which form of a scenario is run.

/// Which parameters hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Size {
    pub quick: bool,
    /// On an engine by the real clock, though the scenario's own clock is virtual.
    pub real: bool,
    /// On the Kafka engine.
    pub kafka: bool,
    /// With the change that breaks the claim.
    pub broken: bool,
}
