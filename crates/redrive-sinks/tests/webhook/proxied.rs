//! Requests through a proxy: a tunnel for https, absolute form for http. Failures at the proxy are not attributed to
//! the receiver.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use redrive::{Class, Pipeline, Policy, Redrive};
use redrive_core::Pick;
use redrive_sinks::WebhookOptions;
use redrive_sinks::webhook::{Trouble, WebhookError};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};

use crate::server::{Server, deliver, failure, order, sink, to};

/// The behaviour of a test proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Manner {
    /// Lets everything through.
    Open,
    /// Requires `user:pass`.
    Guarded,
    /// Answers with this status.
    Says(u16),
    /// Closes the connection without an answer.
    Silent,
}

/// A small proxy with its own resolver: every name is this host.
#[derive(Clone)]
struct Proxy {
    address: SocketAddr,
    /// The first lines of the requests it received.
    asked: Arc<Mutex<Vec<String>>>,
}

impl Proxy {
    async fn start(manner: Manner) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let proxy = Self { address: listener.local_addr().unwrap(), asked: Arc::default() };
        let serving = proxy.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, manner, Arc::clone(&serving.asked)));
            }
        });
        proxy
    }

    fn options(&self, url: String) -> WebhookOptions {
        WebhookOptions { proxy: Some(format!("http://{}", self.address).into()), ..to(url) }
    }

    fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }
}

async fn serve(mut stream: TcpStream, manner: Manner, asked: Arc<Mutex<Vec<String>>>) -> Option<()> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.ok()?);
    }
    let text = String::from_utf8(head.clone()).unwrap();
    asked.lock().unwrap().push(text.lines().next().unwrap_or_default().to_owned());
    let is_authorized = text.to_ascii_lowercase().contains("proxy-authorization: basic dxnlcjpwyxnz");
    let refused = match manner {
        Manner::Open => None,
        Manner::Guarded => (!is_authorized).then_some(407),
        Manner::Says(status) => Some(status),
        Manner::Silent => return None,
    };
    if let Some(status) = refused {
        let answer = format!("HTTP/1.1 {status} No\r\ncontent-length: 0\r\n\r\n");
        stream.write_all(answer.as_bytes()).await.ok()?;
        return None;
    }
    let mut words = text.split(' ');
    let (method, target) = (words.next()?, words.next()?);
    let place = target.strip_prefix("http://").unwrap_or(target);
    let port: u16 = place.split('/').next()?.rsplit(':').next()?.parse().ok()?;
    let mut upstream = TcpStream::connect(("127.0.0.1", port)).await.ok()?;
    if method == "CONNECT" {
        stream.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n").await.ok()?;
    } else {
        upstream.write_all(&head).await.ok()?;
    }
    copy_bidirectional(&mut stream, &mut upstream).await.ok()?;
    Some(())
}

fn auth_file(dir: &TempDir, content: &str) -> std::path::PathBuf {
    let path = dir.path().join("proxy-auth");
    std::fs::write(&path, content).unwrap();
    path
}

#[tokio::test]
async fn a_plain_request_goes_to_the_proxy_in_absolute_form_and_its_name_is_not_looked_up_here() {
    let (proxy, server) = (Proxy::start(Manner::Open).await, Server::saying(200, &[], "").await);
    let url = format!("http://receiver.invalid:{}/hooks", server.address.port());
    deliver(&sink(proxy.options(url.clone())), order()).await.unwrap();
    assert_eq!(proxy.asked(), [format!("POST {url} HTTP/1.1")]);
    assert_eq!(server.seen()[0].header("webhook-id"), "o-1");
}

#[tokio::test]
async fn an_encrypted_request_goes_through_a_tunnel_and_the_proxy_sees_nothing_of_it() {
    let proxy = Proxy::start(Manner::Open).await;
    let (port, _dir, options) = crate::tls::secure("localhost").await;
    let options = WebhookOptions { proxy: Some(format!("http://{}", proxy.address).into()), ..options };
    let sink = sink(options);
    deliver(&sink, order()).await.unwrap();
    deliver(&sink, order()).await.unwrap();
    assert_eq!(proxy.asked(), [format!("CONNECT localhost:{port} HTTP/1.1")], "the tunnel is used again");
}

#[tokio::test]
async fn the_proxy_gets_its_credentials_and_the_receiver_does_not() {
    let dir = tempfile::tempdir().unwrap();
    let (proxy, server) = (Proxy::start(Manner::Guarded).await, Server::saying(200, &[], "").await);
    let options = WebhookOptions {
        proxy_auth_file: Some(auth_file(&dir, "user:pass\n")),
        ..proxy.options(server.url("/"))
    };
    deliver(&sink(options), order()).await.unwrap();
    let (_, _dir, secure) = crate::tls::secure("localhost").await;
    let options = WebhookOptions {
        proxy: Some(format!("http://{}", proxy.address).into()),
        proxy_auth_file: Some(auth_file(&dir, "user:pass\n")),
        ..secure
    };
    deliver(&sink(options), order()).await.unwrap();
}

/// An address without a listener.
async fn nobody() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap()
}

