//! A downstream on a free port, and a small HTTP client.

#![allow(dead_code, reason = "each test binary uses a part of it")]

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::{HeaderMap, Method, Request};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use redrive_lab::downstream::{Downstream, DownstreamOptions, ServedReport, Server};
use serde_json::Value;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// Longer than any step takes on a busy machine; only a hanging test gets there.
pub const PATIENCE: Duration = Duration::from_mins(5);

pub const FREE_PORT: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

pub struct Running {
    pub addr: SocketAddr,
    pub downstream: Arc<Downstream>,
    stop: oneshot::Sender<()>,
    server: JoinHandle<ServedReport>,
    client: Client<HttpConnector, Full<Bytes>>,
}

pub struct Answer {
    pub status: u16,
    pub headers: HeaderMap,
    pub body: String,
}

impl Answer {
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.body))
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
    }
}

/// Starts a downstream on a port that the system chooses.
pub async fn start(options: DownstreamOptions) -> Running {
    let server = Server::bind(&DownstreamOptions { listen: FREE_PORT, ..options }).await.unwrap();
    let (addr, downstream) = (server.addr(), Arc::clone(server.downstream()));
    let (stop, stopped) = oneshot::channel();
    let server = tokio::spawn(async move {
        let stopped = async { drop(stopped.await) };
        server.run(stopped).await.unwrap()
    });
    let client = Client::builder(TokioExecutor::new()).build_http();
    Running { addr, downstream, stop, server, client }
}

impl Running {
    pub async fn try_send(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> Option<Answer> {
        let mut request = Request::builder().method(method).uri(format!("http://{}{path}", self.addr));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(Full::new(Bytes::from(body.to_owned()))).unwrap();
        let exchange = async {
            let response = self.client.request(request).await.ok()?;
            let (head, body) = response.into_parts();
            let body = body.collect().await.ok()?.to_bytes();
            let body = String::from_utf8(body.to_vec()).unwrap();
            Some(Answer { status: head.status.as_u16(), headers: head.headers, body })
        };
        tokio::time::timeout(PATIENCE, exchange).await.expect("no answer")
    }

    pub async fn send(&self, method: Method, path: &str, headers: &[(&str, &str)], body: &str) -> Answer {
        self.try_send(method, path, headers, body).await.expect("an answer")
    }

    pub async fn get(&self, path: &str) -> Answer {
        self.send(Method::GET, path, &[], "").await
    }

    pub async fn put(&self, path: &str, body: &Value) -> Answer {
        self.send(Method::PUT, path, &[], &body.to_string()).await
    }

    /// Makes a call like the webhook sink.
    pub async fn call(&self, id: &str, attempt: u32, payload: &str) -> Answer {
        let attempt = attempt.to_string();
        self.send(Method::POST, "/orders", &[("webhook-id", id), ("redrive-attempt", &attempt)], payload)
            .await
    }

    pub async fn stop(self) -> ServedReport {
        let _ = self.stop.send(());
        tokio::time::timeout(PATIENCE, self.server).await.expect("it stops").unwrap()
    }
}
