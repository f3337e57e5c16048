//! The pool of connections: names, address guard, TCP, TLS.
//!
//! The guard is in the connector and nowhere else. An address is checked between lookup and connect, and the checked
//! address is the one connected to; a name that resolves differently a moment later gains nothing.

use std::error::Error;
use std::future::{Future, ready};
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::header::PROXY_AUTHORIZATION;
use hyper::http::uri::Scheme;
use hyper::{Request, Uri};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder, MaybeHttpsStream};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::connect::dns::Name;
use hyper_util::client::legacy::{Client, ResponseFuture};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use rustls::ClientConfig;
use tokio::time::timeout;
use tower_service::Service;

use super::client_auth;
use super::dns::{Names, Unresolved};
use super::guard::{Blocked, Guard};
use super::payload::Payload;
use super::proxy::{self, Proxy, ProxyFault};
use super::stream::Stream;

/// Reusable connections, to the receivers or through a proxy.
#[derive(Clone, Debug)]
pub(crate) struct Pool {
    client: Client<Secured, Payload>,
    proxy: Option<Arc<Proxy>>,
}

impl Pool {
    pub(crate) fn request(&self, mut request: Request<Payload>) -> ResponseFuture {
        // A tunnel was authorized when it was opened.
        if let Some(proxy) = &self.proxy
            && request.uri().scheme() == Some(&Scheme::HTTP)
            && let Some(authorization) = proxy.authorization()
        {
            request.headers_mut().insert(PROXY_AUTHORIZATION, authorization);
        }
        self.client.request(request)
    }

    /// Whether the proxy itself may answer requests to this URL when it refuses them.
    pub(crate) fn is_relayed(&self, url: &Uri) -> bool {
        self.proxy.is_some() && url.scheme() == Some(&Scheme::HTTP)
    }
}

/// Idle connections to one host that are kept for later messages.
const IDLE_PER_HOST_MAX: usize = 256;
/// Many servers close an idle connection after five seconds. Ours are closed earlier, so that a request rarely meets a
/// connection that is being closed.
const IDLE_MAX: Duration = Duration::from_secs(4);
/// The buffer for the head of an answer and the part of its body read with it.
const ANSWER_BUFFER_BYTES_MAX: usize = 64 * 1024;
/// The maximum number of addresses of one name to try.
const ADDRESSES_MAX: usize = 16;

type BoxError = Box<dyn Error + Send + Sync>;
type Connecting<T> = Pin<Box<dyn Future<Output = Result<T, BoxError>> + Send>>;

pub(crate) fn pool(names: Names, guard: Guard, tls: ClientConfig) -> Pool {
    pool_through(names, guard, tls, None)
}

/// The same through a proxy. The operator chooses the proxy's address, so it is not guarded.
pub(crate) fn pool_through(
    names: Names,
    guard: Guard,
    mut tls: ClientConfig,
    proxy: Option<Arc<Proxy>>,
) -> Pool {
    client_auth::watch(&mut tls);
    let looked_up = if proxy.is_some() { Guard::Off } else { guard };
    let mut http = HttpConnector::new_with_resolver(GuardedNames { names, guard: looked_up });
    // The scheme was checked before; the TLS connector around this one needs it to accept https as well.
    http.enforce_http(false);
    http.set_nodelay(true);
    let connector = HttpsConnectorBuilder::new()
        .with_tls_config(tls)
        .https_or_http()
        .enable_http1()
        // Used only if the receiver chooses it in the handshake.
        .enable_http2()
        .wrap_connector(Connector { http, guard, proxy: proxy.clone() });
    let client = Client::builder(TokioExecutor::new())
        .pool_timer(TokioTimer::new())
        .pool_idle_timeout(IDLE_MAX)
        .pool_max_idle_per_host(IDLE_PER_HOST_MAX)
        .http1_max_buf_size(ANSWER_BUFFER_BYTES_MAX)
        .build(Secured(connector));
    Pool { client, proxy }
}

/// The connector with TLS for https.
#[derive(Clone, Debug)]
pub(crate) struct Secured(HttpsConnector<Connector>);

impl Service<Uri> for Secured {
    type Response = MaybeHttpsStream<Stream>;
    type Error = BoxError;
    type Future = Connecting<Self::Response>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.0.poll_ready(context)
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        Box::pin(client_auth::connecting(self.0.call(uri)))
    }
}

/// Resolves names and returns only allowed addresses.
#[derive(Clone, Debug)]
pub(crate) struct GuardedNames {
    names: Names,
    guard: Guard,
}

impl Service<Name> for GuardedNames {
    type Response = std::vec::IntoIter<SocketAddr>;
    type Error = BoxError;
    type Future = Connecting<Self::Response>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, name: Name) -> Self::Future {
        let (lookup, guard) = (self.names.look_up(name.as_str()), self.guard);
        Box::pin(async move {
            let found = lookup.await.map_err(|error| Unresolved(Some(error)))?;
            // The connector sets the port.
            let allowed = allowed(found, guard)?.into_iter().map(|address| SocketAddr::new(address, 0));
            Ok(allowed.collect::<Vec<_>>().into_iter())
        })
    }
}

