//! A cluster with TLS and passwords: settings are passed on, secrets come from files and variables and are never shown,
//! and a refused client learns why.
#![cfg(feature = "kafka")]

mod world;

use std::path::Path;
use std::process::Command;

use serde_json::json;
use world::guarded::Guarded;
use world::process::{Processor, redrive, stderr, stdout};
use world::receiver::{OK, Receiver, Reply};
#[cfg(feature = "kafka-oauth")]
use world::tokens::Tokens;
use world::{free_port, kafka, wait_for};

const REFUSED: Reply = ("422 Unprocessable Content", "");
const VARIABLE: &str = "REDRIVE_TEST_KAFKA_PASSWORD";

fn config(dir: &Path, port: u16, brokers: &str, url: &str, client: &str) {
    let engine = kafka::engine_at(brokers, "orders-delivery", "create");
    let lines = "source = \"orders\"\nid     = \"json:/order_id\"\ntiers  = [\"200ms\"]";
    let text = world::config(&format!("{engine}\n[engine.kafka]\n{client}"), lines, url)
        .replace("@DIR@", &dir.join("data").to_string_lossy())
        .replace("@LISTEN@", &format!("127.0.0.1:{port}"));
    std::fs::write(dir.join("redrive.toml"), text).unwrap();
}

fn scram(ca: &Path, password: &str) -> String {
    format!(
        r#""security.protocol" = "SASL_SSL"
"ssl.ca.location"   = "{}"
"sasl.mechanism"    = "SCRAM-SHA-512"
"sasl.username"     = "redrive"
{password}"#,
        ca.display()
    )
}

/// Runs a command with maximum verbosity, which must not reveal a secret.
fn verbose(dir: &Path, args: &[&str]) -> Command {
    let mut command = redrive(dir);
    command.arg("-vv").args(args);
    command
}

fn run(command: &mut Command) -> (Option<i32>, String) {
    let ran = command.output().unwrap();
    (ran.status.code(), stdout(&ran) + &stderr(&ran))
}

/// A processor with this configuration handles one order that is delivered and one that is refused.
fn carries(dir: &Path, port: u16, receiver: &Receiver, broker: &Guarded, variable: Option<&str>, round: u32) {
    let mut command = verbose(dir, &["processor"]);
    if let Some(password) = variable {
        command.env(VARIABLE, password);
    }
    let mut processor = Processor::run(dir, port, &mut command);
    let (good, bad) = (format!("good-{round}"), format!("bad-{round}"));
    let order = |id: &String| (id.clone(), json!({"order_id": id}).to_string());
    kafka::produce_at(&broker.open, "orders", [order(&good), order(&bad)]);
    wait_for("the good order", || !receiver.requests_for(&good).is_empty());
    wait_for("the letter", || processor.get("/v1/pipelines/orders").json()["letters"]["open"] == round);
    for args in [&["dlq", "inspect", "orders"][..], &["status"], &["config", "show"]] {
        let asked = verbose(dir, args).env(VARIABLE, variable.unwrap_or_default()).output().unwrap();
        shows_nothing(&(stdout(&asked) + &stderr(&asked)), &broker.password());
    }
    shows_nothing(&processor.get("/metrics").body, &broker.password());
    processor.signal("TERM");
    assert_eq!(processor.wait(), Some(0), "{}", processor.log());
}

fn shows_nothing(text: &str, secret: &str) {
    assert!(!text.contains(secret), "a secret is shown: {}", text.replace(secret, "<HERE>"));
}

/// Asserts that nothing below the directory contains the secret: no log, no state.
fn holds_nothing(dir: &Path, secret: &str) {
    for entry in std::fs::read_dir(dir).unwrap().map(Result::unwrap) {
        let path = entry.path();
        if entry.file_type().unwrap().is_dir() {
            holds_nothing(&path, secret);
        } else if let Ok(bytes) = std::fs::read(&path) {
            let found = bytes.windows(secret.len()).any(|part| part == secret.as_bytes());
            assert!(!found, "{} holds the password", path.display());
        }
    }
}

