//! `redrive dlq` against a server with recorded answers: output, requests and exit codes.

mod recorded;

use std::io::Read as _;
use std::process::Stdio;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use recorded::{RecordedApi, ago, command, letter, not_found, run};
use serde_json::{Value, json};

#[test]
fn inspect_prints_a_table_and_says_that_there_is_more() {
    let api = RecordedApi::new(|asked| {
        if asked.line.contains("cursor=") {
            let letters = [letter(18, "o-18", &ago(93_700))];
            return (200, json!({"letters": letters, "next": "c2", "scanned": 1}));
        }
        (200, json!({"letters": [letter(17, "o-17", &ago(10_930))], "next": "c1", "scanned": 1}))
    });
    api.redrive(&["dlq", "inspect", "orders", "--limit", "2", "--filter", "reason:max_retries age:>1h"])
        .exits(0)
        .prints(
            "\
LETTER     MESSAGE  KEY    ATTEMPTS  DEAD    CLASS      REASON       ERROR
orders/17  o-17     c-204         4  3h 02m  transient  max_retries  503 Service Unavailable
orders/18  o-18     c-204         4  26h     transient  max_retries  503 Service Unavailable
   2 shown, more: --limit 4
",
        );
    let first = &api.asked()[0].line;
    assert_eq!(
        first,
        "GET /v1/pipelines/orders/letters?filter=reason%3Amax_retries%20age%3A%3E1h&state=open&limit=2"
    );
    assert!(api.asked()[1].line.ends_with("&limit=1&cursor=c1"));
}

#[test]
fn letters_in_several_states_show_theirs_and_a_filter_may_name_one() {
    let api =
        RecordedApi::new(|_| (200, json!({"letters": [letter(17, "o-17", &ago(10_930))], "next": null})));
    let table = "\
LETTER     STATE  MESSAGE  KEY    ATTEMPTS  DEAD    CLASS      REASON       ERROR
orders/17  open   o-17     c-204         4  3h 02m  transient  max_retries  503 Service Unavailable
   1 shown
";
    api.redrive(&["dlq", "inspect", "orders", "--state", "all"]).exits(0).prints(table);
    api.redrive(&["dlq", "inspect", "orders", "--filter", "state:open"]).exits(0).prints(table);
    let asked = api.asked();
    assert!(!asked[0].line.contains("state=") && !asked[1].line.contains("state="), "{asked:?}");
    for command in ["inspect", "export"] {
        api.redrive(&["dlq", command, "orders", "--filter", " "]).exits(2).complains("leave --filter out");
    }
}

#[test]
fn inspect_goes_on_over_empty_pages_and_says_when_nothing_matches() {
    let api = RecordedApi::new(|asked| {
        let next = if asked.line.contains("cursor") { Value::Null } else { json!("c1") };
        (200, json!({"letters": [], "next": next, "scanned": 10_000}))
    });
    api.redrive(&["dlq", "inspect", "orders"]).exits(0).prints("no letters match\n");
    assert_eq!(api.asked().len(), 2);
}

#[test]
fn json_is_what_the_api_said_without_secrets() {
    let api = RecordedApi::new(|_| (200, json!({"letters": [letter(17, "o-17", &ago(5))], "next": null})));
    let ran = api.redrive(&["dlq", "inspect", "orders", "--json"]).exits(0);
    assert_eq!(ran.json()["letters"][0]["something_new"], true);
    assert!(ran.json()["letters"][0]["dead_at"].as_str().unwrap().ends_with('Z'));
    assert!(!ran.stdout.contains("s3cret"));
}

#[test]
fn an_error_text_cannot_drive_the_terminal() {
    let api = RecordedApi::new(|_| {
        let mut bad = letter(17, "o-17\u{1b}[2J", &ago(5));
        bad["error"] = json!("boom\n\u{1b}]0;owned\u{7}");
        (200, json!({"letters": [bad], "next": null}))
    });
    let ran = api.redrive(&["dlq", "inspect", "orders"]).exits(0);
    assert!(!ran.stdout.contains('\u{1b}') && !ran.stdout.contains('\u{7}'), "{:?}", ran.stdout);
    assert_eq!(ran.stdout.lines().count(), 3, "{}", ran.stdout);
}

