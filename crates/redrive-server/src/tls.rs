//! TLS of the server, with a certificate that can be replaced while the server runs.

use std::fmt;
use std::io;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use rustls::ServerConfig;
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

/// The time limit of the handshake.
const HANDSHAKE_WAIT: Duration = Duration::from_secs(10);

/// The TLS configuration for new connections. Clones share it.
#[derive(Clone)]
pub struct ServerTls {
    config: Arc<RwLock<Arc<ServerConfig>>>,
}

impl ServerTls {
    pub fn new(config: ServerConfig) -> Self {
        Self { config: Arc::new(RwLock::new(Arc::new(config))) }
    }

    /// Replaces the configuration for new connections; open ones continue unchanged.
    pub fn replace(&self, config: ServerConfig) {
        *self.config.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(config);
    }

    /// Performs the handshake with a client.
    pub(crate) async fn accept(&self, stream: TcpStream) -> io::Result<TlsStream<TcpStream>> {
        let config = Arc::clone(&self.config.read().unwrap_or_else(PoisonError::into_inner));
        let handshake = TlsAcceptor::from(config).accept(stream);
        tokio::time::timeout(HANDSHAKE_WAIT, handshake).await.map_err(|_| io::ErrorKind::TimedOut)?
    }
}

impl fmt::Debug for ServerTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ServerTls")
    }
}
