//! The URL that a message names, validated before it is used.

use std::net::{Ipv4Addr, Ipv6Addr};

use hyper::Uri;
use redrive_core::{Message, Pick};

use super::pointer::JsonPointer;

/// The maximum length of an endpoint.
pub const ENDPOINT_BYTES_MAX: usize = 2048;

/// The location of the endpoint in a message: a [`Pick`] prepared for lookups.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum EndpointSource {
    Json(JsonPointer),
    Header(String),
}

/// Why a message has no usable endpoint. None of these texts repeats the endpoint: it may contain a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EndpointFault {
    #[error("the message names no endpoint")]
    Missing,
    #[error("the endpoint is not a text")]
    NotText,
    #[error("the endpoint has more than {ENDPOINT_BYTES_MAX} bytes")]
    TooLong,
    #[error("the endpoint is not an absolute URL")]
    NotUrl,
    #[error("the endpoint is neither http nor https")]
    Scheme,
    #[error("the endpoint has a user or a password in it")]
    User,
    #[error("the endpoint's host is neither a name nor a plain IP address")]
    Host,
    #[error("the endpoint's port is not a number from 1 to 65535")]
    Port,
}

impl EndpointSource {
    pub(super) fn of(pick: &Pick) -> Self {
        match pick {
            Pick::Json(pointer) => Self::Json(JsonPointer::of(pointer)),
            Pick::Header(name) => Self::Header(name.clone()),
        }
    }

    /// The endpoint of a message.
    pub(super) fn endpoint(&self, message: &Message) -> Result<Uri, EndpointFault> {
        match self {
            Self::Json(pointer) => {
                let found = pointer.text(message.payload().unwrap_or_default());
                judge(&found.map_err(|_| EndpointFault::NotText)?.ok_or(EndpointFault::Missing)?)
            }
            Self::Header(name) => {
                let mut headers = message.headers();
                let found = headers.find(|(given, _)| given.eq_ignore_ascii_case(name));
                let (_, value) = found.ok_or(EndpointFault::Missing)?;
                judge(std::str::from_utf8(value).map_err(|_| EndpointFault::NotText)?)
            }
        }
    }

    /// Whether this header only names the endpoint and is not part of the message.
    pub(super) fn is_header(&self, name: &str) -> bool {
        matches!(self, Self::Header(own) if own.eq_ignore_ascii_case(name))
    }
}

/// Parses an absolute http or https URL with a host that all parsers read alike.
pub(crate) fn judge(text: &str) -> Result<Uri, EndpointFault> {
    let text = text.trim();
    if text.len() > ENDPOINT_BYTES_MAX {
        return Err(EndpointFault::TooLong);
    }
    let uri: Uri = text.parse().map_err(|_| EndpointFault::NotUrl)?;
    match uri.scheme_str() {
        Some("http" | "https") => {}
        Some(_) => return Err(EndpointFault::Scheme),
        None => return Err(EndpointFault::NotUrl),
    }
    let authority = uri.authority().ok_or(EndpointFault::NotUrl)?;
    if authority.as_str().contains('@') {
        return Err(EndpointFault::User);
    }
    if !is_host(authority.host()) {
        return Err(EndpointFault::Host);
    }
    let behind_host = &authority.as_str()[authority.host().len()..];
    if !behind_host.is_empty() && authority.port_u16().is_none_or(|port| port == 0) {
        return Err(EndpointFault::Port);
    }
    Ok(uri)
}

