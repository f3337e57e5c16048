//! The query strings and bodies of requests, with faults that name the field.

use axum::extract::{FromRequestParts, Query};
use axum::http::request::Parts;
use serde::de::DeserializeOwned;

use crate::problem::Problem;

/// The query string, read into `T`; an unknown or malformed parameter is an error that names it.
#[derive(Clone, Copy, Debug)]
pub struct Params<T>(pub T);

impl<T, S> FromRequestParts<S> for Params<T>
where
    T: DeserializeOwned,
    S: Send + Sync,
{
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        match Query::<T>::from_request_parts(parts, state).await {
            Ok(Query(params)) => Ok(Self(params)),
            Err(rejection) => {
                let hint = "GET /v1/openapi.json lists the parameters of each request";
                Err(Problem::bad_request(format!("the query string: {}", rejection.body_text()), hint))
            }
        }
    }
}

/// Reads a JSON body into `T`; an empty one counts as `{}`.
pub fn read_json<T: DeserializeOwned>(body: &[u8]) -> Result<T, Problem> {
    let body = if body.trim_ascii().is_empty() { b"{}" } else { body };
    serde_json::from_slice(body).map_err(|error| {
        let hint = "send one JSON object; GET /v1/openapi.json shows its fields";
        Problem::bad_request(format!("the body: {error}"), hint)
    })
}
