//! Reading request bodies: bounded each, bounded together, and not for ever.

use std::time::Duration;

use axum::body::{Body, to_bytes};
use axum::http::{HeaderMap, header};
use bytes::Bytes;
use tokio::sync::OwnedSemaphorePermit;

use crate::problem::{Code, Problem};
use crate::state::{GRAIN_BYTES, Shared};

/// How long a sender may take for its body.
const BODY_WAIT: Duration = Duration::from_secs(30);

/// A body, with its share of the memory for bodies until it is dropped.
#[derive(Debug)]
pub(crate) struct Held {
    pub bytes: Bytes,
    _share: OwnedSemaphorePermit,
}

/// Reads a body to its end.
pub(crate) async fn hold(shared: &Shared, headers: &HeaderMap, body: Body) -> Result<Held, Problem> {
    let max = shared.body_bytes_max;
    let announced = headers.get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse().ok());
    // Without a length the largest one is assumed, so that what is promised is always there.
    let expected: usize = announced.unwrap_or(max);
    if expected > max {
        return Err(too_large(max));
    }
    let grains = u32::try_from(expected.div_ceil(GRAIN_BYTES).max(1)).unwrap_or(u32::MAX);
    let share = shared.bodies.clone().try_acquire_many_owned(grains).map_err(|_| {
        Problem::new(Code::Busy, "too many large bodies are being read", "send it again after Retry-After")
    })?;
    match tokio::time::timeout(BODY_WAIT, to_bytes(body, max)).await {
        Ok(Ok(bytes)) => Ok(Held { bytes, _share: share }),
        // The other way to fail is a sender that went away; it will not read this.
        Ok(Err(_)) => Err(too_large(max)),
        Err(_) => {
            let message = format!("the body did not arrive within {} s", BODY_WAIT.as_secs());
            Err(Problem::new(Code::Timeout, message, "send it in one go, or in smaller requests"))
        }
    }
}

fn too_large(max: usize) -> Problem {
    let message = format!("the body is larger than {max} bytes");
    Problem::new(Code::TooLarge, message, "nothing was accepted; send it in several requests")
}
