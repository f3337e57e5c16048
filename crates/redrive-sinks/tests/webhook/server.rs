//! Test servers: one that speaks HTTP, and one controlled by a script.

use std::convert::Infallible;
use std::future::Future;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{HeaderMap, Request, Response};
use hyper_util::rt::TokioIo;
use redrive::{Call, Failure, Message, Sink};
use redrive_core::MessageBuilder;
use redrive_sinks::{WebhookOptions, WebhookSink};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};

/// A received request.
#[derive(Clone, Debug)]
pub struct Seen {
    pub path: String,
    pub headers: HeaderMap,
    pub body: Bytes,
}

impl Seen {
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }
}

/// A server that records requests.
#[derive(Clone)]
pub struct Server {
    pub address: SocketAddr,
    seen: Arc<Mutex<Vec<Seen>>>,
    connections: Arc<AtomicUsize>,
}

impl Server {
    /// Answers each request with the function.
    pub async fn answering<F, Fut>(answer: F) -> Self
    where
        F: Fn(Seen) -> Fut + Clone + Send + Sync + 'static,
        Fut: Future<Output = Response<Full<Bytes>>> + Send + 'static,
    {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = Self {
            address: listener.local_addr().unwrap(),
            seen: Arc::default(),
            connections: Arc::default(),
        };
        let listening = server.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                listening.connections.fetch_add(1, Ordering::SeqCst);
                tokio::spawn(serve(stream, listening.clone(), answer.clone()));
            }
        });
        server
    }

    /// Always answers with this status, headers and body.
    pub async fn saying(status: u16, headers: &[(&'static str, &str)], body: &str) -> Self {
        let headers: Vec<(&'static str, String)> =
            headers.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
        let body = body.to_owned();
        Self::answering(move |_| {
            let response = response(status, &headers, &body);
            async move { response }
        })
        .await
    }

    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    pub fn seen(&self) -> Vec<Seen> {
        self.seen.lock().unwrap().clone()
    }

    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }
}

pub fn response(status: u16, headers: &[(&'static str, String)], body: &str) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::from(body.to_owned()));
    *response.status_mut() = hyper::StatusCode::from_u16(status).unwrap();
    for (name, value) in headers {
        response.headers_mut().insert(*name, value.parse().unwrap());
    }
    response
}

/// Serves one TCP or TLS connection.
pub async fn serve<S, F, Fut>(stream: S, server: Server, answer: F)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    F: Fn(Seen) -> Fut + Clone + Send + Sync + 'static,
    Fut: Future<Output = Response<Full<Bytes>>> + Send + 'static,
{
    let service = service_fn(move |request: Request<Incoming>| {
        let (server, answer) = (server.clone(), answer.clone());
        async move {
            let (head, body) = request.into_parts();
            let body = body.collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default();
            let seen = Seen { path: head.uri.to_string(), headers: head.headers, body };
            server.seen.lock().unwrap().push(seen.clone());
            Ok::<_, Infallible>(answer(seen).await)
        }
    });
    // A client that disconnects midway is part of the tests.
    let _ = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
}

/// The same over HTTP/2.
pub async fn serve2<S, F, Fut>(stream: S, server: Server, answer: F)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    F: Fn(Seen) -> Fut + Clone + Send + Sync + 'static,
    Fut: Future<Output = Response<Full<Bytes>>> + Send + 'static,
{
    let service = service_fn(move |request: Request<Incoming>| {
        let (server, answer) = (server.clone(), answer.clone());
        async move {
            let (head, body) = request.into_parts();
            let body = body.collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default();
            let seen = Seen { path: head.uri.to_string(), headers: head.headers, body };
            server.seen.lock().unwrap().push(seen.clone());
            Ok::<_, Infallible>(answer(seen).await)
        }
    });
    let builder = hyper::server::conn::http2::Builder::new(hyper_util::rt::TokioExecutor::new());
    let _ = builder.serve_connection(TokioIo::new(stream), service).await;
}

/// A server that runs the script for each connection.
pub async fn scripted<F, Fut>(script: F) -> SocketAddr
where
    F: Fn(TcpStream) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = ()> + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(script(stream));
        }
    });
    address
}

/// Reads a request with a body of `{}`; `false` if the other side is gone.
pub async fn read_request(stream: &mut TcpStream) -> bool {
    let (mut read, mut buffer) = (Vec::new(), [0; 1024]);
    while !read.ends_with(b"\r\n\r\n{}") {
        match stream.read(&mut buffer).await {
            Ok(0) | Err(_) => return false,
            Ok(count) => read.extend_from_slice(&buffer[..count]),
        }
    }
    true
}

pub fn order() -> MessageBuilder {
    Message::builder("o-1").payload("{}")
}

/// A sink with a short timeout for tests.
pub fn sink(options: WebhookOptions) -> WebhookSink {
    WebhookSink::build(options).unwrap()
}

pub fn to(url: impl Into<String>) -> WebhookOptions {
    WebhookOptions { timeout: Duration::from_secs(20), ..WebhookOptions::to_url(url.into()) }
}

pub async fn deliver(sink: &WebhookSink, message: MessageBuilder) -> Result<(), Failure> {
    let message = message.build().unwrap();
    let call = Call { message, attempt: 1, replays: 0, pipeline: "orders".into(), origin: None };
    sink.deliver(call).await
}

/// The failure of a delivery that must fail.
pub async fn failure(sink: &WebhookSink, message: MessageBuilder) -> Failure {
    deliver(sink, message).await.expect_err("delivered")
}

pub fn note<'a>(failure: &'a Failure, name: &str) -> Option<&'a str> {
    failure.notes().iter().find(|(given, _)| *given == name).map(|(_, value)| value.as_str())
}