/// Removes blocked addresses. A name with only blocked ones is refused.
fn allowed(found: Vec<IpAddr>, guard: Guard) -> Result<Vec<IpAddr>, BoxError> {
    let mut blocked: Option<Blocked> = None;
    let mut allowed = Vec::new();
    for address in found.into_iter().take(ADDRESSES_MAX) {
        match guard.check(address) {
            Ok(()) => allowed.push(address),
            Err(reason) => blocked = Some(reason),
        }
    }
    match (allowed.is_empty(), blocked) {
        (false, _) => Ok(allowed),
        (true, Some(reason)) => Err(reason.into()),
        (true, None) => Err(Unresolved(None).into()),
    }
}

/// Connects over TCP, or through the proxy. An address in the URL is never looked up, so it is checked here.
#[derive(Clone, Debug)]
pub(crate) struct Connector {
    http: HttpConnector<GuardedNames>,
    guard: Guard,
    proxy: Option<Arc<Proxy>>,
}

impl Service<Uri> for Connector {
    type Response = Stream;
    type Error = BoxError;
    type Future = Connecting<Self::Response>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.http.poll_ready(context).map_err(Into::into)
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let host = uri.host().unwrap_or_default().trim_start_matches('[').trim_end_matches(']');
        if let Ok(address) = host.parse::<IpAddr>()
            && let Err(reason) = self.guard.check(address)
        {
            return Box::pin(ready(Err(reason.into())));
        }
        let Some(proxy) = self.proxy.clone() else {
            let is_plain = uri.scheme() != Some(&Scheme::HTTPS);
            let connecting = self.http.call(uri);
            return Box::pin(async move {
                let tcp = connecting.await?;
                Ok(if is_plain { Stream::plain(tcp) } else { Stream::secured(tcp) })
            });
        };
        // The proxy would resolve this name for us, to itself.
        if self.guard == Guard::On && is_localhost(host) {
            return Box::pin(ready(Err(Blocked("loopback").into())));
        }
        let connecting = self.http.call(proxy.address().clone());
        Box::pin(async move {
            let connected = timeout(proxy.connect_max(), connecting).await;
            let connected = connected.map_err(|_| ProxyFault::Unreachable("timed out while connecting"))?;
            let stream = connected.map_err(|error| proxy::unreachable(&error))?;
            if uri.scheme() != Some(&Scheme::HTTPS) {
                return Ok(Stream::relayed(stream));
            }
            let tunnel = proxy.tunnel(stream.into_inner(), &uri).await?;
            Ok(Stream::secured(TokioIo::new(tunnel)))
        })
    }
}

fn is_localhost(host: &str) -> bool {
    let host = host.trim_end_matches('.').to_ascii_lowercase();
    host == "localhost" || host.ends_with(".localhost")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ips(texts: &[&str]) -> Vec<IpAddr> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    #[test]
    fn of_several_addresses_only_the_allowed_ones_are_connected_to() {
        let found = ips(&["10.0.0.1", "1.1.1.1", "::1", "2606:4700:4700::1111"]);
        assert_eq!(allowed(found, Guard::On).unwrap(), ips(&["1.1.1.1", "2606:4700:4700::1111"]));
    }

    #[test]
    fn a_name_with_none_but_blocked_addresses_is_refused() {
        let error = allowed(ips(&["127.0.0.1", "::1"]), Guard::On).unwrap_err();
        assert!(error.downcast_ref::<Blocked>().is_some());
        assert!(allowed(ips(&["127.0.0.1"]), Guard::Off).is_ok());
        assert!(allowed(Vec::new(), Guard::On).unwrap_err().downcast_ref::<Unresolved>().is_some());
    }

    #[tokio::test]
    async fn a_name_is_looked_up_once_and_its_second_answer_is_not_asked_for() {
        let lookups = Arc::new(std::sync::atomic::AtomicUsize::new(0));
        let counted = Arc::clone(&lookups);
        let names = Names::by(move |_| {
            let first = counted.fetch_add(1, std::sync::atomic::Ordering::SeqCst) == 0;
            let found = ips(if first { &["1.1.1.1", "169.254.169.254"] } else { &["169.254.169.254"] });
            ready(Ok(found))
        });
        let mut guarded = GuardedNames { names, guard: Guard::On };
        let name: Name = "rebind.example".parse().unwrap();
        let first: Vec<_> = guarded.call(name.clone()).await.unwrap().collect();
        assert_eq!(first, ["1.1.1.1:0".parse().unwrap()], "what was checked is what is connected to");
        assert_eq!(lookups.load(std::sync::atomic::Ordering::SeqCst), 1);
        assert!(guarded.call(name).await.unwrap_err().downcast_ref::<Blocked>().is_some());
    }
}
