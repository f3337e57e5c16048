//! The connections to one server: a request uses the one with the fewest streams, and a new one is opened when all are
//! busy.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use hyper::Request;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::dial::ServerAddress;
use super::lost::Lost;
use super::session::{Answer, Session};

/// How many connections one request tries if servers close them before processing it.
const TRIES_MAX: u32 = 3;
/// A connection with this many streams is busy: one core drives it, so another connection is worth its handshake even
/// if this one could take more.
const STREAMS_BUSY: usize = 64;
/// How long to use only the open connections after opening another one failed.
const FURTHER_AFTER: Duration = Duration::from_secs(30);

/// The connections to one server.
#[derive(Debug)]
pub struct Sessions {
    server: ServerAddress,
    connections_max: usize,
    open: Mutex<OpenSessions>,
    freed: Arc<Notify>,
}

#[derive(Debug, Default)]
struct OpenSessions {
    sessions: Vec<Arc<Session>>,
    /// Whether a call is connecting. Only one at a time, so that the next request can use its connection.
    is_opening: bool,
    /// No further connection before this time, since the last attempt failed.
    further_at: Option<Instant>,
}

impl OpenSessions {
    /// The connection with the fewest streams, if it has room.
    fn least(&self) -> Option<&Arc<Session>> {
        let room = self.sessions.iter().filter(|session| session.streams() < session.streams_max());
        room.min_by_key(|session| session.streams())
    }

    /// Whether to open a connection: the first always, a further one not soon after a failed attempt.
    fn may_add(&self) -> bool {
        self.sessions.is_empty() || self.further_at.is_none_or(|at| at <= Instant::now())
    }
}

impl Sessions {
    /// At most `connections_max` connections, opened on demand.
    pub fn new(server: ServerAddress, connections_max: usize) -> Self {
        let open = Mutex::default();
        Self { server, connections_max: connections_max.max(1), open, freed: Arc::default() }
    }

    /// Sends a request and waits for its answer. The caller sets the time limit.
    ///
    /// A request that no server processed is sent again on another connection, a few times. `sent` is set while a
    /// request is in flight: a call that gives up then does not know whether it had its effect.
    pub async fn request(
        &self,
        request: impl Fn() -> Request<()>,
        body: Bytes,
        sent: &AtomicBool,
    ) -> Result<Answer, Lost> {
        let mut tried = 0;
        loop {
            sent.store(false, Ordering::Release);
            let lease = self.lease().await?;
            sent.store(true, Ordering::Release);
            let answered = lease.session.exchange(request(), body.clone()).await;
            tried += 1;
            match answered {
                Err(Lost::Unprocessed(_)) if tried < TRIES_MAX => {}
                other => return other,
            }
        }
    }

    /// Uses new connections for later requests. Requests in flight stay on the old ones.
    pub fn retire_all(&self) {
        self.lock().sessions.drain(..).for_each(|session| session.retire());
    }

    /// Reserves one stream.
    async fn lease(&self) -> Result<Lease<'_>, Lost> {
        loop {
            let freed = self.freed.notified();
            let mut freed = std::pin::pin!(freed);
            freed.as_mut().enable();
            match self.choose() {
                Choice::Take(session) => return Ok(Lease { pool: self, session }),
                Choice::Open => {
                    let opening = Opening(self);
                    match Session::open(&self.server, Arc::clone(&self.freed)).await {
                        Ok(session) => self.lock().sessions.push(Arc::new(session)),
                        Err(lost) if !self.others_suffice() => return Err(lost),
                        Err(_) => {}
                    }
                    drop(opening);
                }
                Choice::Wait => freed.await,
            }
        }
    }

    fn choose(&self) -> Choice {
        let mut open = self.lock();
        open.sessions.retain(|session| !session.is_retired());
        let may_open = !open.is_opening && open.sessions.len() < self.connections_max && open.may_add();
        match open.least() {
            Some(session) if session.streams() < STREAMS_BUSY || !may_open => {
                session.begin();
                // SETTINGS may have made room for several: each served call wakes the next.
                if session.streams() < session.streams_max() {
                    self.freed.notify_one();
                }
                Choice::Take(Arc::clone(session))
            }
            _ if may_open => {
                open.is_opening = true;
                Choice::Open
            }
            _ => Choice::Wait,
        }
    }

    /// Handles a failure to open a connection: returns whether there are others, which are then used alone for a while.
    fn others_suffice(&self) -> bool {
        let mut open = self.lock();
        open.sessions.retain(|session| !session.is_retired());
        open.further_at = Some(Instant::now() + FURTHER_AFTER);
        !open.sessions.is_empty()
    }

    fn lock(&self) -> MutexGuard<'_, OpenSessions> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

enum Choice {
    Take(Arc<Session>),
    Open,
    Wait,
}

/// Marks that a call is connecting, until dropped: even if connecting failed or was cancelled.
struct Opening<'p>(&'p Sessions);

impl Drop for Opening<'_> {
    fn drop(&mut self) {
        self.0.lock().is_opening = false;
        self.0.freed.notify_waiters();
    }
}

/// A reserved stream on a connection.
struct Lease<'p> {
    pool: &'p Sessions,
    session: Arc<Session>,
}

impl Drop for Lease<'_> {
    fn drop(&mut self) {
        self.session.end();
        self.pool.freed.notify_one();
    }
}
