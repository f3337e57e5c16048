//! JSON answers.

use std::borrow::Cow;

use axum::body::Body;
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use redrive_core::printable;
use serde::Serialize;

use crate::problem::{Code, Problem};

/// A value as a JSON answer.
#[derive(Clone, Copy, Debug)]
pub struct Json<T>(pub T);

impl<T: Serialize + 'static> Json<T> {
    /// Builds and serialises an answer that may have megabytes on a blocking thread, so that the workers stay free for
    /// other requests, `/livez` among them. Take [`room`](crate::answers::Answers::room) first: it bounds how many run at
    /// once.
    pub async fn large(build: impl FnOnce() -> T + Send + 'static) -> Result<Response, Problem> {
        let built = tokio::task::spawn_blocking(move || Self(build()).into_response()).await;
        built.map_err(|_| Problem::new(Code::Stopping, "the server is stopping", "ask again later"))
    }
}

impl<T: Serialize> IntoResponse for Json<T> {
    fn into_response(self) -> Response {
        // Serialising plain values to memory cannot fail; should it ever, an empty object is an honest non-answer.
        let text = serde_json::to_string(&self.0).unwrap_or_else(|_| "{}".to_owned());
        // Answers are read on terminals too, and hold text of others.
        let mut body = match printable::json(&text) {
            Cow::Borrowed(_) => text,
            Cow::Owned(safe) => safe,
        };
        // A prompt after `curl` begins a line of its own.
        body.push('\n');
        let mut response = Response::new(Body::from(body));
        response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        response
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::sync::mpsc::{Receiver, channel};
    use std::time::Duration;

    use axum::http::StatusCode;
    use serde::Serializer;

    use super::*;

    /// Takes until another task has run to be serialised.
    struct Slow(Mutex<Receiver<()>>);

    impl Serialize for Slow {
        fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            let others_ran = self.0.lock().unwrap().recv_timeout(Duration::from_mins(1)).is_ok();
            serializer.serialize_bool(others_ran)
        }
    }

    /// Twenty readers of 30 MB each made `/livez` take 20 s: their pages were serialised on the workers.
    #[tokio::test(flavor = "current_thread")]
    async fn a_large_answer_leaves_the_workers_free() {
        let (ran, others_ran) = channel();
        let slow = Slow(Mutex::new(others_ran));
        let large = tokio::spawn(Json::large(move || slow));
        let other = tokio::spawn(async move { ran.send(()) });
        let response = large.await.unwrap().unwrap();
        assert_eq!(response.status(), StatusCode::OK);
        let body = axum::body::to_bytes(response.into_body(), 100).await.unwrap();
        assert_eq!(&body[..], b"true\n");
        other.await.unwrap().unwrap();
    }
}
