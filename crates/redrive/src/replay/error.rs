//! Errors of replay jobs.

use redrive_core::text::number::grouped;

use super::job::{LIVE_MAX, ReplayState};
use super::pace::{RATE_MAX, RATE_MIN};
use super::taken::TakenCounts;
use crate::actions::ActionError;
use crate::letters::select::SELECTION_MAX;

/// Why a replay job is not started, found or changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReplayError {
    /// No letter is selected.
    #[error("no letter is selected, so there is nothing to replay")]
    Nothing,
    /// Every selected letter is taken by a job that still has to put it back.
    #[error("every selected letter is waiting in another replay: {0}")]
    Taken(TakenCounts),
    /// More letters are selected than a job may have.
    #[error("more than {} letters are selected; narrow the selection down", grouped(SELECTION_MAX as u64))]
    TooMany,
    /// The rate is out of range.
    #[error("`rate` is out of range: it must be from one letter an hour to {} letters a second", grouped(RATE_MAX as u64))]
    Rate(f64),
    /// The pipeline does not read a topic.
    #[error(
        "letters of `{0}` did not come from a topic, so they cannot be put back onto one; leave the target out"
    )]
    NoSource(String),
    /// Too many jobs have not ended.
    #[error("{LIVE_MAX} replays run, are paused or were stopped; wait for one of them, or abort one")]
    TooManyJobs,
    /// No job has this name.
    #[error("there is no replay `{0}`")]
    NotFound(String),
    /// Another process started the job.
    #[error(
        "replay `{id}` belongs to another process (this one's ids start with `{ours}`); ask that process"
    )]
    Elsewhere {
        /// The job.
        id: String,
        /// The prefix of this process's job names.
        ours: String,
    },
    /// The process that runs the job has not answered.
    #[error(
        "replay `{id}` runs in another process, which has not answered; it is done as soon as that process, or another that takes the job over, reads it"
    )]
    Unanswered {
        /// The job.
        id: String,
    },
    /// The job has ended.
    #[error("replay `{id}` is {state} and can no longer be changed")]
    Over {
        /// The job.
        id: String,
        /// Its final state.
        state: ReplayState,
    },
    /// Its start could not be recorded, so it did not start.
    #[error(transparent)]
    Unrecorded(#[from] ActionError),
    /// There is no tokio runtime.
    #[error("replays need a tokio runtime; call this from within one")]
    NoRuntime,
    /// The job cannot be written.
    #[error("the replay job could not be stored: {0}")]
    Storage(#[from] std::io::Error),
}

impl ReplayError {
    /// Checks a rate that somebody asks for.
    pub fn check_asked_rate(rate: Option<f64>) -> Result<(), Self> {
        match rate {
            Some(rate) if rate < RATE_MIN => Err(Self::Rate(rate)),
            rate => Self::check_rate(rate),
        }
    }

    pub(super) fn check_rate(rate: Option<f64>) -> Result<(), Self> {
        match rate {
            Some(rate) if !(rate > 0.0 && rate <= RATE_MAX) => Err(Self::Rate(rate)),
            _ => Ok(()),
        }
    }
}
