//! Listens, serves connections, and shuts down cleanly.

use std::future::Future;
use std::io;
use std::net::{SocketAddr, TcpListener as StdListener};
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use rustix::io::Errno;
use tokio::net::{TcpListener, TcpStream};

use crate::connections::files::FileBudget;
use crate::connections::registry::{ConnectionSlot, Connections};
use crate::connections::serve::Serve;
use crate::connections::stream::Stream;
use crate::options::{ServerError, ServerOptions};
use crate::readiness::Readiness;
use crate::router::router;
use crate::service::Service;
use crate::state::Shared;

/// The time limit for the head of a request, and for an idle connection.
const HEAD_WAIT: Duration = Duration::from_secs(30);
/// The maximum size of a request's head, and of one read of a body.
const READ_BYTES_MAX: usize = 64 * 1024;
/// How much of an answer the operating system buffers for a slow client. By default it would be megabytes for each.
const SEND_BUFFER_BYTES: usize = 256 * 1024;
/// The pause after a connection could not be accepted, for example because no file descriptors are left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// A server that listens already and serves once it is run.
#[derive(Debug)]
pub struct Server {
    listener: StdListener,
    address: SocketAddr,
    shared: Shared,
    options: ServerOptions,
}

impl Server {
    /// Validates the settings and opens the port. Connections wait until [`Self::run`].
    pub fn bind(options: ServerOptions, service: Service) -> Result<Self, ServerError> {
        options.check()?;
        let fault = |source| ServerError::Listen { listen: options.listen, source };
        let listener = StdListener::bind(options.listen).map_err(fault)?;
        listener.set_nonblocking(true).map_err(fault)?;
        let address = listener.local_addr().map_err(fault)?;
        let shared = Shared::new(&options, service);
        Ok(Self { listener, address, shared, options })
    }

    /// The listening address; the port is the real one even if 0 was requested.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// For the owner of the pipelines. `/readyz` is 503 until [`Readiness::ready`] is called.
    pub fn readiness(&self) -> Readiness {
        self.shared.readiness.clone()
    }

    /// Serves until `shutdown` completes. Then `/readyz` is 503, the port is closed, and running requests may finish
    /// within the grace period.
    pub async fn run(self, shutdown: impl Future) -> Result<(), ServerError> {
        let Self { listener, address, shared, options } = self;
        let listener = TcpListener::from_std(listener)
            .map_err(|source| ServerError::Listen { listen: address, source })?;
        let readiness = shared.readiness.clone();
        for served in &shared.service.pipelines {
            shared.service.actions.attach(&served.handle);
            // Resumes replay jobs that an earlier process left running. There is a runtime here, so this cannot fail.
            let _ = shared.service.replays.attach(&served.handle);
            shared.service.replays.record_missing(&served.handle, &shared.service.actions);
        }
        let changes = shared.changes.clone();
        let mut listening =
            Listening { listener, connections: Arc::clone(&shared.connections), files: shared.files };
        let router = router(shared);
        let graceful = GracefulShutdown::new();
        let mut builder = http1::Builder::new();
        builder.timer(TokioTimer::new()).header_read_timeout(HEAD_WAIT).max_buf_size(READ_BYTES_MAX);
        let mut shutdown = std::pin::pin!(shutdown);
        loop {
            let (stream, slot) = tokio::select! {
                _ = &mut shutdown => break,
                next = listening.next() => next,
            };
            let connection = Arc::clone(&slot.connection);
            let serve = Serve { router: router.clone(), connection: Arc::clone(&connection) };
            let (builder, watcher, tls) = (builder.clone(), graceful.watcher(), options.tls.clone());
            tokio::spawn(async move {
                let moved = Arc::clone(&connection);
                let served = async move {
                    // The server ignores clients that disconnect.
                    match tls {
                        None => {
                            let io = TokioIo::new(Stream::new(stream, moved));
                            let _ = watcher.watch(builder.serve_connection(io, serve)).await;
                        }
                        Some(tls) => {
                            let Ok(stream) = tls.accept(stream).await else { return };
                            let io = TokioIo::new(Stream::new(stream, moved));
                            let _ = watcher.watch(builder.serve_connection(io, serve)).await;
                        }
                    }
                };
                tokio::select! {
                    () = served => {}
                    () = connection.evicted.notified() => {}
                }
                drop(slot);
            });
        }
        readiness.stopping();
        drop(listening);
        // Unfinished requests are cut off, so that stopping always ends.
        let all_ended = async {
            graceful.shutdown().await;
            changes.all_ended().await;
        };
        let _ = tokio::time::timeout(options.grace, all_ended).await;
        Ok(())
    }
}

/// The open port, and its connections.
#[derive(Debug)]
struct Listening {
    listener: TcpListener,
    connections: Arc<Connections>,
    files: FileBudget,
}

impl Listening {
    /// Accepts the next connection for which there is a slot and a file.
    async fn next(&mut self) -> (TcpStream, ConnectionSlot) {
        loop {
            let (stream, peer) = match self.listener.accept().await {
                Ok(accepted) => accepted,
                Err(error) => {
                    if is_lack(&error) {
                        self.connections.make_room();
                    }
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                    continue;
                }
            };
            if !self.files.may_keep(stream.as_raw_fd()) {
                self.connections.make_room();
                continue;
            }
            // Answers are small and clients wait for them, so delaying to fill a packet would only add latency. A
            // socket without these options works too.
            let _ = stream.set_nodelay(true);
            let _ = rustix::net::sockopt::set_socket_send_buffer_size(&stream, SEND_BUFFER_BYTES);
            loop {
                let ended = self.connections.ended.notified();
                if let Some(slot) = self.connections.admit(peer.ip().to_canonical()) {
                    return (stream, slot);
                }
                let _ = tokio::time::timeout(ACCEPT_PAUSE, ended).await;
            }
        }
    }
}

/// Whether accepting failed for lack of files or memory, which idle connections can free. A client that disconnected
/// meanwhile is not such a case.
fn is_lack(error: &io::Error) -> bool {
    let lacks = [Errno::MFILE, Errno::NFILE, Errno::NOBUFS, Errno::NOMEM];
    lacks.iter().any(|errno| error.raw_os_error() == Some(errno.raw_os_error()))
}
