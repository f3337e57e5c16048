//! TLS for outgoing calls: which authorities are trusted, and why a handshake failed.

use std::error::Error;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::{CertificateError, ClientConfig, RootCertStore};

use crate::fault::SinkFault;

/// A certificate and its private key, in PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientCertificate {
    pub cert_file: PathBuf,
    pub key_file: PathBuf,
}

/// The client configuration of TLS. Trusts only the authorities in the file, or Mozilla's list.
pub fn client(ca_file: Option<&Path>) -> Result<ClientConfig, SinkFault> {
    client_with(ca_file, None)
}

/// The same, with our own certificate for receivers that ask for one.
pub fn client_with(
    ca_file: Option<&Path>,
    own: Option<&ClientCertificate>,
) -> Result<ClientConfig, SinkFault> {
    let mut roots = RootCertStore::empty();
    match ca_file {
        None => roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned()),
        Some(path) => read_roots(path, &mut roots).map_err(|problem| {
            let value = path.display().to_string();
            let problem = format!("`ca_file` is {value:?}, but {problem}");
            SinkFault::of("ca_file", &value, problem, "a PEM file with the certificates of your authority")
        })?,
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let config = config.map_err(|error| {
        SinkFault::of("ca_file", "", format!("TLS could not be set up: {error}"), "report this as a bug")
    })?;
    let config = config.with_root_certificates(roots);
    let Some(ClientCertificate { cert_file, key_file }) = own else {
        return Ok(config.with_no_client_auth());
    };
    let fault = |key: &str, path: &Path, problem: String| {
        let value = path.display().to_string();
        let problem = format!("`{key}` is {value:?}, but {problem}");
        SinkFault::of(
            key,
            &value,
            problem,
            "a PEM file with a certificate that is valid now, and its private key",
        )
    };
    let chain = certificates(cert_file).map_err(|problem| fault("client_cert_file", cert_file, problem))?;
    let key = private_key(key_file).map_err(|problem| fault("client_key_file", key_file, problem))?;
    config.with_client_auth_cert(chain, key).map_err(|error| {
        fault("client_key_file", key_file, format!("it is not the key of the certificate: {error}"))
    })
}

/// The certificates of a PEM file, the leaf first. An expired one is refused.
pub fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let found = CertificateDer::pem_file_iter(path).map_err(|error| error.to_string())?;
    let chain: Result<Vec<_>, _> = found.collect();
    let chain = chain.map_err(|error| format!("it is not PEM: {error}"))?;
    let own = chain.first().ok_or("there is no certificate in it")?;
    match validity(own) {
        Some(problem) => Err(problem.to_owned()),
        None => Ok(chain),
    }
}

/// The private key of a PEM file.
pub fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>, String> {
    PrivateKeyDer::from_pem_file(path).map_err(|error| match error {
        rustls::pki_types::pem::Error::NoItemsFound => "there is no private key in it".to_owned(),
        other => other.to_string(),
    })
}

/// Whether a certificate has expired or is not valid yet. Everything else is for the other side to judge.
fn validity(certificate: &CertificateDer<'_>) -> Option<&'static str> {
    let mut roots = RootCertStore::empty();
    roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().take(1).cloned());
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build().ok()?;
    let error = verifier.verify_client_cert(certificate, &[], UnixTime::now()).err()?;
    match error {
        rustls::Error::InvalidCertificate(
            CertificateError::Expired
            | CertificateError::ExpiredContext { .. }
            | CertificateError::NotValidYet
            | CertificateError::NotValidYetContext { .. },
        ) => Some(handshake(&error)),
        _ => None,
    }
}

