//! The measurements. Each runs in a separate process, so that none inherits memory or threads from another.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

use redrive::Time;

use super::options::BenchOptions;
use super::rig::{Error, PIPELINE, Rig};
use super::witness::{BenchWitness, wall_micros};
use redrive_lab::bench::figures::Figures;
use redrive_lab::bench::machine::{cpu_seconds, disk_bytes, rss_mb, rss_peak_mb};

const TIERS: [&str; 3] = ["1s", "2s", "4s"];
/// Delays so long that no retry comes due during a measurement.
const TIERS_FAR: [&str; 3] = ["1h", "2h", "4h"];
const SEGMENT_BYTES: u64 = 64 << 20;

pub fn run(name: &str, options: &BenchOptions) -> Result<Figures, Error> {
    if name == "raw" {
        return raw(options);
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        match name {
            "drain" => drain(options).await,
            "flow" => flow(options).await,
            "paced" => paced(options).await,
            "pending" => pending(options).await,
            "fill" => fill(options).await,
            "open" => open(options).await,
            "crash" => crash(options).await,
            "dedup" => super::dedup::dedup(options).await,
            "letters" => super::letters::letters(options).await,
            "resume" => resume(options).await,
            other => Err(format!("no scenario `{other}`").into()),
        }
    })
}

/// The limit of the disk: the same bytes sequentially, with the same number of syncs.
fn raw(options: &BenchOptions) -> Result<Figures, Error> {
    fs::create_dir_all(&options.dir)?;
    let syncs = options.syncs.max(1);
    let piece = vec![0x5a; (options.bytes / syncs) as usize];
    let began = Instant::now();
    let mut at = SEGMENT_BYTES;
    let mut file: Option<File> = None;
    for sync in 0..syncs {
        if at >= SEGMENT_BYTES {
            file = Some(File::create(options.dir.join(format!("raw-{sync}")))?);
            File::open(&options.dir)?.sync_all()?;
            at = 0;
        }
        if let Some(file) = &file {
            file.write_all_at(&piece, at)?;
            file.sync_data()?;
        }
        at += piece.len() as u64;
    }
    let mut figures = Figures::default();
    figures.set("raw_s", began.elapsed().as_secs_f64());
    Ok(figures)
}

fn rig(options: &BenchOptions, tracked: u64, tiers: [&str; 3]) -> Result<Rig, Error> {
    Rig::open(options, tiers, BenchWitness::new(tracked, options.fates))
}

/// All messages exist before the worker starts.
async fn drain(options: &BenchOptions) -> Result<Figures, Error> {
    let mut figures = Figures::default();
    let rig = rig(options, options.n, TIERS)?;
    let began = Instant::now();
    rig.ingest(0, options.n, |_| None).await?;
    figures.set("preload_s", began.elapsed().as_secs_f64());
    let (bytes, syncs) = (rig.engine.traffic().bytes(), rig.engine.traffic().syncs());
    figures.set("preload_syncs", syncs as f64);
    let cpu = cpu_seconds();
    let began = Instant::now();
    let run = rig.start();
    follow(&rig, options.n, began, &mut figures).await?;
    figures.set("cpu_s", cpu_seconds() - cpu);
    figures.set("bytes", rig.engine.traffic().bytes() as f64);
    figures.set("syncs", rig.engine.traffic().syncs() as f64);
    figures.set("drain_bytes", (rig.engine.traffic().bytes() - bytes) as f64);
    figures.set("drain_syncs", (rig.engine.traffic().syncs() - syncs) as f64);
    run.stop().await?;
    Ok(figures)
}

/// Messages are ingested and delivered at the same time, at full speed.
async fn flow(options: &BenchOptions) -> Result<Figures, Error> {
    let mut figures = Figures::default();
    let rig = rig(options, options.n, TIERS)?;
    let cpu = cpu_seconds();
    let began = Instant::now();
    let run = rig.start();
    rig.ingest(0, options.n, |_| None).await?;
    figures.set("ingest_s", began.elapsed().as_secs_f64());
    follow(&rig, options.n, began, &mut figures).await?;
    figures.set("cpu_s", cpu_seconds() - cpu);
    figures.set("bytes", rig.engine.traffic().bytes() as f64);
    figures.set("syncs", rig.engine.traffic().syncs() as f64);
    run.stop().await?;
    Ok(figures)
}

