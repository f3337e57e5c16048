//! The stream of a connection: a client that does not read is cut off, and one that still sends what was refused gets to
//! read why.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep, sleep_until};

use super::registry::Connection;
use super::write_pace::WritePace;

/// How much of a body that was refused is thrown away after the answer, and for how long. A connection that is closed
/// while the client still sends is reset, and the client never sees the answer.
const DISCARD_BYTES_MAX: usize = 256 * 1024 * 1024;
const DISCARD_WAIT: Duration = Duration::from_secs(30);
const DISCARD_PIECE_BYTES: usize = 16 * 1024;

#[derive(Debug)]
pub(crate) struct Stream {
    inner: TcpStream,
    connection: Arc<Connection>,
    pace: WritePace,
    timer: Option<Pin<Box<Sleep>>>,
    closing: Closing,
}

#[derive(Debug)]
enum Closing {
    Open,
    Discarding { left: usize, until: Instant },
}

impl Stream {
    pub fn new(inner: TcpStream, connection: Arc<Connection>) -> Self {
        Self { inner, connection, pace: WritePace::default(), timer: None, closing: Closing::Open }
    }

    /// Ready when it is time.
    fn poll_timer(&mut self, at: Instant, cx: &mut Context<'_>) -> Poll<()> {
        let timer = self.timer.get_or_insert_with(|| Box::pin(sleep_until(at)));
        if timer.deadline() != at {
            timer.as_mut().reset(at);
        }
        timer.as_mut().poll(cx)
    }

    /// Sees what a write came to.
    fn judge(&mut self, wrote: Poll<io::Result<usize>>, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        match wrote {
            Poll::Ready(Ok(bytes)) => {
                self.pace.taken(bytes, Instant::now());
                self.connection.moved();
                Poll::Ready(Ok(bytes))
            }
            Poll::Pending => {
                let deadline = self.pace.blocked(Instant::now());
                ready!(self.poll_timer(deadline, cx));
                Poll::Ready(Err(io::Error::new(
                    io::ErrorKind::TimedOut,
                    "the client does not read its answer",
                )))
            }
            failed @ Poll::Ready(Err(_)) => failed,
        }
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_read(cx, into)
    }
}

impl AsyncWrite for Stream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        let wrote = Pin::new(&mut self.inner).poll_write(cx, data);
        self.judge(wrote, cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        data: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let wrote = Pin::new(&mut self.inner).poll_write_vectored(cx, data);
        self.judge(wrote, cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(Pin::new(&mut self.inner).poll_flush(cx))?;
        self.pace.done();
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            match self.closing {
                Closing::Open => {
                    ready!(Pin::new(&mut self.inner).poll_shutdown(cx))?;
                    if !self.connection.is_unread() {
                        return Poll::Ready(Ok(()));
                    }
                    let until = Instant::now() + DISCARD_WAIT;
                    self.closing = Closing::Discarding { left: DISCARD_BYTES_MAX, until };
                }
                Closing::Discarding { left, until } => {
                    let mut piece = [0; DISCARD_PIECE_BYTES];
                    let mut into = ReadBuf::new(&mut piece);
                    match Pin::new(&mut self.inner).poll_read(cx, &mut into) {
                        Poll::Ready(Ok(())) if !into.filled().is_empty() && into.filled().len() < left => {
                            let left = left - into.filled().len();
                            self.closing = Closing::Discarding { left, until };
                        }
                        // The client has closed, has gone, or has sent more than is worth reading.
                        Poll::Ready(_) => return Poll::Ready(Ok(())),
                        Poll::Pending => return self.poll_timer(until, cx).map(Ok),
                    }
                }
            }
        }
    }
}
