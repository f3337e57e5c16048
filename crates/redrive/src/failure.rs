//! The error of a handler: a class for the decision, and the cause as the type that the user gave.

use std::error::Error;
use std::fmt;
use std::time::Duration;

use redrive_core::{Class, FailureKind, Outcome};

use crate::engine::history::{CODE_BYTES_MAX, ERROR_BYTES_MAX};

/// Notes that one failure may carry; further ones are dropped.
pub const NOTES_MAX: usize = 16;
/// Longest value of a note in bytes; the rest is cut off.
pub const NOTE_BYTES_MAX: usize = 256;

/// The cause of a failure, of any type.
pub type Cause = Box<dyn Error + Send + Sync>;

/// Why an attempt failed.
///
/// `?` on any error makes a transient failure; use the constructors to be more specific. Like `anyhow::Error` this
/// does not implement [`std::error::Error`], so that every error can be converted into it.
///
/// ```
/// use std::time::Duration;
///
/// use redrive::{Class, Failure};
///
/// let refused = Failure::permanent("no such customer");
/// assert_eq!(refused.class(), Class::Permanent);
///
/// let slow_down = Failure::rate_limited(Duration::from_secs(30), "429 too many requests");
/// assert_eq!(slow_down.retry_after(), Some(Duration::from_secs(30)));
///
/// fn read(path: &str) -> Result<String, Failure> {
///     Ok(std::fs::read_to_string(path)?) // any error: a transient failure
/// }
/// assert_eq!(read("/no/such/file").unwrap_err().class(), Class::Transient);
/// ```
pub struct Failure {
    // One pointer, so that the result of an attempt stays small and success, the common case, costs nothing.
    parts: Box<FailureParts>,
}

struct FailureParts {
    class: Class,
    kind: FailureKind,
    code: Option<Box<str>>,
    retry_after: Option<Duration>,
    ambiguous: bool,
    before_receiver: bool,
    uncalled: bool,
    cause: Cause,
    notes: Vec<(&'static str, String)>,
}

impl Failure {
    /// A failure that is likely to be temporary; retried with the pipeline's delays.
    pub fn transient(cause: impl Into<Cause>) -> Self {
        Self::of(Class::Transient, cause)
    }

    /// A failure that no retry can fix; the message becomes a dead letter at once.
    pub fn permanent(cause: impl Into<Cause>) -> Self {
        Self::of(Class::Permanent, cause)
    }

    /// The downstream asked to slow down (429). `retry_after` is a lower bound of the wait.
    pub fn rate_limited(retry_after: impl Into<Option<Duration>>, cause: impl Into<Cause>) -> Self {
        let mut failure = Self::of(Class::RateLimited, cause);
        failure.parts.retry_after = retry_after.into();
        failure
    }

    /// The receiver is gone for good; the message becomes a dead letter at once.
    pub fn gone(cause: impl Into<Cause>) -> Self {
        Self::of(Class::Gone, cause)
    }

    /// Our own credential was refused. Uses up no attempt, since a person has to act.
    pub fn credential(cause: impl Into<Cause>) -> Self {
        Self::of(Class::Credential, cause)
    }

    /// The connection was stale; retried once at once.
    pub fn reconnect(cause: impl Into<Cause>) -> Self {
        Self::of(Class::Reconnect, cause)
    }

    pub(crate) fn crash(text: String) -> Self {
        Self::of(Class::Crash, text)
    }

    fn of(class: Class, cause: impl Into<Cause>) -> Self {
        let parts = FailureParts {
            class,
            kind: FailureKind::default(),
            code: None,
            retry_after: None,
            ambiguous: false,
            before_receiver: false,
            uncalled: false,
            cause: cause.into(),
            notes: Vec::new(),
        };
        Self { parts: Box::new(parts) }
    }

    /// Marks that the effect may have happened although the attempt failed, as after a timeout.
    #[must_use]
    pub fn ambiguous(mut self) -> Self {
        self.parts.ambiguous = true;
        self
    }

    /// Marks that it failed before reaching the receiver: at a proxy, a token endpoint or a command of ours. It does
    /// not count against the endpoint, and the message is not dead-lettered for exhausted retries but deferred, for
    /// at most `hold_max`.
    #[must_use]
    pub fn before_receiver(mut self) -> Self {
        self.parts.before_receiver = true;
        self
    }

    /// Marks that no call was made, because the outcome was already known: the receiver is gone for good, or could
    /// not accept such a message. It says nothing about the receiver, good or bad, and no breaker counts it.
    #[must_use]
    pub fn uncalled(mut self) -> Self {
        self.parts.uncalled = true;
        self
    }

