//! Authentication to the receiver: basic, bearer, OAuth2 client credentials, a client certificate; and HTTP/2 if
//! offered.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use redrive::{Class, Message};
use redrive_sinks::WebhookOptions;
use redrive_sinks::webhook::{Auth, ClientCertificate, OAuth2, Trouble, WebhookError};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

use crate::server::{Seen, Server, deliver, failure, order, response, scripted, serve, sink, to};

type Versions = &'static [&'static rustls::SupportedProtocolVersion];
static TLS12: Versions = &[&rustls::version::TLS12];
static TLS13: Versions = &[&rustls::version::TLS13];

fn file(dir: &TempDir, name: &str, content: &str) -> PathBuf {
    let path = dir.path().join(name);
    std::fs::write(&path, content).unwrap();
    path
}

#[tokio::test]
async fn basic_and_bearer_secrets_come_from_files() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::saying(200, &[], "").await;
    let basic = Auth::Basic { user: "shop".to_owned(), password_file: file(&dir, "p", "pa:ss\n") };
    let bearer = Auth::Bearer { token_file: file(&dir, "t", "abc\n") };
    for auth in [basic, bearer] {
        deliver(&sink(WebhookOptions { auth, ..to(server.url("/")) }), order()).await.unwrap();
    }
    let sent: Vec<String> =
        server.seen().iter().map(|seen| seen.header("authorization").to_owned()).collect();
    assert_eq!(sent, ["Basic c2hvcDpwYTpzcw==", "Bearer abc"]);

    let missing = Auth::Bearer { token_file: dir.path().join("nowhere") };
    let faults = WebhookOptions { auth: missing, ..to(server.url("/")) }.check();
    assert_eq!(faults[0].key, "auth.token_file");
}

#[tokio::test]
async fn what_was_sent_is_in_no_error_even_if_the_receiver_repeats_it() {
    let dir = tempfile::tempdir().unwrap();
    let echo = Server::answering(|seen| async move {
        response(422, &[], &format!("you sent {}", seen.header("authorization")))
    })
    .await;
    let (tokens, _) = granting(200, None).await;
    let password_file = file(&dir, "p", "a-long-password\n");
    for auth in [Auth::Basic { user: "shop".to_owned(), password_file }, oauth(&dir, &tokens)] {
        let failed = failure(&sink(WebhookOptions { auth, ..to(echo.url("/")) }), order()).await;
        assert_eq!(failed.chain(), "422 Unprocessable Entity: you sent [secret]");
    }
}

/// A token endpoint that grants `token-1`, `token-2` …, or refuses with this status and error.
async fn granting(status: u16, body: Option<&'static str>) -> (Server, Arc<AtomicUsize>) {
    let granted = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&granted);
    let server = Server::answering(move |_: Seen| {
        let number = count.fetch_add(1, Ordering::SeqCst) + 1;
        let grant = format!(r#"{{"access_token":"token-{number}","token_type":"bearer","expires_in":3600}}"#);
        let answer = response(status, &[], body.unwrap_or(&grant));
        async move { answer }
    })
    .await;
    (server, granted)
}

fn oauth(dir: &TempDir, tokens: &Server) -> Auth {
    Auth::OAuth2(OAuth2 {
        token_url: tokens.url("/token").into(),
        client_id: "shop app".to_owned(),
        client_secret_file: file(dir, "secret", "s3cret\n"),
        scopes: vec!["hooks".to_owned(), "write".to_owned()],
    })
}

#[tokio::test]
async fn a_token_is_fetched_once_and_replaced_once_when_it_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let (tokens, granted) = granting(200, None).await;
    // Refuses the first token from the third request on, as if revoked.
    let requests = Arc::new(AtomicUsize::new(0));
    let server = Server::answering(move |seen: Seen| {
        let number = requests.fetch_add(1, Ordering::SeqCst) + 1;
        let revoked = number > 2 && seen.header("authorization") == "Bearer token-1";
        async move { response(if revoked { 401 } else { 200 }, &[], "") }
    })
    .await;
    let sink = sink(WebhookOptions { auth: oauth(&dir, &tokens), ..to(server.url("/")) });
    for _ in 0..4 {
        deliver(&sink, order()).await.unwrap();
    }
    let sent: Vec<String> =
        server.seen().iter().map(|seen| seen.header("authorization").to_owned()).collect();
    assert_eq!(
        sent,
        ["Bearer token-1", "Bearer token-1", "Bearer token-1", "Bearer token-2", "Bearer token-2"]
    );
    assert_eq!(granted.load(Ordering::SeqCst), 2);
    let asked = tokens.seen().remove(0);
    assert_eq!(asked.body, "grant_type=client_credentials&scope=hooks+write");
    assert_eq!(asked.header("authorization"), "Basic c2hvcCthcHA6czNjcmV0");
}

