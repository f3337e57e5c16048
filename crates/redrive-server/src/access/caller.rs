//! Determines where a request comes from. None of it is proof: it can only count against a request.

use axum::http::header::{self, HeaderName};
use axum::http::{HeaderMap, Request, Version};

use crate::access::auth::Caller;
use crate::problem::Problem;

/// Headers that proxies add. A client may send them too, but only loses access without a token.
const FORWARDED: [HeaderName; 7] = [
    header::FORWARDED,
    header::VIA,
    HeaderName::from_static("x-forwarded-for"),
    HeaderName::from_static("x-forwarded-host"),
    HeaderName::from_static("x-forwarded-proto"),
    HeaderName::from_static("x-real-ip"),
    HeaderName::from_static("x-original-forwarded-for"),
];

/// Refuses a request that does not name its host exactly once: a proxy and this server could each use a different one.
pub(crate) fn check_host<B>(request: &Request<B>) -> Result<(), Problem> {
    match request.headers().get_all(header::HOST).iter().count() {
        1 => Ok(()),
        // HTTP/1.0 had no such header.
        0 if request.version() < Version::HTTP_11 => Ok(()),
        0 => Err(Problem::bad_request("the request has no Host header", "send one, as HTTP/1.1 asks for")),
        _ => Err(Problem::bad_request("the request has several Host headers", "send one")),
    }
}

/// Examines a request. `hosts` are names of this machine besides localhost.
pub(crate) fn caller<'a, B>(request: &'a Request<B>, hosts: &[String]) -> Caller<'a> {
    let headers = request.headers();
    let authorization = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    let host = headers.get(header::HOST).and_then(|value| value.to_str().ok());
    let authority = request.uri().authority();
    let neighbour = host.is_some_and(|host| is_local(host, hosts))
        && authority.is_none_or(|authority| is_local(authority.as_str(), hosts))
        // nginx uses HTTP/1.0 by default, and no current browser or client does.
        && request.version() >= Version::HTTP_11
        && !is_forwarded(headers);
    Caller { authorization, neighbour }
}

fn is_forwarded(headers: &HeaderMap) -> bool {
    FORWARDED.iter().any(|name| headers.contains_key(name))
}

/// Whether a `Host` header, with or without a port, names this machine.
fn is_local(host: &str, more: &[String]) -> bool {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    };
    let local = ["localhost", "127.0.0.1", "[::1]"];
    local.into_iter().chain(more.iter().map(String::as_str)).any(|allowed| allowed.eq_ignore_ascii_case(name))
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    fn request(headers: &[(&'static str, &[u8])]) -> Request<()> {
        let mut request = Request::new(());
        for (name, value) in headers {
            request.headers_mut().append(*name, HeaderValue::from_bytes(value).unwrap());
        }
        request
    }

    fn is_neighbour(request: &Request<()>) -> bool {
        caller(request, &["redrive.internal".to_owned()]).neighbour
    }

    #[test]
    fn a_request_under_a_name_of_this_machine_is_a_neighbours() {
        for host in ["localhost", "LOCALHOST:7333", "[::1]:7333", "[::1]", "127.0.0.1", "redrive.internal:80"]
        {
            assert!(is_neighbour(&request(&[("host", host.as_bytes())])), "{host}");
        }
        for host in [
            "evil.example:7333",
            "localhost.evil.example",
            "127.0.0.1.evil.example:80",
            "127.0.0.2",
            "",
            "localhost:x",
        ] {
            assert!(!is_neighbour(&request(&[("host", host.as_bytes())])), "{host}");
        }
        assert!(!is_neighbour(&request(&[("host", b"localhost\xff")])));
    }

    #[test]
    fn a_request_that_came_through_a_proxy_is_not() {
        for name in FORWARDED {
            let mut forwarded = request(&[("host", b"localhost")]);
            forwarded.headers_mut().insert(name.clone(), HeaderValue::from_static("203.0.113.9"));
            assert!(!is_neighbour(&forwarded), "{name}");
        }
        let mut old = request(&[("host", b"localhost")]);
        *old.version_mut() = Version::HTTP_10;
        assert!(!is_neighbour(&old));
        let mut absolute = request(&[("host", b"localhost")]);
        *absolute.uri_mut() = "http://evil.example/v1/pipelines".parse().unwrap();
        assert!(!is_neighbour(&absolute));
    }

    #[test]
    fn a_request_has_one_host() {
        assert!(check_host(&request(&[("host", b"localhost")])).is_ok());
        assert!(check_host(&request(&[])).is_err());
        assert!(check_host(&request(&[("host", b"localhost"), ("host", b"evil.example")])).is_err());
        let mut old = request(&[]);
        *old.version_mut() = Version::HTTP_10;
        assert!(check_host(&old).is_ok());
        assert!(!is_neighbour(&old));
    }
}
