//! Produces orders at a fixed rate in its own process, so that consumers do not slow it down.

use std::time::{Duration, Instant};

use redrive_lab::bench::{Figures, machine};
use redrive_lab::kafka::{Error, load::Loader};

use super::options::KafkaBenchOptions;

pub fn run(options: &KafkaBenchOptions) -> Result<Figures, Error> {
    let loader = Loader::new(
        &options.brokers,
        &options.source,
        options.partitions,
        &[("compression.type", options.compression)],
    )?;
    let (began, cpu) = (Instant::now(), machine::cpu_seconds());
    let sent = loader.write_paced(0, options.rate, Duration::from_secs(options.seconds))?;
    let mut figures = Figures::default();
    figures.set("sent", sent as f64);
    figures.set("sent_s", began.elapsed().as_secs_f64());
    figures.set("load_cpu_s", machine::cpu_seconds() - cpu);
    Ok(figures)
}
