//! Measures the embedded engine on the common workload, all in one run. See docs/benchmarks.md.

mod dedup;
mod letters;
mod options;
mod plan;
mod rig;
mod runs;
mod scenario;
mod witness;

use std::process::ExitCode;

use options::BenchOptions;

/// Also for C code: librdkafka allocates once per header. See docs/adr/0018.
#[cfg(all(feature = "jemalloc", target_os = "linux"))]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    let options = match BenchOptions::parse(std::env::args().skip(1)) {
        Ok(options) => options,
        Err(usage) => {
            eprintln!("{usage}");
            return ExitCode::from(2);
        }
    };
    let ran = match &options.scenario {
        Some(name) => scenario::run(name, &options).map(|figures| figures.print()),
        None => plan::run(&options),
    };
    match ran {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("redrive-bench: {error}");
            ExitCode::FAILURE
        }
    }
}
