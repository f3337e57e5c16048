//! The address of a processor (or of the downstream stub): `http://127.0.0.1:7333`.

use std::fmt::{self, Write as _};
use std::net::IpAddr;
use std::str::FromStr;

use hyper::http::Uri;
use hyper::http::uri::{Authority, PathAndQuery, Scheme};

/// The longest path with its query that fits a request.
const PATH_BYTES_MAX: usize = 65_000;

/// A scheme, a host and a port; a path prefix is allowed, as behind a reverse proxy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiAddress {
    scheme: Scheme,
    authority: Authority,
    prefix: String,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ApiAddressFault {
    #[error("`{0}` is not the address of a processor; write it like http://127.0.0.1:7333")]
    Unreadable(String),
    #[error(
        "the request is {0} characters long, too long for an address; shorten the filter, or select the letters in several parts"
    )]
    TooLong(usize),
    // The address itself is not repeated: the part before the @ is a secret.
    #[error(
        "an address with a name or a password in it is not accepted; give the token with --token-file or REDRIVE_TOKEN"
    )]
    Credentials,
}

impl ApiAddress {
    /// The full address of `path`, which must begin with a slash and be escaped already.
    pub fn uri(&self, path: &str) -> Result<Uri, ApiAddressFault> {
        let full = format!("{}{path}", self.prefix);
        if full.len() > PATH_BYTES_MAX {
            return Err(ApiAddressFault::TooLong(full.len()));
        }
        let path = PathAndQuery::from_str(&full).map_err(|_| ApiAddressFault::Unreadable(full))?;
        Uri::builder()
            .scheme(self.scheme.clone())
            .authority(self.authority.clone())
            .path_and_query(path)
            .build()
            .map_err(|_| ApiAddressFault::Unreadable(self.to_string()))
    }

    /// Whether requests are encrypted.
    pub fn is_https(&self) -> bool {
        self.scheme == Scheme::HTTPS
    }

    /// Whether requests stay on this machine.
    pub fn is_loopback(&self) -> bool {
        let host = self.authority.host();
        let bare = host.trim_start_matches('[').trim_end_matches(']');
        host == "localhost" || bare.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
    }
}

impl FromStr for ApiAddress {
    type Err = ApiAddressFault;

    fn from_str(text: &str) -> Result<Self, ApiAddressFault> {
        let unreadable = || ApiAddressFault::Unreadable(text.to_owned());
        if text.contains('@') {
            return Err(ApiAddressFault::Credentials);
        }
        // People type `127.0.0.1:7333` without a scheme.
        let full = if text.contains("://") { text.to_owned() } else { format!("http://{text}") };
        let uri = Uri::from_str(&full).map_err(|_| unreadable())?;
        let scheme = uri.scheme().filter(|scheme| [Scheme::HTTP, Scheme::HTTPS].contains(scheme));
        let scheme = scheme.ok_or_else(unreadable)?.clone();
        let authority = uri.authority().ok_or_else(unreadable)?.clone();
        if authority.host().is_empty() || uri.query().is_some() {
            return Err(unreadable());
        }
        let prefix = uri.path().trim_end_matches('/').trim_end_matches("/v1").to_owned();
        Ok(Self { scheme, authority, prefix })
    }
}

impl fmt::Display for ApiAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}{}", self.scheme, self.authority, self.prefix)
    }
}

/// One segment of a path, escaped so that an id with a slash, a space or a question mark stays one segment.
pub fn segment(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => escaped.push(byte.into()),
            // Writing to a String cannot fail.
            _ => _ = write!(escaped, "%{byte:02X}"),
        }
    }
    escaped
}

/// Like [`segment`], but with every byte escaped, so that an id that is also the name of a route (`stats`) is an id.
pub fn opaque_segment(text: &str) -> String {
    text.bytes().fold(String::with_capacity(text.len() * 3), |mut escaped, byte| {
        // Writing to a String cannot fail.
        _ = write!(escaped, "%{byte:02X}");
        escaped
    })
}

/// `?name=value&…` with the pairs that have a value; empty if none has.
pub fn query(pairs: &[(&str, Option<&str>)]) -> String {
    let mut text = String::new();
    for (name, value) in pairs {
        if let Some(value) = value {
            text.push(if text.is_empty() { '?' } else { '&' });
            text.push_str(name);
            text.push('=');
            text.push_str(&segment(value));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_forms_people_type_are_read() {
        for (text, shown) in [
            ("http://127.0.0.1:7333", "http://127.0.0.1:7333"),
            ("127.0.0.1:7333", "http://127.0.0.1:7333"),
            ("http://localhost:7333/", "http://localhost:7333"),
            ("http://localhost:7333/v1/", "http://localhost:7333"),
            ("http://proxy/redrive", "http://proxy/redrive"),
            ("http://[::1]:7333", "http://[::1]:7333"),
            ("https://ops.example/redrive/", "https://ops.example/redrive"),
            ("HTTPS://ops.example:8443", "https://ops.example:8443"),
        ] {
            assert_eq!(text.parse::<ApiAddress>().unwrap().to_string(), shown);
        }
    }

    #[test]
    fn other_schemes_and_credentials_are_refused_with_the_fix() {
        let fault = "http://ops:hunter2@localhost".parse::<ApiAddress>().unwrap_err().to_string();
        assert!(fault.contains("--token-file") && !fault.contains("hunter2"), "{fault}");
        for text in ["", "ftp://x", "http://", "http://a/?q=1", "not an address"] {
            assert!(text.parse::<ApiAddress>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_request_that_is_too_long_is_not_repeated() {
        let address: ApiAddress = "127.0.0.1:7333".parse().unwrap();
        let fault = address.uri(&format!("/v1/letters?filter={}", "x".repeat(70_000))).unwrap_err();
        assert_eq!(fault, ApiAddressFault::TooLong(70_019));
        assert!(fault.to_string().contains("shorten the filter"), "{fault}");
    }

    #[test]
    fn loopback_is_known_by_its_address() {
        for (text, loopback) in [
            ("127.0.0.1:7333", true),
            ("127.8.8.8", true),
            ("[::1]:7333", true),
            ("localhost", true),
            ("10.0.0.1:7333", false),
            ("localhost.example", false),
        ] {
            assert_eq!(text.parse::<ApiAddress>().unwrap().is_loopback(), loopback, "{text}");
        }
    }

    #[test]
    fn an_id_stays_one_segment() {
        assert_eq!(segment("orders/17?x=ä b"), "orders%2F17%3Fx%3D%C3%A4%20b");
        assert_eq!(
            query(&[("filter", Some("error:\"a b\"")), ("cursor", None), ("limit", Some("20"))]),
            "?filter=error%3A%22a%20b%22&limit=20"
        );
        assert_eq!(query(&[("cursor", None)]), "");
    }
}
