//! JSON answers.

use std::borrow::Cow;

use axum::body::Body;
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use redrive_core::printable;
use serde::Serialize;

/// A value as a JSON answer.
#[derive(Clone, Copy, Debug)]
pub struct Json<T>(pub T);

impl<T: Serialize> IntoResponse for Json<T> {
    fn into_response(self) -> Response {
        // Serialising plain values to memory cannot fail; if it did, an empty object would be the answer.
        let text = serde_json::to_string(&self.0).unwrap_or_else(|_| "{}".to_owned());
        // Answers are also read on terminals, and contain text from others.
        let mut body = match printable::json(&text) {
            Cow::Borrowed(_) => text,
            Cow::Owned(safe) => safe,
        };
        // So that the prompt after `curl` starts on a new line.
        body.push('\n');
        let mut response = Response::new(Body::from(body));
        response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        response
    }
}
