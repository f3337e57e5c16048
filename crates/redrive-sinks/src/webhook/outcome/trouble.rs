//! Failures below HTTP, from the client's errors.
//!
//! The texts are ours: those of the libraries name hosts, and a host can be a customer.

use std::io::{self, ErrorKind};

use hyper::Uri;
use hyper::http::uri::Scheme;
use hyper_util::client::legacy::Error as ClientError;

use super::super::client_auth::CertificateRefused;
use super::super::dns::Unresolved;
use super::super::guard::Blocked;
use super::super::proxy::ProxyFault;
use super::super::stream::SpeaksTls;
use super::classes::Trouble;
use crate::tls::{self, causes, find};

/// A trouble and its text.
pub(crate) fn of(error: &ClientError) -> (Trouble, String) {
    // With TLS 1.3 a client learns of its refused certificate only with the first answer.
    if tls::is_own_refused(error) || find::<CertificateRefused>(error).is_some() {
        return (
            Trouble::Credential,
            "TLS: the receiver refuses our client certificate, or misses one".to_owned(),
        );
    }
    if let Some(speaks) = find::<SpeaksTls>(error) {
        return (Trouble::Reset, speaks.to_string());
    }
    if !error.is_connect() {
        return (Trouble::Reset, find(error).map_or("connection reset", broken).to_owned());
    }
    if let Some(fault) = find::<ProxyFault>(error) {
        return (fault.trouble(), fault.to_string());
    }
    if let Some(blocked) = find::<Blocked>(error) {
        return (Trouble::Blocked, blocked.to_string());
    }
    if let Some(unresolved) = find::<Unresolved>(error) {
        return (Trouble::Dns, unresolved.to_string());
    }
    if let Some(problem) = tls::problem(error) {
        return (Trouble::Tls, format!("TLS: {problem}"));
    }
    let mut kinds = causes(error).filter_map(|cause| cause.downcast_ref::<io::Error>()).map(io::Error::kind);
    let (trouble, text) = kinds.find_map(unconnected).unwrap_or((Trouble::Refused, "could not connect"));
    (trouble, text.to_owned())
}

/// Whether the receiver cannot have read the request: there was no connection, or none that it accepted.
pub(crate) fn is_unheard(error: &ClientError) -> bool {
    error.is_connect() || tls::is_own_refused(error) || find::<SpeaksTls>(error).is_some()
}

/// Adds a hint about the address. Servers that expect TLS and get plain HTTP often close the connection silently; only
/// the port suggests it.
pub(crate) fn with_hint(trouble: Trouble, text: String, endpoint: &Uri) -> String {
    let is_plain = endpoint.scheme() == Some(&Scheme::HTTP);
    match endpoint.port_u16() {
        Some(port @ (443 | 8443)) if is_plain && trouble == Trouble::Reset && !text.contains("https://") => {
            format!("{text}; port {port} usually speaks TLS: use https://")
        }
        _ => text,
    }
}

/// The text for a connection that broke while an answer was awaited or read.
pub(crate) fn broken(error: &hyper::Error) -> &'static str {
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
    fn a_connection_that_is_closed_at_a_port_of_tls_has_a_hint() {
        let hinted = |trouble, endpoint: &str| {
            with_hint(trouble, "connection reset".to_owned(), &endpoint.parse().unwrap())
        };
        let hint = "connection reset; port 443 usually speaks TLS: use https://";
        assert_eq!(hinted(Trouble::Reset, "http://a.example:443/"), hint);
        for endpoint in ["http://a.example/", "http://a.example:8000/", "https://a.example:443/"] {
            assert_eq!(hinted(Trouble::Reset, endpoint), "connection reset");
        }
        assert_eq!(hinted(Trouble::Refused, "http://a.example:443/"), "connection reset");
    }
}
