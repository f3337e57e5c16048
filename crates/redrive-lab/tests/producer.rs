//! The producer against real HTTP and in process.

mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::Method;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use redrive::{MemoryStores, Pipeline, Policy, Redrive};
use redrive_core::Ratio;
use redrive_lab::downstream::{self, Downstream};
use redrive_lab::fate::Fate;
use redrive_lab::producer::options::OnProgress;
use redrive_lab::producer::{
    BatchAnswer, Bearer, OrderBatch, Producer, ProducerError, ProducerOptions, Progress, Target, run,
};
use redrive_lab::seed;
use support::{FREE_PORT, PATIENCE, start};
use tokio::net::TcpListener;
use tokio::sync::Notify;

/// A target in process that records what it accepts, and answers as told.
#[derive(Default)]
struct Taker {
    seen: Mutex<Vec<Arc<OrderBatch>>>,
}

impl Taker {
    fn target(self: &Arc<Self>, answer: impl Fn(u64) -> BatchAnswer + Send + Sync + 'static) -> Target {
        let (taker, calls) = (Arc::clone(self), AtomicU64::new(0));
        Target::callback(move |batch| {
            taker.seen.lock().unwrap().push(batch);
            let answer = answer(calls.fetch_add(1, Ordering::Relaxed));
            async move { answer }
        })
    }

    fn ids(&self) -> Vec<String> {
        let seen = self.seen.lock().unwrap();
        seen.iter().flat_map(|batch| batch.orders.iter().map(|order| order.id.clone())).collect()
    }
}

fn fine(_: u64) -> BatchAnswer {
    BatchAnswer::Accepted { duplicates: 0 }
}

fn fast(target: Target, count: u64) -> ProducerOptions {
    ProducerOptions { rate: 100_000.0, count: Some(count), ..ProducerOptions::new(target) }
}

async fn finished(options: ProducerOptions) -> Result<redrive_lab::producer::ProducerReport, ProducerError> {
    tokio::time::timeout(PATIENCE, run(options, std::future::pending())).await.expect("the run ends")
}

#[tokio::test]
async fn every_order_of_the_schedule_is_offered_once_and_reported() {
    let taker = Arc::new(Taker::default());
    let dir = tempfile::tempdir().unwrap();
    let ids_file = dir.path().join("ids");
    let options = ProducerOptions {
        seed: 7,
        batch: 8,
        ids_file: Some(ids_file.clone()),
        ..fast(taker.target(fine), 100)
    };
    let report = finished(options).await.unwrap();

    let expected: BTreeSet<String> = (0..100).map(|n| seed::id(7, n)).collect();
    assert_eq!(taker.ids().len(), 100);
    assert_eq!(taker.ids().into_iter().collect::<BTreeSet<_>>(), expected);
    assert_eq!((report.total.sent, report.total.accepted, report.stopped), (100, 100, false));
    assert_eq!(report.ids().collect::<BTreeSet<_>>(), expected);
    assert!(report.unanswered.is_empty());
    let written = std::fs::read_to_string(ids_file).unwrap();
    assert_eq!(written.lines().map(str::to_owned).collect::<BTreeSet<_>>(), expected);

    let poison =
        taker.seen.lock().unwrap().iter().map(|batch| batch.count(|fate| fate == Fate::Poison)).sum::<u64>();
    assert_eq!(report.poison, poison);
    assert!(report.to_string().starts_with("produced 100  ids o-7-0 … o-7-99"), "{report}");
}

#[tokio::test]
async fn two_runs_with_one_seed_offer_the_same_poison() {
    let poison = async |seed| -> BTreeSet<String> {
        let taker = Arc::new(Taker::default());
        let options = ProducerOptions {
            seed,
            batch: 50,
            poison_rate: Ratio::percent(10),
            ..fast(taker.target(fine), 1_000)
        };
        finished(options).await.unwrap();
        let seen = taker.seen.lock().unwrap();
        let orders = seen.iter().flat_map(|batch| &batch.orders);
        orders.filter(|order| order.fate == Fate::Poison).map(|order| order.id.clone()).collect()
    };
    let first = poison(7).await;
    assert!((70..130).contains(&first.len()), "{}", first.len());
    assert_eq!(first, poison(7).await);
}

