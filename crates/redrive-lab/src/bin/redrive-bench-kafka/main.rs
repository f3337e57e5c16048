//! Measures the Kafka engine on the common workload, beside what a bare client reaches. See docs/benchmarks-kafka.md.

mod load;
mod options;
mod plan;
mod raw;
mod runs;

use std::process::ExitCode;

use options::{Options, Scenario};
use redrive_lab::bench::Figures;
use redrive_lab::kafka::Error;

fn main() -> ExitCode {
    let options = match Options::parse(std::env::args().skip(1)) {
        Ok(options) => options,
        Err(usage) => {
            eprintln!("{usage}");
            return ExitCode::from(2);
        }
    };
    let ran = match options.scenario {
        Some(scenario) => measure(scenario, &options).map(|figures| figures.print()),
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

/// One measurement, in this process.
fn measure(scenario: Scenario, options: &Options) -> Result<Figures, Error> {
    match scenario {
        Scenario::Raw => raw::run(options),
        Scenario::Load => load::run(options),
    }
}