#[test]
fn show_tells_the_whole_story_of_a_letter() {
    let api = RecordedApi::new(|_| (200, letter(17, "o-17", "2026-11-15T08:01:12.000Z")));
    api.redrive(&["dlq", "show", "orders", "orders/17"]).exits(0).prints(
        "\
letter   orders/17   message o-17   key c-204   attempts 4   dead 2026-11-15T08:01:12.000Z
error    503 Service Unavailable
reason   max_retries   class transient   state open   replays 0
times    created 2026-11-15T08:01:12.000Z
attempts 1  2026-11-15T08:01:12.001Z  112 ms  transient  503 Service Unavailable
         2  2026-11-15T08:01:17.120Z  10000 ms  transient  timeout after 10 s  (may have taken effect)
payload  {\"order_id\":\"o-17\",\"card\":\"4111111111111111\"}
headers  authorization=(hidden) x-src=web
",
    );
    assert_eq!(api.asked()[0].line, "GET /v1/pipelines/orders/letters/orders%2F17");
    // A message id may equal a route; escaped it cannot be taken for one.
    for (id, path) in [("stats", "%73%74%61%74%73"), ("undo", "%75%6E%64%6F"), ("status", "status")] {
        api.redrive(&["dlq", "show", "orders", id]).exits(0);
        let asked = api.asked().last().unwrap().line.clone();
        assert_eq!(asked, format!("GET /v1/pipelines/orders/letters/{path}"));
    }
}

#[test]
fn what_the_api_says_no_to_is_printed_with_its_hint() {
    let api = RecordedApi::new(|_| not_found("letter 99"));
    api.redrive(&["dlq", "show", "orders", "99"])
        .exits(2)
        .prints("")
        .complains("error: there is no letter 99\n  look again\n");
}

#[test]
fn what_looks_like_a_group_and_is_none_is_told_what_show_takes() {
    let none = || (200, json!({ "letters": [], "next": null, "scanned": 0 }));
    let api = RecordedApi::new(move |asked| {
        if asked.line.contains("letters?") { none() } else { not_found("letter gzzzzzzzz") }
    });
    api.redrive(&["dlq", "show", "orders", "gzzzzzzzz"])
        .exits(2)
        .complains("so is a group with open letters, as `redrive dlq groups orders` lists them");
}

/// A negative value was taken for an unknown flag, and the tip said to write `-- -1`.
#[test]
fn a_value_out_of_range_is_refused_by_its_own_flag() {
    let api = RecordedApi::new(|_| panic!("asked"));
    let (replay, group) = (["dlq", "replay", "orders", "--all"], ["dlq", "groups", "orders", "g7k2m9x4q"]);
    for (command, flag, value, said) in [
        (&replay[..3], "--since", "-1h", "--since `-1h` is neither a duration nor a time"),
        (&replay, "--rate", "-5/s", "`-5/s` is not a rate"),
        (&replay, "--rate", "0.0000001/s", "must be 1/h to 1,000,000/s"),
        (&replay, "--canary", "-1", "it is not a whole number from 0 to"),
        (&replay, "--stop-at", "-5%", "for '--stop-at <SHARE>'"),
        (&replay, "--tenant-max", "0", "must be 1 to"),
        (&group, "--snooze", "-2d", "--snooze `-2d` is neither a duration nor a time"),
        (&group, "--snooze-more", "0", "must be 1 to 100,000"),
        (&["dlq", "inspect", "orders"], "--limit", "-5", "must be 1 to 10,000"),
    ] {
        api.redrive(&[command, &[flag, value]].concat()).exits(2).complains(said);
    }
    assert!(api.asked().is_empty());
}

#[test]
fn a_selection_that_names_nothing_asks_nobody() {
    let api = RecordedApi::new(|_| panic!("asked"));
    for args in [&["dlq", "replay", "orders"][..], &["dlq", "discard", "orders", "--reason", "x"]] {
        api.redrive(args)
            .exits(2)
            .complains("give --group, --filter EXPR, --edit e-12, --ids a,b, --since 1h or --all");
    }
    api.redrive(&["dlq", "discard", "orders", "--all"]).exits(2).complains("--reason");
    assert!(api.asked().is_empty());
}

#[test]
fn a_dry_run_says_what_would_happen() {
    let api = RecordedApi::new(|_| (200, json!({"would_replay": 300, "rate": 20.0, "about_seconds": 15.0})));
    api.redrive(&["dlq", "replay", "orders", "--filter", "reason:gone", "--rate", "20/s", "--dry-run"])
        .exits(0)
        .prints("would replay 300 (frozen)   at 20/s ± jitter ≈ 15 s\n");
    assert_eq!(
        api.body_of("POST /v1/replays"),
        json!({"pipeline": "orders", "filter": "reason:gone", "rate": 20.0, "force": false, "dry_run": true})
    );
}

fn job(state: &str, succeeded: u64, dead_again: u64) -> Value {
    json!({
        "id": "r-31", "pipeline": "orders", "state": state, "selection": "all", "total": 300,
        "published": succeeded + dead_again, "succeeded": succeeded, "dead_again": dead_again, "skipped": 0,
        "under_way": 0, "untouched": 300 - succeeded - dead_again,
        "rate": 20.0, "created": "2026-11-15T10:41:07.000Z", "actor": "ops",
    })
}

/// A job that is done at the third poll.
fn job_server(end: fn() -> Value) -> RecordedApi {
    let looks = AtomicU64::new(0);
    RecordedApi::new(move |asked| match asked.line.as_str() {
        "POST /v1/replays" => (202, job("running", 0, 0)),
        "GET /v1/replays/r-31" | "POST /v1/replays/r-31/resume" => {
            let done = looks.fetch_add(1, Ordering::SeqCst) >= 2;
            (200, if done { end() } else { job("running", 140, 0) })
        }
        line => not_found(line),
    })
}

/// The last line without the duration.
fn without_time(stdout: &str) -> String {
    let first = stdout.lines().next().unwrap_or_default();
    first.rsplit_once("   ").unwrap().0.to_owned()
}

#[test]
fn a_replay_is_followed_to_its_end() {
    let api = job_server(|| job("done", 300, 0));
    let ran = api.redrive(&["dlq", "replay", "orders", "--all", "--rate", "20/s"]).exits(0);
    assert_eq!(without_time(&ran.stdout), "replay r-31  300/300   succeeded 300   dead again 0");
    assert_eq!(api.body_of("POST /v1/replays")["all"], true);
}

/// A canary whose letters were held once kept the command silent for as long as `hold_max`.
#[test]
fn a_replay_that_is_held_says_so_and_why() {
    let looks = AtomicU64::new(0);
    let api = RecordedApi::new(move |asked| {
        let mut running = job("running", 0, 0);
        (running["under_way"], running["published"], running["untouched"]) =
            (json!(10), json!(10), json!(290));
        running["held"] = match looks.fetch_add(1, Ordering::SeqCst) {
            0 => json!(null),
            1 | 2 => {
                json!({ "letters": 10, "because": "no_success", "last_success": "2026-11-15T10:40:00Z" })
            }
            _ => json!({ "letters": 9, "because": "breaker_open" }),
        };
        match asked.line.as_str() {
            "POST /v1/replays" => (202, running),
            "GET /v1/replays/r-31" if looks.load(Ordering::SeqCst) <= 4 => (200, running),
            "GET /v1/replays/r-31" => (200, job("done", 300, 0)),
            line => not_found(line),
        }
    });
    let ran = api.redrive(&["dlq", "replay", "orders", "--all"]).exits(0);
    let held: Vec<&str> = ran.stderr.lines().filter(|line| line.contains("held")).collect();
    let since = "10 held: no call has succeeded since 2026-11-15 10:40:00Z";
    assert_eq!(held, [since, "9 held: the breaker is open"], "each reason is said once");

    let api = RecordedApi::new(|_| {
        let mut running = job("running", 0, 0);
        running["held"] = json!({ "letters": 10, "because": "no_success" });
        (200, running)
    });
    let ran = api.redrive(&["dlq", "replays", "show", "r-31"]).exits(0);
    assert!(ran.stdout.contains("\n  10 held: no call has succeeded so far\n"), "{}", ran.stdout);
}

/// A replay writes old state over new, whether its plan was looked at or not.
#[test]
fn a_replay_that_starts_says_which_keys_have_had_later_successes() {
    let api = RecordedApi::new(|asked| {
        let mut answer = job("running", 0, 0);
        answer["plan"] =
            json!({ "would_replay": 300, "superseded": { "keys": 4, "letters": 9, "shown": [] } });
        match asked.line.as_str() {
            "POST /v1/replays" => (202, answer),
            line => not_found(line),
        }
    });
    api.redrive(&["dlq", "replay", "orders", "--all", "--detach"])
        .exits(0)
        .complains("4 keys have later successes (list: --show superseded)");
}

/// A typo in a selection must not look like completed work.
#[test]
fn a_selection_that_matches_nothing_makes_exit_2_everywhere() {
    let api = RecordedApi::new(|asked| match asked.line.as_str() {
        "POST /v1/pipelines/orders/letters/discard" => (200, json!({ "discarded": 0 })),
        "POST /v1/pipelines/orders/letters/erase" => (200, json!({ "erased": 0 })),
        "POST /v1/pipelines/orders/letters/edit" => (200, json!({ "edit": null, "edited": 0 })),
        "POST /v1/replays" => {
            let nothing = redrive::replay::ReplayError::Nothing.to_string();
            (404, json!({ "code": "not_found", "message": nothing, "hint": "list them first" }))
        }
        line => not_found(line),
    });
    let of_act = |act: &str| match act {
        "edit" => vec!["--set", "/a=1"],
        "replay" => vec![],
        _ => vec!["--reason", "ticket 881"],
    };
    for act in ["discard", "erase", "edit", "replay"] {
        let by_filter = ["dlq", act, "orders", "--filter", "key:c-77"];
        api.redrive(&[&by_filter[..], &of_act(act)].concat())
            .exits(2)
            .complains("letter of `orders` matches");
        let by_edit = ["dlq", act, "orders", "--edit", "e-77"];
        api.redrive(&[&by_edit[..], &of_act(act)].concat()).exits(2).complains("there is no edit e-77");
    }
}

#[test]
fn the_dialect_of_a_file_goes_with_its_lines() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("letters.ndjson");
    std::fs::write(&file, "{\"payload\":null}\n").unwrap();
    let api = RecordedApi::new(|_| (200, json!({ "imported": 1 })));
    let import = ["dlq", "import", "--file", file.to_str().unwrap(), "--pipeline", "orders", "--dialect"];
    api.redrive(&[&import[..], &["auto"]].concat()).exits(0);
    api.redrive(&[&import[..], &["spring"]].concat()).exits(0);
    let lines: Vec<String> = api.asked().into_iter().map(|asked| asked.line).collect();
    assert!(!lines[0].contains("dialect") && lines[1].ends_with("&dialect=spring"), "{lines:?}");
}

