//! A process that one of its messages kills: `pill DIR LOG HOW START`. Ends with 0 once nothing is pending.

use std::path::Path;
use std::process::ExitCode;

use redrive_faults::pill;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    let [dir, log, how, start] = words[..] else {
        eprintln!("usage: pill DIR LOG abort|memory|loop|panic START");
        return ExitCode::from(2);
    };
    let (how, start) = (how.parse().expect("a way to die"), start.parse().expect("a number"));
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_time().build();
    let runtime = runtime.expect("a runtime");
    match runtime.block_on(pill::run(Path::new(dir), Path::new(log), how, start)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