/// Whether this is a name of letters, digits, dots and hyphens, or an IP address in its one plain form.
///
/// `2130706433`, `0x7f.1` and `0177.0.0.1` are all 127.0.0.1 to some resolvers and names to others. The address guard
/// would check what they resolve to; rejecting them here is a second line of defence.
fn is_host(host: &str) -> bool {
    if let Some(bracketed) = host.strip_prefix('[') {
        return bracketed.strip_suffix(']').is_some_and(|inner| inner.parse::<Ipv6Addr>().is_ok());
    }
    let name = host.strip_suffix('.').unwrap_or(host);
    let plain = name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'));
    let last = name.rsplit('.').next().unwrap_or_default();
    let is_number =
        last.bytes().all(|b| b.is_ascii_digit()) || last.starts_with("0x") || last.starts_with("0X");
    if is_number {
        return host.parse::<Ipv4Addr>().is_ok();
    }
    plain && (1..=253).contains(&name.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ordinary_urls_are_endpoints() {
        for url in [
            "http://example.com",
            "https://example.com:8443/a/b?c=d",
            "HTTPS://Example.COM/",
            "http://my_service.internal-1/x",
            "http://1.1.1.1/x",
            "http://[2606:4700:4700::1111]:80/",
            "http://example.com./",
            " http://example.com/ ",
        ] {
            assert!(judge(url).is_ok(), "{url}");
        }
    }

    #[test]
    fn what_is_no_plain_http_url_is_refused_with_its_reason() {
        let long = format!("http://example.com/{}", "x".repeat(ENDPOINT_BYTES_MAX));
        for (url, expected) in [
            ("", EndpointFault::NotUrl),
            ("example.com/path", EndpointFault::NotUrl),
            ("/path", EndpointFault::NotUrl),
            ("http://", EndpointFault::NotUrl),
            ("http:///path", EndpointFault::NotUrl),
            ("http://exa mple.com/", EndpointFault::NotUrl),
            ("http://example.com\\@127.0.0.1/", EndpointFault::NotUrl),
            ("http://example.com/\r\nx-evil: 1", EndpointFault::NotUrl),
            (long.as_str(), EndpointFault::TooLong),
            ("ftp://example.com/", EndpointFault::Scheme),
            ("file://etc/passwd", EndpointFault::Scheme),
            ("gopher://127.0.0.1:6379/_x", EndpointFault::Scheme),
            ("http://user@example.com/", EndpointFault::User),
            ("http://user:secret@example.com/", EndpointFault::User),
            ("http://example.com@127.0.0.1/", EndpointFault::User),
            ("http://2130706433/", EndpointFault::Host),
            ("http://0x7f000001/", EndpointFault::Host),
            ("http://0x7f.1/", EndpointFault::Host),
            ("http://0177.0.0.1/", EndpointFault::Host),
            ("http://017700000001/", EndpointFault::Host),
            ("http://127.1/", EndpointFault::Host),
            ("http://127.0.0.1./", EndpointFault::Host),
            ("http://0/", EndpointFault::Host),
            ("http://1.2.3.4.5/", EndpointFault::Host),
            ("http://999.1.1.1/", EndpointFault::Host),
            ("http://[::1%25eth0]/", EndpointFault::Host),
            ("http://exa%6dple.com/", EndpointFault::NotUrl),
            ("http://example.com:0/", EndpointFault::Port),
        ] {
            assert_eq!(judge(url).map(|_| ()), Err(expected), "{url}");
        }
        for port in ["99999", "", "80:90", "-1", "x"] {
            assert!(judge(&format!("http://example.com:{port}/")).is_err(), "{port}");
        }
    }

    #[test]
    fn the_endpoint_is_found_in_payload_or_headers() {
        let message = Message::builder("m")
            .payload(r#"{"to":{"url":"http://a.example/x"},"n":1}"#)
            .header("X-Endpoint", "http://b.example/")
            .build()
            .unwrap();
        let endpoint = |setting: &str| EndpointSource::of(&setting.parse().unwrap()).endpoint(&message);
        assert_eq!(endpoint("json:/to/url").unwrap().host(), Some("a.example"));
        assert_eq!(endpoint("header:x-endpoint").unwrap().host(), Some("b.example"));
        assert_eq!(endpoint("json:/to/nothing"), Err(EndpointFault::Missing));
        assert_eq!(endpoint("json:/n"), Err(EndpointFault::NotText));
        assert_eq!(endpoint("header:x-other"), Err(EndpointFault::Missing));
    }
}
