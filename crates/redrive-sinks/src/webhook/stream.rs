//! A TCP connection that knows which protocol it carries.
//!
//! A broken connection is reported by reads only. A receiver that refuses our client certificate with TLS 1.3 sends an
//! alert and closes the connection while the request is being written; a caller whose write fails would never read the
//! reason.

use std::io::{self, ErrorKind};
use std::pin::Pin;
use std::task::{Context, Poll};

use hyper::rt::{Read, ReadBuf, ReadBufCursor, Write};
use hyper_util::client::legacy::connect::{Connected, Connection};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

/// The first bytes of a TLS record with an alert: its type, and the first half of the version.
const TLS_ALERT: [u8; 2] = [21, 3];
/// How many bytes are read to detect the protocol of the answer. The rest is read as usual.
const FIRST_BYTES_MAX: usize = 512;

/// The receiver answered plain HTTP with TLS.
#[derive(Debug, thiserror::Error)]
#[error("the other side speaks TLS; use https://")]
pub(crate) struct SpeaksTls;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Protocol {
    /// TLS with the receiver, with or without a tunnel.
    Tls,
    /// HTTP with the receiver, before its first answer.
    PlainUnanswered,
    Plain,
    /// HTTP with a proxy that expects requests in absolute form.
    Relayed,
}

/// A connection to the receiver or to a proxy.
#[derive(Debug)]
pub(crate) struct Stream {
    tcp: TokioIo<TcpStream>,
    protocol: Protocol,
}

impl Stream {
    pub(super) fn secured(tcp: TokioIo<TcpStream>) -> Self {
        Self { tcp, protocol: Protocol::Tls }
    }

    pub(super) fn plain(tcp: TokioIo<TcpStream>) -> Self {
        Self { tcp, protocol: Protocol::PlainUnanswered }
    }

    pub(super) fn relayed(tcp: TokioIo<TcpStream>) -> Self {
        Self { tcp, protocol: Protocol::Relayed }
    }

    /// Reads the first bytes of an answer, and fails if they are TLS.
    fn poll_first(
        &mut self,
        context: &mut Context<'_>,
        mut buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        let mut first = [0; FIRST_BYTES_MAX];
        let room = buffer.remaining().min(FIRST_BYTES_MAX);
        let mut first = ReadBuf::new(&mut first[..room]);
        match Pin::new(&mut self.tcp).poll_read(context, first.unfilled()) {
            Poll::Ready(Ok(())) => {}
            other => return other,
        }
        self.protocol = Protocol::Plain;
        if first.filled().starts_with(&TLS_ALERT) {
            return Poll::Ready(Err(io::Error::other(SpeaksTls)));
        }
        buffer.put_slice(first.filled());
        Poll::Ready(Ok(()))
    }
}

impl Connection for Stream {
    fn connected(&self) -> Connected {
        self.tcp.connected().proxy(self.protocol == Protocol::Relayed)
    }
}

impl Read for Stream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        if self.protocol == Protocol::PlainUnanswered {
            return self.poll_first(context, buffer);
        }
        Pin::new(&mut self.tcp).poll_read(context, buffer)
    }
}

impl Write for Stream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.tcp).poll_write(context, bytes).map(|written| unless_broken(written, bytes.len()))
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.tcp).poll_flush(context).map(|flushed| unless_broken(flushed, ()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.tcp).poll_shutdown(context)
    }

    fn is_write_vectored(&self) -> bool {
        self.tcp.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffers: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let length = buffers.iter().map(|buffer| buffer.len()).sum();
        let written = Pin::new(&mut self.tcp).poll_write_vectored(context, buffers);
        written.map(|written| unless_broken(written, length))
    }
}

/// Treats a failed write as done: the data will not be read, and reading reports the reason.
fn unless_broken<T>(result: io::Result<T>, done: T) -> io::Result<T> {
    match result {
        Err(error)
            if matches!(
                error.kind(),
                ErrorKind::BrokenPipe | ErrorKind::ConnectionReset | ErrorKind::ConnectionAborted
            ) =>
        {
            Ok(done)
        }
        other => other,
    }
}
