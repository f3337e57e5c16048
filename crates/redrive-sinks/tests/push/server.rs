//! Servers that simulate APNs, FCM and a token server.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use h2::server::{self, SendResponse};
use hyper::header::HeaderMap;
use hyper::{Request, Response};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use redrive::{Call, Failure, Message, Sink};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

/// A received request.
#[derive(Clone, Debug)]
pub struct Seen {
    pub path: String,
    pub headers: HeaderMap,
    pub body: Vec<u8>,
}

/// An answer.
#[derive(Clone, Debug)]
pub struct Reply {
    pub status: u16,
    pub headers: Vec<(&'static str, String)>,
    pub body: String,
}

impl Reply {
    pub fn of(status: u16, body: impl Into<String>) -> Self {
        Self { status, headers: Vec::new(), body: body.into() }
    }
}

type Answering = Arc<dyn Fn(&Seen) -> Reply + Send + Sync>;

/// Our own authority: its file, and the files that a server for `localhost` needs.
pub struct Authority {
    pub dir: TempDir,
    pub acceptor: TlsAcceptor,
}

impl Authority {
    pub fn new() -> Self {
        Self::of(false)
    }

    /// Its server accepts only clients with a certificate of this authority, such as `client.pem` with `client.key`.
    pub fn demanding() -> Self {
        Self::of(true)
    }

    fn of(demands: bool) -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let ca_key = KeyPair::generate().unwrap();
        let ca = params.self_signed(&ca_key).unwrap();
        let key = KeyPair::generate().unwrap();
        let issuer = Issuer::from_params(&params, &ca_key);
        let leaf = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        let leaf = leaf.signed_by(&key, &issuer).unwrap();
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("ca.pem"), ca.pem()).unwrap();
        let client_key = KeyPair::generate().unwrap();
        let client = CertificateParams::new(vec!["client".to_owned()]).unwrap();
        let client = client.signed_by(&client_key, &issuer).unwrap();
        std::fs::write(dir.path().join("client.pem"), client.pem()).unwrap();
        std::fs::write(dir.path().join("client.key"), client_key.serialize_pem()).unwrap();
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(Arc::clone(&provider));
        let config = config.with_safe_default_protocol_versions().unwrap();
        let config = if demands {
            let mut roots = RootCertStore::empty();
            roots.add(ca.der().clone()).unwrap();
            let clients = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
            config.with_client_cert_verifier(clients.build().unwrap())
        } else {
            config.with_no_client_auth()
        };
        let config = config.with_single_cert(vec![leaf.der().clone()], key);
        let mut config = config.unwrap();
        config.alpn_protocols = vec![b"h2".to_vec()];
        Self { dir, acceptor: TlsAcceptor::from(Arc::new(config)) }
    }

    pub fn ca_file(&self) -> PathBuf {
        self.dir.path().join("ca.pem")
    }
}

/// An HTTP/2 server with configurable answers.
pub struct PushServer {
    pub authority: Authority,
    pub port: u16,
    seen: Arc<Mutex<Vec<Seen>>>,
    connections: Arc<AtomicU32>,
    going_away: watch::Sender<u32>,
}

impl PushServer {
    pub async fn start(answer: impl Fn(&Seen) -> Reply + Send + Sync + 'static) -> Self {
        Self::with_streams(100, answer).await
    }

    /// With at most `streams` streams per connection.
    pub async fn with_streams(streams: u32, answer: impl Fn(&Seen) -> Reply + Send + Sync + 'static) -> Self {
        Self::of(Authority::new(), streams, answer).await
    }

    pub async fn of(
        authority: Authority,
        streams: u32,
        answer: impl Fn(&Seen) -> Reply + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (seen, answer): (Arc<Mutex<Vec<Seen>>>, Answering) = (Arc::default(), Arc::new(answer));
        let connections = Arc::new(AtomicU32::new(0));
        let (going_away, hears) = watch::channel(0);
        let (acceptor, kept, counted) =
            (authority.acceptor.clone(), Arc::clone(&seen), Arc::clone(&connections));
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (acceptor, seen, answer) = (acceptor.clone(), Arc::clone(&kept), Arc::clone(&answer));
                let hears = hears.clone();
                counted.fetch_add(1, Ordering::SeqCst);
                // As on real servers, an answer does not wait for the acknowledgement of the previous one.
                stream.set_nodelay(true).unwrap();
                tokio::spawn(async move {
                    if let Ok(stream) = acceptor.accept(stream).await {
                        serve(stream, streams, seen, answer, hears).await;
                    }
                });
            }
        });
        Self { authority, port, seen, connections, going_away }
    }

    pub fn url(&self) -> String {
        format!("https://localhost:{}", self.port)
    }

    pub fn seen(&self) -> Vec<Seen> {
        self.seen.lock().unwrap().clone()
    }

    pub fn connections(&self) -> u32 {
        self.connections.load(Ordering::SeqCst)
    }

    /// Sends GOAWAY on every connection; requests in flight are still answered.
    pub fn go_away(&self) {
        self.going_away.send_modify(|times| *times += 1);
    }
}

