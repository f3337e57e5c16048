//! Ids, keys, tenants, headers, payloads, errors and reasons crafted to control a terminal: all output, logs and
//! answers, on a terminal or not, only show them.

mod world;

use std::fmt::Write as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use redrive_core::printable::is_unsafe;
use serde_json::{Value, json};
use world::process::{Processor, TOKEN};
use world::receiver::{Receiver, Reply};
use world::{config, free_port, http, wait_for};

const MESSAGES: &str = "/v1/pipelines/orders/messages";
/// The receiver may give a reason in a header, limited to what headers can contain.
const REFUSED: Reply = ("422 Unprocessable Content", "redrive-reason: \u{9b}31m\u{202e}no\ttabs\r\n");

/// Each of these would be noticeable: the screen cleared, the title set, a line forged, text reversed or hidden.
const HOSTILE: [&str; 12] = [
    "clear\u{1b}[2J\u{1b}[H",
    "title\u{1b}]0;owned\u{7}",
    "clipboard\u{1b}]52;c;b3duZWQ=\u{1b}\\",
    "c1\u{9b}2J\u{9d}0;owned\u{9c}",
    "line\nFORGED line",
    "return\rFORGED",
    "back\u{8}\u{8}\u{8}\u{7f}",
    "bidi\u{202e}gnp.exe\u{2066}\u{2069}\u{200f}\u{61c}",
    "separator\u{2028}FORGED\u{2029}",
    "hidden\u{e0041}\u{200b}\u{feff}\u{2060}",
    "nul\0nel\u{85}",
    "tab\tshift\u{e}\u{f}",
];

/// Asserts that there is only text and line ends; on a terminal also our own colours.
fn harmless(bytes: &[u8], what: &str) {
    let text = std::str::from_utf8(bytes).unwrap_or_else(|_| panic!("{what}: not UTF-8"));
    let mut plain = text.replace("\r\n", "\n");
    for code in ["0", "1", "2", "3", "32", "33", "34", "35", "1;31", "1;33", "31"] {
        plain = plain.replace(&format!("\u{1b}[{code}m"), "");
    }
    if let Some(odd) = plain.chars().find(|c| is_unsafe(*c) && *c != '\n') {
        let line = plain.lines().find(|line| line.contains(odd)).unwrap_or_default();
        panic!("{what}: {} in {line:?}", odd.escape_unicode());
    }
    let forged = plain.lines().find(|line| line.trim_start().starts_with("FORGED"));
    assert_eq!(forged, None, "{what}");
}

fn harmless_output(output: &Output, what: &str) {
    harmless(&output.stdout, &format!("{what}, stdout"));
    harmless(&output.stderr, &format!("{what}, stderr"));
}

/// The same command on a terminal, provided by `script`.
fn on_terminal(dir: &Path, url: &str, args: &[&str]) -> Output {
    let quoted: Vec<String> = args.iter().map(|arg| format!("'{}'", arg.replace('\'', "'\\''"))).collect();
    let command = format!("'{}' --url {url} {}", env!("CARGO_BIN_EXE_redrive"), quoted.join(" "));
    let mut script = Command::new("script");
    script.args(["-qec", &command, "/dev/null"]).current_dir(dir).env("REDRIVE_TOKEN", TOKEN);
    script.env_remove("NO_COLOR").env("TERM", "xterm").stdin(Stdio::null()).output().unwrap()
}

