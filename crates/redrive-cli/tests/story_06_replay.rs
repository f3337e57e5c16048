//! Story 6, dead letters before lunch: inspected, replayed at a pace through five kills, discarded and restored.
//!
//! Not here: `dlq edit` (story_06_edit), `dlq import` (story_15_spring), and `--to source`, which needs the Kafka
//! engine.

mod world;

use std::collections::BTreeMap;
use std::process::Stdio;
use std::time::Duration;

use serde_json::{Value, json};
use world::process::{Processor, redrive, stderr, stdout};
use world::stub::Stub;
use world::wait_for;

const MESSAGES: &str = "/v1/pipelines/orders/messages";
const LETTERS: u64 = 300;

fn config(url: &str) -> String {
    format!(
        r#"
[engine]
kind = "embedded"
dir  = "@DIR@"
[server]
listen = "@LISTEN@"
[[pipeline]]
name   = "orders"
tiers  = ["100ms", "200ms"]
jitter = "none"
[pipeline.guard]
share  = "100%"          # all of them are to be dead
[pipeline.sink.webhook]
url = "{url}"
"#
    )
}

/// A processor with `count` dead letters: orders with a negative amount, which the stub refuses until it is fixed.
fn with_letters(dir: &std::path::Path, count: u64) -> (Stub, Processor) {
    let stub = Stub::start(dir, &[]);
    let processor = Processor::start(dir, &config(&stub.url));
    let line = |n| format!("{{\"id\":\"o-{n}\",\"key\":\"c-{}\",\"payload\":{{\"amount\":-1}}}}\n", n % 7);
    let lines: String = (0..count).map(line).collect();
    assert_eq!(processor.post_as(MESSAGES, "application/x-ndjson", &lines).status, 202);
    wait_for("all of them to be dead", || letters(&processor)["open"] == count);
    (stub, processor)
}

fn letters(processor: &Processor) -> Value {
    processor.get("/v1/pipelines/orders").json()["letters"].clone()
}

fn good(processor: &Processor, args: &[&str]) -> String {
    let ran = processor.cli(args);
    assert!(ran.status.success(), "{args:?}: {}{}", stdout(&ran), stderr(&ran));
    stdout(&ran)
}

/// How often each letter was requeued according to the journal. None of these messages is ever retried, so a waiting
/// one was requeued by a replay.
fn put_back(processor: &Processor) -> BTreeMap<String, u32> {
    let text = good(processor, &["journal", "data", "--frames", "--json"]);
    let mut times = BTreeMap::new();
    // One frame per line; the report is the last line.
    for line in text.lines() {
        let frame: Value = serde_json::from_str(line).unwrap();
        let id = frame["id"].as_str().filter(|id| id.starts_with("o-"));
        if let Some(id) = id.filter(|_| frame["kind"] == "waiting") {
            *times.entry(id.to_owned()).or_default() += 1;
        }
    }
    times
}

/// Groups: one command lists them, one shows the cause, one records a decision, and the decision survives a kill.
#[test]
fn letters_are_a_group_that_is_looked_at_decided_about_and_put_back() {
    let dir = tempfile::tempdir().unwrap();
    let (stub, mut processor) = with_letters(dir.path(), 12);
    let listed = good(&processor, &["dlq", "groups", "orders"]);
    assert!(listed.contains("12 open in 1 group"), "{listed}");
    let head = listed.lines().next().unwrap();
    let columns = head.split("  ").map(str::trim).filter(|column| !column.is_empty());
    let columns: Vec<_> = columns.collect();
    assert_eq!(columns, ["GROUP", "OPEN", "RATE/MIN", "OLDEST", "CLASS", "REASON", "ERROR (normalised)"]);
    let json: Value =
        serde_json::from_str(&good(&processor, &["dlq", "groups", "orders", "--json"])).unwrap();
    let (group, title) =
        (json["groups"][0]["id"].as_str().unwrap(), json["groups"][0]["error"].as_str().unwrap());
    assert_eq!((json["open"].as_u64(), json["groups"][0]["open"].as_u64()), (Some(12), Some(12)));
    assert!(listed.contains(group) && listed.contains(title), "{listed}");

    let why = good(&processor, &["dlq", "groups", "orders", group]);
    assert!(why.contains("because  the same error as above") && why.contains("sink webhook"), "{why}");
    assert_eq!(why.matches("letter   orders/").count(), 5, "{why}");
    let shown = good(&processor, &["dlq", "show", "orders", group, "--limit", "2"]);
    assert_eq!(shown.matches("payload  {\"amount\":-1}").count(), 2, "{shown}");
    assert!(shown.contains(&format!("group    {group}   {title}")), "{shown}");
    let table = good(&processor, &["dlq", "inspect", "orders", "--group", group]);
    assert!(table.contains("12 shown"), "{table}");

    let decided =
        good(&processor, &["dlq", "groups", "orders", group, "--snooze", "2d", "--note", "ticket 881"]);
    assert!(decided.contains("state snoozed") && decided.contains("note     ticket 881"), "{decided}");
    let quiet = good(&processor, &["dlq", "groups", "orders"]);
    assert!(quiet.contains("12 open in 1 group   1 acknowledged, snoozed or resolved: --all"), "{quiet}");
    processor.kill();
    processor.restart();
    let after = good(&processor, &["dlq", "groups", "orders", "--all"]);
    assert!(after.contains("snoozed") && after.contains("12 open in 1 group"), "{after}");

    let discarded = good(
        &processor,
        &["dlq", "discard", "orders", "--group", group, "--filter", "key:c-1", "--reason", "x"],
    );
    assert!(discarded.starts_with("discarded 2"), "{discarded}");
    stub.fix();
    let replayed = good(&processor, &["dlq", "replay", "orders", "--group", group]);
    assert!(replayed.contains("10"), "{replayed}");
    wait_for("the rest to be delivered", || letters(&processor)["succeeded"] == 10);
    let actions = good(&processor, &["audit", "orders", "--actions", "--json"]);
    assert!(actions.contains("group_snooze") && actions.contains(group), "{actions}");
}

