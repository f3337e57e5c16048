//! `redrive audit` against a processor and a downstream with recorded answers.

mod recorded;

use std::sync::atomic::{AtomicU64, Ordering};

use recorded::{Asked, RecordedApi, ago, letter, not_found, pipeline};
use serde_json::{Value, json};

/// A processor with an open letter for o-7, a discarded one for o-8, with o-9 waiting, and which says that o-5
/// succeeded.
fn processor() -> RecordedApi {
    RecordedApi::new(|asked: &Asked| {
        let line = asked.line.as_str();
        if line.starts_with("GET /v1/pipelines/orders/letters?") {
            let open = letter(1, "o-7", &ago(60));
            let mut discarded = letter(2, "o-8", &ago(60));
            discarded["state"] = json!("discarded");
            return (200, json!({"letters": [open, discarded], "next": null}));
        }
        match line {
            "GET /v1/pipelines/orders" => (200, pipeline(false)),
            "GET /v1/pipelines/orders/messages/o-9" => (200, json!({"id": "o-9", "state": "delayed"})),
            "GET /v1/pipelines/orders/messages/o-5" => (200, json!({"id": "o-5", "state": "succeeded"})),
            _ => not_found(line),
        }
    })
}

/// A downstream that applied o-0 to o-6 except `lost`, in pages of three.
fn downstream(lost: &'static [u64]) -> RecordedApi {
    RecordedApi::new(move |asked| {
        if asked.line == "GET /stats" {
            return (200, json!({"calls": 40, "applied": 7, "duplicates": 2}));
        }
        let after = asked.line.split("after=").nth(1).and_then(|rest| rest.split('&').next());
        let after: Option<u64> = after.and_then(|id| id.strip_prefix("o-")).and_then(|n| n.parse().ok());
        let ids: Vec<u64> =
            (0..7).filter(|n| !lost.contains(n) && after.is_none_or(|after| *n > after)).collect();
        let page: Vec<String> = ids.iter().take(3).map(|n| format!("o-{n}")).collect();
        let next = if ids.len() > 3 { json!(page.last()) } else { Value::Null };
        (200, json!({"ids": page, "next": next}))
    })
}

#[test]
fn an_audit_that_balances_exits_0_and_says_which_proof_it_used() {
    let (processor, downstream) = (processor(), downstream(&[]));
    processor
        .redrive(&["audit", "orders", "--applied", &downstream.url(), "--ids", "o-0..o-9"])
        .exits(0)
        .prints(
            "\
produced                      10   ids
  succeeded                    7   id found in applied
  dead                         2   open 1 · discarded 1 · of these also succeeded 0
  pending                      1
  missing                      0   ✓
repeated calls   2, all merged      duplicate effects   0
proof   by id against the downstream's ledger
",
        );
}

#[test]
fn a_row_that_the_witness_lost_is_named_and_exits_1() {
    let (processor, downstream) = (processor(), downstream(&[2, 5]));
    let args = ["audit", "orders", "--applied", &downstream.url(), "--ids", "o-0..o-9"];
    let ran = processor.redrive(&args).exits(1);
    // The processor says that o-5 succeeded; without the witness that proves nothing.
    assert!(
        ran.stdout.contains("  missing                      2   ✗\n    o-2\n    o-5\n"),
        "{}",
        ran.stdout
    );
    let with_json: Vec<&str> = args.iter().copied().chain(["--json"]).collect();
    let json = processor.redrive(&with_json).exits(1).json();
    assert_eq!(json["missing_ids"], json!(["o-2", "o-5"]));
    assert_eq!(
        (&json["ok"], &json["proof"]),
        (&json!(false), &json!("by id against the downstream's ledger"))
    );
}

#[test]
fn a_message_that_succeeds_during_the_audit_is_not_missing() {
    // Its effect happens after the witness was read and before the processor is queried.
    let (processor, reads) = (processor(), AtomicU64::new(0));
    let witness = RecordedApi::new(move |asked| {
        if asked.line == "GET /stats" {
            return (200, json!({"duplicates": 0}));
        }
        let late = reads.fetch_add(1, Ordering::SeqCst) > 0;
        (200, json!({"ids": if late { vec!["o-4", "o-5"] } else { vec!["o-4"] }, "next": null}))
    });
    let args = ["audit", "orders", "--applied", &witness.url(), "--ids", "o-4..o-5", "--json"];
    let json = processor.redrive(&args).exits(0).json();
    assert_eq!((&json["succeeded"], &json["duplicate_effects"]), (&json!(2), &json!(0)));
}

