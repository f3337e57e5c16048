//! A message's payload as the body of a request.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use redrive_core::Message;

/// Whether a request began to leave. Until then a failure cannot have had an effect.
#[derive(Clone, Debug)]
pub(crate) struct Sent(Arc<AtomicBool>);

impl Sent {
    pub(crate) fn begun(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

/// The bytes of the message itself, not a copy. They are asked for when the head is being written to a connection, and
/// that is when the request begins to leave.
#[derive(Debug)]
pub(crate) struct Payload {
    bytes: Bytes,
    sent: Sent,
}

impl Payload {
    pub(crate) fn of(message: &Message) -> (Self, Sent) {
        Self::of_bytes(message.payload().map(|payload| message.wire().slice_ref(payload)).unwrap_or_default())
    }

    /// A body that was made from the message.
    pub(crate) fn of_bytes(bytes: Bytes) -> (Self, Sent) {
        // An empty body is never asked for. Its request is taken for sent from the beginning, which errs towards
        // saying that there may have been an effect.
        let sent = Sent(Arc::new(AtomicBool::new(bytes.is_empty())));
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
        self.sent.0.store(true, Ordering::Release);
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