#[test]
fn letters_that_died_again_make_exit_1() {
    let api = job_server(|| job("done", 289, 11));
    let ran = api.redrive(&["dlq", "replay", "orders", "--since", "1h"]).exits(1);
    assert_eq!(without_time(&ran.stdout), "replay r-31  300/300   succeeded 289   dead again 11");
    assert!(api.body_of("POST /v1/replays")["since"].as_str().unwrap().ends_with('Z'));
}

#[test]
fn the_plan_says_what_an_operator_should_know_before_a_replay() {
    let plan = || {
        json!({
            "would_replay": 300, "skips": {}, "rate": 20.0, "about_seconds": 15.0, "to": "pipeline",
            "topic": "orders.replay", "key_order": true, "canary": 10, "stop_at": "20%", "ambiguous": 12,
            "ambiguous_undecided": true, "breaker": "closed", "budget_remaining": 80, "paused": false,
            "superseded": {
                "keys": 2, "letters": 3, "since": "2026-11-15T08:00:00.000Z",
                "shown": [{"key": "c-204", "letters": 2}, {"key": "c-9", "letters": 1}],
            },
            "tenants": [{"tenant": "acme", "letters": 290}, {"tenant": "zeta", "letters": 10}],
            "last": {
                "id": "r-30", "state": "stopped", "created": ago(7_200), "total": 300, "succeeded": 40,
                "dead_again": 11, "untouched": 249,
            },
            "oldest": ago(10_930),
        })
    };
    let api = RecordedApi::new(move |_| (200, plan()));
    let args = ["dlq", "replay", "orders", "--group", "g4m1x8qz2", "--rate", "20/s"];
    let ran = api.redrive(&[&args[..], &["--canary", "10", "--dry-run"]].concat()).exits(0);
    assert_eq!(
        ran.stdout,
        "\
would replay 300 (frozen)   to orders.replay (only this pipeline sees it)   at 20/s ± jitter ≈ 15 s   per-key order \
kept   2 keys have later successes (list: --show superseded)
  canary 10   stops above 20% of the last 50 failed   breaker closed   retry budget 80 left
  12 letters have an attempt whose end is unknown: replay them with the same message id with --ambiguous ok, leave them \
open with --ambiguous skip
  last replay of this selection: r-30 2h 00m ago, stopped   succeeded 40   dead again 11   untouched 249
  oldest died 3h 02m ago
  tenants take turns: acme 290, zeta 10
"
    );
    let shown = api.redrive(&[&args[..], &["--show", "superseded"]].concat()).exits(0);
    let said = "\
KEY    LETTERS
c-204        2
c-9          1
   3 letters of 2 keys; successes are known since 2026-11-15 08:00";
    assert!(shown.stdout.contains(said), "{}", shown.stdout);
    let guarded = ["--canary", "0", "--stop-at", "off", "--ambiguous", "ok", "--dry-run"];
    api.redrive(&[&args[..], &guarded].concat()).exits(0);
    let body = api.body_of("POST /v1/replays");
    assert_eq!(
        (&body["canary"], &body["stop_at"], &body["ambiguous"]),
        (&json!(0), &json!("off"), &json!("ok"))
    );
    for share in ["20", "120%", "lots"] {
        api.redrive(&[&args[..], &["--stop-at", share]].concat()).exits(2);
    }
}

