//! The storm: faults one after the other under load, then the audit.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use redrive::timestamp;
use redrive_lab::bench::machine;
use redrive_lab::kafka::{Error, trace};

use super::audit::Window;
use super::cluster::Cluster;
use super::faults::{self, Traces};
use super::fleet::Settings;
use super::flow::Flow;
use super::plan::{self, Fault};
use super::scene::Scene;
use super::silence;

/// How long the cluster of the storm waits for a silent broker; Kafka's default is 9 s.
const BROKER_SESSION_MS: u64 = 4_000;
/// Log messages of a processor that takes over a partition that another one, or itself, has lost.
const TOOK_OVER: [&str; 2] =
    ["the last owner did not end in order", "the partition was lost, and has come back to this process"];
/// Precedes the timestamp in a log line.
const STAMP: &str = "\"timestamp\":\"";

/// What the caller chooses.
#[derive(Clone, Debug)]
pub struct StormOptions {
    pub redrive: PathBuf,
    /// The checkout.
    pub root: PathBuf,
    pub seed: u64,
    /// Minimum number of records, of both flows together.
    pub records: u64,
    pub per_second: u64,
    pub rounds: u64,
    /// More settings for `[engine.kafka]`.
    pub client: Vec<(String, String)>,
    /// Use only this many faults of the plan.
    pub faults_max: usize,
    /// Set when the run is to be ended.
    pub interrupted: Arc<AtomicBool>,
}

struct Happened {
    fault: Fault,
    window: Window,
}

/// Runs the storm and prints the results. Returns `Ok(false)` if something does not add up.
pub fn storm(options: &StormOptions) -> Result<bool, Error> {
    let begun = Instant::now();
    let mut dir = tempfile::tempdir()?;
    let faults: Vec<Fault> =
        plan::plan(options.seed, options.rounds).into_iter().take(options.faults_max).collect();
    println!("storm: seed {}, {} faults, three brokers, three processors", options.seed, faults.len());
    for (name, value) in machine::describe(&options.root) {
        println!("  {name:<14}{value}");
    }
    let cluster = Cluster::up(&options.root, &dir.path().join("cluster"), BROKER_SESSION_MS)?;
    let settings = Settings { suffix: "", session_ms: None, client: &options.client };
    let ran = play(options, &faults, &cluster, dir.path(), settings, begun);
    if !matches!(ran, Ok(true)) {
        dir.disable_cleanup(true);
        println!("logs of the processors: {}", dir.path().display());
    }
    ran
}

fn play(
    options: &StormOptions,
    faults: &[Fault],
    cluster: &Cluster,
    dir: &std::path::Path,
    settings: Settings<'_>,
    begun: Instant,
) -> Result<bool, Error> {
    let mut scene =
        Scene::start(cluster, &options.redrive, dir, settings, options.per_second, &options.interrupted)?;
    println!("every partition moves after {} s\n", begun.elapsed().as_secs());
    println!("{:>4} {:>6} {:>7}  {:<62} longest silence", "no.", "at s", "took s", "fault");
    let (mut traces, mut happened) = (Traces::default(), Vec::new());
    for (number, fault) in faults.iter().enumerate() {
        let from_us = trace::wall_us();
        let at = begun.elapsed().as_secs();
        faults::happen(&mut scene, *fault, &mut traces).map_err(|error| format!("{fault}: {error}"))?;
        let window = Window { from_us, to_us: trace::wall_us() };
        let took = Duration::from_micros(window.to_us - from_us).as_secs_f64();
        println!(
            "{:>4} {at:>6} {took:>7.1}  {:<62} {}",
            number + 1,
            fault.to_string(),
            silences(&scene, window)
        );
        happened.push(Happened { fault: *fault, window });
    }
    let enough = |scene: &mut Scene<'_>| {
        Ok(Flow::ALL.iter().map(|flow| scene.load.written(*flow)).sum::<u64>() >= options.records)
    };
    scene.until_long("enough records", enough)?;
    let mut windows: Vec<Window> =
        happened.iter().filter(|one| one.fault.may_repeat()).map(|one| one.window).collect();
    let replaced = replaced(&scene);
    windows.extend(&replaced);
    let found = scene.finish([&traces.put_back, &[]], &windows)?;
    println!("\n{} s, load at the end {}", begun.elapsed().as_secs(), machine::load());
    for flow in Flow::ALL {
        let order = if flow.keeps_order() {
            "ordering = \"key\", zstd"
        } else {
            "no ordering, lz4 and zstd by turns"
        };
        println!("{} ({order}, {} partitions at the end)", flow.name(), scene.load.partitions(flow));
        print!("{}", found[flow.index()]);
    }
    println!("calls of a paused pipeline: {}", traces.while_paused);
    println!("partitions taken over from an owner that did not end in order: {}", replaced.len());
    println!("processors that ended by themselves, by exit code: {:?}", scene.fleet.ended_itself());
    let is_good = found.iter().all(super::audit::StormAudit::is_good) && traces.while_paused == 0;
    println!("{}", if is_good { "everything adds up" } else { "IT DOES NOT ADD UP" });
    Ok(is_good)
}

/// Returns the longest silence of each flow.
fn silences(scene: &Scene<'_>, window: Window) -> String {
    let of = |flow: Flow| {
        let silence = silence::longest(&scene.seen.attempts(flow), window.from_us, window.to_us);
        format!("{} {:.1} s", flow.name(), silence.length_us as f64 / 1e6)
    };
    Flow::ALL.map(of).join(", ")
}

/// Returns the moments at which partitions were taken over. On a busy machine a processor may lose its partitions
/// without any fault; the next owner logs it, and deliveries before that moment may be repeated after it.
fn replaced(scene: &Scene<'_>) -> Vec<Window> {
    let said = scene.fleet.said();
    let lines = said.lines().filter(|line| TOOK_OVER.iter().any(|words| line.contains(words)));
    let times = lines.filter_map(|line| timestamp::parse(line.split_once(STAMP)?.1.split('"').next()?));
    times.map(|time| time.as_millis() * 1_000).map(|at_us| Window { from_us: at_us, to_us: at_us }).collect()
}