#[cfg(feature = "kafka-tls")]
#[test]
fn messages_go_over_tls_with_scram_and_a_wrong_password_is_told_without_it() {
    let (dir, home) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (dir, broker) = (dir.path(), Guarded::start(home.path()));
    let receiver = Receiver::start(|request| if request.id().starts_with("bad") { REFUSED } else { OK });
    let (port, secret, ca) = (free_port(), broker.password(), broker.file("ca.pem"));
    kafka::create_at(&broker.open, "orders", 2);

    // The password from a file, then from a variable.
    let from_file = format!("\"sasl.password_file\" = \"{}\"", broker.file("password").display());
    config(dir, port, &broker.sasl_ssl(), &receiver.url(), &scram(&ca, &from_file));
    let (code, said) = run(&mut verbose(dir, &["check", "--kafka"]));
    shows_nothing(&said, &secret);
    assert_eq!(code, Some(0), "the topics will be made: {said}");
    assert!(said.contains("SASL PLAIN, SCRAM-SHA-256, SCRAM-SHA-512") && said.contains(" · TLS ·"), "{said}");
    carries(dir, port, &receiver, &broker, None, 1);

    let from_variable = format!("\"sasl.password_env\" = \"{VARIABLE}\"");
    config(dir, port, &broker.sasl_ssl(), &receiver.url(), &scram(&ca, &from_variable));
    carries(dir, port, &receiver, &broker, Some(&secret), 2);

    // A wrong password is reported by every command; it is still a secret.
    let wrong = "wrong-0123456789";
    for args in [&["processor"][..], &["check", "--kafka"], &["status", "orders", "--members"]] {
        let (code, said) = run(verbose(dir, args).env(VARIABLE, wrong));
        assert_eq!(code, Some(2), "{args:?}: {said}");
        assert!(said.contains("invalid credentials with SASL mechanism SCRAM-SHA-512"), "{args:?}: {said}");
        assert!(said.contains("check `sasl.username`, `sasl.password`"), "{args:?}: {said}");
        shows_nothing(&said, wrong);
    }

    // A foreign certificate, and no TLS at all.
    let other = home.path().join("other.pem");
    std::fs::write(&other, SOMEBODY_ELSES).unwrap();
    config(dir, port, &broker.sasl_ssl(), &receiver.url(), &scram(&other, &from_variable));
    let (code, said) = run(verbose(dir, &["check", "--kafka"]).env(VARIABLE, &secret));
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("certificate verify failed") && said.contains("check `ssl.ca.location`"), "{said}");
    config(dir, port, &broker.sasl_ssl(), &receiver.url(), "");
    let (code, said) = run(&mut verbose(dir, &["check", "--kafka"]));
    assert_eq!(code, Some(75), "{said}");
    assert!(said.contains("security.protocol"), "{said}");

    holds_nothing(dir, &secret);
    holds_nothing(dir, wrong);
}

#[test]
fn a_password_without_tls_works_in_every_build() {
    let (dir, home) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (dir, broker) = (dir.path(), Guarded::start(home.path()));
    let receiver = Receiver::start(|request| if request.id().starts_with("bad") { REFUSED } else { OK });
    let port = free_port();
    kafka::create_at(&broker.open, "orders", 2);
    let client = format!(
        r#""security.protocol"  = "SASL_PLAINTEXT"
"sasl.mechanism"     = "PLAIN"
"sasl.username"      = "redrive"
"sasl.password_file" = "{}""#,
        broker.file("password").display()
    );
    config(dir, port, &broker.sasl_plaintext(), &receiver.url(), &client);
    carries(dir, port, &receiver, &broker, None, 1);

    let (file, wrong) = (home.path().join("wrong"), "wrong-0123456789");
    std::fs::write(&file, wrong).unwrap();
    let client = client.replace(&broker.file("password").display().to_string(), &file.display().to_string());
    config(dir, port, &broker.sasl_plaintext(), &receiver.url(), &client);
    let (code, said) = run(&mut verbose(dir, &["processor"]));
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("Invalid username or password") && said.contains("sasl.password"), "{said}");
    shows_nothing(&said, wrong);
    holds_nothing(dir, &broker.password());
    holds_nothing(dir, wrong);
}