/// The open model: a slow consumer delays sending only once the limit in flight is reached; then everything due is
/// sent late, not skipped.
#[tokio::test(start_paused = true)]
async fn a_slow_consumer_makes_the_schedule_late_but_never_skips() {
    let taker = Arc::new(Taker::default());
    let took = Arc::clone(&taker);
    let target = Target::callback(move |batch| {
        took.seen.lock().unwrap().push(batch);
        async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            BatchAnswer::Accepted { duplicates: 0 }
        }
    });
    // 100 orders due within a second, each takes a second, four at a time: 25 seconds.
    let options =
        ProducerOptions { rate: 100.0, count: Some(100), in_flight_max: 4, ..ProducerOptions::new(target) };
    let report = run(options, std::future::pending()).await.unwrap();
    assert_eq!(taker.ids(), (0..100).map(|n| format!("o-{n}")).collect::<Vec<_>>());
    assert_eq!(report.total.accepted, 100);
    assert_eq!(report.total.held, 96);
    let (late_max, elapsed) = (report.total.late_max.as_secs_f64(), report.total.elapsed.as_secs_f64());
    assert!((22.5..23.5).contains(&late_max), "{late_max}");
    assert!((24.9..25.2).contains(&elapsed), "{elapsed}");
}

#[tokio::test(start_paused = true)]
async fn below_the_bound_a_slow_consumer_does_not_slow_the_schedule_down() {
    let target = Target::callback(|_| async {
        tokio::time::sleep(Duration::from_millis(500)).await;
        BatchAnswer::Accepted { duplicates: 0 }
    });
    let options = ProducerOptions {
        rate: 100.0,
        duration: Some(Duration::from_secs(3)),
        ..ProducerOptions::new(target)
    };
    let report = run(options, std::future::pending()).await.unwrap();
    assert_eq!((report.total.sent, report.total.held), (300, 0));
    assert!(report.total.late_max <= Duration::from_millis(2), "{:?}", report.total.late_max);
}

#[tokio::test(start_paused = true)]
async fn what_is_refused_is_offered_again_with_the_same_ids() {
    let taker = Arc::new(Taker::default());
    let retry_after = Some(Duration::from_secs(3));
    let target = taker.target(move |call| match call {
        0 => BatchAnswer::Refused { retry_after },
        1 => BatchAnswer::Unreachable { why: "connection refused".into() },
        _ => BatchAnswer::Accepted { duplicates: 5 },
    });
    let options = ProducerOptions { batch: 5, ..fast(target, 5) };
    let report = run(options, std::future::pending()).await.unwrap();
    let seen = taker.seen.lock().unwrap();
    assert_eq!(seen.len(), 3);
    assert!(seen.iter().all(|batch| batch == &seen[0]), "the same orders, byte by byte");
    let total = report.total;
    assert_eq!(
        (total.sent, total.accepted, total.refused, total.unreachable, total.duplicates),
        (5, 5, 5, 5, 5)
    );
    assert!(total.elapsed >= Duration::from_secs(3), "Retry-After is a floor: {:?}", total.elapsed);
}

#[tokio::test(start_paused = true)]
async fn a_stop_names_the_orders_without_an_answer() {
    let stuck = Target::callback(|batch| async move {
        if batch.numbers.contains(&103) {
            std::future::pending::<()>().await;
        }
        BatchAnswer::Accepted { duplicates: 0 }
    });
    let options = ProducerOptions { rate: 10.0, batch: 2, first: 100, ..ProducerOptions::new(stuck) };
    let report = run(options, tokio::time::sleep(Duration::from_secs(1))).await.unwrap();
    assert!(report.stopped);
    assert_eq!(report.unanswered, vec![std::ops::Range { start: 102, end: 104 }]);
    assert_eq!(report.unanswered_count(), 2);
    assert_eq!(report.total.accepted, report.total.sent - 2);
    assert!(report.total.elapsed <= Duration::from_millis(2_100), "{:?}", report.total.elapsed);
}

#[tokio::test]
async fn a_target_that_will_never_take_an_order_ends_the_run_with_its_words() {
    let taker = Arc::new(Taker::default());
    let target = taker.target(|_| BatchAnswer::Rejected { why: "401 token unknown".into() });
    let options = ProducerOptions { rate: 10.0, ..ProducerOptions::new(target) };
    let Err(ProducerError::Rejected { why, report }) = finished(options).await else { panic!("it went on") };
    assert_eq!(why, "401 token unknown");
    assert_eq!((report.total.accepted, report.unanswered.len()), (0, 1));
}

#[tokio::test]
async fn faulty_options_start_nothing() {
    let taker = Arc::new(Taker::default());
    let error =
        finished(ProducerOptions { rate: -1.0, batch: 0, ..ProducerOptions::new(taker.target(fine)) })
            .await
            .unwrap_err();
    assert!(error.to_string().contains("rate: -1") && error.to_string().contains("batch: 0"), "{error}");
    let nowhere = ProducerOptions {
        ids_file: Some("/no/such/dir/ids".into()),
        ..ProducerOptions::new(taker.target(fine))
    };
    assert!(finished(nowhere).await.unwrap_err().to_string().contains("/no/such/dir/ids"));
    assert!(taker.ids().is_empty());
}