/// The wording of story 6.
#[test]
fn a_replay_that_was_stopped_for_failures_says_why_and_how_to_go_on() {
    let api = job_server(|| {
        let mut stopped = job("stopped", 140, 11);
        (stopped["total"], stopped["succeeded"], stopped["published"]) =
            (json!(1_042), json!(301), json!(312));
        stopped["untouched"] = json!(730);
        stopped["note"] = json!("11 of the last 50 failed (limit 20 %)");
        stopped["canary"] = json!({"letters": 10, "succeeded": 10, "over": true});
        (stopped["breaker"], stopped["sent_twice_max"]) = (json!("closed"), json!(0));
        stopped
    });
    let ran = api.redrive(&["dlq", "replay", "orders", "--group", "g7k2m9x4q", "--rate", "200/s"]).exits(1);
    assert_eq!(
        ran.stdout,
        "\
replay r-31  canary 10/10 … 312/1,042  ✗ stopped: 11 of the last 50 failed (limit 20 %). 730 letters untouched. Breaker \
orders: closed.
  resume with: redrive dlq replay --resume r-31
"
    );
    let sum = "  letters 1,042   succeeded 301   dead again 11   under way 0   skipped 0   untouched 730\n";
    assert_eq!(ran.stderr, sum);
}

#[test]
fn a_replay_that_was_stopped_goes_on_and_says_what_was_sent_twice() {
    let api = RecordedApi::new(|asked| {
        if asked.line == "GET /v1/replays/r-31" {
            return (200, job("stopped", 140, 0));
        }
        let mut done = job("done", 300, 0);
        done["sent_twice_max"] = json!(0);
        done["canary"] = json!({"letters": 10, "succeeded": 10, "over": true});
        (200, done)
    });
    let ran = api.redrive(&["dlq", "replay", "--resume", "r-31"]).exits(0);
    assert_eq!(api.asked()[1].line, "POST /v1/replays/r-31/resume");
    assert!(ran.stdout.starts_with("replay r-31  "), "{}", ran.stdout);
    assert!(
        ran.stdout.contains("300/300   succeeded 300   dead again 0   sent twice 0   "),
        "{}",
        ran.stdout
    );
}

#[test]
fn a_replay_that_failed_says_why_and_what_is_left() {
    let api = job_server(|| {
        let mut failed = job("failed", 140, 11);
        failed["note"] = json!("the pipeline is gone");
        failed
    });
    let ran = api.redrive(&["dlq", "replay", "orders", "--ids", "o-1,o-2"]).exits(1);
    let said = "  ✗ failed: the pipeline is gone. 149 letters untouched; open unless they were changed meanwhile.\n  \
                replay what is open again";
    assert!(ran.stdout.contains(said), "{}", ran.stdout);
    assert_eq!(api.body_of("POST /v1/replays")["ids"], json!(["o-1", "o-2"]));
}

