//! The service that the processors call: a real HTTP server that remembers every call.

use std::convert::Infallible;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use redrive_lab::kafka::{Error, orders, trace};
use tokio::net::TcpListener;
use tokio::runtime::Runtime;

use super::flow::Flow;
use super::seen::CallLog;

/// A call takes up to this many milliseconds, by its number, so that some are in flight at any moment.
const TAKES_MS_MAX: u64 = 16;

/// Serves until it is dropped.
#[derive(Debug)]
pub struct StormReceiver {
    address: SocketAddr,
    _runtime: Runtime,
}

impl StormReceiver {
    pub fn start(seen: Arc<CallLog>) -> Result<Self, Error> {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        let listener = runtime.block_on(TcpListener::bind((Ipv4Addr::LOCALHOST, 0)))?;
        let address = listener.local_addr()?;
        runtime.spawn(accept(listener, seen));
        Ok(Self { address, _runtime: runtime })
    }

    /// Returns the URL for the records of a flow.
    pub fn url(&self, flow: Flow) -> String {
        format!("http://{}/{}", self.address, flow.name())
    }
}

async fn accept(listener: TcpListener, seen: Arc<CallLog>) {
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(Duration::from_millis(50)).await;
            continue;
        };
        let _ = stream.set_nodelay(true);
        let seen = Arc::clone(&seen);
        let service = service_fn(move |request| {
            let seen = Arc::clone(&seen);
            async move { Ok::<_, Infallible>(answer(&seen, request).await) }
        });
        // A killed processor breaks its connections, which is no failure of the receiver.
        tokio::spawn(
            hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service),
        );
    }
}

async fn answer(seen: &CallLog, request: Request<Incoming>) -> Response<Full<Bytes>> {
    let arrived_us = trace::wall_us();
    let flow = Flow::named(request.uri().path().trim_start_matches('/'));
    let partition = request.headers().get("redrive-source-partition");
    let partition = partition.and_then(|value| value.to_str().ok()?.parse().ok());
    let body = request.into_body().collect().await.map(http_body_util::Collected::to_bytes);
    let number = body.ok().and_then(|body| orders::number(&body));
    let (Some(flow), Some(partition), Some(number)) = (flow, partition, number) else {
        return status(StatusCode::BAD_REQUEST);
    };
    tokio::time::sleep(Duration::from_millis(number % TAKES_MS_MAX)).await;
    let succeeded = seen.answer(flow, number, partition, arrived_us);
    status(if succeeded { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE })
}

fn status(status: StatusCode) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::new()));
    *response.status_mut() = status;
    response
}
