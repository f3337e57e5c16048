//! Everything at once: repeated GOAWAYs, cut connections, a server that stops reading, an access token that expires
//! meanwhile. Nothing is lost, and nothing is sent twice except as reported by an attempt.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use redrive::{BreakerSettings, Call, Class, Delivery, GuardSettings, MemoryStores, Message};
use redrive::{Pipeline, Policy, Redrive, Sink};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::server::{PlainServer, PushServer, Reply, Seen};
use crate::{apns, fcm};

/// The interval between two GOAWAYs.
const GO_AWAY_EVERY: Duration = Duration::from_millis(150);
/// The mean number of reads before a connection through the relay breaks.
const PIECES_MEAN: u64 = 20;
/// One in this many connections goes silent instead of closing.
const SILENT_ONE_OF: u64 = 5;

/// A relay between the sink and the server that breaks connections: some are cut, some go silent.
struct Relay {
    port: u16,
    /// Whether connections break.
    is_stormy: Arc<AtomicBool>,
    broken: Arc<AtomicU32>,
    silent: Arc<AtomicU32>,
}

impl Relay {
    async fn start(to: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let relay = Self {
            port,
            is_stormy: Arc::new(AtomicBool::new(true)),
            broken: Arc::default(),
            silent: Arc::default(),
        };
        let (is_stormy, broken, silent) =
            (Arc::clone(&relay.is_stormy), Arc::clone(&relay.broken), Arc::clone(&relay.silent));
        tokio::spawn(async move {
            let (mut dice, mut number) = (redrive_core::SplitMix64::new(16), 0);
            while let Ok((client, _)) = listener.accept().await {
                number += 1;
                let pieces = 5 + dice.draw() % (2 * PIECES_MEAN);
                let is_silent = number % SILENT_ONE_OF == 2;
                let ends = if is_silent { &silent } else { &broken };
                tokio::spawn(pass(client, to, pieces, is_silent, Arc::clone(ends), Arc::clone(&is_stormy)));
            }
        });
        relay
    }
}

async fn pass(
    client: TcpStream,
    to: u16,
    mut pieces: u64,
    is_silent: bool,
    counted: Arc<AtomicU32>,
    is_stormy: Arc<AtomicBool>,
) -> std::io::Result<()> {
    let server = TcpStream::connect(("127.0.0.1", to)).await?;
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    let (mut up, mut down) = (vec![0; 4096], vec![0; 4096]);
    loop {
        if pieces == 0 && is_stormy.load(Ordering::SeqCst) {
            counted.fetch_add(1, Ordering::SeqCst);
            if is_silent {
                // The connection stays open, without reads or writes.
                std::future::pending::<()>().await;
            }
            return Ok(());
        }
        tokio::select! {
            read = from_client.read(&mut up) => match read? {
                0 => return Ok(()),
                bytes => to_server.write_all(&up[..bytes]).await?,
            },
            read = from_server.read(&mut down) => match read? {
                0 => return Ok(()),
                bytes => to_client.write_all(&down[..bytes]).await?,
            },
        }
        pieces = pieces.saturating_sub(1);
    }
}

/// Counts what the attempts of each message report.
struct Witness<S> {
    sink: S,
    tally: Arc<Mutex<Tally>>,
}

#[derive(Default)]
struct Tally {
    delivered: HashMap<String, u32>,
    ambiguous: HashMap<String, u32>,
    classes: HashMap<Class, u32>,
}

impl<S: Sink> Sink for Witness<S> {
    fn deliver(&self, call: Call) -> Delivery<'_> {
        Box::pin(async move {
            let id = call.message.id().to_owned();
            let outcome = self.sink.deliver(call).await;
            let mut tally = self.tally.lock().unwrap();
            match &outcome {
                Ok(()) => *tally.delivered.entry(id).or_default() += 1,
                Err(failure) => {
                    *tally.classes.entry(failure.class()).or_default() += 1;
                    if failure.is_ambiguous() {
                        *tally.ambiguous.entry(id).or_default() += 1;
                    }
                }
            }
            drop(tally);
            outcome
        })
    }

    fn runs_in_process(&self) -> bool {
        false
    }
}

