//! What went wrong below HTTP, from the errors of the client.
//!
//! The texts are ours: those of the libraries name hosts, and a host can be a customer.

use std::error::Error;
use std::io::{self, ErrorKind};

use hyper_util::client::legacy::Error as ClientError;
use rustls::CertificateError;

use super::classes::Trouble;
use super::connect::Unresolved;
use super::guard::Blocked;

/// A trouble and its text.
pub(super) fn of(error: &ClientError) -> (Trouble, String) {
    if !error.is_connect() {
        return (Trouble::Reset, find(error).map_or("connection reset", broken).to_owned());
    }
    if let Some(blocked) = find::<Blocked>(error) {
        return (Trouble::Blocked, blocked.to_string());
    }
    if let Some(unresolved) = find::<Unresolved>(error) {
        return (Trouble::Dns, unresolved.to_string());
    }
    if let Some(tls) = find::<rustls::Error>(error) {
        return (Trouble::Tls, format!("TLS: {}", handshake(tls)));
    }
    let mut kinds = causes(error).filter_map(|cause| cause.downcast_ref::<io::Error>()).map(io::Error::kind);
    let (trouble, text) = kinds.find_map(unconnected).unwrap_or((Trouble::Refused, "could not connect"));
    (trouble, text.to_owned())
}

/// The text of a connection that broke while an answer was awaited or read.
pub(super) fn broken(error: &hyper::Error) -> &'static str {
    if error.is_parse() {
        "the answer is not HTTP"
    } else if error.is_incomplete_message() {
        "the connection was closed before the end of the answer"
    } else {
        "connection reset"
    }
}

fn unconnected(kind: ErrorKind) -> Option<(Trouble, &'static str)> {
    match kind {
        ErrorKind::ConnectionRefused => Some((Trouble::Refused, "connection refused")),
        ErrorKind::HostUnreachable | ErrorKind::NetworkUnreachable => {
            Some((Trouble::Refused, "the host cannot be reached"))
        }
        ErrorKind::TimedOut => Some((Trouble::Timeout, "timed out while connecting")),
        ErrorKind::ConnectionReset
        | ErrorKind::ConnectionAborted
        | ErrorKind::BrokenPipe
        | ErrorKind::UnexpectedEof => Some((Trouble::Reset, "connection reset while connecting")),
        _ => None,
    }
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
        Tls::AlertReceived(_) => "the receiver refused the handshake",
        Tls::InvalidMessage(_) => "the receiver does not speak TLS",
        _ => "the handshake failed",
    }
}

/// The first cause of a type.
fn find<'e, T: Error + 'static>(error: &'e (dyn Error + 'static)) -> Option<&'e T> {
    causes(error).find_map(|cause| cause.downcast_ref::<T>())
}

/// An error and its causes. An `io::Error` says that its cause is its content's cause, and leaves the content out.
fn causes<'e>(error: &'e (dyn Error + 'static)) -> impl Iterator<Item = &'e (dyn Error + 'static)> {
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
    fn an_error_wrapped_in_io_errors_is_found() {
        let wrapped = io::Error::other(io::Error::other(Blocked("loopback")));
        assert_eq!(find::<Blocked>(&wrapped), Some(&Blocked("loopback")));
        assert!(find::<rustls::Error>(&wrapped).is_none());
    }

    #[test]
    fn texts_about_certificates_name_no_host() {
        let error = rustls::Error::InvalidCertificate(CertificateError::NotValidForName);
        assert_eq!(handshake(&error), "the certificate is for another name");
    }
}