#[tokio::test]
async fn a_receiver_that_refuses_every_token_and_a_token_endpoint_that_refuses_us_are_credential() {
    let dir = tempfile::tempdir().unwrap();
    let refusing = Server::saying(401, &[], "").await;
    let (tokens, granted) = granting(200, None).await;
    let options = WebhookOptions { auth: oauth(&dir, &tokens), ..to(refusing.url("/")) };
    assert_eq!(failure(&sink(options), order()).await.class(), Class::Credential);
    assert_eq!(
        (refusing.seen().len(), granted.load(Ordering::SeqCst)),
        (2, 2),
        "refreshed once, not for ever"
    );

    let (tokens, _) = granting(401, Some(r#"{"error":"invalid_client"}"#)).await;
    let server = Server::saying(200, &[], "").await;
    let failed =
        failure(&sink(WebhookOptions { auth: oauth(&dir, &tokens), ..to(server.url("/")) }), order()).await;
    assert_eq!(failed.class(), Class::Credential);
    assert!(failed.chain().contains("invalid_client") && !failed.chain().contains("s3cret"), "{failed}");
    assert!(server.seen().is_empty());

    let (tokens, _) = granting(503, Some("")).await;
    let failed =
        failure(&sink(WebhookOptions { auth: oauth(&dir, &tokens), ..to(server.url("/")) }), order()).await;
    assert_eq!(failed.class(), Class::Transient);
}

#[tokio::test]
async fn a_grant_that_says_3600_as_a_text_is_used_and_one_that_cannot_be_used_says_why() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::saying(200, &[], "").await;
    let long = "x".repeat(6_000);
    let grant = format!(r#"{{"access_token":"{long}","token_type":"Bearer","expires_in":"3600"}}"#);
    let (tokens, granted) = granting(200, Some(&*grant.leak())).await;
    let good = sink(WebhookOptions { auth: oauth(&dir, &tokens), ..to(server.url("/")) });
    for _ in 0..2 {
        deliver(&good, order()).await.unwrap();
    }
    assert_eq!(granted.load(Ordering::SeqCst), 1, "it is held for the hour");
    assert_eq!(server.seen()[1].header("authorization"), format!("Bearer {long}"));

    for (grant, class, text) in [
        (
            r#"{"access_token":"t","expires_in":-5}"#,
            Class::Transient,
            "the token endpoint: its answer has an `expires_in` of -5, which is not a number of seconds from 0",
        ),
        (
            r#"{"access_token":"t","token_type":"mac"}"#,
            Class::Credential,
            "the token endpoint grants a token of type mac, and only Bearer can be used",
        ),
    ] {
        let (tokens, _) = granting(200, Some(grant)).await;
        let options = WebhookOptions { auth: oauth(&dir, &tokens), ..to(server.url("/")) };
        let failed = failure(&sink(options), order()).await;
        assert_eq!((failed.class(), failed.chain().as_str()), (class, text));
    }
}

#[tokio::test]
async fn two_settings_of_the_same_header_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let auth = Auth::Bearer { token_file: file(&dir, "t", "abc\n") };
    let mut options = WebhookOptions { auth, ..to("http://a.example/") };
    options.headers.push(redrive_sinks::webhook::HeaderFrom::setting("authorization", "Bearer x"));
    let keys: Vec<_> = options.check().into_iter().map(|fault| fault.key).collect();
    assert_eq!(keys, ["headers.authorization"]);
    assert!(redrive_sinks::WebhookSink::build(options).is_err());
}

struct Authority {
    params: CertificateParams,
    key: KeyPair,
    dir: TempDir,
}

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let dir = tempfile::tempdir().unwrap();
        file(&dir, "ca.pem", &params.self_signed(&key).unwrap().pem());
        Self { params, key, dir }
    }

    fn issue(&self, name: &str, expired: bool) -> (String, KeyPair) {
        let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        if expired {
            params.not_after = rcgen::date_time_ymd(2020, 1, 1);
        }
        let key = KeyPair::generate().unwrap();
        let issuer = Issuer::from_params(&self.params, &self.key);
        (params.signed_by(&key, &issuer).unwrap().pem(), key)
    }

    fn client(&self, name: &str, expired: bool) -> ClientCertificate {
        let (cert, key) = self.issue("redrive", expired);
        ClientCertificate {
            cert_file: file(&self.dir, &format!("{name}.pem"), &cert),
            key_file: file(&self.dir, &format!("{name}.key"), &key.serialize_pem()),
        }
    }

    /// A server that requires certificates of this authority, and records requests. With TLS 1.2 a refused certificate
    /// fails the handshake; with TLS 1.3 the client learns of it only when reading.
    async fn server(&self, versions: Versions, http2: bool) -> (u16, Server) {
        use rustls::pki_types::CertificateDer;
        use rustls::pki_types::pem::PemObject;
        let (cert, key) = self.issue("localhost", false);
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_file(self.dir.path().join("ca.pem")).unwrap()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider))
            .build()
            .unwrap();
        let config = ServerConfig::builder_with_provider(provider).with_protocol_versions(versions).unwrap();
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let chain = vec![CertificateDer::from_pem_slice(cert.as_bytes()).unwrap()];
        let mut config = config.with_client_cert_verifier(verifier).with_single_cert(chain, key).unwrap();
        if http2 {
            config.alpn_protocols = vec![b"h2".to_vec()];
        }
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let seen = Server::saying(200, &[], "").await;
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (port, seeing) = (listener.local_addr().unwrap().port(), seen.clone());
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (acceptor, seen) = (acceptor.clone(), seeing.clone());
                tokio::spawn(async move {
                    let Ok(stream) = acceptor.accept(stream).await else { return };
                    if http2 {
                        crate::server::serve2(stream, seen, |_| async { response(200, &[], "") }).await;
                    } else {
                        serve(stream, seen, |_| async { response(200, &[], "") }).await;
                    }
                });
            }
        });
        (port, seen)
    }

    fn options(&self, port: u16, client_certificate: Option<ClientCertificate>) -> WebhookOptions {
        let ca_file = Some(self.dir.path().join("ca.pem"));
        WebhookOptions { ca_file, client_certificate, ..to(format!("https://localhost:{port}/")) }
    }
}

