//! Converts an answer to a failure, or to none. Pure.

use std::time::{Duration, SystemTime};

use redrive::Failure;
use redrive::internal::failure::Cause;
use redrive_core::{Class, FailureKind};

use super::super::endpoint::EndpointFault;
use super::super::signing::SigningError;
use super::answer::{Delivery, WebhookAnswer};
use super::classes::{ClassTable, Meaning, Trouble};
use super::retry_after;

/// Why a delivery failed. Its text is stored with the message.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WebhookError {
    /// An answer that is not a success.
    #[error("{text}")]
    Answered { status: u16, text: String },
    /// No answer, or an incomplete one.
    #[error("{text}")]
    Unanswered { trouble: Trouble, text: String },
    /// The message has no usable endpoint.
    #[error(transparent)]
    Endpoint(#[from] EndpointFault),
    /// The request could not be signed.
    #[error(transparent)]
    Signing(#[from] SigningError),
}

/// Who chose the endpoint, which limits what its answers can cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum EndpointOwner {
    /// From the configuration.
    Ours,
    /// From a message. It may decide about its own messages, but must not hold up others.
    Theirs,
}

/// The meaning of the answer's head, before its body is read.
pub(in super::super) fn meaning(
    answer: &WebhookAnswer,
    table: &ClassTable,
    receiver: EndpointOwner,
) -> Meaning {
    let said = answer.meaning.filter(|said| match (receiver, said) {
        (EndpointOwner::Theirs, Meaning::Fails(Class::Credential | Class::Reconnect)) => false,
        (EndpointOwner::Ours | EndpointOwner::Theirs, _) => true,
    });
    let by_table = table.status(answer.status.as_u16());
    match (said, answer.delivery, by_table) {
        (Some(said), _, _) => said,
        // An accepted message is delivered, whatever happens to the next one.
        (None, _, Meaning::Ok) | (None, None, _) => by_table,
        (None, Some(Delivery::Disable), Meaning::Fails(_)) => Meaning::Fails(Class::Gone),
        (None, Some(Delivery::AbortMessage), Meaning::Fails(_)) => Meaning::Fails(Class::Permanent),
    }
}

/// The failure for an answer of this class.
pub(in super::super) fn answered(answer: &WebhookAnswer, class: Class, now: SystemTime) -> Failure {
    let status = answer.status.as_u16();
    let mut text = named(answer);
    if !answer.reason.is_empty() {
        text.push_str(": ");
        text.push_str(&answer.reason);
    }
    let asked = answer.retry_after.as_deref();
    let wait = asked.and_then(|value| retry_after::wait(value, now));
    let failure = of_class(class, wait, WebhookError::Answered { status, text });
    let failure = failure.of_kind(FailureKind::Status(status)).note("status_code", status.to_string());
    let failure = if answer.is_explained_by_body { failure } else { failure.with_code(&answer.reason) };
    match asked {
        Some(asked) => failure.note("retry_after_header", asked),
        None => failure,
    }
}

/// The failure for a trouble. `status` is set if the head of an answer arrived but not its end.
pub(in super::super) fn unanswered(
    trouble: Trouble,
    text: &str,
    status: Option<&WebhookAnswer>,
    sent: bool,
    (table, receiver): (&ClassTable, EndpointOwner),
) -> Failure {
    let text = status.map_or_else(|| text.to_owned(), |answer| format!("{}: {text}", named(answer)));
    let class = match (table.trouble(trouble), receiver) {
        // One receiver among many must not hold up the others; the proxy is ours.
        (Class::Credential, EndpointOwner::Theirs) if !trouble.is_before_receiver() => Class::Permanent,
        (class, _) => class,
    };
    let failure = of_class(class, None, WebhookError::Unanswered { trouble, text });
    let failure = failure.of_kind(trouble.kind(sent)).with_code(trouble.name());
    let failure = if sent { failure.ambiguous() } else { failure };
    let failure = if trouble.is_before_receiver() { failure.before_receiver() } else { failure };
    match status {
        Some(answer) => failure.note("status_code", answer.status.as_u16().to_string()),
        None => failure,
    }
}

