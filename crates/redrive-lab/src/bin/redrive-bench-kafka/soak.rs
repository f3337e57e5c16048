//! One long run: orders at a fixed rate with the fates of the workload, a processor that is killed every few minutes,
//! and a final audit by id.

use std::path::Path;
use std::time::{Duration, Instant};

use redrive_lab::bench::machine;
use redrive_lab::kafka::audit::{Audit, AuditVerdict};
use redrive_lab::kafka::topics::{self, Lag, Topic};
use redrive_lab::kafka::{Error, letters, trace};

use super::options::{KafkaBenchFates, KafkaBenchOptions, Scenario};
use super::runs::{Measurement, Runs};

const NAME: &str = "bench-soak";
/// One attempt and three retries.
const ATTEMPTS_MAX: u8 = 4;
const KILLS_APART_MAX: Duration = Duration::from_secs(150);
const SAY_EVERY: Duration = Duration::from_secs(30);
/// Messages that are pending when the load ends must finish within this time.
const PATIENCE: Duration = Duration::from_mins(3);

pub fn run(options: &KafkaBenchOptions) -> Result<(), Error> {
    let KafkaBenchOptions { brokers, rate, seconds, partitions, .. } = options;
    for (name, value) in machine::describe(&options.dir) {
        println!("{name}: {value}");
    }
    println!(
        "soak: {rate} orders/s for {seconds} s, 15 % transient and 1 % poison, {partitions} partitions, concurrency {}",
        options.concurrency
    );
    let mut runs = Runs::new(options);
    runs.clear(NAME)?;
    std::fs::create_dir_all(&options.dir)?;
    let path = options.dir.join("trace");
    let source = format!("{NAME}-source");
    // Retention is far longer than the lag, so that orders are read before they expire and a long run still fits on
    // the disk.
    let settings = [("retention.bytes", "2147483648"), ("segment.bytes", "268435456")];
    topics::create(brokers, &[Topic { name: &source, partitions: *partitions as i32, settings: &settings }])?;
    let verdict = under_fire(&mut runs, &source, &path);
    runs.clear(NAME)?;
    let verdict = verdict?;
    println!("audit: {verdict}");
    verdict.all_ended_once()?;
    if verdict.repeats_unexplained > 0 {
        Err("something was repeated without a reason".into())
    } else {
        Ok(())
    }
}

fn under_fire(runs: &mut Runs<'_>, source: &str, path: &Path) -> Result<AuditVerdict, Error> {
    let KafkaBenchOptions { brokers, rate, seconds, .. } = runs.options;
    let n = rate * seconds;
    let shared = Measurement {
        source,
        fates: KafkaBenchFates::Workload,
        n,
        rate: *rate,
        seconds: *seconds,
        lz4: true,
        ..Measurement::new(NAME)
    };
    let serving = Measurement { scenario: Scenario::Serve, trace: Some(path), ..shared };
    let begun_us = trace::wall_us();
    let mut serve = runs.start(&serving)?;
    std::thread::sleep(Duration::from_secs(3));
    let load = runs.start(&Measurement { scenario: Scenario::Load, ..shared })?;
    let lag = Lag::of(brokers, NAME, source)?;
    let span = Duration::from_secs(*seconds);
    let apart = KILLS_APART_MAX.min(span / 4);
    let (began, mut killed, mut said) = (Instant::now(), Instant::now(), Instant::now());
    let mut kills_us = Vec::new();
    while began.elapsed() < span {
        std::thread::sleep(Duration::from_millis(200));
        if !serve.is_running() {
            return Err("the processor ended by itself".into());
        }
        if said.elapsed() > SAY_EVERY {
            said = Instant::now();
            let look = lag.look()?;
            println!(
                "{:>5} s  written {:>10}  lag {:>8}  attempts {:>10}  memory {:>5.0} MB",
                began.elapsed().as_secs(),
                look.written,
                look.lag(),
                trace::len(path),
                serve.rss_mb()
            );
        }
        if killed.elapsed() > apart && began.elapsed() + Duration::from_secs(10) < span {
            serve.kill()?;
            kills_us.push(trace::wall_us());
            let (before, again) = (trace::len(path), Instant::now());
            serve = runs.start(&serving)?;
            while trace::len(path) == before && again.elapsed() < Duration::from_mins(1) {
                std::thread::sleep(Duration::from_millis(1));
            }
            println!(
                "{:>5} s  killed; moving again after {:.2} s",
                began.elapsed().as_secs(),
                again.elapsed().as_secs_f64()
            );
            killed = Instant::now();
        }
    }
    let sent = load.figures()?.get("sent") as u64;
    wait_until_idle(path)?;
    serve.figures()?;
    let mut audit = Audit::new(sent, ATTEMPTS_MAX, begun_us, &kills_us);
    trace::visit(path, |tried| audit.tried(tried))?;
    letters::read(brokers, &format!("{NAME}.DLQ"))?.into_iter().for_each(|letter| audit.letter(letter));
    Ok(audit.verdict())
}

/// Waits until there was no attempt for longer than the longest delay.
fn wait_until_idle(path: &Path) -> Result<(), Error> {
    let (began, mut moved, mut last) = (Instant::now(), Instant::now(), trace::len(path));
    while moved.elapsed() < Duration::from_secs(8) {
        if began.elapsed() > PATIENCE {
            return Err("it does not come to rest".into());
        }
        std::thread::sleep(Duration::from_millis(200));
        let now = trace::len(path);
        if now != last {
            (moved, last) = (Instant::now(), now);
        }
    }
    Ok(())
}