#[tokio::test]
async fn a_receiver_that_wants_a_certificate_gets_ours_and_a_missing_or_foreign_one_is_credential() {
    let authority = Authority::new();
    for (versions, http2) in [(TLS12, false), (TLS13, false), (TLS12, true), (TLS13, true)] {
        let what = format!("{versions:?}, HTTP/2: {http2}");
        let (port, seen) = authority.server(versions, http2).await;
        let good = sink(authority.options(port, Some(authority.client("good", false))));
        deliver(&good, order()).await.unwrap();
        let stranger = Authority::new();
        // Repeated, because the refusal races with the data being sent.
        for _ in 0..20 {
            let foreign = sink(authority.options(port, Some(stranger.client("foreign", false))));
            let failed = failure(&foreign, order()).await;
            assert_eq!(failed.class(), Class::Credential, "{what}: {failed}");
            let without = sink(authority.options(port, None));
            let failed = failure(&without, order()).await;
            assert_eq!(failed.class(), Class::Credential, "{what}: {failed}");
            assert!(failed.chain().contains("client certificate"), "{what}: {failed}");
            assert!(!failed.is_ambiguous(), "{what}: nothing of it was read");
        }
        assert_eq!(seen.seen().len(), 1, "{what}");
    }
}

/// The TLS 1.2 alert for a missing certificate, and the one that OpenSSL sends instead.
const CERTIFICATE_REQUIRED: [u8; 7] = [21, 3, 3, 0, 2, 2, 116];
const HANDSHAKE_FAILURE: [u8; 7] = [21, 3, 3, 0, 2, 2, 40];

