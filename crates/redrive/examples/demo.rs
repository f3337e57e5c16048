//! Orders against a flaky downstream on the embedded engine: most are delivered, some fail at first, a few fail for
//! ever, and for two seconds the downstream is gone. At the end every order is counted by id.
//!
//! `make demo`, or `cargo run --release --example demo`

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use redrive::{Embedded, Failure, LetterState, Message, Pipeline, PipelineHandle, Policy, Redrive};

const ORDERS: u64 = 3_000;
const PER_SECOND: u64 = 500;
const OUTAGE: std::ops::Range<Duration> = Duration::from_secs(2)..Duration::from_secs(4);

/// The downstream, and the witness of the audit: how often which order was applied.
struct Downstream {
    applied: Mutex<HashMap<String, u32>>,
    failed_once: Mutex<HashSet<String>>,
    began: Instant,
}

impl Downstream {
    /// The same orders fail in every run: 1 in 100 for ever, 15 in 100 at their first call.
    fn call(&self, id: &str) -> Result<(), Failure> {
        let number: u64 = id.trim_start_matches("o-").parse().map_err(Failure::permanent)?;
        let luck = (number.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32) % 100;
        if OUTAGE.contains(&self.began.elapsed()) {
            return Err(Failure::transient("connection refused"));
        }
        if luck == 0 {
            return Err(Failure::permanent("422 field `currency` must be one of EUR, USD"));
        }
        if luck < 16 && self.failed_once.lock().expect("never poisoned").insert(id.to_owned()) {
            return Err(Failure::transient("503 service unavailable"));
        }
        *self.applied.lock().expect("never poisoned").entry(id.to_owned()).or_default() += 1;
        Ok(())
    }

    fn applied(&self) -> u64 {
        self.applied.lock().expect("never poisoned").len() as u64
    }
}

/// Offers orders at a fixed rate, whatever becomes of them, and prints a line every second until all are over.
async fn produce(orders: &PipelineHandle, downstream: &Downstream) -> Result<(), Box<dyn std::error::Error>> {
    let (mut produced, began) = (0, Instant::now());
    let mut printed = 0;
    loop {
        let wanted = (began.elapsed().as_millis() as u64 * PER_SECOND / 1000).min(ORDERS);
        let batch: Result<Vec<_>, _> =
            (produced..wanted).map(|n| Message::builder(format!("o-{n}")).build()).collect();
        orders.ingest(batch?).await?;
        produced = wanted;
        let counts = orders.counts().await?;
        let waiting = counts.ready + counts.delayed + counts.in_flight;
        if began.elapsed().as_secs() > printed || (produced == ORDERS && waiting == 0) {
            printed = began.elapsed().as_secs();
            let down =
                if OUTAGE.contains(&downstream.began.elapsed()) { "   downstream is down" } else { "" };
            let (succeeded, dead) = (downstream.applied(), counts.letters_open);
            println!(
                "00:{printed:02}  produced {produced}  succeeded {succeeded}  retrying {}  dead {dead}{down}",
                counts.delayed
            );
        }
        if produced == ORDERS && waiting == 0 {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let dir = tempfile::tempdir()?;
    let (applied, failed_once) = (Mutex::default(), Mutex::default());
    let downstream = Arc::new(Downstream { applied, failed_once, began: Instant::now() });
    println!("embedded engine in {} (removed at the end)", dir.path().display());
    println!(
        "{ORDERS} orders at {PER_SECOND}/s · 15 % fail at first, 1 % for ever · downstream gone from 2 s to 4 s"
    );
    println!("tiers 500ms, 1s, 2s, 3s · jitter equal · every acceptance and every end synced to disk\n");

    let called = Arc::clone(&downstream);
    let deliver = move |message: Message| {
        let downstream = Arc::clone(&called);
        async move { downstream.call(message.id()) }
    };
    let pipeline =
        Pipeline::new("orders").policy(Policy::tiers(["500ms", "1s", "2s", "3s"])).handler_fn(deliver);
    let redrive = Redrive::builder().engine(Embedded::open(dir.path())?).pipeline(pipeline).build()?;
    let orders = redrive.pipeline("orders").ok_or("no such pipeline")?;

    let mut audit = None;
    let all_over = async {
        let produced = produce(&orders, &downstream).await;
        audit = Some((produced, orders.letters(Some(LetterState::Open), None, ORDERS as usize).await));
    };
    redrive.run_until(all_over).await?;
    let (produced, letters) = audit.ok_or("stopped before the end")?;
    produced?;

    // Counted by id against what the downstream applied, not against our own counters.
    let dead: HashSet<String> = letters?.iter().map(|letter| letter.message.id().to_owned()).collect();
    let applied = downstream.applied.lock().expect("never poisoned");
    let missing: Vec<_> = (0..ORDERS)
        .map(|n| format!("o-{n}"))
        .filter(|id| !applied.contains_key(id) && !dead.contains(id))
        .collect();
    let twice = applied.values().filter(|calls| **calls > 1).count();
    println!(
        "\naudit  produced {ORDERS} = succeeded {} + dead {}   missing {}   applied twice {twice}",
        applied.len(),
        dead.len(),
        missing.len()
    );
    if !missing.is_empty() || applied.len() as u64 + dead.len() as u64 != ORDERS {
        return Err(format!("missing: {missing:?}").into());
    }
    println!("✓ every order ended in success or in the dead letters");
    Ok(())
}
