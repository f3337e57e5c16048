//! The guard of each route: admits a request as [`auth`](crate::access::auth) decides, or answers why not.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use axum::body::Body;
use axum::extract::{FromRequestParts, Request, State};
use axum::http::{HeaderValue, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use tokio::time::Instant;

use crate::access::auth::judge;
use crate::access::caller::{caller, check_host};
use crate::body;
use crate::connections::registry::Connection;
use crate::openapi;
use crate::problem::{Code, Problem};
use crate::request::{NoParams, Params};
use crate::routes::{self, Route};
use crate::state::Shared;

pub(crate) async fn guard(
    State((shared, route)): State<(Shared, Route)>,
    mut request: Request,
    next: Next,
) -> Response {
    let caller = caller(&request, &shared.hosts);
    match judge(shared.access_rules(), route.access, caller) {
        Ok(actor) => {
            request.extensions_mut().insert(actor);
            match nothing_ignored(&shared, &route, request).await {
                Ok(request) if route.operation.runs_to_its_end() => {
                    shared.changes.carry_out(next.run(request)).await
                }
                Ok(request) => next.run(request).await,
                Err(problem) => problem.into_response(),
            }
        }
        Err(problem) if problem.code == Code::Unauthorized && caller.authorization.is_some() => {
            wrong_token(&shared, &request, problem)
        }
        Err(problem) => problem.into_response(),
    }
}

/// A request of the API, checked for anything its route does not take: unread parameters or bodies are refused. The
/// description of the route decides, so the documentation matches what is read.
async fn nothing_ignored(shared: &Shared, route: &Route, request: Request) -> Result<Request, Problem> {
    // Probes, scrapers and browsers may add anything.
    if !route.path.starts_with("/v1/") {
        return Ok(request);
    }
    let takes = openapi::takes(route.operation);
    let (mut head, body) = request.into_parts();
    if !takes.params {
        Params::<NoParams>::from_request_parts(&mut head, shared).await?;
    }
    if takes.body {
        return Ok(Request::from_parts(head, body));
    }
    body::expect_none(shared, &head.headers, body).await?;
    Ok(Request::from_parts(head, Body::empty()))
}

/// Runs before all routes, including unknown ones.
pub(crate) async fn one_host(request: Request, next: Next) -> Response {
    match check_host(&request) {
        Ok(()) => next.run(request).await,
        Err(problem) => problem.into_response(),
    }
}

/// Like [`guard`], for routes that share a path and differ in its last word.
pub(crate) async fn guard_steered(State(shared): State<Shared>, request: Request, next: Next) -> Response {
    let Some((route, _)) = routes::steered(request.uri().path()) else {
        let hint = "POST …/messages/ID/retry makes it due, …/messages/ID/cancel makes a dead letter of it";
        return Problem::not_found("no such path for POST", hint).into_response();
    };
    guard(State((shared, route)), request, next).await
}

fn wrong_token(shared: &Shared, request: &Request, problem: Problem) -> Response {
    let peer = request.extensions().get::<Arc<Connection>>().map(|connection| connection.peer);
    let peer = peer.unwrap_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED));
    let noticed = shared.wrong_tokens.notice(peer, Instant::now());
    if let Some(count) = noticed.tell {
        tracing::warn!(%peer, count, path = request.uri().path(), "wrong token");
    }
    if !noticed.too_many {
        return problem.into_response();
    }
    let hint = "right tokens are still taken; check the one that is sent, and try again after Retry-After";
    let mut response =
        Problem::new(Code::TooManyWrongTokens, "too many wrong tokens were sent", hint).into_response();
    response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    response
}
