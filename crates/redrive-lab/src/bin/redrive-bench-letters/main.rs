//! Measures operator actions with many dead letters: groups, pages, counts, startup; on the embedded engine and on
//! Kafka. See docs/benchmarks.md.

mod fill;
mod options;
mod plan;
mod questions;
mod runs;
mod store;
mod workload;

use std::process::ExitCode;

use options::{LettersOptions, LettersStep};
use redrive_lab::bench::Figures;
use redrive_lab::kafka::Error;

/// Also for C code: librdkafka allocates once per header. See docs/adr/0018.
#[cfg(all(feature = "jemalloc", target_os = "linux"))]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    let options = match LettersOptions::parse(std::env::args().skip(1)) {
        Ok(options) => options,
        Err(usage) => {
            eprintln!("{usage}");
            return ExitCode::from(2);
        }
    };
    let ran = match options.step {
        Some(step) => measure(step, &options).map(|figures| figures.print()),
        None => plan::run(&options),
    };
    match ran {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("redrive-bench-letters: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Runs one step in this process.
fn measure(step: LettersStep, options: &LettersOptions) -> Result<Figures, Error> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    match step {
        LettersStep::Fill => runtime.block_on(fill::run(options)),
        LettersStep::Ask => runtime.block_on(questions::run(options)),
    }
}