    /// Whether no call was made at all.
    pub fn is_uncalled(&self) -> bool {
        self.parts.uncalled
    }

    /// Whether it failed before reaching the receiver.
    pub fn is_before_receiver(&self) -> bool {
        self.parts.before_receiver
    }

    /// Sets how it failed: a status, a timeout, or no answer. The breaker counts it, it is stored with the attempt,
    /// and the filter `status:503` finds it.
    ///
    /// ```
    /// use redrive::{Failure, FailureKind};
    /// let failure = Failure::transient("the shop is closed").of_kind(FailureKind::Status(503)).with_code("closed");
    /// assert_eq!((failure.kind().status(), failure.code()), (Some(503), Some("closed")));
    /// ```
    #[must_use]
    pub fn of_kind(mut self, kind: FailureKind) -> Self {
        self.parts.kind = kind;
        self
    }

    /// How it failed: a status, a timeout, or no answer.
    pub fn kind(&self) -> FailureKind {
        self.parts.kind
    }

    /// Adds the receiver's own code for the failure, such as `BadDeviceToken`; it is stored with the attempt. A code
    /// is one word of letters, digits, `_`, `-`, `.` and `:`, of at most 64 bytes. Anything else is ignored here and
    /// belongs into the error text.
    #[must_use]
    pub fn with_code(mut self, code: &str) -> Self {
        let in_code = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.:".contains(&byte);
        if (1..=CODE_BYTES_MAX).contains(&code.len()) && code.bytes().all(in_code) {
            self.parts.code = Some(code.into());
        }
        self
    }

    /// The receiver's own code for the failure.
    pub fn code(&self) -> Option<&str> {
        self.parts.code.as_deref()
    }

    /// Sets a lower bound of the wait before the next attempt. It can be combined with any class: a 503 may carry a
    /// `Retry-After` as well as a 429.
    #[must_use]
    pub fn wait(mut self, at_least: impl Into<Option<Duration>>) -> Self {
        self.parts.retry_after = at_least.into();
        self
    }

    /// Adds a field for the structured log, such as a status code. It goes to [`crate::AttemptFailed::notes`] and is
    /// not stored. At most [`NOTES_MAX`] notes of at most [`NOTE_BYTES_MAX`] bytes each; never put a secret here.
    #[must_use]
    pub fn note(mut self, name: &'static str, value: impl Into<String>) -> Self {
        if self.parts.notes.len() < NOTES_MAX {
            let mut value = value.into();
            let end = (0..=NOTE_BYTES_MAX).rev().find(|end| value.is_char_boundary(*end)).unwrap_or(0);
            value.truncate(end);
            self.parts.notes.push((name, value));
        }
        self
    }

    /// Replaces the cause, for example with a more informative one.
    #[must_use]
    pub fn map_cause(mut self, map: impl FnOnce(Cause) -> Cause) -> Self {
        let none: Cause = "".into();
        self.parts.cause = map(std::mem::replace(&mut self.parts.cause, none));
        self
    }

    /// Fields for the structured log, besides the error.
    pub fn notes(&self) -> &[(&'static str, String)] {
        &self.parts.notes
    }

    /// Whether the request never reached the receiver, so that the message cannot be the cause.
    pub(crate) fn never_arrived(&self) -> bool {
        match self.kind() {
            FailureKind::Timeout => !self.is_ambiguous(),
            kind => kind.is_unconnected(),
        }
    }

    /// The class, which determines the decision.
    pub fn class(&self) -> Class {
        self.parts.class
    }

    /// How long the receiver asked to wait.
    pub fn retry_after(&self) -> Option<Duration> {
        self.parts.retry_after
    }

    /// Whether the receiver may have done its work nevertheless.
    pub fn is_ambiguous(&self) -> bool {
        self.parts.ambiguous
    }

    /// The error that the handler returned.
    pub fn source(&self) -> &(dyn Error + 'static) {
        &*self.parts.cause
    }

    /// The first error of type `T` among the cause and its own causes.
    pub fn downcast_ref<T: Error + 'static>(&self) -> Option<&T> {
        self.causes().find_map(|cause| cause.downcast_ref::<T>())
    }

