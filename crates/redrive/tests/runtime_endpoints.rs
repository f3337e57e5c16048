//! A sink with an endpoint per message: an endpoint that is slow, down or rate-limiting delays its own messages, and no
//! others.

mod support;

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use redrive::{
    BreakerSettings, Call, Delivery, Endpoint, Failure, MemoryStores, Message, Pipeline, Policy, Redrive,
    Sink,
};
use support::{at_rest, guarded, message};

/// Messages are named `ENDPOINT-NUMBER`.
fn endpoint(message: &Message) -> String {
    message.id().split('-').next().unwrap_or_default().to_owned()
}

#[derive(Clone, Default)]
struct Many {
    world: Arc<World>,
}

#[derive(Default)]
struct World {
    running: Mutex<HashMap<String, (usize, usize)>>,
    /// In the order in which the calls ended.
    ended: Mutex<Vec<String>>,
    calls: Mutex<Vec<(String, Instant)>>,
    repaired: AtomicBool,
    /// Calls per second to one endpoint.
    rate: Option<f64>,
}

impl World {
    fn most_at_once(&self, endpoint: &str) -> usize {
        self.running.lock().unwrap()[endpoint].1
    }

    fn calls_to(&self, endpoint: &str) -> Vec<Instant> {
        let calls = self.calls.lock().unwrap();
        calls.iter().filter(|(to, _)| to == endpoint).map(|(_, at)| *at).collect()
    }
}

impl Sink for Many {
    fn deliver(&self, call: Call) -> Delivery<'_> {
        Box::pin(async move {
            let to = endpoint(&call.message);
            {
                let mut running = self.world.running.lock().unwrap();
                let (now, most) = running.entry(to.clone()).or_default();
                *now += 1;
                *most = (*most).max(*now);
            }
            let is_first = {
                let mut calls = self.world.calls.lock().unwrap();
                calls.push((to.clone(), Instant::now()));
                calls.iter().filter(|(other, _)| *other == to).count() == 1
            };
            tokio::time::sleep(Duration::from_millis(if to == "slow" { 100 } else { 1 })).await;
            self.world.running.lock().unwrap().get_mut(&to).unwrap().0 -= 1;
            let repaired = self.world.repaired.load(SeqCst);
            let outcome = match to.as_str() {
                "down" if !repaired => Err(Failure::transient("503")),
                "busy" if is_first => Err(Failure::rate_limited(Duration::from_millis(500), "429")),
                _ => Ok(()),
            };
            if outcome.is_ok() {
                self.world.ended.lock().unwrap().push(to);
            }
            outcome
        })
    }

    fn per_endpoint(&self) -> Option<u32> {
        Some(5)
    }

    fn per_endpoint_rate(&self) -> Option<f64> {
        self.world.rate
    }

    fn endpoint(&self, message: &Message) -> Option<Endpoint> {
        let mut hasher = DefaultHasher::new();
        endpoint(message).hash(&mut hasher);
        Some(Endpoint { origin: hasher.finish() ^ 1, endpoint: hasher.finish() })
    }
}

fn messages(endpoint: &str, count: usize) -> Vec<Message> {
    (0..count).map(|number| message(format!("{endpoint}-{number}"))).collect()
}

fn built(sink: &Many) -> Redrive {
    let mut breaker = BreakerSettings { cooldown: Duration::from_millis(300), ..BreakerSettings::default() };
    breaker.cooldown_max = Duration::from_millis(600);
    let policy = Policy::fixed("20ms").retries(1).jitter("none");
    let pipeline = Pipeline::new("hooks").policy(policy).concurrency(16).breaker(breaker).sink(sink.clone());
    Redrive::builder().engine(MemoryStores::new()).pipeline(pipeline).build().unwrap()
}

