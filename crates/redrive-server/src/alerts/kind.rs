//! The kinds of alerts: a closed set, each with its severity and runbook.

/// One kind of alert.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum AlertKind {
    /// The downstream counts as down.
    BreakerOpen,
    /// Messages are dead-lettered faster than usual.
    DeadLetters,
    /// Dead letters have been open for long.
    OldestLetter,
    /// Too many messages are pending.
    QueueDepth,
    /// A message crashed its worker repeatedly and was quarantined.
    PoisonPill,
    /// The pipeline was paused because most of its messages died.
    Guard,
    /// So many subscriptions are gone that purging stopped.
    PurgingStopped,
    /// Messages die of a new cause.
    NewGroup,
    /// A group of dead letters that was resolved has new letters.
    GroupRegressed,
    /// A replay was stopped because too many of its letters died again.
    ReplayStopped,
    /// The disk is nearly full, or storage failed and the process ended. Concerns the process, not a pipeline.
    Storage,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    Critical,
    Warning,
}

impl AlertKind {
    pub const ALL: [Self; 11] = [
        Self::BreakerOpen,
        Self::DeadLetters,
        Self::OldestLetter,
        Self::QueueDepth,
        Self::PoisonPill,
        Self::Guard,
        Self::PurgingStopped,
        Self::NewGroup,
        Self::GroupRegressed,
        Self::ReplayStopped,
        Self::Storage,
    ];

    pub const fn name(self) -> &'static str {
        match self {
            Self::BreakerOpen => "breaker_open",
            Self::DeadLetters => "dead_letters",
            Self::OldestLetter => "oldest_letter",
            Self::QueueDepth => "queue_depth",
            Self::PoisonPill => "poison_pill",
            Self::Guard => "guard",
            Self::PurgingStopped => "purging_stopped",
            Self::NewGroup => "new_group",
            Self::GroupRegressed => "group_regressed",
            Self::ReplayStopped => "replay_stopped",
            Self::Storage => "storage",
        }
    }

    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }

    pub const fn severity(self) -> Severity {
        match self {
            Self::BreakerOpen | Self::PoisonPill | Self::Guard | Self::Storage => Severity::Critical,
            Self::DeadLetters
            | Self::OldestLetter
            | Self::QueueDepth
            | Self::PurgingStopped
            | Self::NewGroup
            | Self::GroupRegressed
            | Self::ReplayStopped => Severity::Warning,
        }
    }

    /// The runbook, as the alert rules name it.
    pub const fn runbook(self) -> &'static str {
        match self {
            Self::BreakerOpen => "docs/runbooks/breaker-open.md",
            Self::DeadLetters => "docs/runbooks/dead-letter-arrivals.md",
            Self::OldestLetter => "docs/runbooks/oldest-letter.md",
            Self::QueueDepth => "docs/runbooks/queue-depth.md",
            Self::PoisonPill => "docs/runbooks/poison-pill.md",
            Self::Guard => "docs/runbooks/paused.md",
            Self::PurgingStopped => "docs/guide/push.md",
            Self::NewGroup | Self::GroupRegressed => "docs/runbooks/letter-groups.md",
            Self::ReplayStopped => "docs/runbooks/replay-stopped.md",
            Self::Storage => "docs/guide/operations.md",
        }
    }
}

impl Severity {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Critical => "critical",
            Self::Warning => "warning",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_a_name_of_its_own_and_a_page_that_is_there() {
        for kind in AlertKind::ALL {
            assert_eq!(AlertKind::from_name(kind.name()), Some(kind));
            let page = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(kind.runbook());
            assert!(page.is_file(), "{}", page.display());
        }
    }
}
