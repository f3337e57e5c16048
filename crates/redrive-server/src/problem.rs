//! Errors of requests: a closed list of codes, with a message and a hint.

use std::fmt::Display;

use crate::answer::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use redrive::HandleError;
use redrive::internal::engine::{EngineError, IngestError};
use redrive::messages::SteerError;
use redrive_api::Refusal;

/// The `code` of an error answer. Programs may rely on these names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Code {
    BadRequest,
    BadFilter,
    EmptySelection,
    BadMessage,
    Unauthorized,
    Forbidden,
    TooManyWrongTokens,
    NotFound,
    MethodNotAllowed,
    Timeout,
    Conflict,
    TooLarge,
    TooManyPending,
    Busy,
    DiskFull,
    Stopping,
    Unavailable,
    StorageFailed,
}

impl Code {
    pub const ALL: [Self; 18] = [
        Self::BadRequest,
        Self::BadFilter,
        Self::EmptySelection,
        Self::BadMessage,
        Self::Unauthorized,
        Self::Forbidden,
        Self::TooManyWrongTokens,
        Self::NotFound,
        Self::MethodNotAllowed,
        Self::Timeout,
        Self::Conflict,
        Self::TooLarge,
        Self::TooManyPending,
        Self::Busy,
        Self::DiskFull,
        Self::Stopping,
        Self::Unavailable,
        Self::StorageFailed,
    ];

    pub const fn name(self) -> &'static str {
        match self {
            Self::BadRequest => "bad_request",
            Self::BadFilter => "bad_filter",
            Self::EmptySelection => "empty_selection",
            Self::BadMessage => "bad_message",
            Self::Unauthorized => "unauthorized",
            Self::Forbidden => "forbidden",
            Self::TooManyWrongTokens => "too_many_wrong_tokens",
            Self::NotFound => "not_found",
            Self::MethodNotAllowed => "method_not_allowed",
            Self::Timeout => "timeout",
            Self::Conflict => "conflict",
            Self::TooLarge => "too_large",
            Self::TooManyPending => "too_many_pending",
            Self::Busy => "busy",
            Self::DiskFull => "disk_full",
            Self::Stopping => "stopping",
            Self::Unavailable => "unavailable",
            Self::StorageFailed => "storage_failed",
        }
    }

    pub const fn status(self) -> StatusCode {
        match self {
            Self::BadRequest | Self::BadFilter | Self::EmptySelection => StatusCode::BAD_REQUEST,
            Self::BadMessage => StatusCode::UNPROCESSABLE_ENTITY,
            Self::Unauthorized => StatusCode::UNAUTHORIZED,
            Self::Forbidden => StatusCode::FORBIDDEN,
            Self::NotFound => StatusCode::NOT_FOUND,
            Self::MethodNotAllowed => StatusCode::METHOD_NOT_ALLOWED,
            Self::Timeout => StatusCode::REQUEST_TIMEOUT,
            Self::Conflict => StatusCode::CONFLICT,
            Self::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Self::Busy | Self::TooManyWrongTokens => StatusCode::TOO_MANY_REQUESTS,
            Self::TooManyPending
            | Self::DiskFull
            | Self::Stopping
            | Self::Unavailable
            | Self::StorageFailed => StatusCode::SERVICE_UNAVAILABLE,
        }
    }

    /// The `Retry-After` in seconds, if retrying can help.
    const fn retry_after(self) -> Option<u64> {
        match self {
            Self::Busy => Some(1),
            Self::TooManyPending | Self::Stopping | Self::Unavailable => Some(5),
            Self::DiskFull | Self::TooManyWrongTokens => Some(30),
            _ => None,
        }
    }
}

/// An error answer: `{"code","message","hint"}`.
#[derive(Clone, Debug)]
pub struct Problem {
    pub code: Code,
    pub message: String,
    pub hint: String,
}

impl Problem {
    pub fn new(code: Code, message: impl Display, hint: impl Display) -> Self {
        Self { code, message: message.to_string(), hint: hint.to_string() }
    }

    pub fn bad_request(message: impl Display, hint: impl Display) -> Self {
        Self::new(Code::BadRequest, message, hint)
    }

