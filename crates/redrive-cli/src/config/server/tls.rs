//! `tls_cert_file` and `tls_key_file`: reads the certificate of the API.

use std::path::Path;
use std::sync::Arc;

use redrive_sinks::tls;
use rustls::ServerConfig;

/// Why the files cannot be used, and which key names the faulty one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFault {
    pub key: &'static str,
    pub problem: String,
}

/// The TLS configuration for new connections, from a certificate chain and its private key in PEM.
pub fn read(cert_file: &Path, key_file: &Path) -> Result<ServerConfig, TlsFault> {
    let fault = |key: &'static str, path: &Path, problem: String| TlsFault {
        key,
        problem: format!("`{key}` is {:?}, but {problem}", path.display().to_string()),
    };
    let of_cert = |problem: String| fault("tls_cert_file", cert_file, problem);
    let of_key = |problem: String| fault("tls_key_file", key_file, problem);
    let chain = tls::certificates(cert_file).map_err(of_cert)?;
    let key = tls::private_key(key_file).map_err(of_key)?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let config = config.map_err(|error| of_cert(format!("TLS cannot be set up: {error}")))?;
    let mut config = config
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .map_err(|error| of_key(format!("it is not the key of the certificate: {error}")))?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}