/// Pushes all messages through the storm. `accepted` counts how often the server accepted each.
async fn ride<S: Sink>(
    server: &PushServer,
    relay: &Relay,
    sink: S,
    messages: Vec<Message>,
    accepted: &Mutex<HashMap<String, u32>>,
) -> HashMap<Class, u32> {
    let tally: Arc<Mutex<Tally>> = Arc::default();
    let witness = Witness { sink, tally: Arc::clone(&tally) };
    let ids: Vec<String> = messages.iter().map(|message| message.id().to_owned()).collect();
    // A normal breaker with shorter times: the storm is faster than a real one.
    let breaker = BreakerSettings {
        cooldown: Duration::from_millis(100),
        cooldown_max: Duration::from_millis(500),
        ..BreakerSettings::default()
    };
    let policy = Policy::exponential("20ms", 2.0, "500ms").retries(200).jitter("full");
    let pipeline = Pipeline::new("push").policy(policy).concurrency(200).breaker(breaker);
    let pipeline = pipeline.guard(GuardSettings::off()).sink(witness);
    let redrive = Redrive::builder().engine(MemoryStores::new()).pipeline(pipeline).build().unwrap();
    let handle = redrive.pipeline("push").unwrap();
    handle.ingest(messages).await.unwrap();
    let story = async {
        let mut rounds = 0_u32;
        loop {
            let counts = handle.counts().await.unwrap();
            if counts.pending() == 0 {
                assert_eq!(counts.letters_open, 0, "nothing is given up: {counts:?}");
                return;
            }
            server.go_away();
            tokio::time::sleep(GO_AWAY_EVERY).await;
            rounds += 1;
            // The storm ends, and the remaining messages have to arrive.
            let is_over = rounds > 20 && relay.silent.load(Ordering::SeqCst) > 0;
            if is_over || rounds > 400 {
                relay.is_stormy.store(false, Ordering::SeqCst);
            }
        }
    };
    tokio::time::timeout(Duration::from_mins(5), redrive.run_until(story)).await.expect("it hangs").unwrap();
    let (accepted, tally) = (accepted.lock().unwrap(), tally.lock().unwrap());
    let (mut twice, count) = (0, ids.len());
    let of = |counted: &HashMap<String, u32>, id: &str| counted.get(id).copied().unwrap_or(0);
    for id in ids {
        let (took, unsure) = (of(&accepted, &id), of(&tally.ambiguous, &id));
        assert_eq!(of(&tally.delivered, &id), 1, "{id} is delivered, and once");
        assert!(took >= 1, "{id} is called delivered and never arrived");
        assert!(took <= 1 + unsure, "{id} arrived {took} times, and {unsure} attempts were ambiguous");
        twice += u32::from(took > 1);
    }
    assert!(relay.broken.load(Ordering::SeqCst) > 0, "connections were cut");
    assert!(relay.silent.load(Ordering::SeqCst) > 0, "and one was not read from");
    assert!(server.connections() > 5, "{}", server.connections());
    let unsure: u32 = tally.ambiguous.values().sum();
    println!("{count} pushes, {unsure} ambiguous attempts, {twice} arrived more than once");
    tally.classes.clone()
}

fn take(accepted: &Mutex<HashMap<String, u32>>, id: String) {
    *accepted.lock().unwrap().entry(id).or_default() += 1;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn apns_through_goaways_cuts_and_silence_loses_nothing_and_repeats_only_what_is_ambiguous() {
    let accepted: Arc<Mutex<HashMap<String, u32>>> = Arc::default();
    let taken = Arc::clone(&accepted);
    let mut server = PushServer::with_streams(50, move |seen: &Seen| {
        let token = seen.path.rsplit('/').next().unwrap_or_default();
        take(&taken, format!("m-{}", u32::from_str_radix(token, 16).unwrap()));
        Reply::of(200, "")
    })
    .await;
    let relay = Relay::start(server.port).await;
    server.port = relay.port;
    let sink = apns::sink(&server, |options| {
        options.connections = 4;
        options.timeout = Duration::from_secs(3);
    });
    let messages = (0..3_000).map(|n| apns::push(&format!("m-{n}"), &format!("{n:04x}"))).collect();
    let classes = ride(&server, &relay, sink, messages, &accepted).await;
    let known = [Class::Transient, Class::Reconnect];
    assert!(classes.keys().all(|class| known.contains(class)), "{classes:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fcm_through_the_same_with_access_tokens_that_end_on_their_way() {
    let accepted: Arc<Mutex<HashMap<String, u32>>> = Arc::default();
    // Each access token is valid for three hundred requests; older ones are refused.
    let (given, used) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
    let (taken, good) = (Arc::clone(&accepted), Arc::clone(&given));
    let mut server = PushServer::with_streams(50, move |seen: &Seen| {
        let newest = good.load(Ordering::SeqCst).saturating_sub(1);
        let is_good = seen.headers["authorization"] == format!("Bearer at-{newest}").as_str();
        let is_used_up = used.fetch_add(1, Ordering::SeqCst) % 300 == 299;
        if !is_good || is_used_up {
            return fcm::error(401, "UNAUTHENTICATED", "");
        }
        let body: Value = serde_json::from_slice(&seen.body).unwrap();
        take(&taken, body.pointer("/message/token").and_then(Value::as_str).unwrap().to_owned());
        Reply::of(200, "{}")
    })
    .await;
    let numbers = Arc::clone(&given);
    let tokens = PlainServer::start(move |_| {
        let token = format!("at-{}", numbers.fetch_add(1, Ordering::SeqCst));
        Reply::of(200, json!({"access_token": token, "expires_in": 3599}).to_string())
    })
    .await;
    let relay = Relay::start(server.port).await;
    server.port = relay.port;
    let sink = fcm::sink_with(&server, &tokens, |options| {
        options.connections = 4;
        options.timeout = Duration::from_secs(3);
    });
    let messages = (0..2_000).map(|n| fcm::push(&format!("t-{n}"), &format!("t-{n}"))).collect();
    let classes = ride(&server, &relay, sink, messages, &accepted).await;
    // A push whose renewed token expired as well waits as for a refused key, and uses up no attempt.
    let known = [Class::Transient, Class::Reconnect, Class::Credential];
    assert!(classes.keys().all(|class| known.contains(class)), "{classes:?}");
    assert!(given.load(Ordering::SeqCst) >= 5, "{} access tokens", given.load(Ordering::SeqCst));
}
