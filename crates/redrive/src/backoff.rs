//! Custom backoff: a function of the user computes the delay from the message and the error.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use redrive_core::{Class, Message};

use crate::failure::Failure;

/// A failed attempt as [`crate::Pipeline::backoff`] sees it.
///
/// ```
/// use redrive::{Class, FailedAttempt};
/// use std::time::Duration;
///
/// /// Rate limits wait longer each time; everything else follows the policy.
/// fn delay(failed: &FailedAttempt<'_>) -> Option<Duration> {
///     (failed.class() == Class::RateLimited).then(|| Duration::from_secs(30) * failed.retry)
/// }
/// let pipeline = redrive::Pipeline::new("orders").backoff(delay);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct FailedAttempt<'a> {
    /// The message that failed.
    pub message: &'a Message,
    /// The number of the retry to schedule: 1 after the first counted failure.
    pub retry: u32,
    /// The failure that the handler returned: its class, `Retry-After`, kind, code, and the error with its type
    /// ([`Failure::downcast_ref`]).
    pub failure: &'a Failure,
}

impl FailedAttempt<'_> {
    /// The class of the failure.
    pub fn class(&self) -> Class {
        self.failure.class()
    }

    /// The delay that the receiver asked for. It is a lower bound, whatever the backoff returns.
    pub fn retry_after(&self) -> Option<Duration> {
        self.failure.retry_after()
    }
}

type ChooseDelay = dyn Fn(&FailedAttempt<'_>) -> Option<Duration> + Send + Sync;

/// The user's function, shared by all runs of a pipeline.
#[derive(Clone)]
pub struct Backoff(Arc<ChooseDelay>);

impl Backoff {
    /// See [`crate::Pipeline::backoff`].
    pub fn new(choose: impl Fn(&FailedAttempt<'_>) -> Option<Duration> + Send + Sync + 'static) -> Self {
        Self(Arc::new(choose))
    }

    /// The delay that the function chooses; `None` leaves it to the policy's schedule. It runs on the dispatch
    /// thread, which must not die, so a panic counts as `None`.
    pub(crate) fn delay(&self, failed: &FailedAttempt<'_>) -> Option<Duration> {
        catch_unwind(AssertUnwindSafe(|| (self.0)(failed))).unwrap_or(None)
    }
}

impl fmt::Debug for Backoff {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Backoff(fn)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_leaves_the_delay_to_the_schedule() {
        let message = Message::builder("o-1").build().unwrap();
        let failure = Failure::transient("503");
        let failed = FailedAttempt { message: &message, retry: 1, failure: &failure };
        let backoff = Backoff::new(|failed| match failed.message.id() {
            "o-1" => panic!("a bug of the user"),
            _ => Some(Duration::from_secs(1)),
        });
        assert_eq!(backoff.delay(&failed), None);
    }
}
