//! Orders over HTTP: pooled connections, bounded responses, a time limit for the whole exchange.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderValue, RETRY_AFTER};
use hyper::{Request, StatusCode, Uri};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use serde::Deserialize;

use super::answer::BatchAnswer;
use super::batch::OrderBatch;

/// Time limit for a request and its response together.
const EXCHANGE_MAX: Duration = Duration::from_secs(30);
const CONNECT_MAX: Duration = Duration::from_secs(5);
/// The largest response that is read: the states of ten thousand messages.
const ANSWER_BYTES_MAX: usize = 4 * 1024 * 1024;
/// How much of a refusal is shown.
const SHOWN_CHARS_MAX: usize = 300;

/// A misconfigured target.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TargetFault {
    #[error(
        "`{url}` is not an ingest address; write the whole of it, with http, like http://127.0.0.1:7333/v1/pipelines/orders/messages"
    )]
    Url { url: String },
    #[error("the ingest address has a user or a password in it; give a token instead")]
    PasswordInUrl,
    #[error("the token has characters that no header can carry; check the token file")]
    Token,
}

/// A bearer token, hidden from `Debug`.
#[derive(Clone)]
pub struct Bearer(HeaderValue);

impl Bearer {
    pub fn new(secret: &str) -> Result<Self, TargetFault> {
        let mut value =
            HeaderValue::from_str(&format!("Bearer {}", secret.trim())).map_err(|_| TargetFault::Token)?;
        value.set_sensitive(true);
        Ok(Self(value))
    }
}

impl fmt::Debug for Bearer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Bearer(…)")
    }
}

/// The ingest route of a pipeline.
#[derive(Clone)]
pub struct HttpTarget {
    url: Uri,
    token: Option<Bearer>,
    client: Client<HttpConnector, Full<Bytes>>,
}

impl fmt::Debug for HttpTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpTarget")
            .field("url", &self.url)
            .field("token", &self.token)
            .finish_non_exhaustive()
    }
}

/// The duplicates in a response: a single message has a flag, several have a number or a list.
#[derive(Debug, Default, Deserialize)]
struct Taken {
    #[serde(default)]
    duplicate: bool,
    #[serde(default)]
    duplicates: u64,
    #[serde(default)]
    messages: Vec<One>,
}

#[derive(Debug, Deserialize)]
struct One {
    #[serde(default)]
    duplicate: bool,
}

impl HttpTarget {
    /// `url` is the full ingest address, like `http://127.0.0.1:7333/v1/pipelines/orders/messages`.
    pub fn new(url: &str, token: Option<Bearer>) -> Result<Self, TargetFault> {
        let fault = || TargetFault::Url { url: url.to_owned() };
        let url: Uri = url.parse().map_err(|_| fault())?;
        let has_route = url.path().len() > 1;
        // User and password in the URL would show up in messages; use the token instead.
        let has_password = url.authority().is_some_and(|authority| authority.as_str().contains('@'));
        if has_password {
            return Err(TargetFault::PasswordInUrl);
        }
        if url.scheme_str() != Some("http") || url.host().is_none() || !has_route {
            return Err(fault());
        }
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        connector.set_connect_timeout(Some(CONNECT_MAX));
        let client = Client::builder(TokioExecutor::new()).pool_timer(TokioTimer::new()).build(connector);
        Ok(Self { url, token, client })
    }

    pub(super) async fn offer(&self, batch: &Arc<OrderBatch>) -> BatchAnswer {
        match tokio::time::timeout(EXCHANGE_MAX, self.exchange(batch)).await {
            Ok(answer) => answer,
            Err(_) => {
                BatchAnswer::Unreachable { why: format!("no answer within {} s", EXCHANGE_MAX.as_secs()) }
            }
        }
    }

    async fn exchange(&self, batch: &OrderBatch) -> BatchAnswer {
        let unreachable = |why: String| BatchAnswer::Unreachable { why };
        let response = match self.client.request(self.request(batch)).await {
            Ok(response) => response,
            Err(error) => return unreachable(cause_of(&error)),
        };
        let (head, body) = response.into_parts();
        let body = match Limited::new(body, ANSWER_BYTES_MAX).collect().await {
            Ok(body) => body.to_bytes(),
            // The status is enough; only the number of duplicates is lost.
            Err(_) if head.status.is_success() => Bytes::new(),
            Err(error) => return unreachable(error.to_string()),
        };
        read(head.status, &head.headers, &body)
    }

