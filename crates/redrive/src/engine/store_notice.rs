//! Notices of a store about its own maintenance. None of them stops deliveries.

#![warn(missing_docs)]

use std::fmt;
use std::time::Duration;

use redrive_core::Time;

/// A notice. Everything that is repaired or found in the background has a variant.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StoreNotice {
    /// The index is damaged and is being rebuilt from the journal.
    IndexDamaged {
        /// What was found.
        why: String,
    },
    /// The index is rebuilt.
    IndexRebuilt {
        /// Frames that were read.
        frames: u64,
        /// How long it took.
        took: Duration,
    },
    /// Merging or cleaning the index failed and is tried again.
    IndexUntidy {
        /// What was found.
        why: String,
    },
    /// Stored bytes have become unreadable.
    Damage {
        /// The file.
        file: String,
        /// Where in the file.
        position: u64,
        /// How many bytes.
        bytes: u64,
    },
    /// A scrub has read everything that is stored.
    Scrubbed {
        /// Bytes read.
        bytes: u64,
        /// How many of them are damaged.
        damaged: u64,
        /// How long it took.
        took: Duration,
    },
    /// A scrub ended early; it is started again later.
    ScrubFailed {
        /// The cause.
        why: String,
    },
}

/// The maintenance a store has done since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Upkeep {
    /// How often the index was rebuilt because it was damaged.
    pub index_rebuilds: u64,
    /// Bytes read by scrubs.
    pub scrubbed_bytes: u64,
    /// Damaged places in the logs, as of the last scrub.
    pub damaged: u64,
    /// When the last complete scrub ended.
    pub scrubbed: Option<Time>,
}

impl StoreNotice {
    /// Whether an operator should look at it.
    pub fn is_bad(&self) -> bool {
        match self {
            Self::IndexDamaged { .. }
            | Self::IndexUntidy { .. }
            | Self::Damage { .. }
            | Self::ScrubFailed { .. } => true,
            Self::Scrubbed { damaged, .. } => *damaged > 0,
            Self::IndexRebuilt { .. } => false,
        }
    }
}

impl fmt::Display for StoreNotice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::IndexDamaged { why } => {
                write!(f, "the index is damaged and is rebuilt from the journal, deliveries continue: {why}")
            }
            Self::IndexRebuilt { frames, took } => {
                write!(f, "the index was rebuilt from {frames} frames in {:.1} s", took.as_secs_f64())
            }
            Self::IndexUntidy { why } => write!(f, "the index could not be compacted, will retry: {why}"),
            Self::Damage { file, position, bytes } => write!(
                f,
                "damage in {file}: {bytes} bytes at position {position}; check the disk, and keep the last backup"
            ),
            Self::Scrubbed { bytes, damaged, took } => write!(
                f,
                "scrub finished: {bytes} bytes read in {:.0} s, {damaged} damaged places",
                took.as_secs_f64()
            ),
            Self::ScrubFailed { why } => write!(f, "scrub stopped early, will retry: {why}"),
        }
    }
}
