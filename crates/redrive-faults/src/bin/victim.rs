//! The process that is killed, starved and cut off. `victim work DIR ACKS SEED STEPS [PIPELINE]` (0 steps: until it is
//! killed; without a pipeline: all), or `victim verify DIR ACKS`, or `victim append FILE LOG` (no store at all, a
//! control). Exit codes: 0 it completed, 1 the verification failed, 74 the storage failed.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use redrive::internal::engine::EngineError;
use redrive_faults::{plan, verify, workload::Work};

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    match words[..] {
        ["work", dir, acks, seed, steps, ref pipeline @ ..] => {
            let number = |text: &str| text.parse().expect("a number");
            let tuning = plan::tuning();
            let (dir, acks) = (Path::new(dir), Path::new(acks));
            let wanted = |name: &&str| pipeline.is_empty() || pipeline.contains(name);
            let pipelines: Vec<&str> = plan::PIPELINES.into_iter().filter(wanted).collect();
            let (seed, steps, pipelines) = (number(seed), number(steps), &*pipelines);
            let work = Work { dir, acks, seed, steps, pipelines, tuning };
            match work.run() {
                Ok(()) => ExitCode::SUCCESS,
                Err(error @ (EngineError::Storage(_) | EngineError::Directory { .. })) => stop(&error, 74),
                Err(error) => stop(&error, 65),
            }
        }
        ["verify", dir, acks] => match verify::verify(Path::new(dir), Path::new(acks)) {
            Ok(seen) => {
                println!("{seen}");
                ExitCode::SUCCESS
            }
            Err(error) => stop(&error, 1),
        },
        ["append", file, log] => match append(file, log) {
            Ok(never) => match never {},
            Err(error) => stop(&error, 74),
        },
        _ => {
            stop(&"usage: victim work DIR ACKS SEED STEPS [PIPELINE] | verify DIR ACKS | append FILE LOG", 2)
        }
    }
}

/// The control: appends, syncs and logs the new length of the file, until that fails.
fn append(file: &str, log: &str) -> std::io::Result<std::convert::Infallible> {
    let file = File::options().create(true).append(true).open(file)?;
    let log = File::options().append(true).open(log)?;
    let mut len = file.metadata()?.len();
    loop {
        (&file).write_all(&[7; 700])?;
        file.sync_data()?;
        len += 700;
        (&log).write_all(format!("{len}\n").as_bytes())?;
    }
}

fn stop(error: &dyn std::fmt::Display, code: u8) -> ExitCode {
    // Standard error may be what is failing.
    let _ = std::io::stderr().write_all(format!("{error}\n").as_bytes());
    ExitCode::from(code)
}
