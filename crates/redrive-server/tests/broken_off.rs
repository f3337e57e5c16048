//! Clients that disconnect in the middle of a change: it is completed all the same, and recorded in the action log.

mod support;

use std::time::{Duration, Instant};

use redrive::GuardSettings;
use serde_json::{Value, json};
use support::{OPS, PATIENCE, Running, Setup, start_with};

const ORDERS: &str = "/v1/pipelines/orders";
/// The maximum number of rounds until a client disconnects midway.
const ROUNDS_MAX: usize = 30;

async fn started() -> Running {
    // All of the messages must die.
    start_with(Setup { guard: GuardSettings::off(), ..Setup::default() }).await
}

/// Adds letters that were refused for good.
async fn add_letters(server: &Running, name: &str, letters: u64) {
    let before = open(server).await;
    let line = |n| json!({ "id": format!("{name}-{n}"), "payload": { "poison": n } }).to_string();
    let lines: Vec<String> = (0..letters).map(line).collect();
    for part in lines.chunks(1_000) {
        server.post_lines(&format!("{ORDERS}/messages"), &part.join("\n")).await.expect(202);
    }
    server.wait_for(ORDERS, |pipeline| pipeline["letters"]["open"] == before + letters).await;
}

async fn open(server: &Running) -> u64 {
    server.redrive.pipeline("orders").unwrap().counts().await.unwrap().letters_open
}

/// A whole request, as sent.
fn request(path: &str, body: &Value) -> Vec<u8> {
    let body = body.to_string();
    format!(
        "POST {path} HTTP/1.1\r\nhost: 127.0.0.1:7333\r\nauthorization: Bearer {OPS}\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}

/// Sends a request, waits until the first letters have changed, and disconnects. Returns whether that was before the
/// last one changed.
async fn break_off(server: &Running, path: &str, body: &Value, open_at_end: u64) -> bool {
    let before = open(server).await;
    let client = server.hang(&request(path, body)).await;
    let begun = Instant::now();
    while open(server).await == before {
        assert!(begun.elapsed() < PATIENCE, "{path} begins nothing");
    }
    drop(client);
    let in_the_middle = open(server).await != open_at_end;
    server.wait_for(ORDERS, |pipeline| pipeline["letters"]["open"] == open_at_end).await;
    in_the_middle
}

async fn actions(server: &Running, kind: &str) -> Vec<Value> {
    let log = server.get("/v1/actions").await.expect(200);
    let all = log["actions"].as_array().unwrap().iter();
    all.filter(|action| action["action"] == kind).cloned().collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_discard_and_its_undo_come_to_their_end_without_their_client() {
    const LETTERS: u64 = 12_000;
    let server = started().await;
    add_letters(&server, "p", LETTERS).await;
    let (mut discard_was_cut, mut undo_was_cut) = (false, false);
    for round in 1.. {
        assert!(round < ROUNDS_MAX, "the client never hung up before the end");
        let wish = json!({ "filter": "reason:permanent", "reason": "test" });
        discard_was_cut |= break_off(&server, &format!("{ORDERS}/letters/discard"), &wish, 0).await;
        let wish = json!({ "id": format!("d-{round}") });
        undo_was_cut |= break_off(&server, &format!("{ORDERS}/letters/undo"), &wish, LETTERS).await;
        server.wait_for("/v1/actions", |log| is_done(log, "undo", round, LETTERS)).await;
        assert!(is_done(&server.get("/v1/actions").await.expect(200), "discard", round, LETTERS));
        if discard_was_cut && undo_was_cut {
            break;
        }
    }
    server.stop().await;
}

/// Whether this many actions of a kind are recorded, all of them done and with all letters.
fn is_done(log: &Value, kind: &str, actions: usize, letters: u64) -> bool {
    let all = log["actions"].as_array().unwrap().iter();
    let of_kind: Vec<&Value> = all.filter(|action| action["action"] == kind).collect();
    let is_whole = |action: &&Value| action["letters"] == letters && action["unfinished"].is_null();
    of_kind.len() == actions && of_kind.iter().all(is_whole)
}

#[tokio::test(flavor = "multi_thread")]
async fn an_erasure_comes_to_its_end_without_its_client() {
    const LETTERS: u64 = 3_000;
    let server = started().await;
    for round in 1.. {
        assert!(round < ROUNDS_MAX, "the client never hung up before the end");
        add_letters(&server, &format!("p{round}"), LETTERS).await;
        let wish = json!({ "filter": "reason:permanent", "reason": "test" });
        let was_cut = break_off(&server, &format!("{ORDERS}/letters/erase"), &wish, 0).await;
        server.wait_for("/v1/actions", |log| is_done(log, "erase", round, LETTERS)).await;
        if was_cut {
            break;
        }
    }
    server.stop().await;
}

/// Whenever the client disconnects: either there is no job, or it runs, is shown and is recorded.
#[tokio::test(flavor = "multi_thread")]
async fn a_replay_starts_wholly_or_not_at_all_without_its_client() {
    const LETTERS: u64 = 40;
    let server = started().await;
    add_letters(&server, "p", LETTERS).await;
    let mut begun_again = 0;
    for n in 0..LETTERS {
        let wish = json!({ "pipeline": "orders", "filter": format!("id:p-{n}"), "canary": 0 });
        let client = server.hang(&request("/v1/replays", &wish)).await;
        tokio::time::sleep(Duration::from_micros(250 * n)).await;
        drop(client);
    }
    for n in 0..LETTERS {
        // A request that was not read is sent again; one that was begun is completed by then.
        let wish = json!({ "pipeline": "orders", "filter": format!("id:p-{n} replays:<1"), "canary": 0 });
        let answer = server.post("/v1/replays", &wish.to_string()).await;
        assert!([202, 404, 409].contains(&answer.status), "{}", answer.text);
        begun_again += u64::from(answer.status == 202);
    }
    assert!(begun_again < LETTERS, "not one was read before its client hung up");
    let over = |log: &Value| {
        let jobs = log["replays"].as_array().unwrap();
        jobs.len() as u64 == LETTERS && jobs.iter().all(|job| job["state"] == "done")
    };
    server.wait_for("/v1/replays", over).await;
    assert_eq!(actions(&server, "replay").await.len() as u64, LETTERS);
    let files = std::fs::read_dir(server.dir.path().join("replays")).unwrap();
    let of_jobs =
        files.filter(|file| file.as_ref().unwrap().path().extension().is_some_and(|end| end == "json"));
    assert_eq!(of_jobs.count() as u64, LETTERS, "each job that has a file is shown");
    server.stop().await;
}