#[test]
fn no_output_lets_a_stranger_drive_the_terminal() {
    let dir = tempfile::tempdir().unwrap();
    let receiver = Receiver::start(|_| REFUSED);
    let pipeline = "name = \"orders\"\nordering = \"key\"\ntiers = [\"10m\"]";
    let processor = Processor::start(dir.path(), &config("", pipeline, &receiver.url()));
    for (number, hostile) in HOSTILE.iter().enumerate() {
        let message = json!({
            "id": format!("{number}-{hostile}"), "key": hostile, "tenant": hostile,
            "headers": { "x-note": hostile, "correlation-id": hostile },
            "payload": { hostile.to_string(): hostile },
        });
        let sent = processor.post(MESSAGES, &message.to_string());
        assert_eq!(sent.status, 202, "{}", sent.body);
        let second = json!({ "id": format!("second-{number}-{hostile}"), "key": hostile });
        assert_eq!(processor.post(MESSAGES, &second.to_string()).status, 202);
    }
    wait_for("the letters", || {
        processor.get("/v1/pipelines/orders").json()["letters"]["open"] == 2 * HOSTILE.len()
    });

    // The API as read with curl.
    let get = |path: &str| {
        let answer = processor.get(path);
        harmless(answer.body.as_bytes(), path);
        answer
    };
    let letters = get("/v1/pipelines/orders/letters?payload=true").json()["letters"].clone();
    assert_eq!(letters[8]["message"], format!("4-{}", HOSTILE[4]), "it means what was sent");
    for letter in letters.as_array().unwrap() {
        let id = letter["message"].as_str().unwrap();
        let escaped = escape(id);
        for path in ["letters", "messages", "keys"] {
            get(&format!("/v1/pipelines/orders/{path}/{escaped}"));
        }
    }
    for reason in HOSTILE {
        let wish = json!({ "ids": ["0"], "reason": reason, "dry_run": false, "filter": format!("error:\"{reason}\"") });
        harmless(
            processor.post("/v1/pipelines/orders/letters/discard", &wish.to_string()).body.as_bytes(),
            reason,
        );
    }

    // The commands, with JSON and with text output.
    let ids: Vec<String> =
        letters.as_array().unwrap().iter().map(|letter| text(&letter["message"])).collect();
    let mut commands: Vec<Vec<&str>> = vec![
        vec!["status"],
        vec!["status", "orders"],
        vec!["dlq", "inspect", "orders"],
        vec!["dlq", "inspect", "orders", "--filter", "error:\u{1b}[2J"],
        vec!["dlq", "stats", "orders"],
        vec!["dlq", "export", "orders"],
        vec!["dlq", "discard", "orders", "--reason", HOSTILE[3], "--ids", "0"],
        vec!["audit", "orders", "--actions"],
        vec!["journal", "data"],
        vec!["journal", "data", "--frames"],
        vec!["pause", HOSTILE[0]],
        vec!["config", "show"],
        vec!["check"],
    ];
    for id in ids.iter().filter(|id| !id.contains('\0')) {
        commands.push(vec!["dlq", "show", "orders", id]);
        commands.push(vec!["dlq", "show", "orders", id, "--full"]);
        commands.push(vec!["dlq", "replay", "orders", "--ids", id, "--dry-run"]);
    }
    for hostile in HOSTILE.iter().filter(|hostile| !hostile.contains('\0')) {
        commands.push(vec!["status", "orders", "--key", hostile]);
        commands.push(vec!["dlq", "show", "orders", hostile]);
    }
    for args in &commands {
        harmless_output(&processor.cli(args), &format!("{args:?}"));
        let json: Vec<&str> = args.iter().copied().chain(["--json"]).collect();
        let output = processor.cli(&json);
        harmless_output(&output, &format!("{json:?}"));
        harmless_output(
            &on_terminal(dir.path(), &processor.url(""), args),
            &format!("{args:?} on a terminal"),
        );
    }
    let frames = processor.cli(&["journal", "data", "--frames"]);
    let frames = String::from_utf8(frames.stdout).unwrap();
    assert!(frames.contains("4-line\\nFORGED line"), "what cannot be printed is written out: {frames}");
    harmless(processor.log().as_bytes(), "the log");
}

/// The log of a processor on a terminal.
#[test]
fn the_log_on_a_terminal_is_no_way_to_drive_it() {
    let dir = tempfile::tempdir().unwrap();
    let receiver = Receiver::start(|_| REFUSED);
    let port = free_port();
    let command = format!(
        "'{}' processor --name orders --sink-url {} --tiers 50ms --dir store --listen 127.0.0.1:{port} -v",
        env!("CARGO_BIN_EXE_redrive"),
        receiver.url()
    );
    let mut script = Command::new("script");
    script.args(["-qefc", &command, "terminal.log"]).current_dir(dir.path());
    script.env("REDRIVE_TOKEN", TOKEN).env_remove("NO_COLOR").env("TERM", "xterm");
    let mut child = script.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let url = format!("http://127.0.0.1:{port}");
    wait_for("the processor", || http::try_send("GET", &format!("{url}/readyz"), &[], "").is_some());
    let bearer = format!("Bearer {TOKEN}");
    for hostile in HOSTILE {
        let message = json!({ "id": hostile, "headers": { "correlation-id": hostile } }).to_string();
        let headers = [("authorization", bearer.as_str())];
        assert_eq!(http::send("POST", &format!("{url}{MESSAGES}"), &headers, &message).status, 202);
        // A wrong token is logged with the requested path.
        let escaped = escape(hostile);
        let wrong = [("authorization", "Bearer nobody-knows-this-one")];
        http::send("GET", &format!("{url}/v1/pipelines/{escaped}"), &wrong, "");
    }
    let log = || std::fs::read(dir.path().join("terminal.log")).unwrap_or_default();
    let count = |needle: &str| String::from_utf8_lossy(&log()).matches(needle).count();
    wait_for("the failures to be logged", || count("attempt failed") >= HOSTILE.len());
    assert!(count("wrong token") >= 1);
    Command::new("pkill").args(["-TERM", "-P", &child.id().to_string()]).status().unwrap();
    child.wait().unwrap();
    harmless(&log(), "the log on a terminal");
}

/// Escapes every byte for a path.
fn escape(text: &str) -> String {
    text.bytes().fold(String::new(), |mut escaped, byte| {
        write!(escaped, "%{byte:02X}").unwrap();
        escaped
    })
}

fn text(value: &Value) -> String {
    value.as_str().unwrap().to_owned()
}
