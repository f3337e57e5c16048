//! The process that is killed, starved and cut off. `victim work DIR ACKS SEED STEPS` (0 steps: until it is killed), or
//! `victim verify DIR ACKS`. Exit codes: 0 it ran to its end, 1 the verification failed, 74 the storage failed.

use std::path::Path;
use std::process::ExitCode;

use redrive::engine::EngineError;
use redrive_faults::{plan, verify, workload::Work};

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    match words[..] {
        ["work", dir, acks, seed, steps] => {
            let number = |text: &str| text.parse().expect("a number");
            let tuning = plan::tuning();
            let (dir, acks) = (Path::new(dir), Path::new(acks));
            let work = Work { dir, acks, seed: number(seed), steps: number(steps), tuning };
            match work.run() {
                Ok(()) => ExitCode::SUCCESS,
                Err(error @ EngineError::Storage(_)) => stop(&error, 74),
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
        _ => stop(&"usage: victim work DIR ACKS SEED STEPS | victim verify DIR ACKS", 2),
    }
}

fn stop(error: &dyn std::fmt::Display, code: u8) -> ExitCode {
    // Standard error may be what fails just now.
    let _ = std::io::Write::write_all(&mut std::io::stderr(), format!("{error}\n").as_bytes());
    ExitCode::from(code)
}