    fn request(&self, batch: &OrderBatch) -> Request<Full<Bytes>> {
        let kind = if batch.len() == 1 { "application/json" } else { "application/x-ndjson" };
        let mut request = Request::new(Full::new(Bytes::from(batch.ndjson())));
        *request.method_mut() = hyper::Method::POST;
        *request.uri_mut() = self.url.clone();
        request.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
        if let Some(token) = &self.token {
            request.headers_mut().insert(AUTHORIZATION, token.0.clone());
        }
        request
    }
}

/// Interprets a response. Pure.
fn read(status: StatusCode, headers: &HeaderMap, body: &[u8]) -> BatchAnswer {
    match status.as_u16() {
        200..=299 => {
            let taken: Taken = serde_json::from_slice(body).unwrap_or_default();
            let listed = taken.messages.iter().filter(|one| one.duplicate).count() as u64;
            BatchAnswer::Accepted { duplicates: taken.duplicates.max(listed).max(u64::from(taken.duplicate)) }
        }
        // A proxy in front of a restarting server answers 502 or 504.
        408 | 425 | 429 | 500 | 502..=504 => BatchAnswer::Refused { retry_after: retry_after(headers) },
        code => BatchAnswer::Rejected { why: format!("{code} {}", shown(body)) },
    }
}

fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let seconds = headers.get(RETRY_AFTER)?.to_str().ok()?.trim().parse().ok()?;
    Some(Duration::from_secs(seconds))
}

/// The beginning of a body, on one line.
fn shown(body: &[u8]) -> String {
    let text = String::from_utf8_lossy(body);
    text.chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .take(SHOWN_CHARS_MAX)
        .collect::<String>()
        .trim()
        .to_owned()
}

/// The innermost cause is the most specific: "connection refused" rather than "client error (Connect)".
fn cause_of(error: &dyn std::error::Error) -> String {
    let innermost = std::iter::successors(Some(error), |error| error.source()).last();
    innermost.map_or_else(|| error.to_string(), ToString::to_string)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses_say_whether_to_go_on_wait_or_stop() {
        let headers = HeaderMap::new();
        let mut patient = HeaderMap::new();
        patient.insert(RETRY_AFTER, HeaderValue::from_static("7"));
        let seven = Some(Duration::from_secs(7));
        for (status, headers, body, expected) in [
            (
                202,
                &headers,
                r#"{"id":"o-1","state":"ready","duplicate":false}"#,
                BatchAnswer::Accepted { duplicates: 0 },
            ),
            (
                200,
                &headers,
                r#"{"id":"o-1","state":"delayed","duplicate":true}"#,
                BatchAnswer::Accepted { duplicates: 1 },
            ),
            (202, &headers, r#"{"accepted":8,"duplicates":2}"#, BatchAnswer::Accepted { duplicates: 2 }),
            (
                202,
                &headers,
                r#"{"messages":[{"duplicate":true},{"id":"o-2"}]}"#,
                BatchAnswer::Accepted { duplicates: 1 },
            ),
            (202, &headers, "ok", BatchAnswer::Accepted { duplicates: 0 }),
            (429, &patient, "", BatchAnswer::Refused { retry_after: seven }),
            (503, &headers, "", BatchAnswer::Refused { retry_after: None }),
            (502, &headers, "", BatchAnswer::Refused { retry_after: None }),
            (401, &headers, "who\nare you", BatchAnswer::Rejected { why: "401 who are you".into() }),
            (404, &headers, "", BatchAnswer::Rejected { why: "404 ".into() }),
            (307, &headers, "", BatchAnswer::Rejected { why: "307 ".into() }),
        ] {
            let status = StatusCode::from_u16(status).unwrap();
            assert_eq!(read(status, headers, body.as_bytes()), expected, "{status} {body}");
        }
    }

    #[test]
    fn an_address_that_cannot_work_is_refused_before_the_run() {
        for url in [
            "",
            "orders",
            "127.0.0.1:7333",
            "http://127.0.0.1:7333",
            "http://127.0.0.1:7333/",
            "https://h/v1",
        ] {
            let error = HttpTarget::new(url, None).unwrap_err().to_string();
            assert!(error.contains("/v1/pipelines/orders/messages"), "{url}: {error}");
        }
        let error = HttpTarget::new("http://me:secret@h/v1/x", None).unwrap_err().to_string();
        assert!(!error.contains("secret"), "{error}");
        HttpTarget::new("http://127.0.0.1:7333/v1/pipelines/orders/messages", None).unwrap();
    }

    #[test]
    fn a_token_is_never_shown() {
        let target = HttpTarget::new("http://h/v1/x", Some(Bearer::new("s3cret\n").unwrap())).unwrap();
        assert!(!format!("{target:?}").contains("s3cret"));
        assert!(Bearer::new("two\nlines").is_err());
    }
}
