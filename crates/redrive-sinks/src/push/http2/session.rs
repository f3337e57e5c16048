//! One connection: its streams, the ping that detects a dead one, and what a lost stream means.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use h2::client::SendRequest;
use h2::{Ping, PingPong, Reason, RecvStream};
use hyper::header::HeaderMap;
use hyper::{Request, StatusCode};
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};

use super::dial::{Opened, ServerAddress};
use super::lost::Lost;

/// The interval of pings, and the time limit for their answers: a dead connection is detected within ten seconds.
const PING_EVERY: Duration = Duration::from_secs(4);
const PONG_MAX: Duration = Duration::from_secs(5);
/// Ping intervals that are skipped while nothing is sent: few enough to keep NAT tables alive.
const IDLE_ROUNDS: u32 = 15;
/// The maximum number of bytes read of an answer's body.
const BODY_BYTES_MAX: usize = 64 * 1024;
/// The limit of streams per connection: with more, one lost packet would hold up too many.
const STREAMS_MAX: usize = 1000;

/// An answer: status, headers and a bounded part of its body.
#[derive(Debug)]
pub struct Answer {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Bytes,
}

/// One connection. Cheap to clone.
#[derive(Debug)]
pub(super) struct Session {
    send: SendRequest<Bytes>,
    state: Arc<SessionState>,
}

#[derive(Debug, Default)]
struct SessionState {
    streams: AtomicUsize,
    /// Accepts no further requests: closed, closing, or dead.
    retired: AtomicBool,
}

impl Session {
    /// Opens a connection and drives it until it ends; `freed` is notified then.
    pub(super) async fn open(server: &ServerAddress, freed: Arc<Notify>) -> Result<Self, Lost> {
        let (send, mut connection): Opened = server.open().await?;
        let state = Arc::new(SessionState::default());
        let ping = connection.ping_pong();
        let driven = Arc::clone(&state);
        tokio::spawn(async move {
            // Dropping the connection ends all its streams.
            tokio::select! {
                _ = connection => {}
                () = until_dead(ping, &driven, &freed) => {}
            }
            driven.retired.store(true, Ordering::Release);
            freed.notify_waiters();
        });
        Ok(Self { send, state })
    }

    pub(super) fn is_retired(&self) -> bool {
        self.state.retired.load(Ordering::Acquire)
    }

    /// Stops accepting requests; those in flight continue.
    pub(super) fn retire(&self) {
        self.state.retired.store(true, Ordering::Release);
    }

    pub(super) fn streams(&self) -> usize {
        self.state.streams.load(Ordering::Acquire)
    }

    /// The current limit of concurrent streams, from the server's SETTINGS.
    pub(super) fn streams_max(&self) -> usize {
        self.send.current_max_send_streams().clamp(1, STREAMS_MAX)
    }

    /// Counts a stream. The caller holds the pool's lock, so the limit is kept.
    pub(super) fn begin(&self) {
        self.state.streams.fetch_add(1, Ordering::AcqRel);
    }

    pub(super) fn end(&self) {
        self.state.streams.fetch_sub(1, Ordering::AcqRel);
    }

    pub(super) async fn exchange(&self, request: Request<()>, body: Bytes) -> Result<Answer, Lost> {
        let unsent = |_| {
            self.retire();
            Lost::Unprocessed("the server is closing the connection")
        };
        let mut send = self.send.clone().ready().await.map_err(unsent)?;
        let (response, mut stream) = send.send_request(request, body.is_empty()).map_err(unsent)?;
        if !body.is_empty() {
            stream.send_data(body, true).map_err(|error| self.lost(&error))?;
        }
        let (head, body) = response.await.map_err(|error| self.lost(&error))?.into_parts();
        // The head identifies a failure, and APNs has no body on success; how the body ends does not matter.
        let body = read(body).await;
        Ok(Answer { status: head.status, headers: head.headers, body })
    }

    /// Only streams above the last one named by a GOAWAY end with that GOAWAY as their error.
    fn lost(&self, error: &h2::Error) -> Lost {
        if error.is_go_away() && error.is_remote() {
            self.retire();
            Lost::Unprocessed("the server closed the connection before it processed the request")
        } else if error.is_reset() && error.reason() == Some(Reason::REFUSED_STREAM) {
            // Concerns only this stream, such as one too many.
            Lost::Unprocessed("the server refused the stream")
        } else if error.is_reset() {
            Lost::Broken("the server reset the stream")
        } else {
            self.retire();
            Lost::Broken("connection reset")
        }
    }
}

async fn read(mut body: RecvStream) -> Bytes {
    let mut read = BytesMut::new();
    while let Some(Ok(data)) = body.data().await {
        // Cannot fail: these bytes were just received.
        let _ = body.flow_control().release_capacity(data.len());
        let room = BODY_BYTES_MAX - read.len();
        read.extend_from_slice(&data[..data.len().min(room)]);
        if read.len() >= BODY_BYTES_MAX {
            break;
        }
    }
    read.freeze()
}

/// Returns when the connection stops answering pings.
///
/// An answered ping also shows that earlier SETTINGS have arrived, so calls waiting for a stream check again.
async fn until_dead(ping: Option<PingPong>, state: &SessionState, freed: &Notify) {
    let Some(mut ping) = ping else { return std::future::pending().await };
    let mut idle = 0;
    loop {
        if idle % IDLE_ROUNDS == 0 {
            if !matches!(timeout(PONG_MAX, ping.ping(Ping::opaque())).await, Ok(Ok(_))) {
                return;
            }
            freed.notify_waiters();
        }
        sleep(PING_EVERY).await;
        idle = if state.streams.load(Ordering::Acquire) == 0 { idle + 1 } else { 0 };
    }
}
