//! The producer's metrics over HTTP.

use std::sync::Arc;

use hyper::body::Incoming;
use hyper::{Method, Request, StatusCode};
use tokio::time::Instant;

use super::offer::RunState;
use super::schedule::Schedule;
use crate::http::{Answer, Routes, answer, fault, text};
use crate::metrics;

#[derive(Debug)]
pub(super) struct Metrics {
    pub(super) state: Arc<RunState>,
    pub(super) schedule: Schedule,
    pub(super) started: Instant,
}

impl Routes for Metrics {
    async fn answer(self: Arc<Self>, request: Request<Incoming>) -> Answer {
        match (request.method(), request.uri().path()) {
            (&Method::GET, "/metrics") => {
                let progress = self.state.progress(self.schedule, self.started);
                let metrics = progress.to_metrics(&self.state.counters.lateness());
                answer(StatusCode::OK, metrics::CONTENT_TYPE, metrics)
            }
            (&Method::GET, "/livez" | "/healthz" | "/readyz") => text(StatusCode::OK, "ok\n"),
            (method, path) => {
                let message = format!("there is nothing at {method} {path}");
                fault(StatusCode::NOT_FOUND, "not_found", &message, "GET /metrics, /livez or /readyz")
            }
        }
    }
}