/// The failure of a request that could not be signed, and so was not sent.
pub(in super::super) fn unsigned(error: SigningError) -> Failure {
    if error.is_transient() {
        Failure::transient(WebhookError::Signing(error)).before_receiver()
    } else {
        Failure::permanent(WebhookError::Signing(error))
    }
}

/// `503 Service Unavailable`, in our own words and not the receiver's.
fn named(answer: &WebhookAnswer) -> String {
    let status = answer.status;
    status
        .canonical_reason()
        .map_or_else(|| status.as_str().to_owned(), |reason| format!("{} {reason}", status.as_str()))
}

pub(crate) fn of_class(class: Class, wait: Option<Duration>, error: impl Into<Cause>) -> Failure {
    let failure = match class {
        // An answer cannot report a crash; no table contains it.
        Class::Transient | Class::Crash => Failure::transient(error),
        Class::RateLimited => Failure::rate_limited(None, error),
        Class::Permanent => Failure::permanent(error),
        Class::Gone => Failure::gone(error),
        Class::Credential => Failure::credential(error),
        Class::Reconnect => Failure::reconnect(error),
    };
    failure.wait(wait)
}

#[cfg(test)]
mod tests {
    use hyper::StatusCode;

    use super::*;

    fn answer(status: u16) -> WebhookAnswer {
        let status = StatusCode::from_u16(status).unwrap();
        let (reason, is_explained_by_body) = (String::new(), false);
        WebhookAnswer {
            status,
            meaning: None,
            delivery: None,
            reason,
            is_explained_by_body,
            retry_after: None,
        }
    }

    #[test]
    fn the_text_begins_with_the_status_and_goes_on_with_the_reason() {
        let plain = answered(&answer(503), Class::Transient, SystemTime::UNIX_EPOCH);
        assert_eq!(plain.chain(), "503 Service Unavailable");
        let reasoned = WebhookAnswer { reason: "no_lines".into(), ..answer(422) };
        let failure = answered(&reasoned, Class::Permanent, SystemTime::UNIX_EPOCH);
        assert_eq!(failure.chain(), "422 Unprocessable Entity: no_lines");
        assert_eq!((failure.kind().status(), failure.code()), (Some(422), Some("no_lines")));
        let excerpt = WebhookAnswer { is_explained_by_body: true, ..reasoned };
        let failure = answered(&excerpt, Class::Permanent, SystemTime::UNIX_EPOCH);
        assert_eq!(failure.code(), None, "the beginning of a body is no code");
        assert_eq!(answered(&answer(599), Class::Transient, SystemTime::UNIX_EPOCH).chain(), "599");
    }

    #[test]
    fn a_stranger_cannot_stop_the_whole_sink() {
        let table = ClassTable::webhook();
        for class in [Class::Credential, Class::Reconnect] {
            let says = WebhookAnswer { meaning: Some(Meaning::Fails(class)), ..answer(500) };
            assert_eq!(meaning(&says, &table, EndpointOwner::Ours), Meaning::Fails(class));
            assert_eq!(meaning(&says, &table, EndpointOwner::Theirs), Meaning::Fails(Class::Transient));
        }
        let gone = WebhookAnswer { meaning: Some(Meaning::Fails(Class::Gone)), ..answer(500) };
        assert_eq!(meaning(&gone, &table, EndpointOwner::Theirs), Meaning::Fails(Class::Gone));
    }

    #[test]
    fn a_wait_is_kept_for_every_class_that_is_retried() {
        let asks = WebhookAnswer { retry_after: Some("7".into()), ..answer(503) };
        for class in [Class::Transient, Class::RateLimited] {
            let failure = answered(&asks, class, SystemTime::UNIX_EPOCH);
            assert_eq!((failure.class(), failure.retry_after()), (class, Some(Duration::from_secs(7))));
        }
    }
}
