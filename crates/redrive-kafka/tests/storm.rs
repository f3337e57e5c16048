//! Members that come and go all the time, cleanly or not: every message becomes terminal.

mod support;

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use redrive::internal::engine::conformance::{Rng, seeds_from_env};
use redrive::internal::engine::{Deliver, Delivery, Query, Settlement, StoreOptions, Verdict};
use redrive_core::{Meta, Reason, Time};

use support::{World, message, wait};

const TIERS: [Duration; 2] = [Duration::from_millis(100), Duration::from_millis(500)];
const MESSAGES: u32 = 3_000;
const MEMBERS: u64 = 3;

fn now() -> Time {
    Time::from_millis(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as u64)
}

/// Decides how a message ends, by its number: at once, after two failures, or never.
fn verdict(delivery: &Delivery, now: Time) -> Verdict {
    let number: u32 = delivery.message.id()[1..].parse().unwrap();
    let Meta { attempts, .. } = delivery.meta;
    let retry = |delay_ms| Verdict::Retry {
        due: now.plus(Duration::from_millis(delay_ms)),
        meta: Meta { attempts: attempts + 1, ..delivery.meta },
    };
    match number % 10 {
        0 if attempts < 2 => retry(50 + u64::from(number % 100)),
        0 => Verdict::Dead { reason: Reason::MaxRetries, meta: delivery.meta, at: now },
        1 | 2 if attempts < 2 => retry(u64::from(number % 300)),
        _ => Verdict::Done,
    }
}

/// What was seen of each message: how often it was taken and delivered, and whether it died.
#[derive(Default)]
struct Seen {
    taken: BTreeMap<String, u32>,
    done: BTreeMap<String, u32>,
    dead: BTreeMap<String, u32>,
}

impl Seen {
    fn terminal(&self) -> usize {
        let dead = self.dead.keys().filter(|id| !self.done.contains_key(*id)).count();
        self.done.len() + dead
    }
}

/// One life of a member: it works for a while and then ends, cleanly or not.
fn live(world: &World, seen: &Mutex<Seen>, over: &AtomicBool, life: Duration, in_order: bool) {
    let mut engine = world.open(StoreOptions::default());
    let began = Instant::now();
    let (mut events, mut out) = (Vec::new(), Vec::new());
    while began.elapsed() < life && !over.load(Ordering::SeqCst) {
        engine.poll(&mut events).expect("polling works");
        let now = now();
        engine.take(now, 50, &mut out).expect("taking works");
        if out.is_empty() {
            std::thread::sleep(Duration::from_millis(1));
            continue;
        }
        let mut seen = seen.lock().unwrap();
        let batch: Vec<Settlement> = out
            .drain(..)
            .map(|delivery| {
                let id = delivery.message.id().to_owned();
                *seen.taken.entry(id.clone()).or_default() += 1;
                let verdict = verdict(&delivery, now);
                match verdict {
                    Verdict::Done => *seen.done.entry(id).or_default() += 1,
                    Verdict::Dead { .. } => *seen.dead.entry(id).or_default() += 1,
                    _ => {}
                }
                Settlement { delivery, verdict, attempt: None }
            })
            .collect();
        drop(seen);
        engine.settle(batch).expect("settling works");
    }
    if in_order {
        engine.close().expect("it closes");
    }
}

fn storm(seed: u64, crashes: bool) -> (World, Seen) {
    let mut world = World::new(6, &TIERS);
    world.cluster.member = None;
    let created = now();
    let messages: Vec<_> = (0..MESSAGES)
        .map(|n| message(&format!("m{n}")).created(created).payload("{}").build().unwrap())
        .collect();
    let seen = Mutex::new(Seen::default());
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for member in 0..MEMBERS {
            let (world, seen, over) = (&world, &seen, &over);
            scope.spawn(move || {
                let mut rng = Rng::new(seed * 100 + member);
                while !over.load(Ordering::SeqCst) {
                    let life = Duration::from_millis(rng.between(300, 3_000));
                    live(world, seen, over, life, !crashes || rng.chance(50));
                }
            });
        }
        for part in messages.chunks(100) {
            world.produce(part);
            std::thread::sleep(Duration::from_millis(400));
        }
        let began = Instant::now();
        while seen.lock().unwrap().terminal() < MESSAGES as usize && began.elapsed() < support::LIMIT * 2 {
            std::thread::sleep(Duration::from_millis(20));
        }
        over.store(true, Ordering::SeqCst);
    });
    let seen = seen.into_inner().unwrap();
    assert_eq!(seen.terminal(), MESSAGES as usize, "seed {seed}: every message becomes terminal");
    (world, seen)
}

#[test]
fn members_that_come_and_go_in_order_deliver_everything_once() {
    let seed = seeds_from_env("REDRIVE_SEED").unwrap_or(1);
    let (world, seen) = storm(seed, false);
    let twice: Vec<_> = seen.done.iter().chain(&seen.dead).filter(|(_, count)| **count > 1).collect();
    assert!(twice.is_empty(), "seed {seed}: more than once: {twice:?}");
    let attempts: u32 = seen.taken.values().sum();
    assert_eq!(attempts, MESSAGES + MESSAGES / 10 * 3 * 2, "seed {seed}: no attempt is repeated");
    let mut engine = world.open_caught_up(StoreOptions::default());
    assert_eq!(engine.counts().pending(), 0, "seed {seed}");
    assert_eq!(engine.counts().letters_open, u64::from(MESSAGES / 10), "seed {seed}");
    engine.close().unwrap();
}

#[test]
fn members_that_die_lose_nothing() {
    let seed = seeds_from_env("REDRIVE_SEED").unwrap_or(2);
    let (world, seen) = storm(seed, true);
    // A message in progress when a member died may exist twice; both records become terminal.
    let mut engine = world.open_caught_up(StoreOptions::default());
    let mut events = Vec::new();
    wait("what is left becomes terminal", || {
        engine.poll(&mut events).unwrap();
        let (now, mut out) = (now(), Vec::new());
        engine.take(now, 100, &mut out).unwrap();
        let settle =
            |delivery: Delivery| Settlement { verdict: verdict(&delivery, now), delivery, attempt: None };
        engine.settle(out.into_iter().map(settle).collect()).unwrap();
        engine.counts().pending() == 0
    });
    let letters = engine.letters(None, None, 10_000).unwrap();
    let dead: std::collections::BTreeSet<&str> = letters.iter().map(|letter| letter.message.id()).collect();
    assert_eq!(dead.len(), MESSAGES as usize / 10, "seed {seed}");
    let repeats: u32 = seen.done.values().map(|count| count - 1).sum();
    println!("seed {seed}: {repeats} of {MESSAGES} were delivered more than once");
    engine.close().unwrap();
}