#[test]
fn a_running_replay_is_found_again_by_its_name() {
    let api = job_server(|| job("done", 300, 0));
    let ran = api.redrive(&["dlq", "replay", "--resume", "r-31"]).exits(0);
    assert_eq!(
        without_time(&ran.stdout),
        "replay r-31  resumed at 140 of 300 (frozen at 10:41:07Z)   … 300/300   succeeded 300   dead again 0"
    );
    assert!(!api.asked().iter().any(|asked| asked.line.starts_with("POST")), "a running job was resumed");
}

#[test]
fn a_paused_replay_goes_on_and_a_finished_one_is_only_shown() {
    let api = RecordedApi::new(|asked| match asked.line.as_str() {
        "GET /v1/replays/r-31" => (200, job("paused", 140, 0)),
        _ => (200, job("done", 300, 0)),
    });
    api.redrive(&["dlq", "replay", "--resume", "r-31"]).exits(0);
    assert_eq!(api.asked()[1].line, "POST /v1/replays/r-31/resume");
    let api = RecordedApi::new(|_| (200, job("done", 299, 1)));
    api.redrive(&["dlq", "replay", "--resume", "r-31"]).exits(1);
    assert_eq!(api.asked().len(), 1);
}

/// The numbers of an abort once did not add up: 137 of 322, 169 untouched, and 16 unaccounted for.
#[test]
fn the_numbers_of_an_aborted_replay_add_up() {
    let api = RecordedApi::new(|_| {
        let mut aborted = job("aborted", 130, 7);
        (aborted["total"], aborted["published"]) = (json!(322), json!(153));
        (aborted["under_way"], aborted["untouched"]) = (json!(16), json!(169));
        (200, aborted)
    });
    let sum = "letters 322   succeeded 130   dead again 7   under way 16   skipped 0   untouched 169";
    let said = format!(
        "replay r-31  aborted: {sum}\n  169 letters untouched; open unless they were changed meanwhile. 16 that were put \
         back are taken back if they have not started; `redrive dlq replays show r-31` shows how they ended.\n"
    );
    api.redrive(&["dlq", "replay", "--abort", "r-31"]).exits(0).prints(&said);
    let ran = api.redrive(&["dlq", "replays", "show", "r-31"]).exits(0);
    assert!(ran.stdout.contains(&format!("\n  {sum}\n")), "{}", ran.stdout);
}

#[test]
fn a_replay_that_was_aborted_is_not_resumed() {
    let api = RecordedApi::new(|_| (200, job("aborted", 130, 7)));
    let ran = api.redrive(&["dlq", "replay", "--resume", "r-31"]).exits(1);
    assert_eq!(ran.stdout, "");
    assert!(ran.stderr.contains("replay r-31 is aborted and cannot be resumed"), "{}", ran.stderr);
    assert!(ran.stderr.contains("170 of its letters are open unless changed meanwhile"), "{}", ran.stderr);
    assert!(!api.asked().iter().any(|asked| asked.line.starts_with("POST")));
}

#[test]
fn one_letter_that_a_job_has_left_is_one_letter() {
    let api = RecordedApi::new(|_| {
        let mut aborted = job("aborted", 5, 0);
        (aborted["total"], aborted["untouched"]) = (json!(6), json!(1));
        (200, aborted)
    });
    let ran = api.redrive(&["dlq", "replay", "--abort", "r-31"]).exits(0);
    let said = "\n  1 letter untouched; open unless it was changed meanwhile.\n";
    assert!(ran.stdout.ends_with(said), "{}", ran.stdout);
    let api = RecordedApi::new(|_| (202, json!({"id": "r-31", "state": "running", "total": 1})));
    let ran = api.redrive(&["dlq", "replay", "orders", "--all", "--detach"]).exits(0);
    assert_eq!(ran.stdout, "replay r-31  started: 1 letter\n");
}

#[test]
fn named_letters_that_are_not_open_are_named_by_the_plan_and_by_the_start_of_a_replay() {
    let not_open = || json!([{"letter": "orders/1", "state": "succeeded"}]);
    let looked = |line: &str| line.starts_with("GET");
    let api = RecordedApi::new(move |asked| {
        if asked.body["dry_run"] == json!(true) {
            return (200, json!({"would_replay": 1, "not_open": not_open()}));
        }
        let mut done = job("done", 300, 0);
        if !looked(&asked.line) {
            done["plan"] = json!({"would_replay": 300, "not_open": not_open()});
        }
        (202, done)
    });
    let said = "  orders/1 is succeeded, not open: not replayed\n";
    let replay = ["dlq", "replay", "orders", "--ids", "orders/1,orders/2"];
    for more in [&["--dry-run"][..], &[], &["--detach"]] {
        let ran = api.redrive(&[&replay[..], more].concat()).exits(1);
        assert!(ran.stdout.contains(said), "{more:?}: {}", ran.stdout);
        let json = api.redrive(&[&replay[..], more, &["--json"]].concat()).exits(1).json();
        let plan = if more == ["--detach"] { &json["plan"] } else { &json };
        assert_eq!(plan["not_open"], not_open(), "{more:?}: {json}");
    }
}

