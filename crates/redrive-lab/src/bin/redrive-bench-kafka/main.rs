//! Measures the Kafka engine on the common workload, next to a bare client. See docs/benchmarks-kafka.md.

mod flow;
mod load;
mod options;
mod plan;
mod raw;
mod rig;
mod runs;
mod scenario;
mod soak;
mod witness;

use std::process::ExitCode;

use options::{KafkaBenchOptions, KafkaBenchSize, Scenario};
use redrive_lab::bench::Figures;
use redrive_lab::kafka::Error;

/// Also for C code: librdkafka allocates once per header. See docs/adr/0018.
#[cfg(all(feature = "jemalloc", target_os = "linux"))]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    let options = match KafkaBenchOptions::parse(std::env::args().skip(1)) {
        Ok(options) => options,
        Err(usage) => {
            eprintln!("{usage}");
            return ExitCode::from(2);
        }
    };
    let ran = match options.scenario {
        Some(scenario) => measure(scenario, &options).map(|figures| figures.print()),
        None if options.size == KafkaBenchSize::Soak => soak::run(&options),
        None => plan::run(&options),
    };
    match ran {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("redrive-bench-kafka: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Runs one measurement in this process.
fn measure(scenario: Scenario, options: &KafkaBenchOptions) -> Result<Figures, Error> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    match scenario {
        Scenario::Raw => raw::run(options),
        Scenario::Load => load::run(options),
        Scenario::Drain => runtime.block_on(scenario::drain(options)),
        Scenario::Paced => runtime.block_on(scenario::paced(options)),
        Scenario::Outage => runtime.block_on(scenario::outage(options)),
        Scenario::Serve => runtime.block_on(scenario::serve(options)),
    }
}
