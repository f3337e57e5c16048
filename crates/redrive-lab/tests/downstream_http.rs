//! The downstream over real HTTP on loopback.

mod support;

use std::io::{Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use hyper::Method;
use redrive_lab::downstream::{Downstream, DownstreamOptions, Server, Switches};
use serde_json::json;
use support::{FREE_PORT, PATIENCE, start};

const POISON: &str = r#"{"order_id":"o-1","amount":-5}"#;
const TWICE: &str = r#"{"order_id":"o-2","amount":5,"payload":"fails 2 xxx"}"#;

fn with(switches: Switches) -> DownstreamOptions {
    DownstreamOptions { switches, ..DownstreamOptions::default() }
}

#[tokio::test]
async fn an_order_is_applied_once_however_often_it_is_delivered() {
    let stub = start(DownstreamOptions::default()).await;
    let first = stub.call("o-1", 1, "{}").await;
    assert_eq!((first.status, first.json()), (200, json!({ "id": "o-1", "duplicate": false })));
    for _ in 0..3 {
        let again = stub.call("o-1", 2, "{}").await;
        assert_eq!((again.status, again.json()["duplicate"].clone()), (200, json!(true)));
    }
    let stats = stub.get("/stats").await.json();
    assert_eq!([&stats["calls"], &stats["applied"], &stats["duplicates"], &stats["ids"]], [4, 1, 3, 1]);
    assert_eq!(stub.get("/applied").await.json(), json!({ "ids": ["o-1"], "next": null }));
    assert_eq!(stub.get("/applied/o-1").await.status, 200);
    assert_eq!(stub.get("/applied/o-2").await.status, 404);
    let report = stub.stop().await;
    assert_eq!((report.stats.applied, report.cut), (1, 0));
}

#[tokio::test]
async fn the_id_comes_from_the_header_or_from_the_order() {
    let stub = start(DownstreamOptions::default()).await;
    stub.send(Method::POST, "/", &[("webhook-id", "from-header")], r#"{"order_id":"from-order"}"#).await;
    stub.send(Method::POST, "/any/path", &[], r#"{"order_id":"from-order"}"#).await;
    assert_eq!(stub.get("/applied").await.json()["ids"], json!(["from-header", "from-order"]));
    let none = stub.send(Method::POST, "/", &[], "{}").await;
    assert_eq!((none.status, none.json()["code"].clone()), (400, json!("no_id")));
    assert_eq!(stub.get("/stats").await.json()["calls"], 2, "what has no id is no call");
}

#[tokio::test]
async fn poison_is_refused_with_its_reason_until_it_is_fixed() {
    let stub = start(DownstreamOptions::default()).await;
    for attempt in 1..4 {
        let refused = stub.call("o-1", attempt, POISON).await;
        assert_eq!((refused.status, refused.header("redrive-reason")), (422, Some("negative_amount")));
        assert_eq!(refused.header("retry-after"), None);
    }
    assert_eq!(stub.send(Method::POST, "/fix", &[], "").await.json()["poison_detect"], false);
    assert_eq!(stub.call("o-1", 1, POISON).await.status, 200);
    assert_eq!(stub.get("/stats").await.json()["failures"]["poison"], 3);
}

#[tokio::test]
async fn a_transient_order_fails_as_often_as_it_says_and_tells_when_to_come_again() {
    let stub =
        start(with(Switches { retry_after: Some(Duration::from_millis(1_500)), ..Switches::default() }))
            .await;
    for attempt in 1..=2 {
        let failed = stub.call("o-2", attempt, TWICE).await;
        assert_eq!((failed.status, failed.header("redrive-reason")), (503, Some("not_ready")));
        assert_eq!(failed.header("retry-after"), Some("2"), "rounded up: who comes earlier comes too early");
    }
    assert_eq!(stub.call("o-2", 3, TWICE).await.status, 200);

    stub.put("/switches", &json!({ "retry_after": null, "obey_marks": false, "fail_rate": "100%" })).await;
    let failed = stub.call("o-3", 1, TWICE).await;
    assert_eq!((failed.status, failed.header("retry-after")), (503, None));
    stub.put("/switches", &json!({ "fail_rate": 0 })).await;
    assert_eq!(stub.call("o-3", 1, TWICE).await.status, 200, "the mark is not obeyed");
}

#[tokio::test]
async fn the_same_seed_fails_the_same_calls() {
    let failing = async |seed| {
        let switches = Switches { fail_rate: "30%".parse().unwrap(), ..Switches::default() };
        let stub = start(DownstreamOptions { seed, ..with(switches) }).await;
        let mut failed = Vec::new();
        for n in 0..60 {
            let id = format!("o-{n}");
            if stub.call(&id, 1, "{}").await.status == 503 {
                failed.push(n);
            }
        }
        failed
    };
    let once = failing(7).await;
    assert!(!once.is_empty() && once.len() < 40, "{once:?}");
    assert_eq!(once, failing(7).await);
    assert_ne!(once, failing(8).await);
}

#[tokio::test]
async fn a_change_of_switches_is_taken_as_a_whole_or_not_at_all() {
    let stub = start(DownstreamOptions::default()).await;
    let before = stub.get("/switches").await.json();
    let bad = stub.put("/switches", &json!({ "fail_rate": "15%", "latencies": "5ms" })).await;
    assert_eq!((bad.status, bad.json()["code"].clone()), (422, json!("bad_switch")));
    assert!(bad.json()["message"].as_str().unwrap().contains("did you mean `latency`?"), "{}", bad.body);
    assert_eq!(stub.send(Method::PUT, "/switches", &[], "no json").await.status, 422);
    assert_eq!(stub.send(Method::PUT, "/switches", &[], "[]").await.status, 422);
    assert_eq!(stub.get("/switches").await.json(), before);
}

#[tokio::test]
async fn during_an_outage_nothing_is_applied_and_the_switches_end_it() {
    let stub = start(DownstreamOptions::default()).await;
    stub.put("/switches", &json!({ "outage_window": "1h" })).await;
    let down = stub.call("o-1", 1, "{}").await;
    assert_eq!((down.status, down.header("redrive-reason")), (503, Some("outage")));
    assert_eq!(stub.get("/stats").await.json()["outage"], true);
    assert!(stub.get("/metrics").await.body.contains("\nredrive_downstream_outage 1\n"));
    assert_eq!(stub.get("/livez").await.status, 200, "the process lives");
    stub.put("/switches", &json!({ "outage_window": null })).await;
    assert_eq!(stub.call("o-1", 2, "{}").await.status, 200);
    assert_eq!(stub.get("/stats").await.json()["failures"]["outage"], 1);
}

#[tokio::test]
async fn a_hanging_call_gets_its_answer_when_the_outage_ends() {
    let stub = start(DownstreamOptions::default()).await;
    stub.put("/switches", &json!({ "outage_window": "1h", "outage_style": "hang" })).await;
    let hanging = stub.call("o-1", 1, "{}");
    tokio::pin!(hanging);
    let arrived = async {
        while stub.get("/stats").await.json()["in_flight"] != 1 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        // Long enough for a response that is not held back.
        tokio::time::sleep(Duration::from_millis(100)).await;
    };
    tokio::select! {
        _ = &mut hanging => panic!("it must hang"),
        () = arrived => {}
    }
    assert_eq!(stub.get("/stats").await.json()["in_flight"], 1);
    stub.put("/switches", &json!({ "outage_window": null })).await;
    assert_eq!(hanging.await.status, 503);
    assert_eq!(stub.get("/applied").await.json()["ids"], json!([]));
}

/// The change may come at any moment of the call, even between its check of the switches and its wait for a change.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_call_hangs_on_after_an_outage_was_switched_off() {
    let stub = Arc::new(Downstream::open(&DownstreamOptions::default()).await.unwrap());
    let on = json!({ "outage_window": "1h", "outage_style": "hang" });
    let off = json!({ "outage_window": null });
    for round in 0..6_000 {
        stub.change(on.as_object().unwrap()).unwrap();
        let (called, begun) = (Arc::clone(&stub), Arc::new(AtomicBool::new(false)));
        let begins = Arc::clone(&begun);
        let call = tokio::spawn(async move {
            begins.store(true, Ordering::SeqCst);
            called.handle("o-1", 1, b"{}").await.map(drop)
        });
        while !begun.load(Ordering::SeqCst) {
            tokio::task::yield_now().await;
        }
        (0..round % 300).for_each(|_| std::hint::spin_loop());
        stub.change(off.as_object().unwrap()).unwrap();
        // It failed because of the outage, or began after it; either way it has ended.
        drop(tokio::time::timeout(PATIENCE, call).await.expect("the call hangs on").unwrap());
    }
}

#[tokio::test]
async fn a_caller_who_gives_up_leaves_nothing_hanging() {
    let stub = start(DownstreamOptions::default()).await;
    stub.put("/switches", &json!({ "outage_window": "1h", "outage_style": "hang" })).await;
    let gave_up = tokio::time::timeout(Duration::from_millis(50), stub.call("o-1", 1, "{}")).await;
    assert!(gave_up.is_err());
    let began = Instant::now();
    while stub.get("/stats").await.json()["in_flight"] != 0 {
        assert!(began.elapsed() < PATIENCE, "the call still hangs");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn refused_connections_come_back_by_themselves_when_the_window_ends() {
    let stub = start(DownstreamOptions::default()).await;
    assert_eq!(stub.call("o-1", 1, "{}").await.status, 200);
    let began = Instant::now();
    let mut window_ms = 300;
    let mut refused = 0;
    // The window may pass before any connection is tried; then retry with a longer one.
    while refused == 0 {
        stub.put(
            "/switches",
            &json!({ "outage_window": format!("{window_ms}ms"), "outage_style": "refuse" }),
        )
        .await;
        let ends = Instant::now() + Duration::from_millis(window_ms);
        loop {
            assert!(began.elapsed() < PATIENCE, "nobody listens any more");
            match tokio::net::TcpStream::connect(stub.addr).await {
                Ok(_) if Instant::now() > ends => break,
                Ok(_) => {}
                Err(error) => {
                    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionRefused);
                    refused += 1;
                }
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        window_ms *= 4;
        assert!(refused > 0 || window_ms < 100_000, "connections were never refused");
    }
    assert_eq!(stub.call("o-2", 1, "{}").await.status, 200);
}

#[tokio::test]
async fn applied_ids_are_paged_in_a_fixed_order() {
    let stub = start(DownstreamOptions::default()).await;
    for n in 0..25 {
        stub.downstream.handle(&format!("o-{n}"), 1, b"{}").await.unwrap();
    }
    stub.downstream.handle("an id / with spaces", 1, b"{}").await.unwrap();
    let (mut ids, mut after) = (Vec::new(), String::new());
    loop {
        let page = stub.get(&format!("/applied?limit=10&after={}", after.replace(' ', "%20"))).await.json();
        ids.extend(page["ids"].as_array().unwrap().iter().map(|id| id.as_str().unwrap().to_owned()));
        match page["next"].as_str() {
            Some(next) => after = next.to_owned(),
            None => break,
        }
    }
    let mut expected: Vec<String> = (0..25).map(|n| format!("o-{n}")).collect();
    expected.push("an id / with spaces".into());
    assert_eq!(ids, expected);
    assert_eq!(stub.get("/applied/an%20id%20%2F%20with%20spaces").await.status, 200);
    assert_eq!(stub.get("/applied?limit=many").await.status, 400);
}

#[tokio::test]
async fn what_is_not_there_says_what_is() {
    let stub = start(DownstreamOptions::default()).await;
    let nothing = stub.get("/nothing").await;
    assert_eq!(nothing.status, 404);
    assert!(nothing.json()["hint"].as_str().unwrap().contains("/switches"));
    assert_eq!(stub.get("/readyz").await.status, 200);
    let metrics = stub.get("/metrics").await;
    assert!(metrics.header("content-type").unwrap().starts_with("text/plain; version=0.0.4"));
    for family in redrive_lab::metrics::downstream::ALL {
        assert!(metrics.body.contains(&format!("# TYPE {} ", family.name)), "{}", family.name);
    }
}

#[tokio::test]
async fn it_listens_on_loopback_only_and_names_a_taken_port() {
    let beyond =
        Server::bind(&DownstreamOptions { listen: ([0, 0, 0, 0], 0).into(), ..DownstreamOptions::default() })
            .await;
    assert!(beyond.unwrap_err().to_string().contains("loopback only"));
    let remote = DownstreamOptions {
        listen: ([0, 0, 0, 0], 0).into(),
        allow_remote: true,
        ..DownstreamOptions::default()
    };
    assert!(Server::bind(&remote).await.is_ok(), "only if somebody says so");
    let first =
        Server::bind(&DownstreamOptions { listen: FREE_PORT, ..DownstreamOptions::default() }).await.unwrap();
    let second =
        Server::bind(&DownstreamOptions { listen: first.addr(), ..DownstreamOptions::default() }).await;
    let text = second.unwrap_err().to_string();
    assert!(text.contains(&first.addr().to_string()) && text.contains("give another address"), "{text}");
}

#[tokio::test]
async fn it_stops_although_a_call_hangs() {
    let stub = start(DownstreamOptions::default()).await;
    stub.put("/switches", &json!({ "outage_window": "1h", "outage_style": "hang" })).await;
    let addr = stub.addr;
    let hanging = std::thread::spawn(move || {
        let mut stream = std::net::TcpStream::connect(addr).unwrap();
        stream
            .write_all(b"POST / HTTP/1.1\r\nhost: h\r\nwebhook-id: o-1\r\ncontent-length: 0\r\n\r\n")
            .unwrap();
        // Keeps the connection open until the server cuts it.
        let _ = stream.read(&mut [0; 64]);
    });
    while stub.downstream.stats().in_flight == 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(stub.stop().await.cut, 1);
    hanging.join().unwrap();
}
