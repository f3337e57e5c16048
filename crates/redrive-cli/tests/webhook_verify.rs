//! `redrive webhook verify` on requests that a processor sent.

mod world;

use world::process::{Processor, redrive, stdout};
use world::receiver::{OK, Receiver};
use world::wait_for;

const SECRET: &str = "whsec_bmV3bmV3bmV3bmV3bmV3bmV3bmV3bmV3";

#[test]
fn what_a_pipeline_signs_is_verified_by_hand() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("whsec"), format!("{SECRET}\n")).unwrap();
    std::fs::write(dir.path().join("other"), SECRET.replace("bmV3", "b2xk")).unwrap();
    let receiver = Receiver::start(|_| OK);
    let config = world::config("", "name = \"orders\"", &receiver.url());
    let processor = Processor::start(dir.path(), &format!("{config}signing_secret_file = \"whsec\"\n"));
    let sent = processor.post("/v1/pipelines/orders/messages", r#"{"id":"shop.orders/1","payload":{"a":1}}"#);
    assert_eq!(sent.status, 202, "{sent:?}");
    wait_for("the request", || !receiver.requests().is_empty());
    let request = receiver.requests().remove(0);
    let header = |name: &str| request.header(name).unwrap_or_default().to_owned();
    std::fs::write(dir.path().join("body"), &request.body).unwrap();
    let verify = |secret: &str, extra: &[&str]| {
        let mut command = redrive(dir.path());
        command.args(["webhook", "verify", "--body", "body", "--secret-file", secret]);
        command.args(["--id", &header("webhook-id"), "--timestamp", &header("webhook-timestamp")]);
        command.args(["--signature", &header("webhook-signature")]).args(extra).output().unwrap()
    };
    let good = verify("whsec", &[]);
    assert_eq!(
        (good.status.code(), stdout(&good).trim()),
        (Some(0), "valid: v1, key 1, message shop.orders/1")
    );
    let timestamp: u64 = header("webhook-timestamp").parse().unwrap();
    let (at, soon) = ((timestamp + 301).to_string(), (timestamp + 299).to_string());
    let old = verify("whsec", &["--at", &at]);
    assert_eq!(old.status.code(), Some(1));
    let why = "webhook-timestamp is 301 s in the past, more than the 300 s that are accepted";
    assert!(stdout(&old).starts_with(&format!("not valid: {why}")), "{}", stdout(&old));
    for accepted in
        [&["--at", soon.as_str()][..], &["--at", at.as_str(), "--tolerance", "10m"], &["--any-age"]]
    {
        assert_eq!(verify("whsec", accepted).status.code(), Some(0), "{accepted:?}");
    }
    let help = redrive(dir.path()).args(["webhook", "verify", "--help"]).output().unwrap();
    assert!(stdout(&help).contains("[default: 5m]"), "{}", stdout(&help));
    let bad = verify("other", &["--any-age"]);
    assert_eq!(bad.status.code(), Some(1));
    assert!(stdout(&bad).starts_with("not valid: no signature matches"), "{}", stdout(&bad));
    // A key of another kind in the same file does not hide why the right kind fails.
    let mixed = format!("{}\nwhpk_{}\n", SECRET.replace("bmV3", "b2xk"), "A".repeat(43) + "=");
    std::fs::write(dir.path().join("mixed"), mixed).unwrap();
    let bad = verify("mixed", &["--any-age"]);
    assert!(stdout(&bad).starts_with("not valid: no signature matches"), "{bad:?}");
}

#[test]
fn a_bad_secret_is_an_error_at_the_start_that_names_the_file_and_not_the_secret() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("whsec"), "hunter2\n").unwrap();
    let config = "[[pipeline]]\nname = \"orders\"\n[pipeline.sink.webhook]\nurl = \"http://127.0.0.1:9/\"\n\
                  signing_secret_file = \"whsec\"\n";
    std::fs::write(dir.path().join("redrive.toml"), config).unwrap();
    let ran = redrive(dir.path()).args(["config", "check"]).output().unwrap();
    let said = format!("{}{}", stdout(&ran), world::process::stderr(&ran));
    assert_eq!(ran.status.code(), Some(2), "{said}");
    assert!(said.contains("sink.webhook.signing_secret_file") && said.contains("line 1"), "{said}");
    assert!(!said.contains("hunter2"), "{said}");
}
