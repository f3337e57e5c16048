//! Converts the answer of a push service to a failure. Pure.

use std::time::SystemTime;

use hyper::StatusCode;
use hyper::header::{HeaderMap, RETRY_AFTER};
use redrive::Failure;
use redrive_core::{Class, FailureKind};

use super::conceal::conceal;
use super::http2::Lost;
use super::verdict::{PushClasses, Verdict};
use crate::webhook::Trouble;
use crate::webhook::outcome::{judge, retry_after};

const RETRY_AFTER_BYTES_MAX: usize = 64;

/// The answer of a push service, as far as a log may show it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Said {
    pub status: StatusCode,
    /// The reason or error code, and any harmless text.
    pub reason: String,
    /// `Retry-After` as written.
    pub retry_after: Option<String>,
}

/// Why a push was not delivered. Its text is stored with the message.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text}{}", shown(.endpoint.as_deref()))]
pub struct PushError {
    text: String,
    /// The hash of the endpoint, once it is known.
    endpoint: Option<String>,
    /// The meaning of the answer; `None` without one.
    pub verdict: Option<Verdict>,
    pub status: Option<u16>,
}

impl PushError {
    /// Adds the hash of the endpoint, which a letter shows.
    #[must_use]
    pub fn at(self, endpoint_hash: String) -> Self {
        Self { endpoint: Some(endpoint_hash), ..self }
    }
}

fn shown(endpoint: Option<&str>) -> String {
    endpoint.map(|hash| format!(" [{hash}]")).unwrap_or_default()
}

impl Said {
    pub fn of(status: StatusCode, headers: &HeaderMap, reason: String) -> Self {
        let written = headers.get(RETRY_AFTER).and_then(|value| value.to_str().ok());
        let written = written.map(|value| value.trim().chars().take(RETRY_AFTER_BYTES_MAX).collect());
        Self { status, reason, retry_after: written }
    }

    /// Removes the receiver of the push, which a service may repeat.
    #[must_use]
    pub fn without(self, secrets: &[&str]) -> Self {
        let reason = conceal(&self.reason, secrets);
        // Keep seconds and dates, even if a token looks the same.
        let is_time = |written: &String| retry_after::wait(written, SystemTime::UNIX_EPOCH).is_some();
        let retry_after = self
            .retry_after
            .map(|written| if is_time(&written) { written } else { conceal(&written, secrets) });
        Self { reason, retry_after, ..self }
    }
}

/// The meaning of an answer, and its result unless something is renewed: a status, or a failure.
#[derive(Debug)]
pub struct Judged {
    pub verdict: Verdict,
    pub outcome: Result<StatusCode, Failure>,
}

/// The failure for an answer with this meaning; `None` if it is not a failure.
pub fn answered(said: &Said, verdict: Verdict, now: SystemTime) -> Option<Failure> {
    let class = verdict.class()?;
    let status = said.status.as_u16();
    let mut text = match said.status.canonical_reason() {
        Some(reason) => format!("{status} {reason}"),
        None => status.to_string(),
    };
    if !said.reason.is_empty() {
        text.push_str(": ");
        text.push_str(&said.reason);
    }
    if verdict == Verdict::Resubscribe {
        text.push_str(" (made with another VAPID key: the browser must subscribe again)");
    }
    let error = PushError { text, endpoint: None, verdict: Some(verdict), status: Some(status) };
    let wait = said.retry_after.as_deref().and_then(|value| retry_after::wait(value, now));
    let failure = judge::of_class(class, wait, error);
    let failure = failure.of_kind(FailureKind::Status(status)).with_code(&said.reason);
    let failure = failure.note("status_code", status.to_string());
    Some(match &said.retry_after {
        Some(written) => failure.note("retry_after_header", written.clone()),
        None => failure,
    })
}

/// The failure for a request without an answer.
pub fn lost(lost: &Lost, classes: &PushClasses) -> Failure {
    match lost {
        Lost::Unsent(trouble, text) => unanswered(*trouble, text, false, classes),
        Lost::Unprocessed(text) => {
            judge::of_class(Class::Reconnect, None, silent(text)).of_kind(FailureKind::Refused)
        }
        Lost::Broken(text) => unanswered(Trouble::Reset, text, true, classes),
    }
}

/// The failure for a request that timed out or whose connection broke. `sent`: it may have had its effect.
///
/// A broken connection is never treated as a reset, which would make the message a suspect: no push brings a push
/// service down, and many pushes share a connection.
pub fn unanswered(trouble: Trouble, text: &str, sent: bool, classes: &PushClasses) -> Failure {
    let class = classes.troubles().trouble(trouble);
    let failure = judge::of_class(class, None, silent(text));
    let failure = failure.of_kind(trouble.kind(false)).with_code(trouble.name());
    if sent { failure.ambiguous() } else { failure }
}

/// The failure of a message that need not be sent to a push service.
#[expect(clippy::needless_pass_by_value, reason = "given to `map_err`")]
pub fn unsendable(text: impl ToString) -> Failure {
    Failure::permanent(silent(&text.to_string())).uncalled()
}

/// The error of a push that was not attempted.
pub fn uncalled(text: &str) -> PushError {
    silent(text)
}

/// The failure without our own key or token. Uses up no attempt.
pub fn without_credential(text: &str) -> Failure {
    Failure::credential(silent(text))
}

fn silent(text: &str) -> PushError {
    PushError { text: text.to_owned(), endpoint: None, verdict: None, status: None }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::push::Rows;

    const ROWS: Rows =
        Rows { reasons: &[], statuses: &[], otherwise: Verdict::PERMANENT, tls: Class::Permanent };

    #[test]
    fn an_answer_carries_status_reason_and_retry_after_as_written() {
        let mut headers = HeaderMap::new();
        headers.insert(RETRY_AFTER, "15".parse().unwrap());
        let said = Said::of(StatusCode::TOO_MANY_REQUESTS, &headers, "TooManyRequests".into());
        let failure = answered(&said, Verdict::LIMITED, SystemTime::UNIX_EPOCH).unwrap();
        assert_eq!(failure.chain(), "429 Too Many Requests: TooManyRequests");
        assert_eq!(failure.retry_after(), Some(Duration::from_secs(15)));
        let notes = [("status_code", "429".to_owned()), ("retry_after_header", "15".to_owned())];
        assert_eq!(failure.notes(), notes);
        assert!(answered(&said, Verdict::OK, SystemTime::UNIX_EPOCH).is_none());
    }

    #[test]
    fn what_was_not_processed_burns_nothing_and_what_may_have_been_is_ambiguous() {
        let classes = PushClasses::new(ROWS);
        let unprocessed = lost(&Lost::Unprocessed("closing"), &classes);
        assert_eq!((unprocessed.class(), unprocessed.is_ambiguous()), (Class::Reconnect, false));
        let broken = lost(&Lost::Broken("reset"), &classes);
        assert_eq!((broken.class(), broken.is_ambiguous()), (Class::Transient, true));
        assert_eq!(
            broken.kind(),
            FailureKind::Refused,
            "a push is not suspected of it, however often it happens"
        );
        let unsent = lost(&Lost::Unsent(Trouble::Refused, "refused".into()), &classes);
        assert_eq!((unsent.class(), unsent.is_ambiguous()), (Class::Transient, false));
        let tls = lost(&Lost::Unsent(Trouble::Tls, "TLS".into()), &classes);
        assert_eq!(tls.class(), Class::Permanent);
    }
}