#[test]
fn a_plan_says_what_the_decision_about_unknown_ends_leaves_out() {
    // With nothing left to replay, the replay would end with 2.
    for (would_replay, exit) in [(4, 0), (0, 2)] {
        let api = RecordedApi::new(move |_| {
            let plan = json!({
                "would_replay": would_replay, "ambiguous": 3, "ambiguous_skipped": 3, "breaker": "disabled",
            });
            (200, plan)
        });
        let args = ["dlq", "replay", "orders", "--all", "--ambiguous", "skip", "--dry-run"];
        let said = api.redrive(&args).exits(exit).stdout;
        assert!(said.contains("\n  3 letters are left open by --ambiguous skip\n"), "{said}");
        assert_eq!(said.contains("   breaker disabled\n"), would_replay > 0, "{said}");
    }
}

/// A change that was received but not answered may have been made.
#[test]
fn a_connection_that_breaks_says_that_the_change_may_have_been_made_and_how_to_look() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let _ = stream.unwrap().read(&mut vec![0; 65_536]);
        }
    });
    let cases: [(&[&str], &str); 3] = [
        (&["discard", "orders", "--all", "--reason", "x"], "the letters may be discarded"),
        (&["erase", "orders", "--all", "--reason", "x"], "the letters may be erased"),
        (&["replay", "orders", "--all"], "the replay may have begun: `redrive dlq replays list`"),
    ];
    for (args, said) in cases {
        let ran = run(command(&url, &[&["dlq"], args].concat())).exits(75).complains(said);
        let how = "`redrive audit orders --actions`";
        assert!(args[0] == "replay" || ran.stderr.contains(how), "{}", ran.stderr);
        let dry = run(command(&url, &[&["dlq"], args, &["--dry-run"]].concat())).exits(75);
        assert!(!dry.stderr.contains(" may "), "{}", dry.stderr);
    }
}

#[test]
fn groups_without_letters_that_nobody_has_decided_about_are_not_listed() {
    let api = RecordedApi::new(|_| {
        let group =
            |id: &str, state: &str, open: u64| json!({"id": id, "state": state, "open": open, "error": "e"});
        let groups = [
            group("g7k2m9x4q", "open", 3),
            group("g4m1x8qz2", "open", 0),
            group("g2222222z", "regressed", 0),
            group("g3333333z", "snoozed", 0),
        ];
        (200, json!({"open": 3, "groups": groups}))
    });
    let ran = api.redrive(&["dlq", "groups", "orders"]).exits(0);
    assert!(!ran.stdout.contains("g4m1x8qz2") && ran.stdout.contains("g2222222z"), "{}", ran.stdout);
    let total =
        "   3 open in 1 group   1 regressed: g2222222z   1 acknowledged, snoozed or resolved: --all\n";
    assert!(ran.stdout.ends_with(total), "{}", ran.stdout);
    assert!(!ran.stdout.contains("STATE"), "the columns are those of story 6: {}", ran.stdout);
    let all = api.redrive(&["dlq", "groups", "orders", "--all"]).exits(0);
    assert!(
        all.stdout.contains("g4m1x8qz2")
            && all.stdout.contains("REASON  STATE      ERROR")
            && all.stdout.ends_with("   3 open in 1 group\n"),
        "{}",
        all.stdout
    );
    let api = RecordedApi::new(|_| {
        (200, json!({"open": 0, "groups": [{"id": "g4m1x8qz2", "state": "open", "open": 0}]}))
    });
    api.redrive(&["dlq", "groups", "orders"]).exits(0).prints("no open letters\n");
}

#[test]
fn what_is_asked_of_nothing_is_one_clear_error() {
    let api = RecordedApi::new(|asked| match asked.line.as_str() {
        "POST /v1/pipelines/orders/letters/edit" => (200, json!({"edit": null, "edited": 0})),
        "GET /v1/replays" => (200, json!({"replays": []})),
        line => not_found(line),
    });
    let edit = ["dlq", "edit", "orders", "--all", "--set", "/amount=1"];
    api.redrive(&edit).exits(2).complains("no open letter of `orders` matches").prints("");
    api.redrive(&["dlq", "replays", "--pipeline", "nope"]).exits(2).prints("");
    api.redrive(&["dlq", "replays"]).exits(0).prints("no replays\n");
    let ran = api.redrive(&["dlq", "import", "--pipeline", "orders"]).exits(2);
    assert!(ran.stderr.contains("--topic") && ran.stderr.contains("--file"), "{}", ran.stderr);
    let both = ["dlq", "import", "--pipeline", "orders", "--topic", "t", "--file", "f"];
    api.redrive(&both).exits(2).complains("--file");
}

#[test]
fn replays_are_listed_paused_resumed_and_aborted() {
    let api = RecordedApi::new(|asked| match asked.line.as_str() {
        "GET /v1/replays" => (200, json!({"replays": [job("running", 140, 2)]})),
        "GET /v1/pipelines/other" => (200, json!({"name": "other"})),
        "POST /v1/replays/r-31/pause" => (200, job("paused", 140, 2)),
        "POST /v1/replays/r-31/resume" => (200, job("running", 140, 2)),
        "POST /v1/replays/r-31/abort" => (200, job("aborted", 140, 2)),
        _ => (404, json!({"code": "not_found", "message": "there is no replay", "hint": ""})),
    });
    let listed = api.redrive(&["dlq", "replays"]).exits(0);
    let mut lines = listed.stdout.lines();
    assert_eq!(
        lines.next().unwrap().split_whitespace().collect::<Vec<_>>().join(" "),
        "REPLAY PIPELINE STATE LETTERS SUCCEEDED DEAD AGAIN UNDER WAY SKIPPED UNTOUCHED AGE BY SELECTION"
    );
    let row: Vec<&str> = lines.next().unwrap().split_whitespace().collect();
    assert_eq!(
        row[..9],
        ["r-31", "orders", "running", "300", "140", "2", "0", "0", "158"],
        "{}",
        listed.stdout
    );
    api.redrive(&["dlq", "replays", "list", "--pipeline", "other"]).exits(0).prints("no replays\n");
    assert_eq!(api.redrive(&["dlq", "replays", "--json"]).exits(0).json()["id"], "r-31");
    for (word, state) in [("pause", "paused"), ("resume", "running"), ("abort", "aborted")] {
        let ran = api.redrive(&["dlq", "replays", word, "r-31"]).exits(0);
        assert!(
            ran.stdout.starts_with(&format!("replay r-31   {state}   pipeline orders")),
            "{}",
            ran.stdout
        );
    }
    api.redrive(&["dlq", "replays", "show", "r-99"]).exits(2);
}

