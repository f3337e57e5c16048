//! Opens a connection to the server: DNS, TCP, TLS with ALPN, HTTP/2.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use h2::client::{Connection, SendRequest};
use hyper::Uri;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::lost::Lost;
use crate::tls;
use crate::webhook::Trouble;

const CONNECT_MAX: Duration = Duration::from_secs(10);
/// The window per stream and per connection. Answers are small.
const STREAM_WINDOW_BYTES: u32 = 64 * 1024;
const CONNECTION_WINDOW_BYTES: u32 = 4 * 1024 * 1024;
const HEADER_BYTES_MAX: u32 = 16 * 1024;

pub(super) type Opened = (SendRequest<Bytes>, Connection<TlsStream<TcpStream>, Bytes>);

/// The server's address.
#[derive(Clone)]
pub struct ServerAddress {
    host: String,
    port: u16,
    name: ServerName<'static>,
    tls: TlsConnector,
}

impl ServerAddress {
    /// `None` if the address is not `https://host[:port]`.
    pub fn of(address: &Uri, mut tls: ClientConfig) -> Option<Self> {
        if address.scheme_str() != Some("https") || address.authority()?.as_str().contains('@') {
            return None;
        }
        let host = address.host()?.trim_start_matches('[').trim_end_matches(']').to_owned();
        let name = ServerName::try_from(host.clone()).ok()?;
        tls.alpn_protocols = vec![b"h2".to_vec()];
        let tls = TlsConnector::from(Arc::new(tls));
        Some(Self { host, port: address.port_u16().unwrap_or(443), name, tls })
    }

    pub(super) async fn open(&self) -> Result<Opened, Lost> {
        match timeout(CONNECT_MAX, self.connect()).await {
            Ok(opened) => opened,
            Err(_) => Err(Lost::Unsent(Trouble::Timeout, "timed out while connecting".into())),
        }
    }

    async fn connect(&self) -> Result<Opened, Lost> {
        let addresses = tokio::net::lookup_host((self.host.as_str(), self.port)).await;
        let addresses: Vec<_> = addresses.map_err(|_| unresolved())?.collect();
        if addresses.is_empty() {
            return Err(unresolved());
        }
        let tcp = TcpStream::connect(&addresses[..]).await.map_err(|error| unconnected(&error))?;
        // Otherwise a small request would wait for the answer to the previous one.
        tcp.set_nodelay(true).map_err(|error| unconnected(&error))?;
        let stream = self.tls.connect(self.name.clone(), tcp).await.map_err(|error| handshake(&error))?;
        if stream.get_ref().1.alpn_protocol() != Some(b"h2") {
            return Err(Lost::Unsent(Trouble::Tls, "TLS: the server does not speak HTTP/2".into()));
        }
        h2::client::Builder::new()
            .enable_push(false)
            // Until SETTINGS give the server's limit; APNs allows one before authentication.
            .initial_max_send_streams(1)
            .initial_window_size(STREAM_WINDOW_BYTES)
            .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
            .max_header_list_size(HEADER_BYTES_MAX)
            .handshake(stream)
            .await
            .map_err(|_| Lost::Unsent(Trouble::Reset, "connection reset while connecting".into()))
    }
}

fn unresolved() -> Lost {
    Lost::Unsent(Trouble::Dns, "the host name could not be resolved".into())
}

fn unconnected(error: &io::Error) -> Lost {
    let (trouble, text) = match error.kind() {
        io::ErrorKind::ConnectionRefused => (Trouble::Refused, "connection refused"),
        io::ErrorKind::TimedOut => (Trouble::Timeout, "timed out while connecting"),
        io::ErrorKind::ConnectionReset => (Trouble::Reset, "connection reset while connecting"),
        _ => (Trouble::Refused, "could not connect"),
    };
    Lost::Unsent(trouble, text.into())
}

fn handshake(error: &io::Error) -> Lost {
    match tls::problem(error) {
        Some(problem) => Lost::Unsent(Trouble::Tls, format!("TLS: {problem}")),
        None => Lost::Unsent(Trouble::Reset, "connection reset while connecting".into()),
    }
}

impl std::fmt::Debug for ServerAddress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server").field("host", &self.host).field("port", &self.port).finish_non_exhaustive()
    }
}
