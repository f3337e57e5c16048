//! Reads an answer: the relevant parts of its head, and a bounded part of its body.

use std::future::poll_fn;
use std::pin::Pin;

use hyper::body::{Body, Incoming};
use hyper::header::{HeaderMap, HeaderName, HeaderValue, RETRY_AFTER};
use hyper::{StatusCode, Uri};
use redrive_core::fingerprint::trace;

use super::classes::Meaning;
use super::text::Redactor;

const CLASS: HeaderName = HeaderName::from_static("redrive-class");
const DELIVERY: HeaderName = HeaderName::from_static("webhook-delivery");
const REASON: HeaderName = HeaderName::from_static("redrive-reason");

/// The maximum number of bytes read of a body. A connection with a longer answer is closed.
pub const BODY_BYTES_MAX: usize = 64 * 1024;
/// How much of the body is used for the excerpt. More than the excerpt itself, because redaction can shorten the text.
const LOOKED_AT_BYTES_MAX: usize = 4 * 1024;
const EXCERPT_BYTES_MAX: usize = 256;
const REASON_BYTES_MAX: usize = 200;
const RETRY_AFTER_BYTES_MAX: usize = 64;

/// What a failing receiver asks for in `webhook-delivery`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Delivery {
    /// Do not send anything to this endpoint any more.
    Disable,
    /// Do not try this message again.
    AbortMessage,
}

/// A receiver's answer, sanitized.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct WebhookAnswer {
    pub(crate) status: StatusCode,
    /// From `redrive-class`.
    pub(crate) meaning: Option<Meaning>,
    /// From `webhook-delivery`.
    pub(crate) delivery: Option<Delivery>,
    /// From `redrive-reason`, or the beginning of the body.
    pub(crate) reason: String,
    /// Whether the reason is the beginning of the body.
    pub(crate) is_explained_by_body: bool,
    /// `Retry-After` as written.
    pub(crate) retry_after: Option<String>,
}

impl WebhookAnswer {
    pub(crate) fn of(status: StatusCode, headers: &HeaderMap, redactor: &Redactor, endpoint: &Uri) -> Self {
        let clean = |name: &HeaderName, max: usize| {
            let value = first(headers, name)?;
            Some(redactor.clean(value, endpoint, max)).filter(|text| !text.is_empty())
        };
        let meaning = first(headers, &CLASS).and_then(|value| std::str::from_utf8(value).ok());
        Self {
            status,
            delivery: match first(headers, &DELIVERY).map(<[u8]>::trim_ascii) {
                Some(b"disable") => Some(Delivery::Disable),
                Some(b"abort-message") => Some(Delivery::AbortMessage),
                _ => None,
            },
            meaning: meaning.and_then(|name| Meaning::from_name(name.trim())),
            reason: clean(&REASON, REASON_BYTES_MAX).unwrap_or_default(),
            is_explained_by_body: false,
            retry_after: clean(&RETRY_AFTER, RETRY_AFTER_BYTES_MAX),
        }
    }

    /// Uses the beginning of the body as the reason if the receiver gave none.
    pub(crate) fn explain(&mut self, body: &[u8], redactor: &Redactor, endpoint: &Uri) {
        if self.reason.is_empty() {
            // Reduce a stack trace to the exception and the frame that threw it: the beginning shows neither in Python,
            // and on one line the parts cannot be told apart.
            let folded = trace::folded(&String::from_utf8_lossy(body));
            let body = folded.as_ref().map_or(body, String::as_bytes);
            self.reason = redactor.clean(body, endpoint, EXCERPT_BYTES_MAX);
            self.is_explained_by_body = true;
        }
    }
}

fn first<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a [u8]> {
    headers.get(name).map(HeaderValue::as_bytes)
}

/// Reads a body to its end, or to the limit. The relevant part is put into `beginning` as it arrives, so that it is
/// there even if the end never comes.
pub(crate) async fn read(body: &mut Incoming, beginning: &mut Vec<u8>) -> Result<(), hyper::Error> {
    read_up_to(LOOKED_AT_BYTES_MAX, body, beginning).await
}

/// The same for a body whose content is needed: `beginning` gets up to `max` bytes.
pub(crate) async fn read_up_to(
    max: usize,
    body: &mut Incoming,
    beginning: &mut Vec<u8>,
) -> Result<(), hyper::Error> {
    let mut read = 0;
    while !body.is_end_stream() {
        let Some(frame) = poll_fn(|context| Pin::new(&mut *body).poll_frame(context)).await else { break };
        // Trailers are ignored.
        let Ok(data) = frame?.into_data() else { continue };
        let room = max.saturating_sub(beginning.len());
        beginning.extend_from_slice(&data[..data.len().min(room)]);
        read += data.len();
        if read >= BODY_BYTES_MAX {
            break;
        }
    }
    Ok(())
}