    /// The error and all its causes, outermost first, joined by `: `. This text is stored.
    ///
    /// The error's `Display` is the user's code, and this runs on a thread that must not die, so a panic is replaced
    /// by a text.
    pub fn chain(&self) -> String {
        let text = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| self.join_causes()));
        text.unwrap_or_else(|_| "the error could not be printed: its Display panicked".into())
    }

    fn join_causes(&self) -> String {
        let mut text = String::new();
        for cause in self.causes() {
            // Enough: a longer text would be cut when stored.
            if text.len() > ERROR_BYTES_MAX {
                break;
            }
            if !text.is_empty() {
                text.push_str(": ");
            }
            text.push_str(&cause.to_string());
        }
        text
    }

    fn causes(&self) -> impl Iterator<Item = &(dyn Error + 'static)> {
        std::iter::successors(Some(self.source()), |cause: &&(dyn Error + 'static)| (*cause).source())
    }

    /// The outcome, as input for the decision.
    pub(crate) fn outcome(&self) -> Outcome {
        Outcome::Failed {
            class: self.parts.class,
            retry_after: self.parts.retry_after,
            ambiguous: self.parts.ambiguous,
            delay: None,
        }
    }
}

impl<E: Error + Send + Sync + 'static> From<E> for Failure {
    fn from(cause: E) -> Self {
        Self::transient(cause)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.class(), self.chain())
    }
}

impl fmt::Debug for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Failure")
            .field("class", &self.parts.class)
            .field("kind", &self.parts.kind)
            .field("code", &self.parts.code)
            .field("retry_after", &self.parts.retry_after)
            .field("ambiguous", &self.parts.ambiguous)
            .field("cause", &self.parts.cause)
            .field("notes", &self.parts.notes)
            .finish()
    }
}

/// The handler did not finish in time. Its effect may have happened nevertheless.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the handler timed out after {} ms", .after.as_millis())]
pub struct TimedOut {
    /// The time after which the call was abandoned.
    pub after: Duration,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("could not charge")]
    struct Declined {
        #[source]
        cause: std::io::Error,
    }

    fn declined() -> Declined {
        Declined { cause: std::io::Error::other("connection refused") }
    }

    #[test]
    fn any_error_becomes_transient_by_the_question_mark() {
        fn fails() -> Result<(), Failure> {
            Err(std::io::Error::other("x"))?;
            Ok(())
        }
        assert_eq!(fails().unwrap_err().class(), Class::Transient);
    }

    #[test]
    fn the_cause_keeps_its_type_and_its_chain() {
        let failure = Failure::permanent(declined());
        assert!(failure.downcast_ref::<Declined>().is_some());
        assert!(failure.downcast_ref::<std::io::Error>().is_some(), "also a cause of the cause");
        assert!(failure.downcast_ref::<std::fmt::Error>().is_none());
        assert_eq!(failure.source().to_string(), "could not charge");
        assert_eq!(failure.chain(), "could not charge: connection refused");
    }

    #[test]
    fn each_constructor_says_its_class() {
        let wait = Duration::from_secs(3);
        let limited = Failure::rate_limited(wait, "429");
        assert_eq!((limited.class(), limited.retry_after()), (Class::RateLimited, Some(wait)));
        assert_eq!(Failure::rate_limited(None, "429").retry_after(), None);
        let busy = Failure::transient("503").wait(wait);
        assert_eq!((busy.class(), busy.retry_after()), (Class::Transient, Some(wait)));
        assert_eq!(Failure::gone("410").class(), Class::Gone);
        assert_eq!(Failure::credential("401").class(), Class::Credential);
        assert_eq!(Failure::reconnect("reset").class(), Class::Reconnect);
        assert!(Failure::transient("timeout").ambiguous().is_ambiguous());
    }

    #[test]
    fn a_code_is_one_word() {
        for code in ["BadDeviceToken", "no_lines", "E-42", "a:b.c", &"x".repeat(CODE_BYTES_MAX)] {
            assert_eq!(Failure::permanent("422").with_code(code).code(), Some(code));
        }
        for text in ["", "two words", "a/b", "é", "a\nb", &"x".repeat(CODE_BYTES_MAX + 1)] {
            assert_eq!(Failure::permanent("422").with_code(text).code(), None, "{text}");
        }
    }

    #[test]
    fn notes_are_bounded_in_number_and_length() {
        let failure = Failure::transient("503").note("status_code", "503").note("text", "é".repeat(300));
        assert_eq!(failure.notes()[0], ("status_code", "503".to_owned()));
        assert_eq!(failure.notes()[1].1.len(), NOTE_BYTES_MAX);
        let many = (0..50).fold(failure, |failure, _| failure.note("again", ""));
        assert_eq!(many.notes().len(), NOTES_MAX);
    }

    #[test]
    fn success_costs_no_more_than_a_pointer() {
        assert_eq!(size_of::<Result<(), Failure>>(), size_of::<usize>());
    }
}
