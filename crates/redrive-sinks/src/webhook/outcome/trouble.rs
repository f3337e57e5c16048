//! What went wrong below HTTP, from the errors of the client.
//!
//! The texts are ours: those of the libraries name hosts, and a host can be a customer.

use std::io::{self, ErrorKind};

use hyper_util::client::legacy::Error as ClientError;

use super::super::guard::Blocked;
use super::super::names::Unresolved;
use super::super::proxy::ProxyFault;
use super::classes::Trouble;
use crate::tls::{self, causes, find};

/// A trouble and its text.
pub(crate) fn of(error: &ClientError) -> (Trouble, String) {
    // With TLS 1.3 a client learns only with the first answer that its certificate was refused.
    if tls::is_own_refused(error) {
        return (
            Trouble::Credential,
            "TLS: the receiver refuses our client certificate, or misses one".to_owned(),
        );
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

/// The text of a connection that broke while an answer was awaited or read.
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
}
