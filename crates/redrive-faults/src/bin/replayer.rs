//! The process whose replay job is killed. `replayer seed DIR COUNT` creates dead letters, `replayer replay DIR LOG
//! RATE` replays them all as one job and ends when the job is done. Exit codes: 0 it completed, 1 it failed.

use std::path::Path;
use std::process::ExitCode;

use redrive_faults::replaying;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_time().build();
    let runtime = runtime.expect("a runtime");
    let ended = match words[..] {
        ["seed", dir, count] => {
            runtime.block_on(replaying::seed(Path::new(dir), count.parse().expect("a number")))
        }
        ["replay", dir, log, rate] => {
            let rate = rate.parse().expect("a number");
            runtime.block_on(replaying::replay(Path::new(dir), Path::new(log), rate))
        }
        _ => Err("usage: replayer seed DIR COUNT | replay DIR LOG RATE".into()),
    };
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
