//! `status`, `pause`, `resume`, tokens and addresses, against a server with recorded answers.

mod recorded;

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};

use recorded::{Asked, RecordedApi, command, pipeline, run};
use serde_json::json;

fn api() -> RecordedApi {
    RecordedApi::new(|asked: &Asked| match asked.line.as_str() {
        "GET /v1/pipelines" => (200, json!({"pipelines": [pipeline(false)]})),
        "POST /v1/pipelines/orders/pause" => (200, pipeline(true)),
        _ => (200, pipeline(false)),
    })
}

const STATUS: &str = "\
pipeline orders   ready 0   delayed 3   held 0   in flight 2   dead 61 (oldest 2h 00m)
  since start: succeeded 5,934   dead 61   retried 901   attempts 6,896
  last 5 min: p99 41 ms   late p99 3.2 ms   held p99 53m (12 messages)   failed attempts 1,812 × reset, 9 × 503 (4 of replayed letters)
";

#[test]
fn status_shows_one_pipeline_or_all() {
    let api = api();
    api.redrive(&["status", "orders"]).exits(0).prints(STATUS);
    api.redrive(&["status"]).exits(0).prints(STATUS);
    assert_eq!(api.asked()[0].line, "GET /v1/pipelines/orders");
    assert_eq!(api.asked()[1].line, "GET /v1/pipelines");
    let ran = api.redrive(&["status", "orders", "--json"]).exits(0);
    assert_eq!(ran.json()["breaker"], "closed");
}

#[test]
fn pause_and_resume_show_the_pipeline() {
    let api = api();
    let paused = STATUS.replacen("orders   ", "orders   PAUSED   ", 1);
    api.redrive(&["pause", "orders"]).exits(0).prints(&paused).complains("redrive resume orders");
    api.redrive(&["resume", "orders"]).exits(0).prints(STATUS);
    let lines: Vec<String> = api.asked().into_iter().map(|asked| asked.line).collect();
    assert_eq!(lines, ["POST /v1/pipelines/orders/pause", "POST /v1/pipelines/orders/resume"]);
}

#[test]
fn watch_prints_lines_until_it_is_interrupted() {
    let api = api();
    let mut child =
        command(&api.url(), &["status", "orders", "--watch"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert!(
        line.contains("  sent/s 0   failed 0.0 %   ready 0   delayed 3   held 0   in flight 2   dead 61"),
        "{line}"
    );
    let killed = std::process::Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(killed.success());
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn the_token_goes_into_the_header_and_nowhere_else() {
    let api = RecordedApi::new(|asked| match asked.authorization.as_deref() {
        Some("Bearer s3cret") => {
            (403, json!({"code": "forbidden", "message": "needs the scope admin", "hint": ""}))
        }
        Some(_) => (401, json!({"code": "unauthorized", "message": "not a known token", "hint": ""})),
        None => (401, json!({"code": "unauthorized", "message": "no token", "hint": ""})),
    });
    let mut pause = command(&api.url(), &["pause", "orders", "-vv"]);
    pause.env("REDRIVE_TOKEN", "s3cret");
    let ran = run(pause).exits(2).complains("needs the scope admin").complains("`scopes`");
    assert!(!format!("{ran:?}").contains("s3cret"));

    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("token");
    std::fs::write(&file, "wrong-one\n").unwrap();
    let ran = api.redrive(&["pause", "orders", "--token-file", file.to_str().unwrap()]).exits(2);
    assert!(
        ran.stderr.contains("not one of the processor's") && !ran.stderr.contains("wrong-one"),
        "{ran:?}"
    );
    api.redrive(&["pause", "orders"]).exits(2).complains("this needs a token: give it with --token-file");
}

#[test]
fn the_token_of_the_store_is_used_on_the_same_machine() {
    let api = api();
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("redrive-data")).unwrap();
    std::fs::write(dir.path().join("redrive-data/token"), "made-by-the-processor\n").unwrap();
    let mut pause = command(&api.url(), &["pause", "orders"]);
    pause.current_dir(dir.path());
    run(pause).exits(0);
    assert_eq!(api.asked()[0].authorization.as_deref(), Some("Bearer made-by-the-processor"));
}

#[test]
fn the_configuration_says_where_the_processor_and_its_token_are() {
    let api = api();
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("store")).unwrap();
    std::fs::write(dir.path().join("store/token"), "of-the-store").unwrap();
    let listen = api.url().replace("http://", "");
    let config = format!(
        "[engine]\ndir = \"{}\"\n[server]\nlisten = \"{listen}\"\n[[pipeline]]\nname = \"orders\"\n\
         [pipeline.sink.webhook]\nurl = \"http://127.0.0.1:9\"\n",
        dir.path().join("store").display()
    );
    let file = dir.path().join("redrive.toml");
    std::fs::write(&file, config).unwrap();
    let mut pause = Command::new(env!("CARGO_BIN_EXE_redrive"));
    pause.args(["pause", "orders", "--config"]).arg(&file).current_dir(dir.path());
    for name in ["REDRIVE_URL", "REDRIVE_TOKEN", "REDRIVE_DIR", "REDRIVE_LISTEN", "REDRIVE_ENGINE"] {
        pause.env_remove(name);
    }
    run(pause).exits(0);
    assert_eq!(api.asked()[0].authorization.as_deref(), Some("Bearer of-the-store"));

    // A configuration that is being edited must not prevent looking at a processor.
    std::fs::write(&file, "[engine]\nkind = \"embeded\"\n").unwrap();
    let mut status = command(&api.url(), &["status", "orders"]);
    status.current_dir(dir.path());
    run(status).exits(0).prints(STATUS).complains("the configuration has faults");
    api.redrive(&["status", "orders", "--config", "/nowhere/redrive.toml"]).exits(2).complains("/nowhere");
}

#[test]
fn addresses_that_cannot_work_are_usage_errors() {
    for (url, said) in
        [("ftp://x", "is not the address of a processor"), ("http://ops:hunter2@127.0.0.1", "--token-file")]
    {
        let ran = run(command(url, &["status"])).exits(2).complains(said);
        assert!(!ran.stderr.contains("hunter2"));
    }
}

#[test]
fn an_answer_from_something_else_is_named_as_such() {
    let api = RecordedApi::new(|_| (200, json!("hello")));
    api.redrive(&["status", "orders"]).exits(2).complains("does not answer as a redrive processor does");
    let busy =
        RecordedApi::new(|_| (503, json!({"code": "busy", "message": "disk is nearly full", "hint": ""})));
    busy.redrive(&["status", "orders"]).exits(75).complains("disk is nearly full");
}
