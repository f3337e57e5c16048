//! Passes the requests of one connection to the router.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use axum::Router;
use axum::body::Body;
use axum::http::{HeaderValue, Request, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use hyper::body::{Body as _, Frame, Incoming, SizeHint};
use hyper::service::Service;
use tower_service::Service as _;

use super::registry::{Connection, Lane};
use crate::problem::{Code, Problem};

/// The routes answered when every ordinary slot is busy. They are cheap and reveal nothing.
const PROBES: [&str; 3] = ["/livez", "/readyz", "/healthz"];

/// Serves the requests of one connection.
#[derive(Clone)]
pub(crate) struct Serve {
    pub router: Router,
    pub connection: Arc<Connection>,
}

impl Service<Request<Incoming>> for Serve {
    type Response = Response;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response, Infallible>> + Send>>;

    fn call(&self, request: Request<Incoming>) -> Self::Future {
        let (mut router, connection) = (self.router.clone(), Arc::clone(&self.connection));
        let running = RunningRequest::new(&connection);
        Box::pin(async move {
            let mut request = request.map(|body| Body::new(WatchedBody::new(body, &connection)));
            let mut response = if connection.lane == Lane::Probes && !PROBES.contains(&request.uri().path()) {
                drop(request);
                let hint = "nothing was done; send it again after Retry-After";
                Problem::new(Code::Busy, "every connection is in use", hint).into_response()
            } else {
                request.extensions_mut().insert(Arc::clone(&connection));
                let Ok(response) = router.call(request).await;
                response
            };
            if connection.is_unread() || connection.lane == Lane::Probes {
                // Otherwise the rest of the body would be parsed as the next request.
                response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
            }
            drop(running);
            Ok(response)
        })
    }
}

/// Keeps the connection from counting as idle.
struct RunningRequest(Arc<Connection>);

impl RunningRequest {
    fn new(connection: &Arc<Connection>) -> Self {
        connection.begin();
        Self(Arc::clone(connection))
    }
}

impl Drop for RunningRequest {
    fn drop(&mut self) {
        self.0.answered();
    }
}

/// The body of a request, which records whether it was dropped before its end.
struct WatchedBody {
    body: Incoming,
    at_end: bool,
    connection: Arc<Connection>,
}

impl WatchedBody {
    fn new(body: Incoming, connection: &Arc<Connection>) -> Self {
        Self { body, at_end: false, connection: Arc::clone(connection) }
    }
}

impl hyper::body::Body for WatchedBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
        self.at_end = frame.is_none();
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for WatchedBody {
    fn drop(&mut self) {
        if !self.at_end && !self.body.is_end_stream() {
            self.connection.left_unread();
        }
    }
}