/// Without arguments it prints a lesson, which needs no processor.
#[test]
fn dlq_without_anything_else_teaches_itself() {
    let dir = tempfile::tempdir().unwrap();
    let ran = redrive(dir.path()).arg("dlq").output().unwrap();
    assert!(ran.status.success(), "{}", stderr(&ran));
    for word in [
        "dlq groups",
        "--snooze",
        "dlq inspect",
        "dlq show",
        "dlq replay",
        "--dry-run",
        "--resume",
        "dlq edit orders",
        "dlq edit --undo",
        "dlq discard",
        "dlq undo",
        "dlq erase",
        "dlq export",
        "dlq import",
    ] {
        assert!(stdout(&ran).contains(word), "{word}");
    }
}

#[test]
fn a_replay_survives_five_kills_and_puts_every_letter_back_once() {
    let dir = tempfile::tempdir().unwrap();
    let (stub, mut processor) = with_letters(dir.path(), LETTERS);
    stub.fix();
    let calls_before = stub.stats()["calls"].as_u64().unwrap();
    let replay = redrive(dir.path())
        .args(["--url", &processor.url(""), "dlq", "replay", "orders", "--all", "--rate", "20/s"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let job = |processor: &Processor| processor.get("/v1/replays/r-1").json();
    wait_for("the job", || processor.get("/v1/replays/r-1").status == 200);

    // Dies while the replay runs: not part of it.
    let late = json!({ "id": "late", "payload": { "amount": 1, "payload": "fails 9 " } });
    assert_eq!(processor.post(MESSAGES, &late.to_string()).status, 202);

    let mut pause_ms = 137_u64;
    let mut seen = Vec::new();
    for kill in 1..=5 {
        // Further than at the previous kill, then at an arbitrary point between two polls. Right after a restart the
        // job shows the state of its file, which may be a second old; it catches up with the letters' own state.
        let reached = LETTERS * kill / 8;
        wait_for("the job to go on", || job(&processor)["published"].as_u64().unwrap() >= reached);
        pause_ms = pause_ms * 7_919 % 241;
        std::thread::sleep(Duration::from_millis(pause_ms));
        let now = job(&processor);
        processor.kill();
        assert_eq!((&now["state"], &now["total"]), (&json!("running"), &json!(LETTERS)), "{now}");
        seen.push(now["published"].as_u64().unwrap());
        processor.restart();
    }
    assert!(seen.is_sorted() && seen[4] < LETTERS, "each kill hit a job that was under way: {seen:?}");

    // The following command waited for the processor each time, and reports how the job ended.
    let followed = replay.wait_with_output_text();
    let last = "replay r-1  canary 10/10 … 300/300   succeeded 300   dead again 0   sent twice at most ";
    assert!(followed.starts_with(last), "{followed}");
    let done = job(&processor);
    assert_eq!(done["state"], "done", "{done}");
    for (name, number) in [("published", LETTERS), ("succeeded", LETTERS), ("dead_again", 0), ("skipped", 0)]
    {
        assert_eq!(done[name], number, "{name} of {done}");
    }

    // The journal, the stub and the letters agree.
    let times = put_back(&processor);
    assert_eq!(times.len() as u64, LETTERS);
    assert!(times.values().all(|times| *times == 1), "some were put back twice: {times:?}");
    assert!((0..LETTERS).all(|n| stub.has_applied(&format!("o-{n}"))));
    wait_for("the late one to die", || letters(&processor)["open"] == 1);
    assert_eq!(letters(&processor)["succeeded"], LETTERS);
    let left = processor.get("/v1/pipelines/orders/letters?state=open").json();
    assert_eq!((&left["letters"][0]["message"], &left["letters"][0]["replays"]), (&json!("late"), &json!(0)));
    // Three calls are for the late one; others were in flight at a kill and are repeated, as with any delivery.
    let repeated = stub.stats()["calls"].as_u64().unwrap() - calls_before - LETTERS - 3;
    println!("killed at {seen:?} of {LETTERS} letters; {repeated} deliveries were repeated");
}

#[test]
fn a_job_nobody_follows_is_found_again_after_a_crash() {
    let dir = tempfile::tempdir().unwrap();
    let (stub, mut processor) = with_letters(dir.path(), 60);
    stub.fix();
    let started = good(&processor, &["dlq", "replay", "orders", "--all", "--rate", "20/s", "--detach"]);
    assert!(started.contains("r-1"), "{started}");
    wait_for("some of it", || processor.get("/v1/replays/r-1").json()["published"].as_u64() >= Some(10));
    processor.kill();
    processor.restart();
    let resumed = good(&processor, &["dlq", "replay", "--resume", "r-1"]);
    assert!(resumed.starts_with("replay r-1  resumed at "), "{resumed}");
    assert!(resumed.contains(" of 60 (frozen at "), "{resumed}");
    assert!(resumed.contains("   … 60/60   succeeded 60   dead again 0   "), "{resumed}");
    assert!(put_back(&processor).values().all(|times| *times == 1));
}

trait WaitText {
    /// Waits for its end, which must be successful, and returns its output.
    fn wait_with_output_text(self) -> String;
}

impl WaitText for std::process::Child {
    fn wait_with_output_text(self) -> String {
        let output = self.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{}", stdout(&output));
        stdout(&output)
    }
}

#[test]
fn a_dry_run_counts_and_changes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let (stub, processor) = with_letters(dir.path(), 40);
    stub.fix();
    let calls = stub.stats()["calls"].clone();
    let args = ["dlq", "replay", "orders", "--rate", "20/s", "--dry-run"];
    let would = |count: u64, seconds: u64| {
        let canary = count.min(10);
        format!(
            "would replay {count} (frozen)   to orders (only this pipeline sees it)   at 20/s ± jitter ≈ {seconds} s\n  \
             canary {canary}   stops above 20% of the last 50 failed   breaker closed\n"
        )
    };
    let all = good(&processor, &[&args[..], &["--all"]].concat());
    assert!(all.starts_with(&would(40, 2)), "{all}");
    let some = good(&processor, &[&args[..], &["--filter", "key:c-3 error-class=permanent"]].concat());
    assert!(some.starts_with(&would(6, 1)), "{some}");
    let two = good(&processor, &[&args[..], &["--ids", "o-1,orders/2"]].concat());
    assert!(two.starts_with(&would(2, 1)), "{two}");
    let discard = ["dlq", "discard", "orders", "--since", "1h", "--reason", "looking", "--dry-run"];
    assert_eq!(good(&processor, &discard), "would discard 40\n");
    assert_eq!(letters(&processor)["open"], 40);
    assert_eq!(processor.get("/v1/replays").json()["replays"], json!([]));
    assert_eq!(stub.stats()["calls"], calls, "nobody was called");
    // No selection never means everything.
    let nothing = processor.cli(&["dlq", "replay", "orders"]);
    assert_eq!(nothing.status.code(), Some(2), "{}", stderr(&nothing));
    assert!(stderr(&nothing).contains("--all"), "{}", stderr(&nothing));
}

/// A restart keeps all successes; what a killed process had not saved is reported as a gap.
#[test]
fn later_successes_are_known_over_a_restart_and_a_kill_leaves_a_gap_that_is_said() {
    let dir = tempfile::tempdir().unwrap();
    let (stub, mut processor) = with_letters(dir.path(), 7);
    let later = json!({ "id": "later", "key": "c-3", "payload": { "amount": 1 } }).to_string();
    assert_eq!(processor.post(MESSAGES, &later).status, 202);
    wait_for("the later one to succeed", || stub.has_applied("later"));
    let plan = |processor: &Processor| good(processor, &["dlq", "replay", "orders", "--all", "--dry-run"]);
    let is_known = |plan: &str| plan.contains("1 key has had a later success");
    wait_for("the success to be counted", || is_known(&plan(&processor)));

    processor.signal("TERM");
    assert_eq!(processor.wait(), Some(0));
    processor.restart();
    let after = plan(&processor);
    assert!(is_known(&after) && !after.contains("later successes known since"), "{after}");

    processor.kill();
    processor.restart();
    let after = plan(&processor);
    assert!(is_known(&after), "{after}");
    assert!(after.contains("but not from") && after.contains("(a process was killed)"), "{after}");
}

#[test]
fn what_was_discarded_is_not_replayed_and_can_be_brought_back() {
    let dir = tempfile::tempdir().unwrap();
    let (stub, mut processor) = with_letters(dir.path(), 40);
    let reason = "customers deleted, GDPR ticket 881";
    let said = good(&processor, &["dlq", "discard", "orders", "--filter", "key:c-3", "--reason", reason]);
    assert!(said.starts_with("discarded 6   (kept as tombstones, undo until "), "{said}");
    assert!(said.ends_with(": redrive dlq undo d-1)\n"), "{said}");
    // After a crash too.
    processor.kill();
    processor.restart();
    assert_eq!((&letters(&processor)["open"], &letters(&processor)["discarded"]), (&json!(34), &json!(6)));

    stub.fix();
    let replayed = good(&processor, &["dlq", "replay", "orders", "--all"]);
    let last = "replay r-1  canary 10/10 … 34/34   succeeded 34   dead again 0   sent twice 0   ";
    assert!(replayed.starts_with(last), "{replayed}");
    assert!(!stub.has_applied("o-3") && stub.has_applied("o-4"), "o-3 belongs to c-3");

    let undone = good(&processor, &["dlq", "undo", "d-1"]);
    assert_eq!(undone, "restored 6   (open again)\n");
    let replayed = good(&processor, &["dlq", "replay", "orders", "--all"]);
    assert!(
        replayed.starts_with("replay r-2  6/6   succeeded 6   dead again 0   sent twice 0   "),
        "{replayed}"
    );
    assert!((0..40).all(|n| stub.has_applied(&format!("o-{n}"))));
    let counts = json!({"open": 0, "replaying": 0, "succeeded": 40, "discarded": 0, "erased": 0});
    assert_eq!(letters(&processor), counts);
}

/// A fix that does not work: the canary shows that before the rest is replayed, and the same job continues once it
/// does.
#[test]
fn a_replay_whose_canary_fails_is_stopped_and_goes_on_when_it_is_resumed() {
    let dir = tempfile::tempdir().unwrap();
    let (stub, mut processor) = with_letters(dir.path(), 60);
    let args = ["dlq", "replay", "orders", "--all", "--rate", "200/s"];
    let stopped = processor.cli(&args);
    assert_eq!(stopped.status.code(), Some(1), "{}{}", stdout(&stopped), stderr(&stopped));
    assert_eq!(
        stdout(&stopped),
        "\
replay r-1  canary 0/10 … 10/60  ✗ stopped: 10 of the first 10 failed (canary, limit 20 %). 50 letters untouched. Breaker \
orders: closed.
  resume with: redrive dlq replay --resume r-1
"
    );
    let sum = "  letters 60   succeeded 0   dead again 10   under way 0   skipped 0   untouched 50";
    assert!(stderr(&stopped).contains(sum), "{}", stderr(&stopped));
    assert_eq!(stub.stats()["calls"].as_u64(), Some(70), "nobody else was called");
    let planned = good(&processor, &[&args[..], &["--dry-run"]].concat());
    assert!(planned.contains("last replay of this selection: r-1 "), "{planned}");
    assert!(planned.contains("stopped   succeeded 0   dead again 10   untouched 50"), "{planned}");

    // It is still stopped after a kill, and does not continue by itself.
    processor.kill();
    processor.restart();
    assert_eq!(processor.get("/v1/replays/r-1").json()["state"], "stopped");
    stub.fix();
    let resumed = processor.cli(&["dlq", "replay", "--resume", "r-1"]);
    let said = stdout(&resumed);
    assert!(said.starts_with("replay r-1  resumed at 10 of 60 (frozen at "), "{said}");
    assert!(said.contains("   … 60/60   succeeded 50   dead again 10   sent twice 0   "), "{said}");
    assert_eq!(resumed.status.code(), Some(1), "ten are dead again: {said}");
    assert!(put_back(&processor).values().all(|times| *times == 1));
    assert_eq!(letters(&processor)["open"], 10);
}

#[test]
fn what_dies_again_is_an_open_letter_and_exit_1() {
    let dir = tempfile::tempdir().unwrap();
    let (_stub, processor) = with_letters(dir.path(), 5);
    let again = processor.cli(&["dlq", "replay", "orders", "--all"]);
    assert_eq!(again.status.code(), Some(1), "{}{}", stdout(&again), stderr(&again));
    assert!(
        stdout(&again).starts_with("replay r-1  5/5   succeeded 0   dead again 5   "),
        "{}",
        stdout(&again)
    );
    assert_eq!(letters(&processor)["open"], 5);
}

/// Named letters that are not open are left alone and listed with their state, and the exit code shows it.
#[test]
fn letters_that_are_named_and_not_open_are_named_with_their_state_and_exit_1() {
    let dir = tempfile::tempdir().unwrap();
    let (_stub, processor) = with_letters(dir.path(), 4);
    good(&processor, &["dlq", "discard", "orders", "--ids", "o-0", "--reason", "x"]);
    for (args, said) in [
        (&["discard", "orders", "--ids", "o-0,o-1", "--reason", "x", "--dry-run"][..], "would discard 1\n"),
        (&["discard", "orders", "--ids", "o-0,o-1", "--reason", "x"], "discarded 1   "),
        (&["edit", "orders", "--ids", "o-0,o-2", "--set", "/amount=1", "--dry-run"], "1 letter matches."),
        (&["replay", "orders", "--ids", "o-0,o-3", "--dry-run"], "would replay 1 (frozen)"),
        (&["replay", "orders", "--ids", "o-0,o-3"], "  orders/0 is discarded, not open: not replayed"),
        (&["edit", "orders", "--ids", "o-0,o-2", "--set", "/amount=1"], "edited 1 letter   edit e-1\n"),
    ] {
        let ran = processor.cli(&[&["dlq"], args].concat());
        assert_eq!(ran.status.code(), Some(1), "{args:?}: {}{}", stdout(&ran), stderr(&ran));
        assert!(stdout(&ran).starts_with(said), "{args:?}: {}", stdout(&ran));
        assert!(
            stdout(&ran).contains("  orders/0 is discarded, not open: not "),
            "{args:?}: {}",
            stdout(&ran)
        );
    }
    good(&processor, &["dlq", "edit", "orders", "--ids", "o-3", "--set", "/amount=1"]);
    let none = processor.cli(&["dlq", "replay", "orders", "--ids", "o-0,o-1"]);
    assert_eq!(none.status.code(), Some(1), "{}{}", stdout(&none), stderr(&none));
    let said = "orders/0 is discarded, orders/1 is discarded: not open, so nothing was replayed";
    assert!(stderr(&none).contains(said), "{}", stderr(&none));
}

/// A request must be valid before a job starts, and a plan must be accurate.
#[test]
fn a_plan_is_about_the_letters_there_are_and_a_job_about_its_own_pipeline() {
    let dir = tempfile::tempdir().unwrap();
    let stub = Stub::start(dir.path(), &[]);
    let with_horizon = config(&stub.url).replace("jitter =", "ledger_horizon = \"7d\"\njitter =");
    let no_breaker = "[pipeline.breaker]\nenabled = false\n[pipeline.guard]";
    let processor = Processor::start(dir.path(), &with_horizon.replace("[pipeline.guard]", no_breaker));
    let line = |n: u64, seen: &str| {
        json!({ "message": format!("o-{n}"), "payload": { "json": { "amount": 5 } }, "first_seen": seen, "error": "503" })
            .to_string()
    };
    let old = (0..3).map(|n| line(n, "2026-01-01T00:00:00Z"));
    let now = redrive::timestamp::print(redrive::Time::from(std::time::SystemTime::now()));
    let lines: Vec<String> = old.chain((3..8).map(|n| line(n, &now))).collect();
    std::fs::write(processor.dir.join("letters.ndjson"), lines.join("\n")).unwrap();
    good(&processor, &["dlq", "import", "--file", "letters.ndjson", "--pipeline", "orders"]);

    let plan = good(&processor, &["dlq", "replay", "orders", "--all", "--dry-run"]);
    assert!(plan.contains("canary 8   "), "there are only eight: {plan}");
    assert!(plan.contains("   breaker disabled\n"), "{plan}");
    assert!(plan.contains("3 letters were first attempted before the 168h"), "{plan}");
    let refused = processor.cli(&["dlq", "replay", "orders", "--all"]);
    assert_eq!(refused.status.code(), Some(1), "{}", stdout(&refused));
    assert!(stderr(&refused).contains("--beyond-ledger"), "{}", stderr(&refused));
    let large = processor.cli(&["dlq", "replay", "orders", "--all", "--canary", "99999999999"]);
    assert_eq!(large.status.code(), Some(2), "{}", stdout(&large));
    assert!(stderr(&large).contains("a replay has at most 10,000,000 letters"), "{}", stderr(&large));
    let over_http = processor.post(
        "/v1/replays",
        &json!({ "pipeline": "orders", "all": true, "canary": 99_999_999_999_u64 }).to_string(),
    );
    assert_eq!(over_http.status, 400);

    good(&processor, &["dlq", "replay", "orders", "--all", "--beyond-ledger"]);
    for action in ["--resume", "--abort"] {
        let other = processor.cli(&["dlq", "replay", "invoices", action, "r-1"]);
        assert_eq!(other.status.code(), Some(2), "{}", stdout(&other));
        let said = stderr(&other);
        assert!(said.contains("replay r-1 belongs to pipeline `orders`, not to `invoices`"), "{said}");
    }
    let again = good(&processor, &["dlq", "replay", "orders", "--resume", "r-1"]);
    assert_eq!(again, "replay r-1  done already   … 8/8   succeeded 8   dead again 0   sent twice 0\n");
}

/// A tenant with many letters: listed beside the others, and limited by a quota.
#[test]
fn letters_are_counted_by_tenant_and_a_quota_leaves_the_rest_open() {
    let dir = tempfile::tempdir().unwrap();
    let stub = Stub::start(dir.path(), &[]);
    let rule =
        "[[pipeline.group]]\nmatch = \"customer*not found\"\nas = \"unknown customers\"\n[pipeline.guard]";
    let processor = Processor::start(dir.path(), &config(&stub.url).replace("[pipeline.guard]", rule));
    let line = |n: u64| {
        let tenant = if n < 20 { "acme" } else { "zeta" };
        let error = format!("404 customer {n} not found");
        json!({ "message": format!("o-{n}"), "payload": { "json": { "amount": 5 } }, "tenant": tenant, "error": error })
            .to_string()
    };
    let lines: Vec<String> = (0..22).map(line).collect();
    std::fs::write(processor.dir.join("letters.ndjson"), lines.join("\n")).unwrap();
    good(&processor, &["dlq", "import", "--file", "letters.ndjson", "--pipeline", "orders"]);

    let tenants = good(&processor, &["dlq", "groups", "orders", "--by", "tenant"]);
    let rows: Vec<Vec<&str>> =
        tenants.lines().map(|line| line.split_whitespace().take(2).collect()).collect();
    assert_eq!(rows[..3], [["TENANT", "LETTERS"], ["acme", "20"], ["zeta", "2"]], "{tenants}");
    assert!(tenants.contains("22 open for 2 tenants"), "{tenants}");
    let groups: Value =
        serde_json::from_str(&good(&processor, &["dlq", "groups", "orders", "--json"])).unwrap();
    let rule = &groups["groups"][0]["rule"];
    assert_eq!(*rule, json!({ "match": "customer*not found", "as": "unknown customers" }));
    let why = good(&processor, &["dlq", "groups", "orders", groups["groups"][0]["id"].as_str().unwrap()]);
    let said = "because  matched by rule [[pipeline.group]] match = \"customer*not found\", as = \"unknown customers\"";
    assert!(why.contains(said), "{why}");

    let quota = ["dlq", "replay", "orders", "--all", "--tenant-max", "3"];
    let plan = good(&processor, &[&quota[..], &["--dry-run"]].concat());
    assert!(plan.starts_with("would replay 5 (frozen)"), "{plan}");
    assert!(plan.contains("tenants take turns: acme 3, zeta 2"), "{plan}");
    assert!(plan.contains("17 letters are left open by --tenant-max"), "{plan}");
    let replayed = good(&processor, &quota);
    assert!(replayed.contains("5/5   succeeded 5"), "{replayed}");
    assert_eq!(letters(&processor)["open"], 17);
}
