//! The proxy for requests: a tunnel by CONNECT for https, requests in absolute form for http.
//!
//! The proxy resolves the receiver's name and connects to it, so the address guard only sees addresses in URLs.

use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hyper::Uri;
use hyper::header::HeaderValue;
use hyper::http::uri::PathAndQuery;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::dns::Unresolved;
use super::outcome::classes::Trouble;
use super::signing::watched::Watched;
use crate::fault::SinkFault;
use crate::secret::Secret;
use crate::tls::{causes, find};

/// The maximum time to connect to a proxy, which is nearby: a slower one is down.
const CONNECT_MAX: Duration = Duration::from_secs(5);
/// The maximum size of the head of the answer to CONNECT.
const HEAD_BYTES_MAX: usize = 8 * 1024;
const AUTH_BYTES_MAX: u64 = 4 * 1024;

/// A proxy for requests.
#[derive(Debug)]
pub(crate) struct Proxy {
    address: Uri,
    auth: Option<Watched<Secret>>,
    /// The time limit of an attempt.
    timeout: Duration,
}

/// What went wrong at the proxy, before the receiver was involved. Names no host.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ProxyFault {
    #[error("the proxy cannot be reached: {0}")]
    Unreachable(&'static str),
    #[error("the proxy refuses our credentials (407)")]
    Unauthorized,
    #[error("the proxy opens no connection to the receiver: it answered CONNECT with {0}")]
    Refused(u16),
    #[error("the proxy opens no connection to the receiver: {0}")]
    Broken(&'static str),
}

impl ProxyFault {
    pub(crate) fn trouble(&self) -> Trouble {
        match self {
            Self::Unauthorized => Trouble::ProxyAuth,
            Self::Unreachable(_) | Self::Refused(_) | Self::Broken(_) => Trouble::Proxy,
        }
    }
}

impl Proxy {
    pub(crate) fn of(url: &Secret, auth_file: Option<&Path>, timeout: Duration) -> Result<Self, SinkFault> {
        let fix = "proxy = \"http://proxy.example.com:3128\"";
        let wrong = |problem: &str| SinkFault::of("proxy", "", format!("`proxy` {problem}"), fix);
        let address: Uri = url.expose().parse().map_err(|_| wrong("is not a URL"))?;
        let authority = address.authority().ok_or_else(|| wrong("names no host"))?;
        if authority.as_str().contains('@') {
            return Err(wrong("holds a password; write `user:password` into the file of `proxy_auth_file`"));
        }
        if address.scheme_str() != Some("http") {
            return Err(wrong(
                "does not begin with http://; a connection to the proxy itself is not encrypted",
            ));
        }
        if !matches!(address.path_and_query().map(PathAndQuery::as_str), None | Some("/")) {
            return Err(wrong("has a path; a proxy is a host and a port"));
        }
        let auth = auth_file.map(|path| {
            Watched::open(path, AUTH_BYTES_MAX, user_and_password, Instant::now()).map_err(|error| {
                let problem = format!("`proxy_auth_file` cannot be used: {error}");
                let value = path.display().to_string();
                SinkFault::of("proxy_auth_file", &value, problem, "a readable file with `user:password`")
            })
        });
        Ok(Self { auth: auth.transpose()?, address, timeout })
    }

    pub(crate) fn address(&self) -> &Uri {
        &self.address
    }

    /// The time limit to connect to the proxy: shorter than the attempt, so that a timeout can be attributed.
    pub(crate) fn connect_max(&self) -> Duration {
        CONNECT_MAX.min(self.timeout / 2)
    }

    /// The header `proxy-authorization`.
    pub(crate) fn authorization(&self) -> Option<HeaderValue> {
        let pair = self.auth.as_ref()?.get(AUTH_BYTES_MAX, Instant::now());
        let mut value = HeaderValue::try_from(format!("Basic {}", STANDARD.encode(pair.expose()))).ok()?;
        value.set_sensitive(true);
        Some(value)
    }

    /// Asks the proxy for a connection to the receiver.
    pub(crate) async fn tunnel(&self, mut stream: TcpStream, to: &Uri) -> Result<TcpStream, ProxyFault> {
        let (host, port) = (to.host().unwrap_or_default(), to.port_u16().unwrap_or(443));
        let mut request = format!("CONNECT {host}:{port} HTTP/1.1\r\nhost: {host}:{port}\r\n").into_bytes();
        if let Some(authorization) = self.authorization() {
            request.extend_from_slice(b"proxy-authorization: ");
            request.extend_from_slice(authorization.as_bytes());
            request.extend_from_slice(b"\r\n");
        }
        request.extend_from_slice(b"\r\n");
        let exchange = async {
            stream.write_all(&request).await.map_err(|_| ProxyFault::Broken("it closed the connection"))?;
            read_head(&mut stream).await
        };
        let status = tokio::time::timeout(self.timeout, exchange).await;
        match status.map_err(|_| ProxyFault::Broken("it did not answer CONNECT"))?? {
            200..=299 => Ok(stream),
            407 => Err(ProxyFault::Unauthorized),
            status => Err(ProxyFault::Refused(status)),
        }
    }
}

fn user_and_password(text: &str) -> Result<Secret, String> {
    if text.chars().any(char::is_control) {
        return Err("it has a line end or another control character in it".to_owned());
    }
    if !text.contains(':') {
        return Err("it is not `user:password`".to_owned());
    }
    Ok(Secret::from(text))
}

/// Reads the status of the answer, byte by byte, because the data after its head belongs to the tunnel.
async fn read_head(stream: &mut TcpStream) -> Result<u16, ProxyFault> {
    let mut head = Vec::with_capacity(128);
    while !head.ends_with(b"\r\n\r\n") {
        if head.len() == HEAD_BYTES_MAX {
            return Err(ProxyFault::Broken("its answer has too many headers"));
        }
        match stream.read_u8().await {
            Ok(byte) => head.push(byte),
            Err(_) => return Err(ProxyFault::Broken("it closed the connection")),
        }
    }
    status(&head).ok_or(ProxyFault::Broken("its answer is not HTTP"))
}

/// The status of `HTTP/1.1 200 Connection established`.
fn status(head: &[u8]) -> Option<u16> {
    let line = str::from_utf8(head.split(|byte| *byte == b'\r').next()?).ok()?;
    let mut words = line.split(' ');
    words.next().filter(|version| version.starts_with("HTTP/1."))?;
    words.next()?.parse().ok().filter(|status| (100..600).contains(status))
}

/// Why no connection could be made.
pub(crate) fn unreachable(error: &(dyn std::error::Error + 'static)) -> ProxyFault {
    let kinds = causes(error).filter_map(|cause| cause.downcast_ref::<io::Error>());
    ProxyFault::Unreachable(match kinds.map(io::Error::kind).next() {
        Some(io::ErrorKind::ConnectionRefused) => "connection refused",
        Some(io::ErrorKind::TimedOut) => "timed out while connecting",
        _ if find::<Unresolved>(error).is_some() => "its name could not be resolved",
        _ => "could not connect",
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_is_read_and_nonsense_is_not() {
        assert_eq!(status(b"HTTP/1.1 200 Connection established\r\n\r\n"), Some(200));
        assert_eq!(status(b"HTTP/1.0 407\r\n\r\n"), Some(407));
        for nonsense in [&b"SSH-2.0 200\r\n\r\n"[..], b"HTTP/1.1\r\n", b"HTTP/1.1 9999 x\r\n", b"\xff"] {
            assert_eq!(status(nonsense), None, "{nonsense:?}");
        }
    }

    #[test]
    fn an_address_that_cannot_be_used_is_a_fault_that_repeats_no_password() {
        let timeout = Duration::from_secs(1);
        assert!(Proxy::of(&"http://proxy.example:3128".into(), None, timeout).is_ok());
        for wrong in [
            "https://proxy.example",
            "proxy.example:3128/x",
            "http://a:hunter2@proxy.example",
            "http://p/x",
            "",
        ] {
            let fault = Proxy::of(&wrong.into(), None, timeout).unwrap_err();
            assert_eq!(fault.key, "proxy");
            assert!(!fault.to_string().contains("hunter2"), "{fault}");
        }
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("auth");
        std::fs::write(&path, "hunter2").unwrap();
        let fault = Proxy::of(&"http://proxy.example".into(), Some(&path), timeout).unwrap_err();
        assert!(fault.key == "proxy_auth_file" && !fault.to_string().contains("hunter2"), "{fault}");
        std::fs::write(&path, "user:pass\n").unwrap();
        let proxy = Proxy::of(&"http://proxy.example".into(), Some(&path), timeout).unwrap();
        assert_eq!(proxy.authorization().unwrap(), "Basic dXNlcjpwYXNz");
    }
}
