//! The accept loop: bounded connections, a listener that can be closed, and a quick shutdown.

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::Answer;

/// Maximum number of connections; more wait in the system's queue.
const CONNECTIONS_MAX: usize = 4_096;
/// How long calls may take to end after shutdown begins; then their connections are cut.
const GRACE: Duration = Duration::from_secs(1);
/// Pause after a failed accept (no file descriptors left), so that the loop does not spin.
const AFTER_FAILED_ACCEPT: Duration = Duration::from_millis(50);
/// How often binding is retried when the door reopens: five seconds in all.
const REBINDS: u32 = 100;

/// Answers the requests of a server.
pub(crate) trait Routes: Send + Sync + 'static {
    fn answer(self: Arc<Self>, request: Request<Incoming>) -> impl Future<Output = Answer> + Send;
}

/// Whether the server listens. A closed door refuses connections and cuts existing ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Door {
    Open,
    Closed,
}

/// A bound address, not yet serving.
#[derive(Debug)]
pub(crate) struct Listen {
    listener: TcpListener,
    addr: SocketAddr,
}

/// How serving ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Served {
    Drained,
    /// Calls were still running after [`GRACE`] and were cut.
    Cut {
        connections: usize,
    },
}

impl Listen {
    pub(crate) async fn bind(addr: SocketAddr) -> io::Result<Self> {
        let listener = TcpListener::bind(addr).await?;
        let addr = listener.local_addr()?;
        Ok(Self { listener, addr })
    }

    pub(crate) fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Serves until `shutdown`. Fails only if the address cannot be bound again when the door reopens.
    pub(crate) async fn serve<R: Routes>(
        self,
        routes: Arc<R>,
        mut door: watch::Receiver<Door>,
        shutdown: impl Future<Output = ()>,
    ) -> io::Result<Served> {
        let addr = self.addr;
        let mut listener = Some(self.listener);
        let (stop, stopped) = watch::channel(false);
        let mut connections = JoinSet::new();
        tokio::pin!(shutdown);
        loop {
            let state = *door.borrow_and_update();
            if state == Door::Closed {
                listener = None;
                connections.abort_all();
            } else if listener.is_none() {
                listener = Some(bind_again(addr).await?);
            }
            let room = connections.len() < CONNECTIONS_MAX;
            tokio::select! {
                biased;
                () = &mut shutdown => break,
                // Without a sender the door stays as it is.
                changed = door.changed(), if door.has_changed().is_ok() => { let _ = changed; }
                Some(_) = connections.join_next() => {}
                accepted = accept(listener.as_ref()), if room => match accepted {
                    Ok(stream) => { connections.spawn(converse(stream, Arc::clone(&routes), stopped.clone())); }
                    Err(_) => tokio::time::sleep(AFTER_FAILED_ACCEPT).await,
                },
            }
        }
        drop(listener);
        let _ = stop.send(true);
        let drained = async { while connections.join_next().await.is_some() {} };
        if tokio::time::timeout(GRACE, drained).await.is_ok() {
            return Ok(Served::Drained);
        }
        let left = connections.len();
        connections.shutdown().await;
        Ok(Served::Cut { connections: left })
    }
}

/// Retries: the port may be briefly in use, for example by a client connection that was just cut.
async fn bind_again(addr: SocketAddr) -> io::Result<TcpListener> {
    for _ in 0..REBINDS {
        if let Ok(listener) = TcpListener::bind(addr).await {
            return Ok(listener);
        }
        tokio::time::sleep(AFTER_FAILED_ACCEPT).await;
    }
    TcpListener::bind(addr).await
}

async fn accept(listener: Option<&TcpListener>) -> io::Result<TcpStream> {
    let Some(listener) = listener else { return std::future::pending().await };
    let (stream, _) = listener.accept().await?;
    // Responses are small and complete, so waiting to coalesce packets would only delay them.
    let _ = stream.set_nodelay(true);
    Ok(stream)
}

/// Serves one connection until it ends or, after shutdown begins, until the current call is answered.
async fn converse<R: Routes>(stream: TcpStream, routes: Arc<R>, mut stopped: watch::Receiver<bool>) {
    let service = service_fn(move |request| {
        let routes = Arc::clone(&routes);
        async move { Ok::<_, Infallible>(routes.answer(request).await) }
    });
    let connection =
        http1::Builder::new().timer(TokioTimer::new()).serve_connection(TokioIo::new(stream), service);
    tokio::pin!(connection);
    tokio::select! {
        // The client has disconnected.
        _ = connection.as_mut() => return,
        _ = stopped.wait_for(|stopped| *stopped) => connection.as_mut().graceful_shutdown(),
    }
    let _ = connection.await;
}
