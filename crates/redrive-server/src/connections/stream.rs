//! The stream of a connection: a client that does not read is disconnected, and one that is still sending a refused
//! body gets to read the answer.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep_until};

use super::registry::Connection;
use super::write_pace::WritePace;

/// How much of a refused body is discarded after the answer; the time is limited as well. If a connection is closed
/// while the client is still sending, it is reset, and the client never sees the answer.
const DISCARD_BYTES_MAX: usize = 256 * 1024 * 1024;
const DISCARD_WAIT: Duration = Duration::from_secs(30);
const DISCARD_PIECE_BYTES: usize = 16 * 1024;

#[derive(Debug)]
pub(crate) struct Stream<S> {
    inner: S,
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

impl<S> Stream<S> {
    pub fn new(inner: S, connection: Arc<Connection>) -> Self {
        Self { inner, connection, pace: WritePace::default(), timer: None, closing: Closing::Open }
    }

    /// Completes at the given time.
    fn poll_timer(&mut self, at: Instant, cx: &mut Context<'_>) -> Poll<()> {
        let timer = self.timer.get_or_insert_with(|| Box::pin(sleep_until(at)));
        if timer.deadline() != at {
            timer.as_mut().reset(at);
        }
        timer.as_mut().poll(cx)
    }

    /// Evaluates the result of a write.
    fn judge(&mut self, wrote: Poll<io::Result<usize>>, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        match wrote {
            Poll::Ready(Ok(bytes)) => {
                let now = Instant::now();
                if self.connection.is_following() {
                    self.pace.follower_took(now);
                } else {
                    self.pace.taken(bytes, now);
                }
                self.connection.moved();
                Poll::Ready(Ok(bytes))
            }
            Poll::Pending => {
                let now = Instant::now();
                let deadline = if self.connection.is_following() {
                    self.pace.follower_blocked(now)
                } else {
                    self.pace.blocked(now)
                };
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

impl<S: AsyncRead + Unpin> AsyncRead for Stream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_read(cx, into)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Stream<S> {
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
                        // The client has closed the connection, is gone, or has sent more than is worth reading.
                        Poll::Ready(_) => return Poll::Ready(Ok(())),
                        Poll::Pending => return self.poll_timer(until, cx).map(Ok),
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};

    use super::super::registry::{ConnectionSlot, Connections};
    use super::*;

    fn pair(buffer: usize) -> (Stream<DuplexStream>, DuplexStream, ConnectionSlot) {
        let (ours, theirs) = duplex(buffer);
        let slot = Connections::new(1).admit([192, 0, 2, 1].into()).unwrap();
        (Stream::new(ours, Arc::clone(&slot.connection)), theirs, slot)
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_does_not_read_is_cut_off() {
        let (mut ours, _theirs, _slot) = pair(1_000);
        let began = Instant::now();
        let error = ours.write_all(&vec![0; 1_000_000]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert_eq!(began.elapsed(), Duration::from_secs(10));
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_reads_a_little_now_and_then_is_cut_off_too() {
        let (mut ours, mut theirs, _slot) = pair(1_000);
        let began = Instant::now();
        let reading = tokio::spawn(async move {
            let mut piece = [0; 1_000];
            while theirs.read(&mut piece).await.is_ok_and(|read| read > 0) {
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        });
        let error = ours.write_all(&vec![0; 1_000_000]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert!(began.elapsed() < Duration::from_secs(12), "{:?}", began.elapsed());
        reading.abort();
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_follows_events_may_read_them_slowly_but_must_read() {
        let (mut ours, mut theirs, slot) = pair(1_000);
        slot.connection.follows();
        let reading = tokio::spawn(async move {
            let (mut piece, mut all) = ([0; 1_000], 0);
            while all < 50_000 {
                all += theirs.read(&mut piece).await.unwrap();
                tokio::time::sleep(Duration::from_mins(9)).await;
            }
            theirs
        });
        ours.write_all(&vec![0; 50_000]).await.unwrap();
        let _theirs = reading.await.unwrap();
        let began = Instant::now();
        let error = ours.write_all(&vec![0; 50_000]).await.unwrap_err();
        assert_eq!((error.kind(), began.elapsed()), (io::ErrorKind::TimedOut, Duration::from_mins(10)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_reads_steadily_gets_everything() {
        let (mut ours, mut theirs, _slot) = pair(64 * 1024);
        let reading = tokio::spawn(async move {
            let (mut piece, mut all) = (vec![0; 64 * 1024], 0);
            while all < 10_000_000 {
                all += theirs.read(&mut piece).await.unwrap();
                tokio::time::sleep(Duration::from_millis(900)).await;
            }
            all
        });
        ours.write_all(&vec![0; 10_000_000]).await.unwrap();
        assert_eq!(reading.await.unwrap(), 10_000_000);
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_left_of_a_refused_body_is_thrown_away_for_a_while() {
        let (mut ours, mut theirs, slot) = pair(1_000);
        slot.connection.left_unread();
        let sending = tokio::spawn(async move {
            theirs.write_all(&vec![0; 100_000]).await.unwrap();
            theirs
        });
        let began = Instant::now();
        ours.shutdown().await.unwrap();
        assert_eq!(began.elapsed(), DISCARD_WAIT, "it has not closed its end");
        drop(sending.await.unwrap());
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_without_such_a_rest_is_closed_at_once() {
        let (mut ours, _theirs, _slot) = pair(1_000);
        let began = Instant::now();
        ours.shutdown().await.unwrap();
        assert_eq!(began.elapsed(), Duration::ZERO);
    }
}
