//! A processor behind a TLS proxy: commands talk to it over https, and refuse certificates they cannot trust.

mod world;

use std::path::Path;
use std::process::Output;
use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::ServerConfig;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use world::config;
use world::process::{Processor, redrive, stderr, stdout};

/// Starts a proxy with a certificate for `name` in front of `port`; returns its own port. The file of its authority is
/// in `dir`.
fn tls_in_front_of(port: u16, name: &str, dir: &Path) -> u16 {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let ca_key = KeyPair::generate().unwrap();
    let ca = params.self_signed(&ca_key).unwrap();
    let key = KeyPair::generate().unwrap();
    let issuer = Issuer::from_params(&params, &ca_key);
    let leaf = CertificateParams::new(vec![name.to_owned()]).unwrap().signed_by(&key, &issuer).unwrap();
    std::fs::write(dir.join("ca.pem"), ca.pem()).unwrap();
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let server = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let server = server.with_no_client_auth().with_single_cert(vec![leaf.der().clone()], key).unwrap();
    let (told, tell) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async move {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            told.send(listener.local_addr().unwrap().port()).unwrap();
            let acceptor = TlsAcceptor::from(Arc::new(server));
            loop {
                let (outside, _) = listener.accept().await.unwrap();
                let acceptor = acceptor.clone();
                tokio::spawn(async move {
                    // A client that does not trust the certificate ends here.
                    let Ok(mut outside) = acceptor.accept(outside).await else { return };
                    let mut inside = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
                    let _ = tokio::io::copy_bidirectional(&mut outside, &mut inside).await;
                });
            }
        });
    });
    tell.recv().unwrap()
}

fn ask(dir: &Path, args: &[&str]) -> Output {
    redrive(dir).args(args).output().unwrap()
}

#[test]
fn commands_speak_https_with_an_authority_of_ones_own() {
    let dir = tempfile::tempdir().unwrap();
    let processor = Processor::start(dir.path(), &config("", "name = \"orders\"", "http://127.0.0.1:9/hook"));
    let url = format!("https://localhost:{}", tls_in_front_of(processor.port, "localhost", dir.path()));
    // Reading and, with the token, writing.
    for command in ["status", "pause"] {
        let ran = match command {
            "status" => ask(dir.path(), &["--url", &url, "--ca-file", "ca.pem", command]),
            _ => ask(dir.path(), &["--url", &url, "--ca-file", "ca.pem", command, "orders"]),
        };
        assert_eq!(ran.status.code(), Some(0), "{}", stderr(&ran));
        assert!(stdout(&ran).contains("orders"), "{}", stdout(&ran));
        assert!(!stderr(&ran).contains("unencrypted"), "{}", stderr(&ran));
    }
    let by_variable =
        redrive(dir.path()).args(["--url", &url, "status"]).env("REDRIVE_CA_FILE", "ca.pem").output();
    assert_eq!(by_variable.unwrap().status.code(), Some(0));
}

#[test]
fn nobody_is_asked_who_cannot_be_trusted() {
    let dir = tempfile::tempdir().unwrap();
    let processor = Processor::start(dir.path(), &config("", "name = \"orders\"", "http://127.0.0.1:9/hook"));
    let port = tls_in_front_of(processor.port, "localhost", dir.path());
    let https = |host: &str| format!("https://{host}:{port}");
    for (url, ca_file, said) in [
        (https("localhost"), None, "the certificate's issuer is not trusted"),
        (https("127.0.0.1"), Some("ca.pem"), "the certificate is for another name"),
        (format!("https://127.0.0.1:{}", processor.port), Some("ca.pem"), "does not speak TLS"),
        (https("localhost"), Some("nowhere.pem"), "--ca-file \"nowhere.pem\", but"),
        (https("localhost"), Some("redrive.toml"), "there is no certificate in it"),
    ] {
        let mut args = vec!["--url", url.as_str(), "status"];
        args.extend(ca_file.iter().flat_map(|file| ["--ca-file", file]));
        let ran = ask(dir.path(), &args);
        assert_eq!(ran.status.code(), Some(2), "{args:?}: {}{}", stdout(&ran), stderr(&ran));
        assert!(stderr(&ran).contains(said), "{args:?}: {}", stderr(&ran));
        assert!(stderr(&ran).contains("PEM"), "{args:?}: {}", stderr(&ran));
    }
    // An unreachable server is reported differently.
    let ran = ask(dir.path(), &["--url", &format!("https://127.0.0.1:{}", world::free_port()), "status"]);
    assert_eq!(ran.status.code(), Some(75), "{}", stderr(&ran));
}
