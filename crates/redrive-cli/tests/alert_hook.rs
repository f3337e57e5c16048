//! `[[alert]]` with the real binary: who is notified of what, that it happens once, and that nothing waits for it.

mod world;

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use redrive::actions::Actions;
use redrive::letters::Redaction;
use redrive::replay::Replays;
use redrive::{
    Clock as _, Failure, MemoryStores, Message, Pipeline, Policy, Redrive, Time, WallClock, timestamp,
};
use redrive_cli::config::{Environment, ProcessorFlags, Source, load};
use redrive_cli::service::alerts::{Pills, Watched, Watching};
use serde_json::{Value, json};
use world::process::{Processor, redrive, stderr};
use world::receiver::{OK, Receiver, Reply, UNAVAILABLE};
use world::wait_for;

const MESSAGES: &str = "/v1/pipelines/orders/messages";
const REFUSED: Reply = ("422 Unprocessable Content", "");

fn config(url: &str, alerts: &str) -> String {
    format!(
        r#"
[engine]
dir = "@DIR@"
[server]
listen = "@LISTEN@"
[[pipeline]]
name   = "orders"
tiers  = ["20ms", "30ms"]
jitter = "none"
[pipeline.sink.webhook]
url = "{url}"
{alerts}
"#
    )
}

fn notices(receiver: &Receiver) -> Vec<Value> {
    receiver.requests().iter().map(|request| serde_json::from_str(&request.body).unwrap()).collect()
}

