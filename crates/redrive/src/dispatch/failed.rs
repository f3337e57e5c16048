//! A failed attempt and the decision about it, for logs.

#![warn(missing_docs)]

use std::sync::Arc;
use std::time::Duration;

use redrive_core::{Class, Decision, FailureKind, Message, Reason, Time};

use crate::engine::{Attempt, Delivery};
use crate::failure::Failure;

/// One failed attempt. The decision may not be durable yet.
#[derive(Clone, Debug)]
pub struct AttemptFailed {
    /// The pipeline.
    pub pipeline: Arc<str>,
    /// The id of the message.
    pub message_id: String,
    /// The message's number in its pipeline. If the message becomes a dead letter, the letter has the same number.
    pub number: u64,
    /// The message, for its headers, such as a correlation id. Cheap to clone.
    pub message: Message,
    /// The number of the call, 1 for the first.
    pub attempt: u32,
    /// The class of the failure.
    pub class: Class,
    /// How the call failed: a status, a timeout, no connection, or one that was reset.
    pub kind: FailureKind,
    /// The error and its causes, outermost first, joined by `: `.
    pub error: String,
    /// The delay that the downstream asked for.
    pub retry_after: Option<Duration>,
    /// How long the call took.
    pub took: Duration,
    /// The decision.
    pub decision: Decided,
    /// Notes that the sink attached to the failure.
    pub notes: Vec<(&'static str, String)>,
    /// When the attempt ended.
    pub at: Time,
}

/// The decision after a failed attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decided {
    /// The message is tried again.
    Retry {
        /// Not before this time.
        due: Time,
        /// The tier's label, as in the metrics.
        tier: Arc<str>,
        /// Whether the failed attempt counts; if not, it is a deferral.
        counts: bool,
    },
    /// The message is a dead letter.
    Dead(Reason),
}

impl Decided {
    /// `retry` or `dead_letter`.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Retry { .. } => "retry",
            Self::Dead(_) => "dead_letter",
        }
    }
}

impl AttemptFailed {
    /// Returns `None` if the decision does not follow from a failure.
    fn new(
        pipeline: &Arc<str>,
        delivery: &Delivery,
        attempt: &Attempt,
        failure: &Failure,
        (decision, tier): (&Decision, &Arc<str>),
        at: Time,
    ) -> Option<Self> {
        let decision = match decision {
            Decision::Complete => return None,
            Decision::RetryAt(retry) => {
                Decided::Retry { due: retry.due, tier: Arc::clone(tier), counts: retry.counts }
            }
            Decision::DeadLetter(reason) => Decided::Dead(*reason),
        };
        let message = &delivery.message;
        Some(Self {
            pipeline: Arc::clone(pipeline),
            message_id: message.id().to_owned(),
            number: delivery.receipt.number(),
            message: message.clone(),
            attempt: attempt.number,
            class: attempt.class,
            kind: failure.kind(),
            error: attempt.error.clone(),
            retry_after: failure.retry_after(),
            took: Duration::from_millis(u64::from(attempt.took_ms)),
            decision,
            notes: failure.notes().to_vec(),
            at,
        })
    }
}

/// Failed attempts that were not fetched yet; empty unless a listener wants them.
#[derive(Debug, Default)]
pub(super) struct FailureLog {
    pipeline: Option<Arc<str>>,
    unheard: Vec<AttemptFailed>,
}

impl FailureLog {
    /// A log that keeps failed attempts, under the pipeline's name.
    pub(super) fn of(pipeline: Arc<str>) -> Self {
        Self { pipeline: Some(pipeline), unheard: Vec::new() }
    }

    pub(super) fn push(
        &mut self,
        delivery: &Delivery,
        attempt: &Attempt,
        failure: &Failure,
        decided: (&Decision, &Arc<str>),
        at: Time,
    ) {
        if let Some(pipeline) = &self.pipeline {
            self.unheard.extend(AttemptFailed::new(pipeline, delivery, attempt, failure, decided, at));
        }
    }

    /// Appends the failed attempts since the last call.
    pub(super) fn take(&mut self, out: &mut Vec<AttemptFailed>) {
        out.append(&mut self.unheard);
    }
}