/// A request to the ingest route below.
#[derive(Clone)]
struct Asked {
    head: hyper::http::request::Parts,
    body: String,
}

/// An ingest route that refuses the first request and accepts all others.
async fn api(listener: TcpListener, asked: Arc<Mutex<Vec<Asked>>>) {
    loop {
        let Ok((stream, _)) = listener.accept().await else { return };
        let asked = Arc::clone(&asked);
        let route = service_fn(move |request: hyper::Request<hyper::body::Incoming>| {
            let asked = Arc::clone(&asked);
            async move {
                let (head, body) = request.into_parts();
                let body = String::from_utf8(body.collect().await?.to_bytes().to_vec()).unwrap();
                let mut asked = asked.lock().unwrap();
                asked.push(Asked { head, body });
                let answer = hyper::Response::builder();
                let refused = answer.status(429).header("retry-after", "0").body(Full::default());
                let taken = hyper::Response::builder().status(202).body(Full::from(r#"{"duplicates":1}"#));
                Ok::<hyper::Response<Full<Bytes>>, hyper::Error>(
                    if asked.len() == 1 { refused } else { taken }.unwrap(),
                )
            }
        });
        tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), route));
    }
}

#[tokio::test]
async fn over_http_it_sends_ndjson_with_its_token_and_comes_again_after_429() {
    let listener = TcpListener::bind(FREE_PORT).await.unwrap();
    let url = format!("http://{}/v1/pipelines/orders/messages", listener.local_addr().unwrap());
    let asked = Arc::new(Mutex::new(Vec::new()));
    let api = tokio::spawn(api(listener, Arc::clone(&asked)));
    let target = Target::http(&url, Some(Bearer::new("demo-token").unwrap())).unwrap();
    let report = finished(ProducerOptions { batch: 10, ..fast(target, 25) }).await.unwrap();
    api.abort();

    let total = report.total;
    assert_eq!((total.sent, total.accepted, total.duplicates), (25, 25, 3));
    assert!([5, 10].contains(&total.refused), "one request of ten or five orders: {}", total.refused);
    let asked = asked.lock().unwrap();
    assert_eq!(asked.len(), 4, "three batches, one of them twice");
    let mut times: BTreeMap<String, u32> = BTreeMap::new();
    for Asked { head, body } in asked.iter() {
        assert_eq!((head.method.as_str(), head.uri.path()), ("POST", "/v1/pipelines/orders/messages"));
        assert_eq!(head.headers["authorization"], "Bearer demo-token");
        assert_eq!(head.headers["content-type"], "application/x-ndjson");
        for line in body.lines() {
            let message: serde_json::Value = serde_json::from_str(line).unwrap();
            assert_eq!(message["id"], message["payload"]["order_id"]);
            assert_eq!(message["payload"].to_string().len(), 512);
            *times.entry(message["id"].as_str().unwrap().to_owned()).or_default() += 1;
        }
    }
    assert_eq!(times.len(), 25);
    assert_eq!(times.values().filter(|times| **times == 2).count() as u64, total.refused);
}

#[tokio::test]
async fn nobody_there_is_counted_and_tried_again_until_somebody_is() {
    let reserved = TcpListener::bind(FREE_PORT).await.unwrap();
    let addr = reserved.local_addr().unwrap();
    drop(reserved);
    let target = Target::http(&format!("http://{addr}/v1/pipelines/orders/messages"), None).unwrap();
    let unreachable = Arc::new(Notify::new());
    let notify = Arc::clone(&unreachable);
    let told = OnProgress(Arc::new(move |now: &Progress| {
        if now.unreachable > 0 {
            notify.notify_one();
        }
    }));
    let (on_progress, progress_every) = (Some(told), Duration::from_millis(5));
    let running = tokio::spawn(finished(ProducerOptions { on_progress, progress_every, ..fast(target, 1) }));
    tokio::time::timeout(PATIENCE, unreachable.notified()).await.expect("it says that nobody is there");
    let listener = TcpListener::bind(addr).await.unwrap();
    let asked = Arc::new(Mutex::new(Vec::new()));
    let api = tokio::spawn(api(listener, Arc::clone(&asked)));
    let report = running.await.unwrap().unwrap();
    api.abort();
    assert!(report.total.unreachable >= 1);
    assert_eq!(report.total.accepted, 1);
}