async fn serve(
    stream: TlsStream<TcpStream>,
    streams: u32,
    seen: Arc<Mutex<Vec<Seen>>>,
    answer: Answering,
    mut hears: watch::Receiver<u32>,
) {
    hears.mark_unchanged();
    let Ok(mut connection) = server::Builder::new().max_concurrent_streams(streams).handshake(stream).await
    else {
        return;
    };
    loop {
        tokio::select! {
            changed = hears.changed() => match changed {
                Ok(()) => connection.graceful_shutdown(),
                Err(_) => return,
            },
            accepted = connection.accept() => match accepted {
                Some(Ok((request, respond))) => {
                    tokio::spawn(reply(request, respond, Arc::clone(&seen), Arc::clone(&answer)));
                }
                _ => return,
            },
        }
    }
}

async fn reply(
    request: Request<h2::RecvStream>,
    mut respond: SendResponse<Bytes>,
    seen: Arc<Mutex<Vec<Seen>>>,
    answer: Answering,
) {
    let (head, mut incoming) = request.into_parts();
    let mut body = Vec::new();
    while let Some(Ok(data)) = incoming.data().await {
        let _ = incoming.flow_control().release_capacity(data.len());
        body.extend_from_slice(&data);
    }
    let request = Seen { path: head.uri.path().to_owned(), headers: head.headers, body };
    let reply = answer(&request);
    remember(&seen, request);
    let mut response = Response::builder().status(reply.status);
    for (name, value) in &reply.headers {
        response = response.header(*name, value);
    }
    let response = response.body(()).unwrap();
    if let Ok(mut stream) = respond.send_response(response, reply.body.is_empty())
        && !reply.body.is_empty()
    {
        let _ = stream.send_data(Bytes::from(reply.body), true);
    }
}

/// Limits the records of a benchmark.
const SEEN_MAX: usize = 20_000;

fn remember(seen: &Mutex<Vec<Seen>>, request: Seen) {
    let mut seen = seen.lock().unwrap();
    if seen.len() < SEEN_MAX {
        seen.push(request);
    }
}

/// A minimal HTTP/1.1 server with one answer per connection.
pub struct PlainServer {
    pub port: u16,
    seen: Arc<Mutex<Vec<Seen>>>,
}

impl PlainServer {
    pub async fn start(answer: impl Fn(&Seen) -> Reply + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (seen, answer): (Arc<Mutex<Vec<Seen>>>, Answering) = (Arc::default(), Arc::new(answer));
        let kept = Arc::clone(&seen);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(plain(stream, Arc::clone(&kept), Arc::clone(&answer)));
            }
        });
        Self { port, seen }
    }

    pub fn seen(&self) -> Vec<Seen> {
        self.seen.lock().unwrap().clone()
    }
}

async fn plain(mut stream: TcpStream, seen: Arc<Mutex<Vec<Seen>>>, answer: Answering) -> Option<()> {
    let mut read = Vec::new();
    let head_end = loop {
        if let Some(end) = read.windows(4).position(|window| window == b"\r\n\r\n") {
            break end + 4;
        }
        if stream.read_buf(&mut read).await.ok()? == 0 {
            return None;
        }
    };
    let head = String::from_utf8(read[..head_end].to_vec()).ok()?;
    let mut lines = head.lines();
    let path = lines.next()?.split(' ').nth(1)?.to_owned();
    let mut headers = HeaderMap::new();
    for (name, value) in lines.filter_map(|line| line.split_once(": ")) {
        headers.append(hyper::header::HeaderName::try_from(name).ok()?, value.parse().ok()?);
    }
    let length: usize = headers.get("content-length")?.to_str().ok()?.parse().ok()?;
    while read.len() < head_end + length {
        if stream.read_buf(&mut read).await.ok()? == 0 {
            return None;
        }
    }
    let request = Seen { path, headers, body: read[head_end..].to_vec() };
    let reply = answer(&request);
    remember(&seen, request);
    let mut text = format!(
        "HTTP/1.1 {} x\r\nconnection: close\r\ncontent-length: {}\r\n",
        reply.status,
        reply.body.len()
    );
    for (name, value) in &reply.headers {
        text = format!("{text}{name}: {value}\r\n");
    }
    let text = format!("{text}\r\n{}", reply.body);
    stream.write_all(text.as_bytes()).await.ok()?;
    stream.shutdown().await.ok()
}

/// Makes one attempt for a message.
pub async fn deliver(sink: &impl Sink, message: Message) -> Result<(), Failure> {
    sink.deliver(Call { message, attempt: 1, replays: 0, pipeline: "push".into(), origin: None }).await
}

/// A file with a new P-256 key.
pub fn key_file(dir: &TempDir, name: &str) -> PathBuf {
    let pair = KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).unwrap();
    let path = dir.path().join(name);
    std::fs::write(&path, pair.serialize_pem()).unwrap();
    path
}
