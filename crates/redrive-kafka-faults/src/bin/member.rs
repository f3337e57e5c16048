//! One process of a group: reads orders, handles each according to its fate, and records what it did.
//!
//! It ends cleanly on SIGTERM. Exit codes: 0 it ended cleanly, 1 it failed, 2 it was started with wrong arguments, 70 a
//! handler never returned.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use redrive_kafka_faults::pill::{CrashingApplier, Pill, STUCK, TIMEOUT};
use redrive_lab::kafka::Error;
use redrive_lab::kafka::applier::Applier;
use redrive_lab::kafka::processor::Processor;
use redrive_lab::kafka::trace::Trace;
use tokio::signal::unix::{SignalKind, signal};

/// The flags that a test passes.
struct MemberFlags {
    processor: Processor,
    trace: PathBuf,
    /// The only order that fails, and it always does; without it, the fates of the workload apply.
    poison: Option<u64>,
    /// Longest duration of an attempt, so that some are running at any moment.
    takes_max: Duration,
    /// An order that kills this process.
    pill: Option<Pill>,
}

fn main() -> ExitCode {
    // A failing test shows the last lines.
    tracing_subscriber::fmt().with_writer(std::io::stderr).with_ansi(false).init();
    let options = match parse(std::env::args().skip(1)) {
        Ok(options) => options,
        Err(error) => {
            eprintln!("member: {error}");
            return ExitCode::from(2);
        }
    };
    match run(options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("member: {error}");
            ExitCode::FAILURE
        }
    }
}

fn parse(mut args: impl Iterator<Item = String>) -> Result<MemberFlags, Error> {
    let mut options = MemberFlags {
        processor: Processor {
            brokers: String::new(),
            name: String::new(),
            source: String::new(),
            member: None,
            tiers: Vec::new(),
            state_dir: PathBuf::new(),
            concurrency: 64,
            blocking: false,
            crash_threshold: None,
            passed_on: Vec::new(),
        },
        trace: PathBuf::new(),
        poison: None,
        takes_max: Duration::from_millis(4),
        pill: None,
    };
    let (mut dir, mut state) = (PathBuf::new(), String::from("state"));
    while let Some(flag) = args.next() {
        let mut value = || args.next().ok_or_else(|| format!("{flag} needs a value"));
        let processor = &mut options.processor;
        match flag.as_str() {
            "--brokers" => processor.brokers = value()?,
            "--name" => processor.name = value()?,
            "--member" => processor.member = Some(value()?),
            "--tiers" => processor.tiers = value()?.split(',').map(str::to_owned).collect(),
            "--concurrency" => processor.concurrency = value()?.parse()?,
            "--crash-threshold" => processor.crash_threshold = Some(value()?.parse()?),
            "--blocking" => processor.blocking = true,
            "--session-ms" => {
                let session_ms: u64 = value()?.parse()?;
                let heartbeat_ms = session_ms / 6;
                processor.passed_on.push(("session.timeout.ms".into(), session_ms.to_string()));
                processor.passed_on.push(("heartbeat.interval.ms".into(), heartbeat_ms.to_string()));
            }
            "--dir" => dir = value()?.into(),
            "--state" => state = value()?,
            "--trace" => options.trace = value()?.into(),
            "--poison" => options.poison = Some(value()?.parse()?),
            "--pill" => {
                let words = value()?;
                let words: Vec<&str> = words.split(',').collect();
                let [order, death, from_attempt] = words[..] else {
                    return Err("--pill needs ORDER,HOW,ATTEMPT".into());
                };
                let (order, from_attempt) = (order.parse()?, from_attempt.parse()?);
                options.pill = Some(Pill { order, death: death.parse()?, from_attempt });
            }
            "--takes-max-us" => options.takes_max = Duration::from_micros(value()?.parse()?),
            other => return Err(format!("no flag `{other}`").into()),
        }
    }
    options.processor.source.clone_from(&options.processor.name);
    options.processor.state_dir = dir.join(state);
    Ok(options)
}

fn run(options: MemberFlags) -> Result<(), Error> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(async {
        let MemberFlags { processor, trace, poison, takes_max, pill } = options;
        let mut terminate = signal(SignalKind::terminate())?;
        let applier = Applier { trace: Trace::append(&trace)?, poison, takes_max };
        let pipeline = processor.pipeline().sink(CrashingApplier { applier, pill });
        let pipeline = pipeline.on_health(|changed| eprintln!("{}: {}", changed.pipeline, changed.change));
        let pipeline = if pill.is_some() { pipeline.timeout(TIMEOUT) } else { pipeline };
        let pipeline = pipeline.on_stuck(|stuck| {
            eprintln!("{stuck}");
            std::process::exit(STUCK);
        });
        let redrive = processor.build(pipeline)?;
        let report = redrive.run_until(terminate.recv()).await?;
        eprintln!("member {}: {report}", processor.member.as_deref().unwrap_or("-"));
        Ok(())
    })
}
