//! The three-broker storm, and how soon deliveries resume after a loss.
//!
//! ```text
//! storm --redrive target/release/redrive --seed 13 --records 100000 --rate 200 --rounds 2
//! storm --redrive target/release/redrive --figures --sessions 10,20,45 --repeats 5
//! ```
//! Exit codes: 0 everything adds up, 1 it does not, 2 wrong arguments.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use redrive_kafka_faults::storm::{figures, run};
use redrive_lab::kafka::Error;
use tokio::signal::unix::{SignalKind, signal};

struct StormFlags {
    storm: run::StormOptions,
    figures: bool,
    frozen_only: bool,
    sessions_s: Vec<u64>,
    repeats: usize,
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().collect();
    println!("$ {}", args.join(" "));
    let options = match parse(args.into_iter().skip(1)) {
        Ok(options) => options,
        Err(error) => {
            eprintln!("storm: {error}");
            return ExitCode::from(2);
        }
    };
    let ran = if options.figures {
        let StormFlags { storm, sessions_s, repeats, frozen_only, .. } = &options;
        let (client, frozen_only) = (storm.client.as_slice(), *frozen_only);
        let (redrive, root, per_second) = (storm.redrive.as_path(), storm.root.as_path(), storm.per_second);
        let interrupted = &storm.interrupted;
        let wanted = figures::FigureOptions {
            redrive,
            root,
            sessions_s,
            repeats: *repeats,
            per_second,
            client,
            frozen_only,
            interrupted,
        };
        figures::figures(&wanted).map(|()| true)
    } else {
        run::storm(&options.storm)
    };
    match ran {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            println!("storm: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Returns a flag that SIGINT and SIGTERM set, so that brokers and processors do not outlive the storm.
fn interrupted() -> Result<Arc<AtomicBool>, Error> {
    let interrupted = Arc::new(AtomicBool::new(false));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let flag = Arc::clone(&interrupted);
    std::thread::spawn(move || {
        runtime.block_on(async {
            let (Ok(mut terminate), Ok(mut interrupt)) =
                (signal(SignalKind::terminate()), signal(SignalKind::interrupt()))
            else {
                return;
            };
            tokio::select! { _ = terminate.recv() => {}, _ = interrupt.recv() => {} }
            flag.store(true, Ordering::Relaxed);
        });
    });
    Ok(interrupted)
}

fn parse(mut args: impl Iterator<Item = String>) -> Result<StormFlags, Error> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut storm = run::StormOptions {
        redrive: PathBuf::new(),
        root,
        seed: 13,
        records: 100_000,
        per_second: 200,
        rounds: 2,
        client: Vec::new(),
        faults_max: usize::MAX,
        interrupted: interrupted()?,
    };
    let (mut figures, mut sessions_s, mut repeats) = (false, vec![figures::SESSION_DEFAULT_S], 5);
    let mut frozen_only = false;
    while let Some(flag) = args.next() {
        let mut value = || args.next().ok_or_else(|| format!("{flag} needs a value"));
        match flag.as_str() {
            "--redrive" => storm.redrive = std::fs::canonicalize(value()?)?,
            "--seed" => storm.seed = value()?.parse()?,
            "--records" => storm.records = value()?.parse()?,
            "--rate" => storm.per_second = value()?.parse()?,
            "--rounds" => storm.rounds = value()?.parse()?,
            "--faults" => storm.faults_max = value()?.parse()?,
            "--figures" => figures = true,
            "--frozen" => frozen_only = true,
            "--set" => {
                let setting = value()?;
                let (key, value) = setting.split_once('=').ok_or("--set needs KEY=VALUE")?;
                storm.client.push((key.to_owned(), value.to_owned()));
            }
            "--sessions" => sessions_s = value()?.split(',').map(str::parse).collect::<Result<_, _>>()?,
            "--repeats" => repeats = value()?.parse()?,
            other => return Err(format!("no flag `{other}`").into()),
        }
    }
    if storm.redrive.as_os_str().is_empty() {
        return Err("--redrive PATH: the program under test".into());
    }
    Ok(StormFlags { storm, figures, frozen_only, sessions_s, repeats })
}
