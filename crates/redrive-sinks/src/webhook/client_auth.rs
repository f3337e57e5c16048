//! Detects that a receiver asked for a client certificate.
//!
//! With TLS 1.3 a receiver reports a missing one. TLS 1.2 has no alert for that, and OpenSSL answers
//! `handshake_failure`, which by itself may mean anything. After a request for a certificate it means the certificate.

use std::cell::Cell;
use std::error::Error;
use std::future::Future;
use std::sync::Arc;

use rustls::client::ResolvesClientCert;
use rustls::sign::CertifiedKey;
use rustls::{ClientConfig, SignatureScheme};

use crate::tls;

type BoxError = Box<dyn Error + Send + Sync>;

tokio::task_local! {
    /// Whether the receiver of the current connection attempt asked for a certificate.
    static ASKED: Cell<bool>;
}

/// The receiver asked for a client certificate, and then refused the handshake.
#[derive(Debug, thiserror::Error)]
#[error("the receiver refused the handshake after it had asked for a client certificate")]
pub(crate) struct CertificateRefused;

/// Lets [`connecting`] detect that a connection with this configuration is asked for a certificate.
pub(super) fn watch(config: &mut ClientConfig) {
    let own = Arc::clone(&config.client_auth_cert_resolver);
    config.client_auth_cert_resolver = Arc::new(Watching(own));
}

/// Awaits a connection, and reports a handshake that failed because of a client certificate as such.
pub(super) async fn connecting<T>(
    connecting: impl Future<Output = Result<T, BoxError>>,
) -> Result<T, BoxError> {
    let connected = async {
        let connected = connecting.await;
        connected.map_err(|error| {
            let is_refused = ASKED.with(Cell::get) && tls::is_handshake_failure(&*error);
            if is_refused { CertificateRefused.into() } else { error }
        })
    };
    ASKED.scope(Cell::new(false), connected).await
}

/// Wraps the certificate of the configuration, if it has one. Shared by all connections, because sessions are resumed
/// only between those with the same resolver.
#[derive(Debug)]
struct Watching(Arc<dyn ResolvesClientCert>);

impl ResolvesClientCert for Watching {
    fn resolve(&self, issuers: &[&[u8]], schemes: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        // Called while the connection is polled; outside of `connecting` it is ignored.
        let _ = ASKED.try_with(|asked| asked.set(true));
        self.0.resolve(issuers, schemes)
    }

    fn only_raw_public_keys(&self) -> bool {
        self.0.only_raw_public_keys()
    }

    fn has_certs(&self) -> bool {
        self.0.has_certs()
    }
}