#[tokio::test]
async fn a_slow_endpoint_does_not_hold_up_its_neighbours() {
    let sink = Many::default();
    let redrive = built(&sink);
    let handle = redrive.pipeline("hooks").unwrap();
    handle.ingest(messages("slow", 60)).await.unwrap();
    for neighbour in 0..30 {
        handle.ingest(messages(&format!("fine{neighbour}"), 10)).await.unwrap();
    }
    guarded(redrive.run_until(at_rest(&handle))).await.unwrap();
    assert!(sink.world.most_at_once("slow") <= 4, "a quarter of 16 permits");
    let ended = sink.world.ended.lock().unwrap().clone();
    assert_eq!(ended.len(), 360);
    let last_fine = ended.iter().rposition(|to| to.starts_with("fine")).unwrap();
    let slow_before = ended[..last_fine].iter().filter(|to| *to == "slow").count();
    assert!(slow_before < 30, "{slow_before} of 60 slow ones ended before the last neighbour");
}

#[tokio::test]
async fn an_endpoint_is_called_no_faster_than_its_rate_and_its_neighbours_do_not_wait() {
    const RATE: usize = 50;
    let world = World { rate: Some(RATE as f64), ..World::default() };
    let sink = Many { world: Arc::new(world) };
    let redrive = built(&sink);
    let handle = redrive.pipeline("hooks").unwrap();
    handle.ingest(messages("crowded", 100)).await.unwrap();
    handle.ingest((0..100).flat_map(|other| messages(&format!("fine{other}"), 2))).await.unwrap();
    guarded(redrive.run_until(at_rest(&handle))).await.unwrap();
    let calls = sink.world.calls_to("crowded");
    let took = calls[calls.len() - 1].duration_since(calls[0]);
    // A tenth of a second's worth and one more at once, then one after the other.
    let at_least = Duration::from_secs_f64((100 - RATE / 10 - 1) as f64 / RATE as f64);
    assert!(took + Duration::from_millis(100) > at_least, "100 calls at {RATE}/s took {took:?}");
    let ended = sink.world.ended.lock().unwrap().clone();
    let last_fine = ended.iter().rposition(|to| to.starts_with("fine")).unwrap();
    let crowded_before = ended[..last_fine].iter().filter(|to| *to == "crowded").count();
    assert!(crowded_before < 80, "{crowded_before} of 100 ended before the last neighbour");
    let figures = handle.figures();
    assert_eq!((figures.succeeded, figures.attempts.ok, figures.dead.total()), (300, 300, 0));
}

#[tokio::test]
async fn an_endpoint_that_is_down_costs_few_calls_and_no_letter() {
    let sink = Many::default();
    let redrive = built(&sink);
    let handle = redrive.pipeline("hooks").unwrap();
    handle.ingest(messages("down", 200)).await.unwrap();
    handle.ingest(messages("fine", 100)).await.unwrap();
    let world = Arc::clone(&sink.world);
    let story = async {
        while world.ended.lock().unwrap().len() < 100 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        // It stays down for a while.
        tokio::time::sleep(Duration::from_millis(1_500)).await;
        let calls = world.calls_to("down").len();
        assert!(calls < 120, "{calls} calls to an endpoint that is down, with 200 messages for it");
        world.repaired.store(true, SeqCst);
        at_rest(&handle).await;
    };
    guarded(redrive.run_until(story)).await.unwrap();
    let counts = handle.figures();
    assert_eq!((counts.succeeded, counts.dead.total()), (300, 0));
}

#[tokio::test]
async fn what_one_message_is_told_holds_for_its_endpoint() {
    let sink = Many::default();
    let redrive = built(&sink);
    let handle = redrive.pipeline("hooks").unwrap();
    handle.ingest(messages("busy", 1)).await.unwrap();
    let world = Arc::clone(&sink.world);
    let story = async {
        while handle.figures().attempts.get(redrive::Class::RateLimited) == 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        handle.ingest((1..20).map(|number| message(format!("busy-{number}")))).await.unwrap();
        at_rest(&handle).await;
    };
    guarded(redrive.run_until(story)).await.unwrap();
    let calls = world.calls_to("busy");
    assert_eq!(calls.len(), 21, "one was told to wait, and all were delivered once");
    let wait = calls[1].duration_since(calls[0]);
    assert!(wait >= Duration::from_millis(490), "the next one came after {wait:?}");
}

