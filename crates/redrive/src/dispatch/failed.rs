//! A failed attempt and what was decided about it, for logs.

#![warn(missing_docs)]

use std::sync::Arc;
use std::time::Duration;

use redrive_core::{Class, Decision, FailureKind, Message, Reason, Time};

use crate::engine::{Attempt, Delivery};
use crate::failure::Failure;

/// One failed attempt. What is decided here may not be durable yet.
#[derive(Clone, Debug)]
pub struct AttemptFailed {
    /// The pipeline.
    pub pipeline: Arc<str>,
    /// The id of the message.
    pub message_id: String,
    /// The message's number in its pipeline. If it becomes a dead letter, the letter has the same.
    pub number: u64,
    /// For its headers, such as a correlation id. A copy of a pointer, not of the payload.
    pub message: Message,
    /// 1 for the first call.
    pub attempt: u32,
    /// The class of the failure.
    pub class: Class,
    /// How the call failed: a status, a timeout, no connection, or one that was reset.
    pub kind: FailureKind,
    /// The error and its causes, outermost first, joined by `: `.
    pub error: String,
    /// What the downstream asked for.
    pub retry_after: Option<Duration>,
    /// How long the call took.
    pub took: Duration,
    /// What follows.
    pub decision: Decided,
    /// What the sink noted on its failure.
    pub notes: Vec<(&'static str, String)>,
    /// When the attempt ended.
    pub at: Time,
}

/// What comes after a failed attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decided {
    /// It is tried again.
    Retry {
        /// Not before this time.
        due: Time,
        /// The tier's label, as in the figures.
        tier: Arc<str>,
        /// Whether the failed attempt counts; `false` is a deferral.
        counts: bool,
    },
    /// It is a dead letter now.
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
    /// `None` if the decision is no answer to a failure.
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

/// The failed attempts that are not fetched yet, if they are wanted.
#[derive(Debug, Default)]
pub(super) struct FailureLog {
    pipeline: Option<Arc<str>>,
    unheard: Vec<AttemptFailed>,
}

impl FailureLog {
    /// One that keeps them, under the pipeline's name.
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

    /// Appends those that came since the last call.
    pub(super) fn take(&mut self, out: &mut Vec<AttemptFailed>) {
        out.append(&mut self.unheard);
    }
}
