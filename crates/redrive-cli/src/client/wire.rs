//! One HTTP/1.1 request and its answer, with limits on time and size.

use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE};
use hyper::http::{Method, Request, StatusCode};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use redrive_sinks::tls;

use super::address::ApiAddress;
use super::fault::{ClientFault, Refused};
use super::token::Bearer;
use crate::exit::Failed;

/// The largest answer that is read. A page of letters with their payloads fits.
pub const ANSWER_BYTES_MAX: usize = 256 << 20;

/// The time limit of one exchange. The processor may have to scan many letters for a filter.
pub const ANSWER_WITHIN: Duration = Duration::from_mins(1);

/// A pool of connections to one address.
#[derive(Clone, Debug)]
pub struct Wire {
    client: Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
    address: ApiAddress,
    token: Option<Bearer>,
    within: Duration,
}

impl Wire {
    /// Creates a pool. `ca_file` holds the authorities to trust for https, instead of the usual ones.
    pub fn new(address: ApiAddress, token: Option<Bearer>, ca_file: Option<&Path>) -> Result<Self, Failed> {
        let mut http = HttpConnector::new();
        // The outer connector handles https too.
        http.enforce_http(false);
        http.set_connect_timeout(Some(Duration::from_secs(5)));
        http.set_nodelay(true);
        let tls = tls::client(ca_file).map_err(|fault| {
            Failed::usage(fault.problem.replace("`ca_file` is", "--ca-file"))
                .hint("name a PEM file with the certificates of the authority")
        })?;
        let connector = HttpsConnectorBuilder::new()
            .with_tls_config(tls)
            .https_or_http()
            .enable_http1()
            .wrap_connector(http);
        let client = Client::builder(TokioExecutor::new()).build(connector);
        Ok(Self { client, address, token, within: ANSWER_WITHIN })
    }

    pub fn address(&self) -> &ApiAddress {
        &self.address
    }

    pub fn has_token(&self) -> bool {
        self.token.is_some()
    }

    /// Sends one request and reads the whole answer. A body makes it a POST with JSON.
    pub async fn ask(&self, method: Method, path: &str, body: Bytes) -> Result<Bytes, ClientFault> {
        self.ask_as(method, path, "application/json", body).await
    }

    /// The same with a body of another content type.
    pub async fn ask_as(
        &self,
        method: Method,
        path: &str,
        kind: &'static str,
        body: Bytes,
    ) -> Result<Bytes, ClientFault> {
        let (status, bytes) = tokio::time::timeout(self.within, self.exchange(method, path, kind, body))
            .await
            .map_err(|_| ClientFault::Slow { address: self.address.to_string(), within: self.within })??;
        if status.is_success() {
            return Ok(bytes);
        }
        // An answer that is not ours still has its status; its text is not shown, since it may come from anybody.
        let refusal = serde_json::from_slice(&bytes).unwrap_or_default();
        Err(ClientFault::Refused(Refused { status: status.as_u16(), refusal, with_token: self.has_token() }))
    }

    async fn exchange(
        &self,
        method: Method,
        path: &str,
        kind: &'static str,
        body: Bytes,
    ) -> Result<(StatusCode, Bytes), ClientFault> {
        let address = || self.address.to_string();
        let mut request =
            Request::builder().method(method).uri(self.address.uri(path)?).header(ACCEPT, "application/json");
        if !body.is_empty() {
            request = request.header(CONTENT_TYPE, kind);
        }
        if let Some(token) = &self.token {
            request = request.header(AUTHORIZATION, token.header());
        }
        let request = request
            .body(Full::new(body))
            .map_err(|error| ClientFault::Strange { address: address(), problem: error.to_string() })?;
        let answer = self.client.request(request).await.map_err(|error| {
            if let Some(problem) = tls::problem(&error) {
                ClientFault::Untrusted { address: address(), problem }
            } else if error.is_connect() {
                ClientFault::NoProcessor { address: address() }
            } else {
                ClientFault::Broken { address: address(), error: root(&error) }
            }
        })?;
        let status = answer.status();
        let body = Limited::new(answer.into_body(), ANSWER_BYTES_MAX).collect().await;
        let body = body.map_err(|error| ClientFault::Broken { address: address(), error: root(&*error) })?;
        Ok((status, body.to_bytes()))
    }
}

/// The innermost cause, which is the informative one.
fn root(error: &(dyn std::error::Error + 'static)) -> String {
    let mut error = error;
    while let Some(source) = error.source() {
        error = source;
    }
    error.to_string()
}