/// Messages arrive at a fixed rate, however fast they are delivered.
async fn paced(options: &BenchOptions) -> Result<Figures, Error> {
    let mut figures = Figures::default();
    let span = Duration::from_secs(options.seconds);
    let tracked = options.rate * options.seconds + 1;
    let rig = rig(options, tracked, TIERS)?;
    let cpu = cpu_seconds();
    let began = Instant::now();
    let run = rig.start();
    let sent = rig.ingest_paced(0, options.rate, span).await?;
    figures.set("sent", sent as f64);
    follow(&rig, sent, began, &mut figures).await?;
    figures.set("cpu_s", cpu_seconds() - cpu);
    run.stop().await?;
    Ok(figures)
}

/// Waits for the milestones of a run: all first attempts, 99 % and 100 % finished, everything durable.
async fn follow(rig: &Rig, n: u64, began: Instant, figures: &mut Figures) -> Result<(), Error> {
    let first = rig.wait(n, |witness| witness.first.sum()).await - began;
    figures.set("first_s", first.as_secs_f64());
    figures.set("n", n as f64);
    let most = rig.wait(n * 99 / 100, BenchWitness::terminal).await - began;
    figures.set("t99_s", most.as_secs_f64());
    let all = rig.wait(n, BenchWitness::terminal).await - began;
    figures.set("t100_s", all.as_secs_f64());
    figures.set("settled_s", (rig.wait_until_settled().await? - began).as_secs_f64());
    figures.set("succeeded", rig.witness.succeeded.sum() as f64);
    figures.set("rss_peak_mb", rss_peak_mb());
    ends(rig, n, figures);
    Ok(())
}

fn ends(rig: &Rig, n: u64, figures: &mut Figures) {
    let late = &rig.witness.late;
    figures.set("dead", rig.witness.died.load(std::sync::atomic::Ordering::Relaxed) as f64);
    figures.set("retries", late.count() as f64);
    if late.count() > 0 {
        figures.set("late_p50_ms", late.quantile_ms(0.5));
        figures.set("late_p99_ms", late.quantile_ms(0.99));
        figures.set("late_max_ms", late.max_ms());
    }
    let (lost, repeated, both) = rig.witness.faults(n);
    figures.set("lost", lost as f64);
    figures.set("repeated", repeated as f64);
    figures.set("both", both as f64);
}

/// Many messages wait for a distant retry, while others come due and new ones arrive and are delivered.
async fn pending(options: &BenchOptions) -> Result<Figures, Error> {
    const FRESH_PER_SECOND: u64 = 50_000;
    const DUE_PER_SECOND: u64 = 10_000;
    const SECONDS: u64 = 10;
    let fresh = FRESH_PER_SECOND * SECONDS;
    let tracked = fresh + DUE_PER_SECOND * SECONDS + 1;
    let mut figures = Figures::default();
    let witness = BenchWitness::new(tracked, options.fates).expecting();
    let rig = Rig::open(options, TIERS_FAR, witness)?;
    let run = rig.start();
    let (began, cpu) = (Instant::now(), cpu_seconds());
    rig.ingest(tracked, tracked + options.pending, |_| None).await?;
    rig.wait(options.pending, |witness| witness.first.sum()).await;
    rig.wait_until_settled().await?;
    figures.set("fill_s", began.elapsed().as_secs_f64());
    figures.set("fill_cpu_us", (cpu_seconds() - cpu) * 1e6 / options.pending as f64);
    figures.set("rss_mb", rss_mb());
    let start_ms = wall_micros() / 1000 + 2000;
    for i in fresh..tracked {
        rig.witness.expect(i, start_ms + (i - fresh) * 1000 / DUE_PER_SECOND);
    }
    let due = move |i: u64| Some(Time::from_millis(start_ms + (i - fresh) * 1000 / DUE_PER_SECOND));
    rig.ingest(fresh, tracked, due).await?;
    tokio::time::sleep(Duration::from_millis((start_ms).saturating_sub(wall_micros() / 1000))).await;
    let cpu = cpu_seconds();
    let sent = rig.ingest_paced(0, FRESH_PER_SECOND, Duration::from_secs(SECONDS)).await?;
    rig.wait(sent + tracked - fresh, BenchWitness::terminal).await;
    rig.wait_until_settled().await?;
    figures.set("cpu_us", (cpu_seconds() - cpu) * 1e6 / (sent + tracked - fresh) as f64);
    figures.set("rss_peak_mb", rss_peak_mb());
    figures.set("disk_bytes", disk_bytes(&options.dir) as f64);
    figures.set("index_bytes", disk_bytes(&options.dir.join(PIPELINE).join("index")) as f64);
    ends(&rig, 0, &mut figures);
    run.stop().await?;
    Ok(figures)
}