    pub fn bad_message(message: impl Display, hint: impl Display) -> Self {
        Self::new(Code::BadMessage, message, hint)
    }

    pub fn not_found(message: impl Display, hint: impl Display) -> Self {
        Self::new(Code::NotFound, message, hint)
    }

    /// The same problem, located in this line of many.
    #[must_use]
    pub fn at_line(self, line: usize) -> Self {
        Self { message: format!("line {line}: {}", self.message), ..self }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let body =
            Json(Refusal { code: self.code.name().to_owned(), message: self.message, hint: self.hint });
        let mut response = (self.code.status(), body).into_response();
        if let Some(seconds) = self.code.retry_after() {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        if self.code == Code::Unauthorized {
            let challenge = HeaderValue::from_static("Bearer realm=\"redrive\"");
            response.headers_mut().insert(header::WWW_AUTHENTICATE, challenge);
        }
        response
    }
}

impl From<IngestError> for Problem {
    fn from(error: IngestError) -> Self {
        let (code, hint) = match &error {
            IngestError::DiskFull { .. } => (Code::DiskFull, "free some space; nothing of this was accepted"),
            IngestError::Busy => {
                (Code::Busy, "nothing of this was accepted; send it again after Retry-After")
            }
            IngestError::TooMany { .. } => (
                Code::TooManyPending,
                "nothing of this was accepted; send it again later, or raise `max_pending` of the pipeline",
            ),
            IngestError::TooFar { .. } => {
                (Code::BadMessage, "nothing of this was accepted; give it an earlier time")
            }
            IngestError::NotTaking => (Code::Stopping, "nothing of this was accepted; send it again later"),
            IngestError::Stopped => (
                Code::Stopping,
                "send it again with the same id: what was accepted is answered as a duplicate",
            ),
            IngestError::Storage(_) => (Code::StorageFailed, "repair the disk and start again"),
            _ => (
                Code::StorageFailed,
                "send it again with the same id: what was accepted is answered as a duplicate",
            ),
        };
        Self::new(code, error, hint)
    }
}

impl From<SteerError> for Problem {
    fn from(error: SteerError) -> Self {
        let hint = match &error {
            SteerError::Handle(_) => "",
            SteerError::NotFound { .. } | SteerError::TooMany { .. } => {
                "`redrive messages PIPELINE`, or GET …/messages, lists what waits; where several processes share the work, each lists the messages it owns"
            }
            SteerError::InFlight { .. } => "look again when its attempt has ended",
            SteerError::Ready { .. } => "it starts by itself as soon as a permit is free",
            SteerError::KeyWait { .. } => {
                "`redrive status PIPELINE --key KEY`, or GET …/keys/KEY, shows which one; retry or cancel that one"
            }
            SteerError::Suspect { .. } => "cancel it, or wait for its turn",
            SteerError::Ended { .. } => "a dead letter is replayed or discarded",
            SteerError::Restless { .. } => "ask again",
            _ => "look at the message first: `redrive message PIPELINE ID`",
        };
        match error {
            SteerError::Handle(error) => error.into(),
            SteerError::NotFound { .. } => Self::not_found(error, hint),
            _ => Self::new(Code::Conflict, error, hint),
        }
    }
}

impl From<HandleError> for Problem {
    fn from(error: HandleError) -> Self {
        match &error {
            HandleError::Stopped(_) => Self::new(Code::Stopping, error, "ask again when it has been started"),
            HandleError::Engine(EngineError::Storage(_)) => {
                Self::new(Code::StorageFailed, error, "repair the disk and start again")
            }
            HandleError::NotRemembered(_) => {
                Self::new(Code::Conflict, error, "letters can be found by their number all the same")
            }
            HandleError::Engine(EngineError::Unavailable(_)) => {
                Self::new(Code::Unavailable, error, "the engine's own storage did not answer; ask again")
            }
            HandleError::Engine(_) => {
                Self::new(Code::StorageFailed, error, "`redrive journal` shows what the store holds")
            }
            _ => Self::new(Code::StorageFailed, error, "see the processor log"),
        }
    }
}