#[test]
fn stats_say_of_how_many_letters_reasons_were_counted() {
    let api = RecordedApi::new(|_| {
        let stats = json!({
            "open": 200_303, "replaying": 0, "succeeded": 0, "discarded": 0, "scanned": 100_000,
            "by_reason": {"permanent": 100_000}, "by_class": {},
        });
        (200, stats)
    });
    let ran = api.redrive(&["dlq", "stats", "orders"]).exits(0);
    let said = "  by reason and class: the first 100,000 of 200,303 open letters\n";
    assert!(ran.stdout.contains(said), "{}", ran.stdout);
}

#[test]
fn detach_starts_and_does_not_wait() {
    let api = RecordedApi::new(|_| (202, job("running", 0, 0)));
    api.redrive(&["dlq", "replay", "orders", "--all", "--detach"])
        .exits(0)
        .prints("replay r-31  started: 300 letters at 20/s\n")
        .complains("redrive dlq replay --resume r-31");
    assert_eq!(api.asked().len(), 1);
}

#[test]
fn a_processor_that_restarts_is_waited_for() {
    let looks = AtomicU64::new(0);
    let api = RecordedApi::new(move |asked| match asked.line.as_str() {
        "POST /v1/replays" => (202, job("running", 0, 0)),
        _ if looks.fetch_add(1, Ordering::SeqCst) < 2 => {
            (503, json!({"code": "stopping", "message": "the processor is stopping", "hint": ""}))
        }
        _ => (200, job("done", 300, 0)),
    });
    api.redrive(&["dlq", "replay", "orders", "--all"]).exits(0).complains("waiting for it, the job is kept");
}

