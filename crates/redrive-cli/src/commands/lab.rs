//! `redrive lab`: experiments that demonstrate Redrive's claims. The lab itself is in redrive-lab.

use std::io::{IsTerminal as _, Write as _};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use redrive_core::duration::rough;
use redrive_lab::experiments::{
    EXPERIMENTS, Finished, LabError, Order, OrderedEngine, check_kafka, expected_runs, run as run_order,
};
use redrive_lab::results::summary::RunStatus;
use redrive_lab::results::{page, report};
use redrive_lab::testbed::Watch;
use serde_json::json;

use crate::exit::{Exit, Failed};
use crate::output::{Align, Output, TextTable};
use crate::service::Signals;

const REDRAW_AFTER: Duration = Duration::from_millis(200);
/// Below this progress, the remaining time is only a guess.
const ESTIMATE_FROM: f64 = 0.02;

#[derive(Debug, clap::Args)]
#[command(after_help = "See docs/findings.md for what was found, and lab/scenarios for the questions.")]
pub struct LabArgs {
    #[command(subcommand)]
    command: LabCommand,
}

#[derive(Debug, clap::Subcommand)]
enum LabCommand {
    /// List the scenarios
    List,
    /// Run a scenario and write its result
    Run(RunArgs),
    /// A process that the scenario `kills` starts and kills
    #[command(hide = true)]
    Victim { order: String },
    /// Write docs/findings.md and its pages, the index of lab/results, and the pages and plots there
    Report {
        /// The repository
        #[arg(long, value_name = "DIR", default_value = ".")]
        root: PathBuf,
    },
}

