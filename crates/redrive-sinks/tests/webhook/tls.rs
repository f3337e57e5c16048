//! TLS with our own authority.

use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use redrive::Class;
use redrive_sinks::webhook::{Trouble, WebhookError};
use redrive_sinks::{WebhookOptions, WebhookSink};
use rustls::ServerConfig;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use crate::server::{Server, deliver, failure, order, response, serve, sink, to};

/// A server with a certificate for `name`, and the file of the authority that signed it.
pub async fn secure(name: &str) -> (u16, TempDir, WebhookOptions) {
    secure_with(CertificateParams::new(vec![name.to_owned()]).unwrap()).await
}

/// The same with this certificate.
async fn secure_with(leaf: CertificateParams) -> (u16, TempDir, WebhookOptions) {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let ca_key = KeyPair::generate().unwrap();
    let ca = params.self_signed(&ca_key).unwrap();
    let key = KeyPair::generate().unwrap();
    let issuer = Issuer::from_params(&params, &ca_key);
    let leaf = leaf.signed_by(&key, &issuer).unwrap();
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("ca.pem"), ca.pem()).unwrap();

    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let config = config.with_no_client_auth().with_single_cert(vec![leaf.der().clone()], key).unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    // Records the requests over TLS; its own port is not used.
    let seen = Server::saying(200, &[], "").await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let (acceptor, seen) = (acceptor.clone(), seen.clone());
            tokio::spawn(async move {
                if let Ok(stream) = acceptor.accept(stream).await {
                    serve(stream, seen, |_| async { response(200, &[], "") }).await;
                }
            });
        }
    });
    let options = WebhookOptions {
        ca_file: Some(dir.path().join("ca.pem")),
        ..to(format!("https://localhost:{port}/"))
    };
    (port, dir, options)
}

async fn refused(sink: &WebhookSink) -> String {
    let failed = failure(sink, order()).await;
    assert_eq!(failed.class(), Class::Permanent);
    assert!(!failed.is_ambiguous(), "nothing was sent");
    assert_eq!(failed.kind(), redrive::FailureKind::Tls);
    assert!(matches!(failed.downcast_ref(), Some(WebhookError::Unanswered { trouble: Trouble::Tls, .. })));
    failed.chain()
}

#[tokio::test]
async fn a_certificate_of_the_given_authority_is_trusted() {
    let (_, _dir, options) = secure("localhost").await;
    deliver(&sink(options), order()).await.unwrap();
}

#[tokio::test]
async fn a_certificate_of_an_unknown_authority_is_permanent() {
    let (_, _dir, mut options) = secure("localhost").await;
    options.ca_file = None;
    assert_eq!(refused(&sink(options)).await, "TLS: the certificate's issuer is not trusted");
}

#[tokio::test]
async fn a_certificate_for_another_name_is_permanent_and_the_text_names_no_host() {
    let (_, _dir, options) = secure("other.example").await;
    assert_eq!(refused(&sink(options)).await, "TLS: the certificate is for another name");
}

#[tokio::test]
async fn an_expired_certificate_of_a_receiver_is_permanent_and_named() {
    let mut leaf = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    leaf.not_after = rcgen::date_time_ymd(2020, 1, 1);
    let (_, _dir, options) = secure_with(leaf).await;
    assert_eq!(refused(&sink(options)).await, "TLS: the certificate has expired");
}

#[tokio::test]
async fn a_server_without_tls_is_permanent() {
    let server = Server::saying(200, &[], "").await;
    let sink = sink(to(format!("https://localhost:{}/", server.address.port())));
    assert_eq!(refused(&sink).await, "TLS: the other side does not speak TLS; for plain HTTP use http://");
}

#[tokio::test]
async fn a_server_that_wants_tls_is_said_to_want_it() {
    let (port, _dir, _) = secure("localhost").await;
    let failed = failure(&sink(to(format!("http://localhost:{port}/"))), order()).await;
    assert_eq!(failed.chain(), "the other side speaks TLS; use https://");
    assert_eq!(failed.class(), Class::Transient);
    assert!(!failed.is_ambiguous(), "it understood nothing of it");
}
