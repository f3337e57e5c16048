//! The API with its own TLS: commands trust its authority, and SIGHUP replaces the certificate.

mod world;

use std::path::Path;

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use world::process::{Processor, redrive, stderr, stdout};
use world::{free_port, wait_for};

/// Creates an authority in `ca.pem`, and its certificate for localhost in `cert.pem` and `key.pem`.
fn issue(dir: &Path, expired: bool) {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let ca_key = KeyPair::generate().unwrap();
    let ca = params.self_signed(&ca_key).unwrap();
    let key = KeyPair::generate().unwrap();
    let issuer = Issuer::from_params(&params, &ca_key);
    let mut leaf = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    if expired {
        leaf.not_after = rcgen::date_time_ymd(2020, 1, 1);
    }
    std::fs::write(dir.join("cert.pem"), leaf.signed_by(&key, &issuer).unwrap().pem()).unwrap();
    std::fs::write(dir.join("key.pem"), key.serialize_pem()).unwrap();
    std::fs::write(dir.join("ca.pem"), ca.pem()).unwrap();
}

fn configure(dir: &Path, port: u16) {
    let config = format!(
        "[engine]\ndir = \"data\"\n[server]\nlisten = \"127.0.0.1:{port}\"\ntls_cert_file = \"cert.pem\"\n\
         tls_key_file = \"key.pem\"\n[[pipeline]]\nname = \"orders\"\n[pipeline.sink.webhook]\n\
         url = \"http://127.0.0.1:9/hook\"\n"
    );
    std::fs::write(dir.join("redrive.toml"), config).unwrap();
}

#[test]
fn the_api_is_served_over_tls_and_sighup_replaces_the_certificate() {
    let (dir, port) = (tempfile::tempdir().unwrap(), free_port());
    issue(dir.path(), false);
    std::fs::copy(dir.path().join("ca.pem"), dir.path().join("first-ca.pem")).unwrap();
    configure(dir.path(), port);
    let log = std::fs::File::create(dir.path().join("log")).unwrap();
    let mut child =
        redrive(dir.path()).arg("processor").stdout(log.try_clone().unwrap()).stderr(log).spawn().unwrap();
    let url = format!("https://localhost:{port}");
    let status =
        |ca: &str| redrive(dir.path()).args(["--url", &url, "--ca-file", ca, "status"]).output().unwrap();
    let trusts = |ca: &str| status(ca).status.code() == Some(0);
    wait_for("the API over TLS", || trusts("first-ca.pem"));
    assert!(stdout(&status("first-ca.pem")).contains("orders"));
    let plain = world::http::try_send("GET", &format!("http://127.0.0.1:{port}/livez"), &[], "");
    assert!(plain.is_none_or(|answer| answer.status != 200), "no plain HTTP beside TLS");

    issue(dir.path(), false);
    assert!(!trusts("ca.pem"), "nobody asked for the new one yet");
    let hangup =
        || std::process::Command::new("kill").args(["-HUP", &child.id().to_string()]).status().unwrap();
    assert!(hangup().success());
    wait_for("the new certificate", || trusts("ca.pem"));
    std::fs::write(dir.path().join("cert.pem"), "spoiled").unwrap();
    assert!(hangup().success());
    wait_for("the log", || {
        std::fs::read_to_string(dir.path().join("log"))
            .unwrap()
            .contains("SIGHUP: the certificate stays as it was")
    });
    assert!(trusts("ca.pem"), "{}", stderr(&status("ca.pem")));
    child.kill().unwrap();
    child.wait().unwrap();
}

/// SIGHUP once ended a processor without a certificate, without draining.
#[test]
fn sighup_ends_no_processor_that_has_nothing_to_reload() {
    let (dir, port) = (tempfile::tempdir().unwrap(), free_port());
    configure(dir.path(), port);
    let config = std::fs::read_to_string(dir.path().join("redrive.toml")).unwrap();
    let plain: Vec<&str> = config.lines().filter(|line| !line.contains("tls_")).collect();
    std::fs::write(dir.path().join("redrive.toml"), plain.join("\n")).unwrap();
    let mut processor = Processor::run(dir.path(), port, redrive(dir.path()).arg("processor"));
    for times in 1..=3 {
        processor.signal("HUP");
        wait_for("the log", || processor.log().matches("SIGHUP: nothing to reload").count() == times);
    }
    assert_eq!(world::http::send("GET", &format!("http://127.0.0.1:{port}/livez"), &[], "").status, 200);
    processor.signal("TERM");
    assert_eq!(processor.wait(), Some(0), "{}", processor.log());
}

#[test]
fn an_expired_certificate_is_refused_at_the_start() {
    let dir = tempfile::tempdir().unwrap();
    issue(dir.path(), true);
    configure(dir.path(), free_port());
    let ran = redrive(dir.path()).args(["config", "check"]).output().unwrap();
    let said = format!("{}{}", stdout(&ran), stderr(&ran));
    assert_eq!(ran.status.code(), Some(2), "{said}");
    assert!(said.contains("`tls_cert_file` is \"cert.pem\", but the certificate has expired"), "{said}");
}
