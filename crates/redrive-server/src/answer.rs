//! JSON answers.

use axum::body::Body;
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;

/// A value as a JSON answer.
#[derive(Clone, Copy, Debug)]
pub struct Json<T>(pub T);

impl<T: Serialize> IntoResponse for Json<T> {
    fn into_response(self) -> Response {
        // Serialising plain values to memory cannot fail; should it ever, an empty object is an honest non-answer.
        let mut body = serde_json::to_vec(&self.0).unwrap_or_else(|_| b"{}".to_vec());
        // A prompt after `curl` begins a line of its own.
        body.push(b'\n');
        let mut response = Response::new(Body::from(body));
        response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        response
    }
}