/// More messages come at once than can be sent at 10/s before the policy gives up on them; those die. The others are
/// sent, and after that the next message is sent at once.
async fn recovers_from_a_flood(policy: redrive_core::PolicyBuilder) {
    let world = World { rate: Some(10.0), ..World::default() };
    let sink = Many { world: Arc::new(world) };
    let pipeline = Pipeline::new("hooks").policy(policy).concurrency(16).sink(sink.clone());
    let redrive = Redrive::builder().engine(MemoryStores::new()).pipeline(pipeline).build().unwrap();
    let handle = redrive.pipeline("hooks").unwrap();
    handle.ingest(messages("crowded", 1_000)).await.unwrap();
    let look = async {
        at_rest(&handle).await;
        tokio::time::sleep(Duration::from_secs(3)).await;
        let before = sink.world.calls_to("crowded").len();
        assert!(before < 500, "{before} of 1,000 were sent within a second or so, at 10/s");
        handle.ingest([message("crowded-late".to_owned())]).await.unwrap();
        at_rest(&handle).await;
        let after = sink.world.calls_to("crowded").len();
        assert_eq!(after, before + 1, "nobody waits, and nothing was sent for seconds");
    };
    guarded(redrive.run_until(look)).await.unwrap();
}

#[tokio::test]
async fn an_endpoint_recovers_from_more_than_is_held() {
    recovers_from_a_flood(Policy::fixed("20ms").retries(1).jitter("none").hold_max("1s")).await;
}

#[tokio::test]
async fn an_endpoint_recovers_from_more_than_comes_before_its_deadline() {
    recovers_from_a_flood(Policy::fixed("20ms").retries(1).jitter("none").ttl("1s")).await;
}

/// In blocking mode a message waits in place for its next attempt.
#[tokio::test]
async fn attempts_in_place_keep_to_the_rate() {
    let world = World { rate: Some(1.0), ..World::default() };
    let sink = Many { world: Arc::new(world) };
    let policy = Policy::fixed("20ms").retries(5).jitter("none").mode("blocking");
    let pipeline = Pipeline::new("hooks").policy(policy).concurrency(16).sink(sink.clone());
    let redrive = Redrive::builder().engine(MemoryStores::new()).pipeline(pipeline).build().unwrap();
    let handle = redrive.pipeline("hooks").unwrap();
    handle.ingest(messages("down", 1)).await.unwrap();
    guarded(redrive.run_until(at_rest(&handle))).await.unwrap();
    let calls = sink.world.calls_to("down");
    let within = calls.iter().filter(|at| at.duration_since(calls[0]) < Duration::from_secs(1)).count();
    assert!(within <= 2, "{within} calls within a second at 1/s");
}

/// Slow and rate-limited: messages that wait in memory for a permit must not be forgotten when the rate does not
/// allow a call.
#[tokio::test]
async fn what_waits_in_memory_for_a_slow_endpoint_is_not_forgotten_by_its_rate() {
    let world = World { rate: Some(25.0), ..World::default() };
    let sink = Many { world: Arc::new(world) };
    let redrive = built(&sink);
    let handle = redrive.pipeline("hooks").unwrap();
    handle.ingest(messages("slow", 150)).await.unwrap();
    guarded(redrive.run_until(at_rest(&handle))).await.unwrap();
    let calls = sink.world.calls_to("slow");
    assert_eq!(calls.len(), 150);
    let took = calls[149].duration_since(calls[0]);
    assert!(took > Duration::from_millis(5_500), "150 calls at 25/s took {took:?}");
}
