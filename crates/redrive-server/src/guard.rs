//! Stands in front of each route: lets a request in as [`auth`](crate::auth) has judged, or answers why not.

use axum::extract::{Request, State};
use axum::http::{HeaderMap, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use crate::auth::{Access, Caller, judge};
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

fn caller(headers: &HeaderMap) -> Caller<'_> {
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
    Caller { authorization: text(header::AUTHORIZATION), host: text(header::HOST) }
}