fn send(processor: &Processor, ids: std::ops::Range<u32>) {
    let mut lines = String::new();
    for id in ids {
        let _ = writeln!(lines, r#"{{"id":"o-{id}","payload":{id}}}"#);
    }
    assert_eq!(processor.post_as(MESSAGES, "application/x-ndjson", &lines).status, 202);
}

#[test]
fn a_webhook_hears_of_dead_letters_once_and_of_their_end_although_it_fails_at_first() {
    let dir = tempfile::tempdir().unwrap();
    let downstream = Receiver::start(|_| REFUSED);
    // The first answer is a failure: the notice is sent again, with the same id.
    let hook = Receiver::start(|request| match request.header("redrive-attempt") {
        Some("1") if request.body.contains("firing") => UNAVAILABLE,
        _ => OK,
    });
    let alert = format!(
        "[[alert]]\non = [\"dead_letters\"]\nwebhook = \"{}\"\ndead_letters = 4\nwithin = \"3s\"\nevery = \"1h\"",
        hook.url()
    );
    let mut processor = Processor::start(dir.path(), &config(&downstream.url(), &alert));
    send(&processor, 0..5);
    wait_for("both notices", || hook.requests().len() >= 3);
    let heard = notices(&hook);
    let states: Vec<&Value> = heard.iter().map(|notice| &notice["state"]).collect();
    assert_eq!(states, ["firing", "firing", "resolved"], "{heard:?}");
    assert_eq!(hook.requests()[0].id(), hook.requests()[1].id());
    assert_ne!(hook.requests()[1].id(), hook.requests()[2].id());
    let first = &heard[0];
    assert_eq!((&first["alert"], &first["pipeline"]), (&json!("dead_letters"), &json!("orders")));
    assert_eq!((&first["value"], &first["limit"]), (&json!(5), &json!(4)), "{first}");
    assert_eq!(first["runbook"], "docs/runbooks/dead-letter-arrivals.md");
    assert_eq!(hook.requests()[0].header("content-type"), Some("application/json"));

    // The hour is not over: repeated events are not reported again.
    send(&processor, 5..20);
    wait_for("the dead letters", || processor.get("/v1/pipelines/orders").json()["dead"] == 20);
    processor.signal("TERM");
    assert_eq!(processor.wait(), Some(0), "{}", processor.log());
    assert_eq!(hook.requests().len(), 3);
    assert!(processor.log().contains("alert could not be sent and is tried again"), "{}", processor.log());
}

/// A handler that panics is a crash that does not end the process; the rest is the same. Its first failure is not a
/// crash.
#[test]
fn a_command_gets_the_record_of_a_poison_pill() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("notices.ndjson");
    let script = r#"cat >> "$0"; echo >> "$0"; [ "$REDRIVE_ALERT" = poison_pill ]"#;
    let words = ["/bin/sh", "-c", script, &file.display().to_string()].map(|word| json!(word).to_string());
    let alert = format!("[[alert]]\non = [\"poison_pill\"]\ncommand = [{}]", words.join(", "));
    let source = Source::new(
        "redrive.toml",
        config("http://127.0.0.1:1/hook", &alert).replace("@LISTEN@", "127.0.0.1:0"),
    );
    let loaded = load::build(Some(source), &ProcessorFlags::default(), &Environment::default());
    let alerts = loaded.config.unwrap_or_else(|| panic!("{:?}", loaded.faults)).alerts;

    let pills = Arc::new(Pills::default());
    let found = Arc::clone(&pills);
    let failed = Arc::new(AtomicU64::new(0));
    let first_failed = Arc::clone(&failed);
    let pipeline = Pipeline::new("orders")
        .policy(Policy::tiers(["20ms", "30ms", "40ms", "50ms"]).jitter("none"))
        .handler_fn(move |message| {
            let failed = Arc::clone(&first_failed);
            async move {
                if message.id() == "o-3" && failed.load(Ordering::SeqCst) == 0 {
                    failed.store(WallClock.now().as_millis(), Ordering::SeqCst);
                    return Err(Failure::transient("503 Service Unavailable"));
                }
                assert_ne!(message.id(), "o-3", "a message that its handler cannot bear");
                Ok(())
            }
        })
        .on_dead_letter(move |letter| found.notice(letter, WallClock.now()));
    let redrive = Redrive::builder().engine(MemoryStores::new()).pipeline(pipeline).build().unwrap();
    let handle = redrive.pipeline("orders").unwrap();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let watching = Watching::start(
        &alerts,
        vec![Watched {
            handle: handle.clone(),
            subscriptions: None,
            replays: Replays::open(None).unwrap(),
            actions: Actions::open(None).unwrap(),
            redaction: Redaction::default(),
        }],
        pills,
        None,
        &runtime,
    )
    .unwrap()
    .unwrap();
    let told = file.clone();
    runtime.block_on(async {
        let messages = (0..5).map(|id| Message::builder(format!("o-{id}")).build().unwrap());
        handle.ingest(messages).await.unwrap();
        let work = async {
            while !fs::read_to_string(&told).is_ok_and(|text| text.ends_with("}\n")) {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        let limit = tokio::time::timeout(world::PATIENCE, redrive.run_until(work));
        limit.await.expect("waited for the notice").unwrap();
        watching.end().await;
    });

    let text = fs::read_to_string(&file).unwrap();
    let notice: Value = serde_json::from_str(text.trim()).unwrap_or_else(|error| panic!("{error}: {text}"));
    assert_eq!((&notice["alert"], &notice["severity"]), (&json!("poison_pill"), &json!("critical")));
    let pill = &notice["quarantined"][0];
    assert_eq!((&pill["message_id"], &pill["crash_count"]), (&json!("o-3"), &json!(3)), "{notice}");
    assert_eq!(pill["attempts"], 4, "{notice}");
    // It failed before it crashed; the next attempt came 20 ms later.
    let failed = Time::from_millis(failed.load(Ordering::SeqCst) + 10);
    assert!(pill["first_crash_at"].as_str().unwrap() > timestamp::print(failed).as_str(), "{pill}");
    let at = |field: &str| pill[field].as_str().unwrap_or_else(|| panic!("{field}: {pill}")).to_owned();
    assert!(
        at("first_crash_at") <= at("last_crash_at") && at("last_crash_at") <= at("quarantined_at"),
        "{pill}"
    );
    assert_eq!(notice["quarantined"].as_array().unwrap().len(), 1, "no innocent: {notice}");
}

/// Each message is refused in its own way. A group from before the first poll is not new, so one of them must come
/// later.
#[test]
fn a_webhook_hears_of_a_new_group_and_of_one_that_is_back() {
    const WAYS: [Reply; 6] = [
        ("422 Unprocessable Content", ""),
        ("413 Content Too Large", ""),
        ("415 Unsupported Media Type", ""),
        ("406 Not Acceptable", ""),
        ("411 Length Required", ""),
        ("414 URI Too Long", ""),
    ];
    let dir = tempfile::tempdir().unwrap();
    let downstream = Receiver::start(|request| WAYS[request.body.parse::<usize>().unwrap() % WAYS.len()]);
    let hook = Receiver::start(|_| OK);
    let alert = format!(
        "[[alert]]\non = [\"new_group\", \"group_regressed\"]\nwebhook = \"{}\"\nevery = \"1h\"",
        hook.url()
    );
    let mut processor = Processor::start(dir.path(), &config(&downstream.url(), &alert));
    let groups = "/v1/pipelines/orders/groups";
    let metric = |name: &str| {
        let text = processor.get("/metrics").body;
        let line = text.lines().find(|line| line.starts_with(&format!("{name}{{pipeline=\"orders\"")));
        line.and_then(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).unwrap_or(0.0)
    };
    // The metrics were polled once before anything died.
    assert!(metric("redrive_letter_groups_new_total") < 1.0);
    let mut sent = 0;
    wait_for("the notice of a new group", || {
        if sent < WAYS.len() as u32 {
            send(&processor, sent..sent + 1);
            sent += 1;
            std::thread::sleep(Duration::from_secs(1));
        }
        !hook.requests().is_empty()
    });
    let first = notices(&hook).remove(0);
    assert_eq!((&first["alert"], &first["pipeline"]), (&json!("new_group"), &json!("orders")));
    let named = &first["groups"][0];
    let known = processor.get(groups).json();
    let known = known["groups"].as_array().unwrap();
    let group = known.iter().find(|group| group["id"] == named["id"]).expect("it is a group");
    assert_eq!((&named["title"], &named["open"]), (&group["error"], &json!(1)), "{first}");
    assert!(first["summary"].as_str().unwrap().contains(named["id"].as_str().unwrap()), "{first}");

    wait_for("the metric of new groups", || metric("redrive_letter_groups_new_total") >= 1.0);
    let before = metric("redrive_letter_groups_regressed_total");
    let path = format!("{groups}/{}/state", group["id"].as_str().unwrap());
    assert_eq!(processor.post(&path, r#"{"state":"resolved"}"#).status, 200);
    let way = WAYS.iter().position(|(status, _)| named["title"].as_str().unwrap().contains(&status[..3]));
    let again = 600 + u32::try_from(way.expect("the title names the status")).unwrap();
    // The watcher sees the group resolved before it is back, or sees only that it is back: both are news.
    send(&processor, again..again + 1);
    wait_for("the notice that it is back", || {
        notices(&hook).iter().any(|notice| notice["alert"] == "group_regressed")
    });
    let back = notices(&hook).into_iter().find(|notice| notice["alert"] == "group_regressed").unwrap();
    assert_eq!((&back["state"], &back["groups"][0]["id"]), (&json!("firing"), &named["id"]), "{back}");
    wait_for("the metric of groups that are back", || {
        metric("redrive_letter_groups_regressed_total") > before
    });
    processor.signal("TERM");
    assert_eq!(processor.wait(), Some(0), "{}", processor.log());
}

#[test]
fn hooks_that_hang_or_fail_hold_nothing_up_and_end_with_the_processor() {
    let dir = tempfile::tempdir().unwrap();
    let downstream = Receiver::start(|request| if request.body == "0" { REFUSED } else { OK });
    let hanging = Receiver::start(|_| {
        loop {
            std::thread::park();
        }
    });
    let alert =
        |to: &str| format!("[[alert]]\non = [\"dead_letters\"]\n{to}\ndead_letters = 0\ntimeout = \"5m\"\n");
    let alerts = [
        alert(&format!("webhook = \"{}\"", hanging.url())),
        alert("command = [\"/bin/sh\", \"-c\", \"sleep 600 & wait\"]"),
        alert("command = [\"false\"]"),
    ];
    let mut processor = Processor::start(dir.path(), &config(&downstream.url(), &alerts.concat()));
    send(&processor, 0..1);
    wait_for("the alert", || processor.log().contains("alert could not be sent and is tried again"));
    wait_for("all three to be told", || processor.log().matches("\"message\":\"alert\"").count() == 3);
    send(&processor, 1..500);
    wait_for("every message", || processor.get("/v1/pipelines/orders").json()["succeeded"] == 499);
    processor.signal("TERM");
    assert_eq!(processor.wait(), Some(0), "{}", processor.log());
    assert!(processor.log().contains("some alerts were not sent before the end"), "{}", processor.log());
}

#[test]
fn storage_that_cannot_be_opened_is_told_before_the_process_ends() {
    let dir = tempfile::tempdir().unwrap();
    let (downstream, hook) = (Receiver::start(|_| UNAVAILABLE), Receiver::start(|_| OK));
    let alert = format!("[[alert]]\nwebhook = \"{}\"", hook.url());
    let mut processor = Processor::start(dir.path(), &config(&downstream.url(), &alert));
    send(&processor, 0..3);
    processor.signal("TERM");
    assert_eq!(processor.wait(), Some(0), "{}", processor.log());
    // A misplaced segment: the beginning is missing.
    let journal = dir.path().join("data/orders/journal");
    fs::rename(journal.join("j-0000000000000000.seg"), journal.join("j-0000000000010000.seg")).unwrap();
    let mut refused = redrive(dir.path()).arg("processor").stderr(Stdio::null()).spawn().unwrap();
    let mut ended = None;
    wait_for("it to be refused", || {
        ended = refused.try_wait().unwrap();
        ended.is_some()
    });
    assert_eq!(ended.unwrap().code(), Some(74));
    let heard = notices(&hook);
    assert_eq!((&heard[0]["alert"], &heard[0]["pipeline"]), (&json!("storage"), &Value::Null), "{heard:?}");
    assert!(heard[0]["summary"].as_str().unwrap().starts_with("storage failed"), "{heard:?}");
}

/// The complaints about a file with this alert.
fn complaints(dir: &Path, alert: &str) -> (Option<i32>, String) {
    fs::write(dir.join("redrive.toml"), config("http://127.0.0.1:1/hook", alert)).unwrap();
    let text = fs::read_to_string(dir.join("redrive.toml")).unwrap();
    let text = text.replace("@DIR@", "store").replace("@LISTEN@", "127.0.0.1:0");
    fs::write(dir.join("redrive.toml"), text).unwrap();
    let output = redrive(dir).args(["config", "check"]).output().unwrap();
    let said = format!("{}{}", String::from_utf8_lossy(&output.stdout), stderr(&output));
    (output.status.code(), said)
}

#[test]
fn every_fault_of_an_alert_is_told_with_its_place_and_a_fix() {
    let dir = tempfile::tempdir().unwrap();
    let table: &[(&str, &[&str])] = &[
        ("", &["neither `webhook` nor `command`", "alert 1"]),
        (
            "webhook = \"http://a.example\"\ncommand = [\"true\"]",
            &["are both set", "its own [[alert]]", "keep `webhook` or `command`"],
        ),
        ("webhook = \"ftp://a.example/x\"", &["`webhook` cannot be used"]),
        ("command = []", &["names no program"]),
        ("command = [\"/no/such/program\"]", &["/no/such/program", "no such file"]),
        ("command = [\"true\"]\non = [\"poison\"]", &["`poison`", "poison_pill"]),
        ("command = [\"true\"]\non = []", &["sends no alerts"]),
        ("command = [\"true\"]\npipelines = [\"order\"]", &["no such [[pipeline]]", "\"orders\""]),
        ("command = [\"true\"]\nevery = \"0s\"", &["must be at least 1s", "every = \"1s\""]),
        ("command = [\"true\"]\ntimeout = \"1h\"", &["must be at most 5m"]),
        ("command = [\"true\"]\nevry = \"1m\"", &["did you mean `every`"]),
        ("command = [\"true\"]\nheaders = { x-a = \"b\" }", &["`headers` go with a `webhook`"]),
        ("command = [\"true\"]\ndead_letters = -1", &["must lie between"]),
    ];
    for (alert, parts) in table {
        let (code, said) = complaints(dir.path(), &format!("[[alert]]\n{alert}"));
        assert_eq!(code, Some(2), "{alert}: {said}");
        for part in *parts {
            assert!(said.contains(part), "{part} is not said of {alert}: {said}");
        }
        assert!(said.contains("redrive.toml:"), "{alert}: {said}");
    }
    let (code, said) = complaints(dir.path(), "[[alert]]\ncommand = [\"true\", \"hunter2\"]");
    assert_eq!(code, Some(0), "{said}");
    let shown = redrive(dir.path()).args(["config", "show"]).output().unwrap();
    let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
    assert!(shown.contains("[[alert]]") && shown.contains("command = [\"true\", \"…\"]"), "{shown}");
    assert!(!shown.contains("hunter2"), "{shown}");
}

/// A replay whose canary died again waits for a decision: the hook, `status` and the metrics report it until then.
#[test]
fn a_replay_that_was_stopped_is_told_until_somebody_decides_about_it() {
    let dir = tempfile::tempdir().unwrap();
    let (downstream, hook) = (Receiver::start(|_| REFUSED), Receiver::start(|_| OK));
    let alert = format!("[[alert]]\non = [\"replay_stopped\"]\nwebhook = \"{}\"\nevery = \"1h\"", hook.url());
    let processor = Processor::start(dir.path(), &config(&downstream.url(), &alert));
    send(&processor, 0..15);
    wait_for("the letters", || processor.get("/v1/pipelines/orders").json()["letters"]["open"] == 15);
    let replayed = processor.cli(&["dlq", "replay", "orders", "--all"]);
    assert_eq!(replayed.status.code(), Some(1), "{}", stderr(&replayed));
    wait_for("the notice", || hook.requests().len() == 1);
    let told = &notices(&hook)[0];
    assert_eq!((&told["alert"], &told["state"]), (&json!("replay_stopped"), &json!("firing")), "{told}");
    let said = "replay r-1 was stopped: 10 of the first 10 failed (canary, limit 20 %)";
    assert_eq!(told["summary"], format!("orders: {said}"));
    assert_eq!(told["runbook"], "docs/runbooks/replay-stopped.md");
    let status = processor.cli(&["status", "orders"]);
    let status = String::from_utf8_lossy(&status.stdout).into_owned();
    assert!(status.contains(&format!("{said}   `redrive dlq replay --resume r-1` resumes it")), "{status}");
    let stopped = "redrive_replay_jobs{pipeline=\"orders\",state=\"stopped\"} ";
    assert!(processor.get("/metrics").body.contains(&format!("{stopped}1\n")));

    assert!(processor.cli(&["dlq", "replay", "--abort", "r-1"]).status.success());
    wait_for("its end", || hook.requests().len() == 2);
    assert_eq!(notices(&hook)[1]["state"], "resolved");
    assert!(processor.get("/metrics").body.contains(&format!("{stopped}0\n")));
}