fn trouble(failed: &redrive::Failure) -> Option<Trouble> {
    match failed.downcast_ref() {
        Some(WebhookError::Unanswered { trouble, .. }) => Some(*trouble),
        _ => None,
    }
}

#[tokio::test]
async fn faults_of_the_proxy_have_classes_of_their_own() {
    let server = Server::saying(200, &[], "").await;
    let (_, _dir, secure) = crate::tls::secure("localhost").await;
    let through = |proxy: &Proxy, options: &WebhookOptions| {
        sink(WebhookOptions { proxy: Some(format!("http://{}", proxy.address).into()), ..options.clone() })
    };
    // 407, both for CONNECT and for a plain request.
    let guarded = Proxy::start(Manner::Guarded).await;
    for options in [&secure, &to(server.url("/"))] {
        let failed = failure(&through(&guarded, options), order()).await;
        assert_eq!(
            (failed.class(), trouble(&failed)),
            (Class::Credential, Some(Trouble::ProxyAuth)),
            "{failed}"
        );
        assert!(failed.is_before_receiver() && !failed.is_ambiguous());
        assert_eq!(failed.chain(), "the proxy refuses our credentials (407)");
    }
    for status in [403, 502, 503, 504] {
        let proxy = Proxy::start(Manner::Says(status)).await;
        let failed = failure(&through(&proxy, &secure), order()).await;
        assert_eq!((failed.class(), trouble(&failed)), (Class::Transient, Some(Trouble::Proxy)), "{failed}");
        assert!(failed.is_before_receiver(), "{failed}");
        assert!(failed.chain().ends_with(&format!("it answered CONNECT with {status}")), "{failed}");
    }
    let silent = Proxy::start(Manner::Silent).await;
    let failed = failure(&through(&silent, &secure), order()).await;
    assert_eq!(trouble(&failed), Some(Trouble::Proxy), "{failed}");

    // Nothing listens there any more.
    let gone = Proxy { address: nobody().await, asked: Arc::default() };
    for options in [&secure, &to(server.url("/"))] {
        let failed = failure(&through(&gone, options), order()).await;
        assert_eq!((failed.class(), trouble(&failed)), (Class::Transient, Some(Trouble::Proxy)), "{failed}");
        assert_eq!(failed.chain(), "the proxy cannot be reached: connection refused");
    }
    assert!(server.seen().is_empty());
}

/// The receiver's answer counts as such through a proxy too.
#[tokio::test]
async fn what_the_receiver_answers_through_the_proxy_is_judged_as_ever() {
    let (proxy, server) = (Proxy::start(Manner::Open).await, Server::saying(503, &[], "").await);
    let failed = failure(&sink(proxy.options(server.url("/"))), order()).await;
    assert_eq!((failed.class(), failed.is_before_receiver()), (Class::Transient, false));
    assert_eq!(failed.chain(), "503 Service Unavailable");
}

#[tokio::test]
async fn addresses_that_are_written_in_an_endpoint_are_guarded_and_the_proxys_own_is_not() {
    let proxy = Proxy::start(Manner::Open).await;
    let options = WebhookOptions {
        proxy: Some(format!("http://{}", proxy.address).into()),
        ..WebhookOptions::per_message(Pick::Json("/url".into()))
    };
    let sink = sink(options);
    for host in ["127.0.0.1", "10.0.0.1", "169.254.169.254", "[::1]", "localhost", "a.localhost"] {
        let at = redrive_core::Message::builder("o").payload(format!(r#"{{"url":"http://{host}:9/"}}"#));
        let failed = failure(&sink, at).await;
        assert_eq!((failed.class(), trouble(&failed)), (Class::Permanent, Some(Trouble::Blocked)), "{host}");
    }
    assert!(proxy.asked().is_empty());
}

/// The proxy is down for all: no endpoint's breaker opens, and no message dies.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_proxy_that_is_down_opens_no_breaker_of_an_endpoint_and_kills_no_message() {
    let options = WebhookOptions {
        proxy: Some(format!("http://{}", nobody().await).into()),
        ..WebhookOptions::per_message(Pick::Json("/url".into()))
    };
    let pipeline =
        Pipeline::new("hooks").policy(Policy::fixed("10ms").retries(1).jitter("none")).sink(sink(options));
    let redrive = Redrive::builder().engine(redrive::MemoryStores::new()).pipeline(pipeline).build().unwrap();
    let hooks = redrive.pipeline("hooks").unwrap();
    let message = |n: usize| {
        let url = format!(r#"{{"url":"https://receiver.invalid/{}"}}"#, n % 3);
        redrive_core::Message::builder(format!("o-{n}")).payload(url).build().unwrap()
    };
    hooks.ingest((0..90).map(message)).await.unwrap();
    let failed = async {
        while hooks.figures().attempts.get(Class::Transient) < 180 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    redrive.run_until(failed).await.unwrap();
    let figures = hooks.figures();
    let endpoints = figures.health.endpoints.as_ref().unwrap();
    assert_eq!((endpoints.endpoints, endpoints.origins), (0, 0), "{endpoints:?}");
    assert_eq!(figures.dead.total(), 0, "each has failed as often as it may, and nobody died of it");
}
