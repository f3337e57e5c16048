//! Stands in front of each route: lets a request in as [`auth`](crate::auth) has judged, or answers why not.

use axum::extract::{Request, State};
use axum::http::{HeaderMap, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use crate::auth::{Access, Caller, judge};
use crate::problem::Problem;
use crate::routes;
use crate::state::Shared;

pub(crate) async fn guard(
    State((shared, access)): State<(Shared, Access)>,
    mut request: Request,
    next: Next,
) -> Response {
    let verdict = judge(shared.door(), access, caller(request.headers()));
    match verdict {
        Ok(actor) => {
            request.extensions_mut().insert(actor);
            next.run(request).await
        }
        Err(problem) => problem.into_response(),
    }
}

/// The same for routes that the last word of the path tells apart.
pub(crate) async fn guard_steered(State(shared): State<Shared>, request: Request, next: Next) -> Response {
    let Some((route, _)) = routes::steered(request.uri().path()) else {
        let hint = "POST …/messages/ID/retry makes it due, …/messages/ID/cancel makes a dead letter of it";
        return Problem::not_found("there is nothing under this path for POST", hint).into_response();
    };
    guard(State((shared, route.access)), request, next).await
}

fn caller(headers: &HeaderMap) -> Caller<'_> {
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
    // A name that is not text is not this machine's; only one that is not sent at all says nothing.
    let host = headers.get(header::HOST).map(|value| value.to_str().unwrap_or_default());
    Caller { authorization: text(header::AUTHORIZATION), host }
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    #[test]
    fn a_host_that_is_not_text_is_a_foreign_one() {
        let mut headers = HeaderMap::new();
        assert_eq!(caller(&headers).host, None);
        headers.insert(header::HOST, HeaderValue::from_bytes(b"evil\xff.example").unwrap());
        assert_eq!(caller(&headers).host, Some(""));
        headers.insert(header::HOST, HeaderValue::from_static("localhost"));
        assert_eq!(caller(&headers).host, Some("localhost"));
    }
}
