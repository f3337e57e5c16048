//! Listens, serves connections, and stops in good order.

use std::future::Future;
use std::net::{SocketAddr, TcpListener as StdListener};
use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

use crate::options::{ServerError, ServerOptions};
use crate::readiness::Readiness;
use crate::router::router;
use crate::service::Service;
use crate::state::Shared;

/// How long a client may take for the head of a request, and how long a connection may idle.
const HEAD_WAIT: Duration = Duration::from_secs(30);
/// How long to wait after a connection could not be accepted, for example because there are no file descriptors left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// A server that listens already and serves as soon as it is run.
#[derive(Debug)]
pub struct Server {
    listener: StdListener,
    address: SocketAddr,
    shared: Shared,
    options: ServerOptions,
}

impl Server {
    /// Checks the settings and opens the port. Connections wait until [`Self::run`].
    pub fn bind(options: ServerOptions, service: Service) -> Result<Self, ServerError> {
        options.check()?;
        let fault = |source| ServerError::Listen { listen: options.listen, source };
        let listener = StdListener::bind(options.listen).map_err(fault)?;
        listener.set_nonblocking(true).map_err(fault)?;
        let address = listener.local_addr().map_err(fault)?;
        let shared = Shared::new(&options, service);
        Ok(Self { listener, address, shared, options })
    }

    /// Where it listens; the port is a real one also when 0 was asked for.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// For whoever starts and stops the pipelines. `/readyz` is 503 until [`Readiness::ready`] is called.
    pub fn readiness(&self) -> Readiness {
        self.shared.readiness.clone()
    }

    /// Serves until `shutdown` is ready. Then `/readyz` is 503, the port is closed, and requests that run may finish
    /// within the grace.
    pub async fn run(self, shutdown: impl Future) -> Result<(), ServerError> {
        let Self { listener, address, shared, options } = self;
        let listener = TcpListener::from_std(listener)
            .map_err(|source| ServerError::Listen { listen: address, source })?;
        let readiness = shared.readiness.clone();
        for served in &shared.service.pipelines {
            // Replay jobs that an earlier process left running go on. There is a runtime here, so this cannot fail.
            let _ = shared.service.replays.attach(&served.handle);
        }
        let service = TowerToHyperService::new(router(shared));
        let connections = Arc::new(Semaphore::new(options.connections_max.clamp(1, Semaphore::MAX_PERMITS)));
        let graceful = GracefulShutdown::new();
        let mut builder = http1::Builder::new();
        builder.timer(TokioTimer::new()).header_read_timeout(HEAD_WAIT);
        let mut shutdown = std::pin::pin!(shutdown);
        loop {
            let (stream, place) = tokio::select! {
                _ = &mut shutdown => break,
                next = accept(&listener, &connections) => next,
            };
            // Answers are small and awaited; waiting to fill a packet only adds latency. A socket that refuses works too.
            let _ = stream.set_nodelay(true);
            let connection = builder.serve_connection(TokioIo::new(stream), service.clone());
            let watched = graceful.watch(connection);
            tokio::spawn(async move {
                // A client that breaks off is its own business.
                let _ = watched.await;
                drop(place);
            });
        }
        readiness.stopping();
        drop(listener);
        // What is not finished by then is cut off: a stop must come to an end.
        let _ = tokio::time::timeout(options.grace, graceful.shutdown()).await;
        Ok(())
    }
}

/// The next connection once there is a place for it.
async fn accept(
    listener: &TcpListener,
    connections: &Arc<Semaphore>,
) -> (TcpStream, Option<tokio::sync::OwnedSemaphorePermit>) {
    // The semaphore is never closed, so there always comes a place.
    let place = connections.clone().acquire_owned().await.ok();
    loop {
        match listener.accept().await {
            Ok((stream, _)) => return (stream, place),
            Err(_) => tokio::time::sleep(ACCEPT_PAUSE).await,
        }
    }
}
