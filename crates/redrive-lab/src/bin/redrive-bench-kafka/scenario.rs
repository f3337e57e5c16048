//! The measurements of the engine. Each runs in a separate process.

use std::io::Read;
use std::time::{Duration, Instant};

use redrive_lab::bench::machine::{cpu_seconds, rss_mb, rss_peak_mb};
use redrive_lab::bench::{Figures, Histogram};
use redrive_lab::kafka::Error;
use redrive_lab::kafka::applier::Applier;
use redrive_lab::kafka::trace::Trace;

use super::options::KafkaBenchOptions;
use super::rig::{Rig, RunningPipeline, processor};
use super::witness::KafkaBenchWitness;

fn rig(options: &KafkaBenchOptions) -> Result<Rig, Error> {
    let witness = KafkaBenchWitness::new(options.n, options.fates, options.poison, options.trace.as_deref())?;
    Rig::open(options, witness)
}

/// All orders exist before the worker starts.
pub async fn drain(options: &KafkaBenchOptions) -> Result<Figures, Error> {
    let mut figures = Figures::default();
    let rig = rig(options)?;
    let started = Instant::now();
    let run = rig.start();
    let began = rig.wait(&run, 1, |witness| witness.first.sum()).await?;
    figures.set("start_s", (began - started).as_secs_f64());
    let cpu = cpu_seconds();
    let n = options.n;
    let first = rig.wait(&run, n, |witness| witness.first.sum()).await? - began;
    figures.set("first_s", first.as_secs_f64());
    figures.set("first_cpu_s", cpu_seconds() - cpu);
    let most = rig.wait(&run, n * 99 / 100, KafkaBenchWitness::terminal).await? - began;
    figures.set("t99_s", most.as_secs_f64());
    let all = rig.wait(&run, n, KafkaBenchWitness::terminal).await? - began;
    figures.set("t100_s", all.as_secs_f64());
    figures.set("cpu_s", cpu_seconds() - cpu);
    ends(&rig, n, &mut figures);
    let stopping = Instant::now();
    run.stop().await?;
    figures.set("stop_s", stopping.elapsed().as_secs_f64());
    // Stopping settles and commits all finished messages.
    figures.set("settled_s", began.elapsed().as_secs_f64());
    Ok(figures)
}

/// Orders arrive at a fixed rate from another process, until a line on standard input says that all are produced.
pub async fn paced(options: &KafkaBenchOptions) -> Result<Figures, Error> {
    let mut figures = Figures::default();
    let rig = rig(options)?;
    let run = rig.start();
    let began = rig.wait(&run, 1, |witness| witness.first.sum()).await?;
    let cpu = cpu_seconds();
    let written = all_written();
    let span = Duration::from_secs(options.seconds);
    tokio::time::sleep_until((began + span).into()).await;
    // Attempts within the span, regardless of how many orders were produced: shows a reader that falls behind.
    figures.set("tried_in_span", rig.witness.first.sum() as f64);
    figures.set("span_cpu_s", cpu_seconds() - cpu);
    figures.set("rss_mb", rss_mb());
    let n = written.await??;
    follow(&rig, &run, n, began, &mut figures).await?;
    run.stop().await?;
    Ok(figures)
}

/// Like [`paced`], with the pipeline paused for a minute in the middle: nothing is taken, and memory stays flat.
pub async fn outage(options: &KafkaBenchOptions) -> Result<Figures, Error> {
    let mut figures = Figures::default();
    let rig = rig(options)?;
    let run = rig.start();
    let began = rig.wait(&run, 1, |witness| witness.first.sum()).await?;
    let written = all_written();
    tokio::time::sleep(Duration::from_secs(10)).await;
    figures.set("rss_before_mb", rss_mb());
    rig.handle.pause().await?;
    let (mut most, closed) = (0.0_f64, Instant::now());
    tokio::time::sleep(Duration::from_millis(500)).await;
    let at_close = rig.witness.first.sum();
    while closed.elapsed() < Duration::from_mins(1) {
        tokio::time::sleep(Duration::from_millis(250)).await;
        most = most.max(rss_mb());
    }
    figures.set("tried_while_closed", (rig.witness.first.sum() - at_close) as f64);
    figures.set("rss_outage_mb", most);
    rig.handle.resume().await?;
    let opened = Instant::now();
    rig.wait(&run, at_close + 1, |witness| witness.first.sum()).await?;
    figures.set("moving_s", opened.elapsed().as_secs_f64());
    let n = written.await??;
    follow(&rig, &run, n, began, &mut figures).await?;
    run.stop().await?;
    Ok(figures)
}

/// Runs until it is killed or its standard input ends. Writes its trace to a file, since it may be killed at any
/// moment.
pub async fn serve(options: &KafkaBenchOptions) -> Result<Figures, Error> {
    let processor = processor(options);
    let trace = Trace::append(options.trace.as_deref().ok_or("where does the trace go?")?)?;
    let applier = Applier { trace, poison: options.poison, takes_max: Duration::ZERO };
    let redrive = processor.build(processor.pipeline().sink(applier))?;
    redrive.run_until(all_written()).await?;
    let mut figures = Figures::default();
    figures.set("rss_peak_mb", rss_peak_mb());
    Ok(figures)
}

async fn follow(
    rig: &Rig,
    run: &RunningPipeline,
    n: u64,
    began: Instant,
    figures: &mut Figures,
) -> Result<(), Error> {
    let first = rig.wait(run, n, |witness| witness.first.sum()).await? - began;
    figures.set("first_s", first.as_secs_f64());
    figures.set("n", n as f64);
    let all = rig.wait(run, n, KafkaBenchWitness::terminal).await? - began;
    figures.set("t100_s", all.as_secs_f64());
    ends(rig, n, figures);
    Ok(())
}

fn ends(rig: &Rig, n: u64, figures: &mut Figures) {
    let witness = &rig.witness;
    figures.set("n", n as f64);
    figures.set("rss_peak_mb", rss_peak_mb());
    figures.set("succeeded", witness.succeeded.sum() as f64);
    figures.set("dead", witness.died.load(std::sync::atomic::Ordering::Relaxed) as f64);
    quantiles("late", &witness.late, figures);
    quantiles("waited", &witness.waited, figures);
    let (lost, repeated, both) = witness.faults(n);
    figures.set("lost", lost as f64);
    figures.set("repeated", repeated as f64);
    figures.set("both", both as f64);
}

fn quantiles(name: &str, histogram: &Histogram, figures: &mut Figures) {
    if histogram.count() == 0 {
        return;
    }
    figures.set(&format!("{name}_count"), histogram.count() as f64);
    figures.set(&format!("{name}_p50_ms"), histogram.quantile_ms(0.5));
    figures.set(&format!("{name}_p99_ms"), histogram.quantile_ms(0.99));
    figures.set(&format!("{name}_max_ms"), histogram.max_ms());
}

/// Reads from standard input how many orders were produced in total; the plan sends it once the load has ended.
fn all_written() -> tokio::task::JoinHandle<Result<u64, Error>> {
    tokio::task::spawn_blocking(|| {
        let mut text = String::new();
        std::io::stdin().read_to_string(&mut text)?;
        Ok(text.trim().parse().unwrap_or(0))
    })
}