#[cfg(feature = "kafka-oauth")]
#[test]
fn a_token_is_fetched_with_client_credentials_from_a_file() {
    let (dir, home) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (dir, broker) = (dir.path(), Guarded::start(home.path()));
    let receiver = Receiver::start(|request| if request.id().starts_with("bad") { REFUSED } else { OK });
    let (port, tokens) = (free_port(), Tokens::start("redrive", &broker.password()));
    kafka::create_at(&broker.open, "orders", 2);
    let client = |secret: &Path| {
        format!(
            r#""security.protocol"                   = "SASL_PLAINTEXT"
"sasl.mechanism"                      = "OAUTHBEARER"
"sasl.oauthbearer.method"             = "oidc"
"sasl.oauthbearer.client.id"          = "redrive"
"sasl.oauthbearer.client.secret_file" = "{}"
"sasl.oauthbearer.token.endpoint.url" = "{}""#,
            secret.display(),
            tokens.url()
        )
    };
    config(dir, port, &broker.sasl_plaintext(), &receiver.url(), &client(&broker.file("password")));
    let (code, said) = run(&mut verbose(dir, &["check", "--kafka"]));
    assert_eq!(code, Some(0), "the topics will be made: {said}");
    assert!(said.contains("SCRAM-SHA-512, OAUTHBEARER · TLS"), "{said}");
    shows_nothing(&said, &broker.password());
    carries(dir, port, &receiver, &broker, None, 1);
    assert!(tokens.given() > 0);
    holds_nothing(dir, &broker.password());

    // Without a token it does not retry for ever, and a wrong secret is not shown.
    let (file, wrong) = (home.path().join("wrong"), "wrong-0123456789");
    std::fs::write(&file, wrong).unwrap();
    config(dir, port, &broker.sasl_plaintext(), &receiver.url(), &client(&file));
    let (code, said) = run(&mut verbose(dir, &["check", "--kafka"]));
    assert!(matches!(code, Some(2 | 75)), "{code:?}: {said}");
    shows_nothing(&said, wrong);
    holds_nothing(dir, wrong);
}

/// The configuration alone shows it; no broker is contacted.
#[cfg(not(feature = "kafka-tls"))]
#[test]
fn a_build_without_tls_names_the_feature_before_it_connects() {
    let dir = tempfile::tempdir().unwrap();
    let secret = dir.path().join("password");
    std::fs::write(&secret, "hunter2-hunter2").unwrap();
    let client =
        scram(Path::new("/etc/ca.pem"), &format!("\"sasl.password_file\" = \"{}\"", secret.display()));
    config(dir.path(), free_port(), "127.0.0.1:1", "http://127.0.0.1:1/", &client);
    for args in [&["processor"][..], &["check"], &["check", "--kafka"]] {
        let (code, said) = run(&mut verbose(dir.path(), args));
        assert_eq!(code, Some(2), "{said}");
        for part in [
            "`kafka.security.protocol` cannot be passed on: it needs TLS, and this build has none",
            "the mechanism SCRAM-SHA-512 is not in this build, which has PLAIN",
            "--features kafka-tls",
        ] {
            assert!(said.contains(part), "{part} is not in {said}");
        }
        shows_nothing(&said, "hunter2-hunter2");
    }
}

/// Self-signed and unusable: its key was discarded.
#[cfg(feature = "kafka-tls")]
const SOMEBODY_ELSES: &str = "-----BEGIN CERTIFICATE-----
MIIBhzCCAS2gAwIBAgIUQZwKSb+XsZnu8PpUyewxLoN8iSEwCgYIKoZIzj0EAwIw
GDEWMBQGA1UEAwwNc29tZWJvZHktZWxzZTAgFw0yNjExMTYwODQ4NDVaGA8yMTI2
MTAyMzA4NDg0NVowGDEWMBQGA1UEAwwNc29tZWJvZHktZWxzZTBZMBMGByqGSM49
AgEGCCqGSM49AwEHA0IABJudjO++pnjZ/zp+pzaKPniv8vocL1ZUYs+7AG88fxRZ
u660wB4maVgc2atHVaIQr+wcJpAAFsDoeYqIUWSV2NyjUzBRMB0GA1UdDgQWBBRm
lSBF28oTfNr8zdXocNE8znQUuDAfBgNVHSMEGDAWgBRmlSBF28oTfNr8zdXocNE8
znQUuDAPBgNVHRMBAf8EBTADAQH/MAoGCCqGSM49BAMCA0gAMEUCIQD95eMn3TCl
gPmcwjVI4cfzp4jAVCjHJurVY6HmjfmUVgIgZXRV0qKV+nGnR1LQJ70HR0/d9lWi
1cISkPmjAC4pc+w=
-----END CERTIFICATE-----
";