#[tokio::test]
async fn its_metrics_and_progress_say_the_same() {
    let (told, progress) = (Arc::new(Notify::new()), Arc::new(Mutex::new(Vec::<Progress>::new())));
    let on_progress = {
        let (told, progress) = (Arc::clone(&told), Arc::clone(&progress));
        OnProgress(Arc::new(move |now: &Progress| {
            progress.lock().unwrap().push(now.clone());
            told.notify_one();
        }))
    };
    let taker = Arc::new(Taker::default());
    let options = ProducerOptions {
        rate: 1_000.0,
        listen: Some(FREE_PORT),
        on_progress: Some(on_progress),
        progress_every: Duration::from_millis(20),
        ..ProducerOptions::new(taker.target(fine))
    };
    let producer = Producer::bind(options).await.unwrap();
    let addr = producer.addr().unwrap();
    let stop = Arc::new(Notify::new());
    let stopped = Arc::clone(&stop);
    let running = tokio::spawn(producer.run(async move { stopped.notified().await }));
    tokio::time::timeout(PATIENCE, told.notified()).await.expect("progress is told");

    // The stub's client also works for another address.
    let mut client = start(downstream::DownstreamOptions::default()).await;
    client.addr = addr;
    let metrics = client.get("/metrics").await.body;
    for family in redrive_lab::metrics::producer::ALL {
        assert!(metrics.contains(&format!("# TYPE {} ", family.name)), "{}", family.name);
    }
    assert_eq!(client.get("/livez").await.status, 200);
    assert_eq!(client.send(Method::POST, "/metrics", &[], "").await.status, 404);
    stop.notify_one();
    let report = tokio::time::timeout(PATIENCE, running).await.unwrap().unwrap().unwrap();
    assert!(report.stopped && report.total.sent > 0);
    let last = progress.lock().unwrap().last().unwrap().clone();
    assert!(last.sent > 0 && last.sent <= report.total.sent && last.rate > 0.0, "{last:?}");
    assert!(last.to_string().contains(&format!("sent {}", last.sent)), "{last}");
}

/// The whole loop in one process: producer, pipeline, stub. Every order ends in the ledger or in the dead letters,
/// and after the fix a replay delivers the poison too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pipeline_between_producer_and_downstream_loses_nothing() {
    const ORDERS: u64 = 400;
    let stub = Arc::new(Downstream::open(&downstream::DownstreamOptions::default()).await.unwrap());
    let called = Arc::clone(&stub);
    let tries: Arc<Mutex<BTreeMap<String, u32>>> = Arc::default();
    // Messages do not carry the attempt here, so the test counts.
    let deliver = move |message: redrive::Message| {
        let (stub, tries) = (Arc::clone(&called), Arc::clone(&tries));
        async move {
            let attempt = {
                let mut tries = tries.lock().unwrap();
                let tries = tries.entry(message.id().to_owned()).or_default();
                *tries += 1;
                *tries
            };
            let end = stub.handle(message.id(), attempt, message.payload().unwrap_or_default()).await;
            end.map(drop).map_err(redrive_lab::downstream::StubFailure::into_failure)
        }
    };
    let policy = Policy::tiers(["5ms", "10ms", "20ms"]);
    let redrive = Redrive::builder()
        .engine(MemoryStores::new())
        .pipeline(Pipeline::new("orders").policy(policy).handler_fn(deliver))
        .build()
        .unwrap();
    let orders = redrive.pipeline("orders").unwrap();
    let report = Arc::new(Mutex::new(None));
    let over = {
        let (stub, orders, report) = (Arc::clone(&stub), orders.clone(), Arc::clone(&report));
        async move {
            let options = ProducerOptions {
                poison_rate: Ratio::percent(5),
                batch: 10,
                ..fast(Target::pipeline(orders.clone()), ORDERS)
            };
            let produced = finished(options).await.unwrap();
            let settled = |dead: u64| {
                let (stub, orders) = (&stub, &orders);
                async move {
                    loop {
                        let counts = orders.counts().await.unwrap();
                        let waiting = counts.pending();
                        if waiting == 0 && stub.stats().applied + dead.min(counts.letters_open) == ORDERS {
                            return counts.letters_open;
                        }
                        tokio::time::sleep(Duration::from_millis(5)).await;
                    }
                }
            };
            let dead = settled(u64::MAX).await;
            assert_eq!(dead, produced.poison);
            stub.fix();
            let letters = orders.letters(None, None, ORDERS as usize).await.unwrap();
            orders.replay(letters.iter().map(|letter| letter.id).collect::<Vec<_>>()).await.unwrap();
            settled(0).await;
            *report.lock().unwrap() = Some(produced);
        }
    };
    tokio::time::timeout(PATIENCE, redrive.run_until(over)).await.expect("it ends").unwrap();

    let produced = report.lock().unwrap().take().unwrap();
    let mut expected: Vec<String> = produced.ids().collect();
    let mut applied = stub.applied(None, 10_000).await.unwrap().ids;
    expected.sort();
    applied.sort();
    assert_eq!(applied, expected);
    assert_eq!(stub.stats().duplicates, 0);
    assert!(produced.poison > 5 && produced.transient > 20, "{produced}");
}
