//! A message's payload as the body of a request.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use redrive_core::Message;

/// How far a request got.
#[derive(Clone, Debug)]
pub(crate) struct Sent(Arc<WriteProgress>);

#[derive(Debug)]
struct WriteProgress {
    /// Whether it began to leave. Before that a failure cannot have had an effect.
    begun: AtomicBool,
    /// The last 1xx status received, or 0.
    interim: AtomicU16,
}

impl Sent {
    pub(crate) fn begun(&self) -> bool {
        self.0.begun.load(Ordering::Acquire)
    }

    /// Records a non-final answer.
    pub(crate) fn answered_interim(&self, status: u16) {
        self.0.interim.store(status, Ordering::Release);
    }

    /// The text of a failure without a final answer.
    pub(crate) fn explain(&self, text: String) -> String {
        match self.0.interim.load(Ordering::Acquire) {
            0 => text,
            status => format!("the receiver answered {status}, which is not a final status; {text}"),
        }
    }
}

/// The bytes of the message itself, not a copy. They are polled when the head is being written to a connection, which
/// is when the request begins to leave.
#[derive(Debug)]
pub(crate) struct Payload {
    bytes: Bytes,
    sent: Sent,
}

impl Payload {
    pub(crate) fn of(message: &Message) -> (Self, Sent) {
        Self::of_bytes(message.payload().map(|payload| message.wire().slice_ref(payload)).unwrap_or_default())
    }

    /// A body made from other bytes.
    pub(crate) fn of_bytes(bytes: Bytes) -> (Self, Sent) {
        // An empty body is never polled. Its request counts as sent from the beginning, which errs on the side of a
        // possible effect.
        let begun = AtomicBool::new(bytes.is_empty());
        let sent = Sent(Arc::new(WriteProgress { begun, interim: AtomicU16::new(0) }));
        (Self { bytes, sent: sent.clone() }, sent)
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

impl Body for Payload {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.sent.0.begun.store(true, Ordering::Release);
        let bytes = std::mem::take(&mut self.bytes);
        Poll::Ready((!bytes.is_empty()).then(|| Ok(Frame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        self.bytes.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.bytes.len() as u64)
    }
}
