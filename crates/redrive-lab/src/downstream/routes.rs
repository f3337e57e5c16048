//! The HTTP routes of the downstream. Every POST except `/fix` is a call, whatever its path.

use std::fmt::Write;
use std::sync::Arc;

use bytes::Bytes;
use hyper::body::Incoming;
use hyper::header::{HeaderValue, RETRY_AFTER};
use hyper::{HeaderMap, Method, Request, StatusCode};
use serde_json::{Value, json};

use super::{Downstream, LedgerFault, StubFailure};
use crate::http::{Answer, Routes, answer, body, fault, json, parameter, percent, text};
use crate::mark::Marked;
use crate::metrics;

/// The largest payload; ten times as much as anything that is sent to a stub.
const BODY_BYTES_MAX: usize = 8 * 1024 * 1024;
const PAGE_DEFAULT: usize = 1_000;

impl Routes for Downstream {
    async fn answer(self: Arc<Self>, request: Request<Incoming>) -> Answer {
        let (parts, incoming) = request.into_parts();
        let query = parts.uri.query();
        match (&parts.method, parts.uri.path()) {
            (&Method::GET, "/switches") => json(StatusCode::OK, &self.switches().to_json()),
            (&Method::PUT, "/switches") => match body(incoming, BODY_BYTES_MAX).await {
                Ok(change) => self.answer_change(&change),
                Err(answer) => *answer,
            },
            (&Method::POST, "/fix") => {
                self.fix();
                json(StatusCode::OK, &self.switches().to_json())
            }
            (&Method::GET, "/stats") => {
                let ids = self.applied_count().await.ok();
                json(StatusCode::OK, &self.stats().to_json(ids, self.outage().is_some()))
            }
            (&Method::GET, "/applied") => self.answer_page(query).await,
            (&Method::GET, path) if path.starts_with("/applied/") => {
                self.answer_applied(&path["/applied/".len()..]).await
            }
            (&Method::GET, "/metrics") => {
                let metrics = self.stats().to_metrics(self.outage().is_some());
                answer(StatusCode::OK, metrics::CONTENT_TYPE, metrics)
            }
            (&Method::GET, "/livez" | "/healthz") => text(StatusCode::OK, "ok\n"),
            (&Method::GET, "/readyz") => match self.is_applied("readyz").await {
                Ok(_) => text(StatusCode::OK, "ok\n"),
                Err(fault) => ledger_fault(&fault),
            },
            (&Method::POST, _) => match body(incoming, BODY_BYTES_MAX).await {
                Ok(payload) => self.answer_call(&parts.headers, &payload).await,
                Err(answer) => *answer,
            },
            (_, path) => {
                let message = format!("there is nothing at {} {path}", parts.method);
                let hint = "POST a message; GET /stats /applied /switches /metrics /livez /readyz; PUT /switches; POST /fix";
                fault(StatusCode::NOT_FOUND, "not_found", &message, hint)
            }
        }
    }
}

impl Downstream {
    async fn answer_call(&self, headers: &HeaderMap, payload: &[u8]) -> Answer {
        let header = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
        let marked = Marked::read(payload);
        let sent = header("webhook-id").map(percent::decode);
        let Some(id) = sent.as_deref().or(marked.order_id.as_deref()).filter(|id| !id.is_empty()) else {
            let message = "the call has no id: neither a header `webhook-id` nor a field `order_id`";
            let hint = "send the message id in the header `webhook-id`";
            return fault(StatusCode::BAD_REQUEST, "no_id", message, hint);
        };
        // A call without an attempt number counts as a first attempt.
        let attempt = header("redrive-attempt").and_then(|attempt| attempt.parse().ok()).unwrap_or(1);
        match self.handle(id, attempt, payload).await {
            Ok(applied) => {
                let duplicate = applied == super::Applied::Again;
                json(StatusCode::OK, &json!({ "id": id, "duplicate": duplicate }))
            }
            Err(failure) => failed(&failure),
        }
    }

    fn answer_change(&self, change: &Bytes) -> Answer {
        let changed = match serde_json::from_slice(change) {
            Ok(Value::Object(change)) => self.change(&change).map_err(|faults| faults.to_string()),
            Ok(_) => Err("the body is not a JSON object".to_owned()),
            Err(error) => Err(format!("the body is not JSON: {error}")),
        };
        match changed {
            Ok(switches) => json(StatusCode::OK, &switches.to_json()),
            Err(message) => {
                let hint = r#"nothing was changed; GET /switches shows them, send those to change: {"fail_rate":"15%"}"#;
                fault(StatusCode::UNPROCESSABLE_ENTITY, "bad_switch", &message, hint)
            }
        }
    }

    /// `?after=ID&limit=N`: `{"ids":[…],"next":"ID"|null}`.
    async fn answer_page(&self, query: Option<&str>) -> Answer {
        let after = parameter(query, "after").filter(|after| !after.is_empty());
        let limit = parameter(query, "limit").map_or(Ok(PAGE_DEFAULT), |limit| limit.parse());
        let Ok(limit) = limit else {
            let hint = "write it like limit=1000";
            return fault(StatusCode::BAD_REQUEST, "bad_limit", "the limit is not a number", hint);
        };
        match self.applied(after.as_deref(), limit).await {
            Ok(page) => json(StatusCode::OK, &json!({ "ids": page.ids, "next": page.next })),
            Err(fault) => ledger_fault(&fault),
        }
    }

    async fn answer_applied(&self, id: &str) -> Answer {
        // Ids in paths are escaped as in queries, except that `+` in a path is literal; none of our ids contains one.
        let id = parameter(Some(&format!("id={}", id.replace('+', "%2B"))), "id").unwrap_or_default();
        match self.is_applied(&id).await {
            Ok(true) => json(StatusCode::OK, &json!({ "id": id, "applied": true })),
            Ok(false) => {
                fault(StatusCode::NOT_FOUND, "not_applied", "this id was never applied", "see /applied")
            }
            Err(fault) => ledger_fault(&fault),
        }
    }
}

/// The status, `redrive-reason`, and `Retry-After` if the failure has a delay.
fn failed(failure: &StubFailure) -> Answer {
    let status = StatusCode::from_u16(failure.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut answer = json(status, &json!({ "code": failure.reason(), "message": failure.to_string() }));
    answer.headers_mut().insert("redrive-reason", HeaderValue::from_static(failure.reason()));
    if let Some(wait) = failure.retry_after() {
        let mut seconds = String::new();
        // Whole seconds, rounded up, so that no retry is too early. Writing to a String cannot fail.
        let _ = write!(seconds, "{}", wait.as_secs() + u64::from(wait.subsec_nanos() > 0));
        if let Ok(value) = HeaderValue::from_str(&seconds) {
            answer.headers_mut().insert(RETRY_AFTER, value);
        }
    }
    answer
}

fn ledger_fault(error: &LedgerFault) -> Answer {
    fault(StatusCode::SERVICE_UNAVAILABLE, "ledger", &error.to_string(), "see the ledger's own log")
}
