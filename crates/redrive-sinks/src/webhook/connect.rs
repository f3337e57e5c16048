//! The pool of connections: names, address guard, TCP, TLS.
//!
//! The guard is in the connector and nowhere else. An address is checked between lookup and connect, and it is the
//! checked address that is connected to; a name that answers differently a moment later gains nothing.

use std::error::Error;
use std::future::{Future, ready};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::Uri;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::connect::dns::Name;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use rustls::ClientConfig;
use tower_service::Service;

use super::guard::{Blocked, Guard};
use super::names::Names;
use super::payload::Payload;

pub(crate) type Pool = Client<HttpsConnector<Connector>, Payload>;

/// Connections to one host that are kept for the next message.
const IDLE_PER_HOST_MAX: usize = 256;
/// Many servers close an idle connection after five seconds. Ours are given up before, so that a request seldom runs
/// into a connection that is just being closed.
const IDLE_MAX: Duration = Duration::from_secs(4);
/// The head of an answer, and what is read of its body at once.
const ANSWER_BUFFER_BYTES_MAX: usize = 64 * 1024;
/// Addresses of one name that are tried.
const ADDRESSES_MAX: usize = 16;

type BoxError = Box<dyn Error + Send + Sync>;
type Connecting<T> = Pin<Box<dyn Future<Output = Result<T, BoxError>> + Send>>;

pub(crate) fn pool(names: Names, guard: Guard, tls: ClientConfig) -> Pool {
    let mut http = HttpConnector::new_with_resolver(GuardedNames { names, guard });
    // The scheme was judged before; the TLS connector around this one needs it to take https as well.
    http.enforce_http(false);
    http.set_nodelay(true);
    let connector = HttpsConnectorBuilder::new()
        .with_tls_config(tls)
        .https_or_http()
        .enable_http1()
        // Only where the receiver chooses it in the handshake.
        .enable_http2()
        .wrap_connector(Connector { http, guard });
    Client::builder(TokioExecutor::new())
        .pool_timer(TokioTimer::new())
        .pool_idle_timeout(IDLE_MAX)
        .pool_max_idle_per_host(IDLE_PER_HOST_MAX)
        .http1_max_buf_size(ANSWER_BUFFER_BYTES_MAX)
        .build(connector)
}

/// Looks names up and lets only allowed addresses through.
#[derive(Clone, Debug)]
pub(crate) struct GuardedNames {
    names: Names,
    guard: Guard,
}

/// The system could not say where a host is.
#[derive(Debug, thiserror::Error)]
#[error("the host name could not be resolved")]
pub(crate) struct Unresolved(#[source] Option<io::Error>);

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
            // The port is the connector's to fill in.
            let allowed = allowed(found, guard)?.into_iter().map(|address| SocketAddr::new(address, 0));
            Ok(allowed.collect::<Vec<_>>().into_iter())
        })
    }
}

/// Leaves blocked addresses out. A name with none but blocked ones is refused.
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

/// Connects over TCP. An address written in the URL is never looked up, so it is checked here.
#[derive(Clone, Debug)]
pub(crate) struct Connector {
    http: HttpConnector<GuardedNames>,
    guard: Guard,
}

impl Service<Uri> for Connector {
    type Response = <HttpConnector<GuardedNames> as Service<Uri>>::Response;
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
        let connecting = self.http.call(uri);
        Box::pin(async move { connecting.await.map_err(Into::into) })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

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
