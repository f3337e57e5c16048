//! A process that one of its messages kills: `pill DIR LOG HOW START [LAST_END [stay]]`. Exits with 0 once nothing is
//! pending, unless it is to stay.

use std::path::Path;
use std::process::ExitCode;

use redrive::LastEnd;
use redrive_faults::pill::{self, Life};

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    let [dir, log, how, start, ref more @ ..] = words[..] else {
        eprintln!("usage: pill DIR LOG abort|memory|loop|panic|never START [unknown|outside [stay]]");
        return ExitCode::from(2);
    };
    let life = Life {
        death: how.parse().expect("a way to die"),
        start: start.parse().expect("a number"),
        last_end: if more.contains(&"outside") { LastEnd::FromOutside } else { LastEnd::Unknown },
        stays: more.contains(&"stay"),
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_time().build();
    let runtime = runtime.expect("a runtime");
    match runtime.block_on(pill::run(Path::new(dir), Path::new(log), life)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