/// Whether the other side refused our certificate, or required one.
pub(crate) fn is_own_refused(error: &(dyn Error + 'static)) -> bool {
    use rustls::AlertDescription as Alert;
    let refused = [
        Alert::BadCertificate,
        Alert::UnsupportedCertificate,
        Alert::CertificateRevoked,
        Alert::CertificateExpired,
        Alert::CertificateUnknown,
        Alert::UnknownCA,
        Alert::AccessDenied,
        Alert::DecryptError,
        Alert::CertificateRequired,
    ];
    if let Some(rustls::Error::AlertReceived(alert)) = find::<rustls::Error>(error) {
        return refused.contains(alert);
    }
    // HTTP/2 passes on only the text of a connection's error.
    let Some(text) = find::<io::Error>(error).map(io::Error::to_string) else { return false };
    refused.iter().any(|alert| text == rustls::Error::AlertReceived(*alert).to_string())
}

/// Whether the other side aborted the handshake without a reason.
pub(crate) fn is_handshake_failure(error: &(dyn Error + 'static)) -> bool {
    let alert = rustls::Error::AlertReceived(rustls::AlertDescription::HandshakeFailure);
    find::<rustls::Error>(error) == Some(&alert)
}

fn read_roots(path: &Path, roots: &mut RootCertStore) -> Result<(), String> {
    let certificates = CertificateDer::pem_file_iter(path).map_err(|error| format!("{error}"))?;
    for certificate in certificates {
        let certificate = certificate.map_err(|error| format!("it is not PEM: {error}"))?;
        roots.add(certificate).map_err(|error| format!("a certificate in it cannot be used: {error}"))?;
    }
    if roots.is_empty() { Err("there is no certificate in it".into()) } else { Ok(()) }
}

/// Why a handshake failed, if it did. The text names no host: a host can be a customer.
pub fn problem(error: &(dyn Error + 'static)) -> Option<&'static str> {
    find::<rustls::Error>(error).map(handshake)
}

fn handshake(error: &rustls::Error) -> &'static str {
    use rustls::Error as Tls;
    match error {
        Tls::InvalidCertificate(CertificateError::Expired | CertificateError::ExpiredContext { .. }) => {
            "the certificate has expired"
        }
        Tls::InvalidCertificate(CertificateError::UnknownIssuer) => "the certificate's issuer is not trusted",
        Tls::InvalidCertificate(
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
        ) => "the certificate is for another name",
        Tls::InvalidCertificate(
            CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. },
        ) => "the certificate is not valid yet",
        Tls::InvalidCertificate(CertificateError::Revoked) => "the certificate was revoked",
        Tls::InvalidCertificate(_) => "the certificate is not valid",
        Tls::AlertReceived(_) => "the other side refused the handshake",
        Tls::InvalidMessage(_) => "the other side does not speak TLS; for plain HTTP use http://",
        _ => "the handshake failed",
    }
}

/// The first cause of the given type.
pub(crate) fn find<'e, T: Error + 'static>(error: &'e (dyn Error + 'static)) -> Option<&'e T> {
    causes(error).find_map(|cause| cause.downcast_ref::<T>())
}

/// An error and its causes. An `io::Error` returns its content's cause as its own, and skips the content.
pub(crate) fn causes<'e>(
    error: &'e (dyn Error + 'static),
) -> impl Iterator<Item = &'e (dyn Error + 'static)> {
    std::iter::successors(Some(error), |cause| {
        let cause: &'e (dyn Error + 'static) = *cause;
        let content = cause.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        content.map(|content| content as &(dyn Error + 'static)).or_else(|| cause.source())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_handshake_is_found_in_io_errors_and_named_without_a_host() {
        let error = rustls::Error::InvalidCertificate(CertificateError::NotValidForName);
        let wrapped = io::Error::other(io::Error::other(error));
        assert_eq!(problem(&wrapped), Some("the certificate is for another name"));
        assert_eq!(problem(&io::Error::other("something else")), None);
    }

    #[test]
    fn a_file_without_a_certificate_is_a_fault_that_names_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("ca.pem");
        assert_eq!(client(Some(&path)).unwrap_err().key, "ca_file");
        std::fs::write(&path, "hello").unwrap();
        let fault = client(Some(&path)).unwrap_err();
        assert!(fault.problem.ends_with("there is no certificate in it"), "{fault}");
        assert!(client(None).is_ok());
    }
}