/// Relays everything to the server, but replaces its alert with OpenSSL's.
async fn like_openssl(mut client: TcpStream, port: u16) {
    let mut server = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
    let (mut asked, mut answered) = (vec![0; 16 * 1024], vec![0; 16 * 1024]);
    loop {
        tokio::select! {
            read = client.read(&mut asked) => match read {
                Ok(0) | Err(_) => return,
                Ok(count) => if server.write_all(&asked[..count]).await.is_err() { return },
            },
            read = server.read(&mut answered) => match read {
                // The client's remaining data is read, so that a reset does not destroy the answer.
                Ok(0) | Err(_) => {
                    let _ = client.shutdown().await;
                    while client.read(&mut asked).await.is_ok_and(|count| count > 0) {}
                    return;
                }
                Ok(count) => {
                    let answered = &mut answered[..count];
                    let alert = answered.windows(7).position(|bytes| bytes == CERTIFICATE_REQUIRED);
                    if let Some(at) = alert {
                        answered[at..at + 7].copy_from_slice(&HANDSHAKE_FAILURE);
                    }
                    if client.write_all(answered).await.is_err() { return }
                }
            },
        }
    }
}

#[tokio::test]
async fn a_missing_certificate_is_credential_where_the_handshake_just_fails() {
    let authority = Authority::new();
    let (port, seen) = authority.server(TLS12, false).await;
    let relay = scripted(move |client| like_openssl(client, port)).await;
    deliver(&sink(authority.options(relay.port(), Some(authority.client("good", false)))), order())
        .await
        .unwrap();
    let failed = failure(&sink(authority.options(relay.port(), None)), order()).await;
    assert_eq!(failed.class(), Class::Credential, "{failed}");
    assert_eq!(failed.chain(), "TLS: the receiver refuses our client certificate, or misses one");
    assert_eq!(seen.seen().len(), 1);
}

#[tokio::test]
async fn a_handshake_that_fails_for_another_reason_is_not_blamed_on_our_certificate() {
    let failing = scripted(|mut stream| async move {
        let _ = stream.read(&mut [0; 1024]).await;
        let _ = stream.write_all(&HANDSHAKE_FAILURE).await;
    })
    .await;
    let failed = failure(&sink(to(format!("https://localhost:{}/", failing.port()))), order()).await;
    let Some(WebhookError::Unanswered { trouble, .. }) = failed.downcast_ref() else { panic!("{failed}") };
    assert_eq!(*trouble, Trouble::Tls, "{failed}");
}

/// A refusal that arrives while a large request is being written.
#[tokio::test]
async fn a_certificate_that_is_refused_while_much_is_sent_is_credential_too() {
    let authority = Authority::new();
    let (port, seen) = authority.server(TLS13, false).await;
    for _ in 0..20 {
        let without = sink(authority.options(port, None));
        let large = Message::builder("o-1").payload(vec![b'x'; 1_000_000]);
        let failed = failure(&without, large).await;
        assert_eq!(failed.class(), Class::Credential, "{failed}");
    }
    assert!(seen.seen().is_empty());
}

#[tokio::test]
async fn an_expired_certificate_and_a_key_of_another_are_faults_at_the_start() {
    let authority = Authority::new();
    let expired = authority.client("expired", true);
    let faults = authority.options(1, Some(expired)).check();
    assert_eq!(faults[0].key, "client_cert_file");
    assert!(faults[0].problem.ends_with("the certificate has expired"), "{}", faults[0]);

    let (one, other) = (authority.client("one", false), authority.client("other", false));
    let mixed = ClientCertificate { cert_file: one.cert_file, key_file: other.key_file };
    let faults = authority.options(1, Some(mixed)).check();
    assert_eq!(faults[0].key, "client_key_file");
    assert!(faults[0].problem.contains("not the key of the certificate"), "{}", faults[0]);
}

#[tokio::test]
async fn a_receiver_that_offers_http2_gets_it() {
    let authority = Authority::new();
    let (port, seen) = authority.server(rustls::ALL_VERSIONS, true).await;
    let sink = sink(authority.options(port, Some(authority.client("good", false))));
    deliver(&sink, order()).await.unwrap();
    assert_eq!(seen.seen()[0].header("webhook-id"), "o-1");
}