#[derive(Debug, clap::Args)]
struct RunArgs {
    /// A scenario of `redrive lab list`
    name: String,
    /// Engine to run on, in real time; default: the virtual clock if the scenario supports it, otherwise the embedded
    /// engine
    #[arg(long)]
    engine: Option<EngineName>,
    /// The broker for --engine kafka; without it, one is started for the run (from a checkout, by scripts/kafka.sh)
    #[arg(long, value_name = "HOST:PORT")]
    brokers: Option<String>,
    /// Decides the ids, and with them which are poison
    #[arg(long, default_value_t = redrive_lab::seed::DEFAULT_SEED)]
    seed: u64,
    /// A run of a few seconds that checks the claim, not the speed
    #[arg(long)]
    quick: bool,
    /// Where the result goes, in a folder per scenario and seed
    #[arg(long, value_name = "DIR", default_value = "lab/results")]
    out: PathBuf,
    /// Another scenario file than the one that is compiled in
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// Store effects in this database, where the scenario can: postgres://…
    #[arg(long, value_name = "URL", env = "REDRIVE_LAB_POSTGRES", hide_env_values = true)]
    postgres: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum EngineName {
    Embedded,
    Kafka,
}

pub fn run(args: &LabArgs, out: &mut Output) -> Result<Exit, Failed> {
    match &args.command {
        LabCommand::List => list(out),
        LabCommand::Run(args) => experiment(args, out),
        LabCommand::Victim { order } => {
            let lived = redrive_lab::testbed::victim::run(order);
            lived.map(|()| Exit::Ok).map_err(|error| Failed::new(Exit::Bad, error.to_string()))
        }
        LabCommand::Report { root } => {
            let known = expected_runs().map_err(|error| failed(&error))?;
            let written =
                report::write(root, &known).map_err(|fault| Failed::new(Exit::Storage, fault.to_string()))?;
            for file in &written.files {
                out.line(&format!("{} ({} results)", file.display(), written.results))?;
            }
            Ok(Exit::Ok)
        }
    }
}

fn list(out: &mut Output) -> Result<Exit, Failed> {
    let mut table = TextTable::new([
        ("SCENARIO", Align::Left),
        ("RUNS BY", Align::Left),
        ("TAKES", Align::Right),
        ("", Align::Left),
    ]);
    let mut documents = Vec::new();
    for experiment in EXPERIMENTS {
        let scenario = experiment.scenario().map_err(|fault| Failed::usage(fault.to_string()))?;
        documents.push(json!({
            "name": experiment.name,
            "title": scenario.title,
            "question": scenario.question,
            "clock": scenario.clock.to_string(),
            "takes": scenario.takes,
            "downstream": scenario.downstream.to_string(),
            "content": scenario.hash,
        }));
        table.row([experiment.name.to_owned(), scenario.clock.to_string(), scenario.takes, scenario.title]);
    }
    if out.is_json() {
        out.json(&json!({ "scenarios": documents }))?;
    } else {
        out.table(&table)?;
    }
    Ok(Exit::Ok)
}

fn experiment(args: &RunArgs, out: &mut Output) -> Result<Exit, Failed> {
    if args.engine == Some(EngineName::Kafka) {
        // Check before a broker is started.
        check_kafka(&args.name, args.file.as_deref()).map_err(|error| failed(&error))?;
    }
    let broker = broker(args, out)?;
    let kafka = broker.as_ref().map(|broker| OrderedEngine::Kafka(broker.address()));
    let order = Order {
        name: args.name.clone(),
        file: args.file.clone(),
        seed: args.seed,
        quick: args.quick,
        broken: None,
        engine: kafka.or_else(|| args.engine.map(|_| OrderedEngine::Embedded)),
        postgres: args.postgres.clone(),
        victim: victim()?,
        out: Some(args.out.clone()),
        command: command(args),
    };
    let screen = Arc::new(Screen::new(out.shows_progress()));
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let signals = runtime.block_on(async { Signals::listen() })?;
    let interrupted = Arc::clone(&screen);
    runtime.spawn(async move {
        signals.asked().await;
        interrupted.interrupted.store(true, Ordering::Relaxed);
    });
    let finished = run_order(&order, screen.as_ref());
    screen.clear();
    let finished = finished.map_err(|error| failed(&error))?;
    show(&finished, out)?;
    Ok(match finished.summary.standing() {
        RunStatus::Passed => Exit::Ok,
        RunStatus::NotAsExpected | RunStatus::AuditFailed => Exit::Bad,
        RunStatus::Partial => Exit::Interrupted,
    })
}

/// The command that starts this program as a victim of the scenario `kills`.
fn victim() -> Result<Vec<String>, Failed> {
    let program = std::env::current_exe()?.to_string_lossy().into_owned();
    Ok([program.as_str(), "lab", "victim"].map(str::to_owned).to_vec())
}

/// The address of the broker, and the broker itself if we started it.
struct Broker {
    address: String,
    #[cfg(feature = "kafka")]
    _started: Option<(redrive_lab::kafka::broker::Broker, redrive_lab::testbed::Scratch)>,
}

impl Broker {
    fn address(&self) -> String {
        self.address.clone()
    }
}

#[cfg(feature = "kafka")]
fn broker(args: &RunArgs, out: &mut Output) -> Result<Option<Broker>, Failed> {
    if args.engine != Some(EngineName::Kafka) {
        return Ok(None);
    }
    if let Some(address) = &args.brokers {
        return Ok(Some(Broker { address: address.clone(), _started: None }));
    }
    let scratch = redrive_lab::testbed::Scratch::new()?;
    out.note("starting a broker for this run");
    let broker = redrive_lab::kafka::broker::Broker::up(std::path::Path::new("."), scratch.path());
    let broker = broker.map_err(|error| {
        Failed::usage(format!("no broker could be started: {error}"))
            .hint("give one with --brokers HOST:PORT, or run it from a checkout")
    })?;
    Ok(Some(Broker { address: broker.address().to_owned(), _started: Some((broker, scratch)) }))
}

#[cfg(not(feature = "kafka"))]
fn broker(args: &RunArgs, _: &mut Output) -> Result<Option<Broker>, Failed> {
    match args.engine {
        None | Some(EngineName::Embedded) => Ok(None),
        Some(EngineName::Kafka) => {
            Err(Failed::usage("this build has no Kafka engine").hint("build it with the feature `kafka`"))
        }
    }
}

fn failed(error: &LabError) -> Failed {
    let exit = match error {
        LabError::Unknown { .. } | LabError::Scenario(_) | LabError::File { .. } | LabError::Unfit { .. } => {
            Exit::Usage
        }
        LabError::Run(_) => Exit::Bad,
        LabError::Result(_) => Exit::Storage,
    };
    Failed::new(exit, error.to_string())
}

/// The command that repeats this run.
fn command(args: &RunArgs) -> String {
    let mut command = format!("redrive lab run {} --seed {}", args.name, args.seed);
    match args.engine {
        Some(EngineName::Kafka) => command.push_str(" --engine kafka"),
        Some(EngineName::Embedded) => command.push_str(" --engine embedded"),
        None => {}
    }
    if args.quick {
        command.push_str(" --quick");
    }
    if args.postgres.is_some() {
        // The URL may contain a password.
        command.push_str(" --postgres URL");
    }
    if let Some(file) = &args.file {
        command = format!("{command} --file {}", file.display());
    }
    command
}

fn show(finished: &Finished, out: &mut Output) -> Result<(), Failed> {
    let summary = &finished.summary;
    if out.is_json() {
        return out.json(&serde_json::to_value(summary).unwrap_or_default());
    }
    let cores = summary.machine.get("cores").map_or("?", String::as_str);
    out.line(&format!(
        "scenario lab/scenarios/{}.toml   seed {}   {cores} cores   {}",
        summary.scenario, summary.seed, summary.ran_on
    ))?;
    out.line(&format!("config   {}", page::common_settings(summary)))?;
    for line in page::aligned(&page::own_settings(summary)) {
        out.line(&format!("         {line}"))?;
    }
    out.line("")?;
    for rows in [page::table(summary), page::forecasts(summary)] {
        for line in page::aligned(&rows) {
            out.line(&line)?;
        }
        if !rows.is_empty() {
            out.line("")?;
        }
    }
    for note in &summary.notes {
        out.line(note)?;
    }
    if let Some(audit) = summary.audit() {
        out.line(&audit.to_string())?;
    }
    for miss in summary.misses() {
        out.line(&format!("✗ {miss}"))?;
    }
    let report = finished.dir.as_ref().map(|dir| dir.join("index.html").display().to_string());
    out.line(&format!("{}   report {}", summary.standing().text(), report.unwrap_or_default()))
}

/// The width of the bar.
const BAR: usize = 24;

/// `██████░░░░░░░░░░░░░░░░░░  25 %, 3m left   steady, jitter none`.
fn progress_line(done: f64, elapsed: Duration, doing: &str) -> String {
    let done = done.clamp(0.0, 1.0);
    let full = (done * BAR as f64).round() as usize;
    let bar = format!("{}{}", "█".repeat(full), "░".repeat(BAR - full));
    let left = elapsed.mul_f64((1.0 - done) / done.max(ESTIMATE_FROM));
    let left = if done < ESTIMATE_FROM { String::new() } else { format!(", {} left", rough(left)) };
    format!("{bar} {:3.0} %{left}   {doing}", done * 100.0)
}

/// A progress bar on stderr with the remaining time; only on a terminal.
struct Screen {
    shown: bool,
    began: Instant,
    drawn: Mutex<Option<Instant>>,
    interrupted: AtomicBool,
}

impl Screen {
    fn new(wanted: bool) -> Self {
        let shown = wanted && std::io::stderr().is_terminal();
        Self { shown, began: Instant::now(), drawn: Mutex::new(None), interrupted: AtomicBool::new(false) }
    }