#[test]
fn the_produced_ids_come_from_a_file_as_well() {
    let (processor, downstream) = (processor(), downstream(&[]));
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("ids.txt");
    std::fs::write(&file, "o-0\no-1\no-7\no-0\n").unwrap();
    let file = file.to_str().unwrap();
    let json = processor
        .redrive(&["audit", "orders", "--applied", &downstream.url(), "--ids-file", file, "--json"])
        .exits(0)
        .json();
    assert_eq!(json["produced"], 3);
    assert_eq!(json["listed_again"], 1);
    assert_eq!(json["not_produced"], 5, "o-2 to o-6");
}

#[test]
fn what_is_missing_on_the_command_line_is_said_before_anybody_is_asked() {
    let processor = processor();
    processor.redrive(&["audit", "orders"]).exits(2).complains("--applied");
    processor.redrive(&["audit", "orders", "--applied", "http://127.0.0.1:1"]).exits(2).complains("--ids");
    processor
        .redrive(&["audit", "orders", "--applied", "mysql://x", "--ids", "o-0..o-9"])
        .exits(2)
        .complains("neither postgres://…, nor http://…, nor a file");
    processor
        .redrive(&["audit", "orders", "--applied", "http://127.0.0.1:1", "--ids", "o-9..o-0"])
        .exits(2)
        .complains("o-0..o-9999");
    assert!(processor.asked().is_empty());
}

#[test]
fn a_witness_that_is_away_is_exit_75() {
    let unused = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    processor()
        .redrive(&["audit", "orders", "--applied", &format!("http://{unused}"), "--ids", "o-0..o-9"])
        .exits(75)
        .complains("no downstream answers at");
}

/// People sometimes give the processor's own address for `--applied`.
#[test]
fn a_witness_that_has_no_ledger_is_blamed_and_not_the_processor() {
    let not_a_ledger =
        RecordedApi::new(|_| (404, json!({"code": "not_found", "message": "nothing here", "hint": "x"})));
    let ran = processor()
        .redrive(&["audit", "orders", "--applied", &not_a_ledger.url(), "--ids", "o-0..o-9"])
        .exits(2)
        .complains(
            "does not answer as `redrive downstream` does (GET /applied gives 404); is --applied right?",
        );
    assert!(ran.stderr.contains(&not_a_ledger.url()), "{}", ran.stderr);
    assert!(!ran.stderr.contains("the processor answered"), "{}", ran.stderr);
    let text = RecordedApi::new(|_| (200, json!("hello")));
    processor()
        .redrive(&["audit", "orders", "--applied", &text.url(), "--ids", "o-0..o-9"])
        .exits(2)
        .complains("is --applied right?");
}

#[test]
fn the_action_log_says_who_did_what() {
    let api = RecordedApi::new(|asked| {
        if asked.line.starts_with("GET /v1/actions") {
            return (
                200,
                json!({"actions": [
                    {"at": "2026-11-15T10:40:51.000Z", "actor": "ops", "action": "discard", "id": "d-9", "pipeline": "orders", "letters": 47, "note": "ticket 881"},
                    {"at": "2026-11-15T10:41:07.000Z", "actor": "ops", "action": "replay", "id": "r-31", "pipeline": "orders", "letters": 300, "note": null},
                    {"at": "2026-11-15T10:42:00.000Z", "actor": "ops", "action": "pause", "id": null, "pipeline": "push", "letters": null, "note": null},
                ]}),
            );
        }
        (200, pipeline(false))
    });
    api.redrive(&["audit", "orders", "--actions", "--since", "2026-07-01"]).exits(0).prints(
        "\
AT                        ACTOR  ACTION   ID    LETTERS  NOTE
2026-11-15T10:40:51.000Z  ops    discard  d-9        47  ticket 881
2026-11-15T10:41:07.000Z  ops    replay   r-31      300
",
    );
    let asked = api.asked();
    assert!(
        asked.iter().any(|asked| asked
            .line
            .starts_with("GET /v1/actions?pipeline=orders&since=2026-07-01T00%3A00%3A00.000Z")),
        "{asked:?}"
    );
    let ran = api.redrive(&["audit", "orders", "--actions", "--json"]).exits(0);
    let actions: Vec<Value> = ran.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(actions.len(), 2);
    assert_eq!(actions[0]["letters"], 47);
}
