//! Which form of a scenario runs.

/// The engine that selects the ranges.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RangesOf {
    /// The embedded engine, or none.
    #[default]
    Embedded,
    Kafka,
}

/// Selects the parameters and ranges of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Size {
    pub quick: bool,
    /// On an engine on the real clock, although the scenario's own clock is virtual.
    pub real: bool,
    pub engine: RangesOf,
    /// Index of the change in [`super::Scenario::broken`] that breaks a claim.
    pub broken: Option<usize>,
}