/// Leaves a store with many waiting messages; with `--kill` the process dies without closing it.
async fn fill(options: &BenchOptions) -> Result<Figures, Error> {
    let rig = rig(options, 0, TIERS_FAR)?;
    let run = rig.start();
    rig.ingest(0, options.pending, |_| None).await?;
    rig.wait(options.pending, |witness| witness.first.sum()).await;
    rig.wait_until_settled().await?;
    if options.kill {
        kill_myself()?;
    }
    run.stop().await?;
    Ok(Figures::default())
}

/// Time to open the store that [`fill`] left.
async fn open(options: &BenchOptions) -> Result<Figures, Error> {
    let mut figures = Figures::default();
    let began = Instant::now();
    let rig = rig(options, 0, TIERS_FAR)?;
    figures.set("open_s", began.elapsed().as_secs_f64());
    let report = rig.engine.report(PIPELINE).ok_or("no report")?;
    figures.set("rebuilt", f64::from(u8::from(report.rebuilt.is_some())));
    figures.set("brought_forward", report.brought_forward as f64);
    figures.set("delayed", rig.handle.counts().await?.delayed as f64);
    figures.set("rss_peak_mb", rss_peak_mb());
    rig.start().stop().await?;
    Ok(figures)
}

/// Run B, which kills itself after 40 % of the first attempts.
async fn crash(options: &BenchOptions) -> Result<Figures, Error> {
    let traces = traces_of(options)?;
    let witness = BenchWitness::new(options.n, options.fates).with_traces(&traces)?;
    let rig = Rig::open(options, TIERS, witness)?;
    rig.ingest(0, options.n, |_| None).await?;
    let _run = rig.start();
    rig.wait(options.n * 40 / 100, |witness| witness.first.sum()).await;
    kill_myself()?;
    Ok(Figures::default())
}

/// Continues after [`crash`] and counts how every id ended.
async fn resume(options: &BenchOptions) -> Result<Figures, Error> {
    let mut figures = Figures::default();
    let began = Instant::now();
    let witness = BenchWitness::new(options.n, options.fates).with_traces(&traces_of(options)?)?;
    let before = witness.first.sum() + witness.terminal();
    let opening = Instant::now();
    let rig = Rig::open(options, TIERS, witness)?;
    figures.set("open_s", opening.elapsed().as_secs_f64());
    let started = rig.engine.report(PIPELINE).map_or(0, |report| report.started.len());
    figures.set("in_flight", started as f64);
    // Letters from before the kill were reported to the killed process.
    bury_letters(&rig).await?;
    let run = rig.start();
    while rig.witness.first.sum() + rig.witness.terminal() == before {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    figures.set("moving_s", opening.elapsed().as_secs_f64());
    loop {
        let counts = rig.handle.counts().await?;
        if counts.pending() == 0 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    figures.set("end_s", began.elapsed().as_secs_f64());
    bury_letters(&rig).await?;
    ends(&rig, options.n, &mut figures);
    figures.set("succeeded", rig.witness.succeeded.sum() as f64);
    run.stop().await?;
    Ok(figures)
}

async fn bury_letters(rig: &Rig) -> Result<(), Error> {
    let mut after = None;
    loop {
        let letters = rig.handle.letters(None, after, 10_000).await?;
        let Some(last) = letters.last() else { return Ok(()) };
        after = Some(last.id);
        for letter in &letters {
            rig.witness.bury(letter.message.id());
        }
    }
}

fn traces_of(options: &BenchOptions) -> Result<std::path::PathBuf, Error> {
    let traces = Path::new(&options.dir).with_extension("traces");
    fs::create_dir_all(&traces)?;
    Ok(traces)
}

fn kill_myself() -> Result<(), Error> {
    std::process::Command::new("kill").args(["-9", &std::process::id().to_string()]).status()?;
    Ok(())
}
