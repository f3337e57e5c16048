//! Which form of a scenario is run.

/// For which engine ranges hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RangesOf {
    /// The embedded one, or none.
    #[default]
    Embedded,
    Kafka,
}

/// Which parameters hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Size {
    pub quick: bool,
    /// On an engine by the real clock, though the scenario's own clock is virtual.
    pub real: bool,
    pub engine: RangesOf,
    /// With the change that breaks a claim: which of [`super::Scenario::broken`].
    pub broken: Option<usize>,
}