#[test]
fn an_interrupt_ends_only_the_looking() {
    let api = RecordedApi::new(|_| (202, job("running", 140, 0)));
    let mut command = command(&api.url(), &["dlq", "replay", "orders", "--all"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // It is following once it has polled the job.
    while !api.asked().iter().any(|asked| asked.line == "GET /v1/replays/r-31") {
        assert!(child.try_wait().unwrap().is_none(), "it ended by itself");
        std::thread::sleep(Duration::from_millis(10));
    }
    let killed = std::process::Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(killed.success());
    let status = child.wait().unwrap();
    let mut said = String::new();
    child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert_eq!(status.code(), Some(130), "{said}");
    assert!(said.contains("detached: replay r-31 continues") && said.contains("--resume r-31"), "{said}");
    assert!(!api.asked().iter().any(|asked| asked.line.contains("abort")));
}

#[test]
fn discard_says_how_to_take_it_back() {
    let api = RecordedApi::new(|asked| match asked.line.as_str() {
        "POST /v1/pipelines/orders/letters/discard" => {
            (200, json!({"id": "d-9", "discarded": 47, "undo_until": "2026-12-15T10:00:00.000Z"}))
        }
        _ => (200, json!({"restored": 47})),
    });
    api.redrive(&["dlq", "discard", "orders", "--filter", "error:\"not found\"", "--reason", "ticket 881"])
        .exits(0)
        .prints("discarded 47   (kept as tombstones, undo until 2026-12-15: redrive dlq undo d-9)\n");
    assert_eq!(
        api.body_of("POST /v1/pipelines/orders/letters/discard"),
        json!({"filter": "error:\"not found\"", "reason": "ticket 881", "dry_run": false})
    );
    api.redrive(&["dlq", "undo", "orders", "d-9"]).exits(0).prints("restored 47   (open again)\n");
    assert_eq!(api.body_of("POST /v1/pipelines/orders/letters/undo"), json!({"id": "d-9"}));
}

/// An API with two pipelines, where the action logs of those in `of` have a discard `d-9`.
fn with_discards(of: &'static [&'static str]) -> RecordedApi {
    RecordedApi::new(move |asked| match asked.line.as_str() {
        "GET /v1/pipelines" => (200, json!({"pipelines": [{"name": "orders"}, {"name": "mail"}]})),
        "GET /v1/actions?limit=10000" => {
            let discard = |pipeline: &&str| json!({"action": "discard", "id": "d-9", "pipeline": pipeline});
            (200, json!({"actions": of.iter().map(discard).collect::<Vec<_>>()}))
        }
        "POST /v1/pipelines/mail/letters/undo" => (200, json!({"restored": 47})),
        _ => (404, json!({"code": "not_found", "message": "there is no discard `d-9` of `orders`"})),
    })
}

#[test]
fn a_discard_is_taken_back_by_its_name_alone() {
    let api = with_discards(&["mail"]);
    api.redrive(&["dlq", "undo", "d-9"]).exits(0).prints("restored 47   (open again)\n");
    assert_eq!(api.body_of("POST /v1/pipelines/mail/letters/undo"), json!({"id": "d-9"}));
    assert!(!api.asked().iter().any(|asked| asked.line.contains("/orders/")), "{:?}", api.asked());
    // A discard that the log no longer lists: every pipeline is asked.
    let api = with_discards(&[]);
    api.redrive(&["dlq", "undo", "d-9"]).exits(0).prints("restored 47   (open again)\n");
    let asked = api.asked();
    assert!(asked.iter().any(|asked| asked.line == "POST /v1/pipelines/orders/letters/undo"), "{asked:?}");
}

#[test]
fn a_discard_of_several_pipelines_is_taken_back_only_with_the_pipeline() {
    let api = with_discards(&["orders", "mail"]);
    api.redrive(&["dlq", "undo", "d-9"])
        .exits(2)
        .complains("several pipelines have a discard `d-9`: `mail`, `orders`")
        .complains("name the pipeline: redrive dlq undo mail d-9");
    assert!(!api.asked().iter().any(|asked| asked.line.starts_with("POST")), "nothing was changed");
    api.redrive(&["dlq", "undo", "mail", "d-9"]).exits(0).prints("restored 47   (open again)\n");
}

#[test]
fn a_discard_that_no_pipeline_has_is_not_said_to_be_missing_in_the_last_one_only() {
    let api = RecordedApi::new(|asked| match asked.line.as_str() {
        "GET /v1/pipelines" => (200, json!({"pipelines": [{"name": "orders"}, {"name": "mail"}]})),
        "GET /v1/actions?limit=10000" => (200, json!({"actions": []})),
        _ => (404, json!({"code": "not_found", "message": "there is no discard `d-99`", "hint": ""})),
    });
    api.redrive(&["dlq", "undo", "d-99"])
        .exits(2)
        .complains("no pipeline has a discard `d-99`")
        .complains("`redrive audit PIPELINE --actions` lists the discards");
}

#[test]
fn an_edit_that_no_pipeline_has_is_not_said_to_be_missing_in_the_last_one_only() {
    let api = RecordedApi::new(|asked| match asked.line.as_str() {
        "GET /v1/pipelines" => (200, json!({"pipelines": [{"name": "orders"}, {"name": "mail"}]})),
        _ => (404, json!({"code": "not_found", "message": "pipeline `mail` has no edit `e-99`", "hint": ""})),
    });
    api.redrive(&["dlq", "edit", "--undo", "e-99"])
        .exits(2)
        .complains("no pipeline has an edit `e-99`")
        .complains("`redrive audit PIPELINE --actions` lists the edits");
}

#[test]
fn an_export_has_every_letter_and_no_secret() {
    let api = RecordedApi::new(|asked| {
        let page = u64::from(asked.line.contains("cursor"));
        let mut one = letter(17 + page, &format!("o-{}", 17 + page), "2026-11-15T08:01:12.000Z");
        one["error"] = json!("card 4111111111111111 refused");
        (200, json!({"letters": [one], "next": if page == 0 { json!("c1") } else { Value::Null }}))
    });
    let ran = api
        .redrive(&["dlq", "export", "orders", "--state", "discarded", "--redact", "/card,/email"])
        .exits(0)
        .complains("exported 2 letters")
        .complains("/email was found in no payload");
    let letters: Vec<Value> = ran.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(letters.len(), 2);
    let payload: Value = serde_json::from_str(letters[0]["payload"]["utf8"].as_str().unwrap()).unwrap();
    assert_eq!(payload, json!({"order_id": "o-17", "card": "[redacted]"}));
    assert_eq!(letters[0]["redacted"], json!(["/card"]));
    for secret in ["4111111111111111", "s3cret", "authorization"] {
        assert!(!ran.stdout.contains(secret), "{secret} left: {}", ran.stdout);
    }
    assert!(api.asked()[0].line.contains("state=discarded&payload=true"), "{:?}", api.asked()[0]);
}

#[test]
fn stats_count_by_state_reason_and_class() {
    let api = RecordedApi::new(|_| {
        (
            200,
            json!({
                "open": 40_000, "replaying": 0, "succeeded": 12, "discarded": 47, "oldest": ago(10_930),
                "by_reason": {"max_retries": 1_042, "permanent": 38_958},
                "by_class": {"permanent": 38_958, "transient": 1_042}, "scanned": 40_059,
            }),
        )
    });
    api.redrive(&["dlq", "stats", "orders"]).exits(0).prints(
        "\
pipeline orders   open 40,000 (oldest 3h 02m)   replaying 0   succeeded 12   discarded 47

REASON       LETTERS
permanent     38,958
max_retries    1,042

CLASS      LETTERS
permanent   38,958
transient    1,042
",
    );
    let ran = api.redrive(&["dlq", "stats", "orders", "--json"]).exits(0);
    assert_eq!(ran.json()["scanned"], 40_059);
}

#[test]
fn nobody_at_the_address_is_exit_75() {
    let unused = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let url = format!("http://{unused}");
    run(command(&url, &["dlq", "stats", "orders"]))
        .exits(75)
        .complains(&format!("no processor answers at {url}; start `redrive processor` or give --url"));
}
