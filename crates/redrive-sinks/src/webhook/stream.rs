//! A connection over TCP that knows whether a proxy relays what is sent on it.
//!
//! That it broke is reported by reading alone. A receiver that refuses our client certificate with TLS 1.3 sends an alert
//! and closes the connection while the request is being written; whoever failed at writing would never read why.

use std::io::{self, ErrorKind};
use std::pin::Pin;
use std::task::{Context, Poll};

use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::client::legacy::connect::{Connected, Connection};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

/// To the receiver, through a tunnel or not; or to a proxy that wants requests in absolute form.
#[derive(Debug)]
pub(crate) struct Stream {
    tcp: TokioIo<TcpStream>,
    is_relayed: bool,
}

impl Stream {
    pub(super) fn direct(tcp: TokioIo<TcpStream>) -> Self {
        Self { tcp, is_relayed: false }
    }

    pub(super) fn relayed(tcp: TokioIo<TcpStream>) -> Self {
        Self { tcp, is_relayed: true }
    }
}

impl Connection for Stream {
    fn connected(&self) -> Connected {
        self.tcp.connected().proxy(self.is_relayed)
    }
}

impl Read for Stream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
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

/// What cannot be written any more counts as written: nobody will read it, and reading says why.
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
