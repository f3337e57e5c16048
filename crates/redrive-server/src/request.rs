//! Reads the paths, query strings and bodies of requests, with faults that name the field.

use axum::extract::{self, FromRequestParts, Query};
use axum::http::request::Parts;
use serde::Deserialize;
use serde::de::{DeserializeOwned, IgnoredAny};

use crate::fields;
use crate::problem::Problem;
use crate::query;

/// The query string, parsed into `T`; an unknown or malformed parameter is an error that names it.
#[derive(Clone, Copy, Debug)]
pub struct Params<T>(pub T);

impl<T, S> FromRequestParts<S> for Params<T>
where
    T: DeserializeOwned,
    S: Send + Sync,
{
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        // Pairs of text can always be read; `query` interprets them.
        let pairs = Query::<Vec<(String, String)>>::from_request_parts(parts, state).await;
        let Query(pairs) = pairs.map_err(|rejection| {
            let hint = "GET /v1/openapi.json lists the parameters of each request";
            Problem::bad_request(format!("the query string: {}", rejection.body_text()), hint)
        })?;
        query::read(pairs).map(Self)
    }
}

/// For requests without parameters.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NoParams {}

/// The variable parts of the path; a part that is not text is reported like any other error.
#[derive(Clone, Copy, Debug)]
pub struct Path<T>(pub T);

impl<T, S> FromRequestParts<S> for Path<T>
where
    T: DeserializeOwned + Send,
    S: Send + Sync,
{
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        match extract::Path::<T>::from_request_parts(parts, state).await {
            Ok(extract::Path(path)) => Ok(Self(path)),
            Err(rejection) => {
                let hint = "escape the name or id byte by byte, as UTF-8";
                Err(Problem::bad_request(format!("the path: {}", rejection.body_text()), hint))
            }
        }
    }
}

/// Parses a JSON body into `T`; an empty one counts as `{}`.
pub fn read_json<T: DeserializeOwned>(body: &[u8]) -> Result<T, Problem> {
    let body = if body.trim_ascii().is_empty() { b"{}" } else { body };
    let hint = "send one JSON object; GET /v1/openapi.json shows its fields";
    if let Some(found) = instead_of_object(body) {
        return Err(Problem::bad_request(
            format!("the body must be a JSON object, and this is {found}"),
            hint,
        ));
    }
    serde_json::from_slice(body).map_err(|error| match fields::find::<T>(body) {
        Some(fault) => Problem::bad_request(fault.message, fault.hint.unwrap_or_else(|| hint.to_owned())),
        None => Problem::bad_request(format!("the body is not one JSON object: {}", not_json(&error)), hint),
    })
}

/// The location where a text stops being valid JSON.
pub fn not_json(error: &serde_json::Error) -> String {
    if error.is_eof() {
        return "it ends in the middle".to_owned();
    }
    format!("it is not valid JSON at line {} column {}", error.line(), error.column())
}

/// The type of a text that is not a JSON object. A list has to be refused here: serde accepts it as an object, with the
/// fields in the order of the struct.
pub fn instead_of_object(text: &[u8]) -> Option<&'static str> {
    let text = text.trim_ascii();
    let found = match text.first() {
        Some(b'{') => return None,
        None => "empty",
        Some(_) if serde_json::from_slice::<IgnoredAny>(text).is_err() => "not JSON",
        Some(b'[') => "an array",
        Some(b'"') => "a string",
        Some(b't' | b'f') => "true or false",
        Some(b'n') => "null",
        Some(_) => "a number",
    };
    Some(found)
}
