//! Replay jobs: started from a selection that is frozen first, watched, paused and ended.

use axum::Extension;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use redrive::replay::{ReplayError, ReplaySpec, ReplayView};
use redrive::timestamp;
use serde::Deserialize;
use serde_json::{Value, json};

use super::selection::Given;
use crate::answer::{Json, read_json};
use crate::auth::Actor;
use crate::body;
use crate::problem::{Code, Problem};
use crate::state::Shared;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Wish {
    pipeline: String,
    filter: Option<String>,
    ids: Option<Vec<String>>,
    since: Option<String>,
    #[serde(default)]
    all: bool,
    rate: Option<f64>,
    #[serde(default)]
    force: bool,
    #[serde(default)]
    dry_run: bool,
}

/// A job as the API shows it.
fn view(job: &ReplayView) -> Value {
    json!({
        "id": job.id,
        "pipeline": job.pipeline,
        "state": job.state.name(),
        "selection": job.selection,
        "total": job.total,
        "published": job.published,
        "succeeded": job.succeeded,
        "dead_again": job.dead_again,
        "skipped": job.skipped,
        "rate": job.rate,
        "created": timestamp::print(job.created),
        "actor": job.actor,
        "note": job.note,
    })
}
