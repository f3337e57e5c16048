//! The downstream over HTTP.

use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;

use tokio::sync::watch;

use super::{Downstream, DownstreamError, DownstreamOptions, OutageStyle, Stats};
use crate::http::{Door, Listen, Served};

/// A bound address with its stub, not yet serving.
#[derive(Debug)]
pub struct Server {
    listen: Listen,
    downstream: Arc<Downstream>,
}

/// The result of serving.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServedReport {
    pub stats: Stats,
    /// Connections that were cut because their call had not ended in time.
    pub cut: usize,
}

impl Server {
    /// Opens the ledger and binds the address; port 0 lets the system choose one.
    pub async fn bind(options: &DownstreamOptions) -> Result<Self, DownstreamError> {
        options.check_listen()?;
        let downstream = Arc::new(Downstream::open(options).await?);
        Self::listen(downstream, options.listen).await
    }

    /// Binds an address for a stub that is also called in process.
    pub async fn with(downstream: Arc<Downstream>, addr: SocketAddr) -> Result<Self, DownstreamError> {
        if !addr.ip().is_loopback() {
            return Err(DownstreamError::NotLoopback { addr });
        }
        Self::listen(downstream, addr).await
    }

    async fn listen(downstream: Arc<Downstream>, addr: SocketAddr) -> Result<Self, DownstreamError> {
        let listen = Listen::bind(addr).await.map_err(|error| DownstreamError::Listen { addr, error })?;
        Ok(Self { listen, downstream })
    }

    pub fn addr(&self) -> SocketAddr {
        self.listen.addr()
    }

    pub fn downstream(&self) -> &Arc<Downstream> {
        &self.downstream
    }

    /// Serves until `shutdown`, then for at most another second.
    pub async fn run(self, shutdown: impl Future<Output = ()>) -> Result<ServedReport, DownstreamError> {
        let addr = self.addr();
        let (door, at_door) = watch::channel(Door::Open);
        let serving = self.listen.serve(Arc::clone(&self.downstream), at_door, shutdown);
        let served = tokio::select! {
            served = serving => served.map_err(|error| DownstreamError::Listen { addr, error })?,
            () = keep_the_door(&self.downstream, &door) => Served::Drained,
        };
        let cut = match served {
            Served::Drained => 0,
            Served::Cut { connections } => connections,
        };
        Ok(ServedReport { stats: self.downstream.stats(), cut })
    }
}

/// Closes the door while an outage refuses connections; never returns.
async fn keep_the_door(downstream: &Downstream, door: &watch::Sender<Door>) {
    loop {
        let seen = downstream.outage();
        let wanted = if seen == Some(OutageStyle::Refuse) { Door::Closed } else { Door::Open };
        door.send_if_modified(|state| std::mem::replace(state, wanted) != wanted);
        downstream.outage_may_differ_from(seen).await;
    }
}

/// Opens, binds and serves until `shutdown`: the implementation of `redrive downstream`.
pub async fn run(
    options: DownstreamOptions,
    shutdown: impl Future<Output = ()>,
) -> Result<ServedReport, DownstreamError> {
    Server::bind(&options).await?.run(shutdown).await
}