    fn clear(&self) {
        if self.drawn.lock().unwrap_or_else(PoisonError::into_inner).is_some() {
            // Failing to remove the line is not worth an error.
            let _ = write!(std::io::stderr(), "\r\u{1b}[2K");
        }
    }
}

impl Watch for Screen {
    fn progress(&self, done: f64, doing: &str) {
        let mut drawn = self.drawn.lock().unwrap_or_else(PoisonError::into_inner);
        if !self.shown || drawn.is_some_and(|drawn| drawn.elapsed() < REDRAW_AFTER) {
            return;
        }
        *drawn = Some(Instant::now());
        let line = progress_line(done, self.began.elapsed(), doing);
        let _ = write!(std::io::stderr(), "\r\u{1b}[2K{line}");
    }

    fn is_interrupted(&self) -> bool {
        self.interrupted.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_is_a_bar_with_the_time_left_once_it_can_be_told() {
        let minute = Duration::from_mins(1);
        assert_eq!(progress_line(0.0, minute, "steady"), format!("{}   0 %   steady", "░".repeat(BAR)));
        let quarter = progress_line(0.25, minute, "steady");
        let bar = format!("{}{}  25 %, ", "█".repeat(BAR / 4), "░".repeat(BAR * 3 / 4));
        assert!(quarter.starts_with(&bar) && quarter.ends_with(" left   steady"), "{quarter}");
        assert!(quarter.contains(&rough(minute * 3)), "{quarter}");
        assert!(progress_line(1.5, minute, "").starts_with(&format!("{} 100 %", "█".repeat(BAR))));
    }
}
