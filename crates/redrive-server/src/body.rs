//! Reads request bodies: limited individually and together, and in time.

use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderMap, header};
use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use hyper::body::Body as _;
use tokio::sync::OwnedSemaphorePermit;

use crate::options::GRAIN_BYTES;
use crate::problem::{Code, Problem};
use crate::state::Shared;

/// How long a sender may take to send its body.
const BODY_WAIT: Duration = Duration::from_secs(30);
/// How much is read of an unexpected body: enough for an empty object, and to describe the problem.
const NO_BODY_BYTES_MAX: usize = 4 * 1024;

/// A body that holds its share of the memory for bodies until dropped.
#[derive(Debug)]
pub(crate) struct HeldBody {
    pub bytes: Bytes,
    _share: OwnedSemaphorePermit,
}

/// Reads a body to its end. Its share of the memory grows with the data received, not with the announced length: a slow
/// sender does not block others.
pub(crate) async fn hold(shared: &Shared, headers: &HeaderMap, body: Body) -> Result<HeldBody, Problem> {
    hold_up_to(shared, headers, body, shared.body_bytes_max).await
}

/// For a request without a body: an empty one and `{}` are accepted. Anything else must have had a purpose, so the
/// request is refused rather than carried out without it.
pub(crate) async fn expect_none(shared: &Shared, headers: &HeaderMap, body: Body) -> Result<(), Problem> {
    if body.is_end_stream() {
        return Ok(());
    }
    let hint =
        "nothing was done; leave the body out, or send `{}`. GET /v1/openapi.json lists the query parameters";
    let held = hold_up_to(shared, headers, body, NO_BODY_BYTES_MAX).await.map_err(|problem| match problem
        .code
    {
        Code::TooLarge => {
            let message =
                format!("this request takes no body, and this one is larger than {NO_BODY_BYTES_MAX} bytes");
            Problem::new(Code::TooLarge, message, hint)
        }
        _ => problem,
    })?;
    if held.bytes.trim_ascii().is_empty() {
        return Ok(());
    }
    match serde_json::from_slice::<serde_json::Value>(&held.bytes) {
        Ok(serde_json::Value::Object(fields)) if fields.is_empty() => Ok(()),
        Ok(serde_json::Value::Object(fields)) => {
            let names: Vec<String> = fields.keys().take(3).map(|name| format!("`{name}`")).collect();
            let message = format!("this request takes no body, and this one has {}", names.join(", "));
            Err(Problem::bad_request(message, hint))
        }
        Ok(_) => Err(Problem::bad_request("this request takes no body, and this one is not an object", hint)),
        Err(_) => Err(Problem::bad_request("this request takes no body, and this one is not JSON", hint)),
    }
}

async fn hold_up_to(
    shared: &Shared,
    headers: &HeaderMap,
    body: Body,
    max: usize,
) -> Result<HeldBody, Problem> {
    let announced = headers.get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse().ok());
    if announced.is_some_and(|announced: usize| announced > max) {
        return Err(too_large(max));
    }
    tokio::time::timeout(BODY_WAIT, read(shared, body, max)).await.unwrap_or_else(|_| {
        let message = format!("the body did not arrive within {} s", BODY_WAIT.as_secs());
        Err(Problem::new(Code::Timeout, message, "send it in one go, or in smaller requests"))
    })
}

async fn read(shared: &Shared, mut body: Body, max: usize) -> Result<HeldBody, Problem> {
    let mut share = take_share(shared, 1)?;
    let mut first = Bytes::new();
    let mut all = BytesMut::new();
    while let Some(frame) = body.frame().await {
        // A sender that disconnected will not read the answer.
        let Ok(part) = frame.map_err(|_| too_large(max))?.into_data() else { continue };
        let held = first.len() + all.len();
        let arrived = held + part.len();
        if arrived > max {
            return Err(too_large(max));
        }
        let more = grains(arrived) - grains(held);
        if more > 0 {
            share.merge(take_share(shared, more)?);
        }
        // Most bodies arrive in one piece, which is kept without a copy.
        if held == 0 {
            first = part;
        } else {
            all.extend_from_slice(&std::mem::take(&mut first));
            all.extend_from_slice(&part);
        }
    }
    let bytes = if all.is_empty() { first } else { all.freeze() };
    Ok(HeldBody { bytes, _share: share })
}

fn grains(bytes: usize) -> u32 {
    u32::try_from(bytes.div_ceil(GRAIN_BYTES).max(1)).unwrap_or(u32::MAX)
}

fn take_share(shared: &Shared, grains: u32) -> Result<OwnedSemaphorePermit, Problem> {
    shared.bodies.clone().try_acquire_many_owned(grains).map_err(|_| {
        Problem::new(Code::Busy, "too many large bodies are being read", "send it again after Retry-After")
    })
}

fn too_large(max: usize) -> Problem {
    let message = format!("the body is larger than {max} bytes");
    Problem::new(Code::TooLarge, message, "nothing was accepted; send it in several requests")
}
