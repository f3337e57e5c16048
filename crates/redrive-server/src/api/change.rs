//! Common parts of requests that change something: the pipeline, the actor, the body, and the entry in the action log.

use axum::Extension;
use axum::extract::{FromRequest, FromRequestParts, Request};
use axum::http::request::Parts;
use redrive::actions::{Action, ActionKind};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::access::auth::Actor;
use crate::body::{self, HeldBody};
use crate::problem::{Code, Problem};
use crate::request::{Path, read_json};
use crate::service::Served;
use crate::state::Shared;

/// A change of one pipeline, and its actor. Extracted before the body, so that an unknown pipeline gives "not found"
/// whatever the body.
#[derive(Debug)]
pub(crate) struct Change {
    pub shared: Shared,
    pub served: Served,
    pub actor: Actor,
}

#[derive(Deserialize)]
struct PipelineOfPath {
    pipeline: String,
}

impl FromRequestParts<Shared> for Change {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, shared: &Shared) -> Result<Self, Problem> {
        let Path(PipelineOfPath { pipeline }) = Path::from_request_parts(parts, shared).await?;
        let served = shared.service.find(&pipeline)?.clone();
        // The guard provides the actor on every route that needs a scope.
        let actor = Extension::<Actor>::from_request_parts(parts, shared).await;
        let Extension(actor) = actor.map_err(|_| {
            Problem::new(Code::Unauthorized, "a change needs a token", "send one as a bearer token")
        })?;
        Ok(Self { shared: shared.clone(), served, actor })
    }
}

impl Change {
    /// A new entry for the action log, by the caller, with the pipeline's time.
    pub fn action(&self, kind: ActionKind) -> Action {
        Action::new(self.served.handle.now(), &self.actor.0, kind, self.served.handle.name())
    }

    /// Writes the action log. Call this before the change is made, so that no change is missing from it.
    pub async fn record(&self, action: Action) -> Result<(), Problem> {
        Ok(self.shared.service.actions.record(action).await?)
    }
}

/// A JSON object as the body, which holds its share of the memory for bodies until dropped.
#[derive(Debug)]
pub(crate) struct JsonBody<T> {
    pub value: T,
    pub held: HeldBody,
}

impl<T: DeserializeOwned> FromRequest<Shared> for JsonBody<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, shared: &Shared) -> Result<Self, Problem> {
        let (head, body) = request.into_parts();
        let held = body::hold(shared, &head.headers, body).await?;
        Ok(Self { value: read_json(&held.bytes)?, held })
    }
}

/// Validates the reason of a change, for the action log.
pub(crate) fn reason(given: Option<String>, bytes_max: usize) -> Result<String, Problem> {
    let reason = given.unwrap_or_default().trim().to_owned();
    if reason.is_empty() || reason.len() > bytes_max {
        let message = format!("`reason` is needed, of at most {bytes_max} bytes");
        return Err(Problem::bad_request(message, "give a reason; it is recorded with your name"));
    }
    Ok(reason)
}
