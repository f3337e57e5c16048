//! Simulates an outage under load and reports its cost: `redrive-outage [--engine embedded|kafka] [--brokers
//! HOST:PORT] [--seconds 60] [--rate 2000]`. Exits with 1 if a message died because of it, or if more calls were made
//! than necessary.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use redrive::{Embedded, Redrive};
use redrive_lab::outage::{OutageDownstream, OutagePlan, OutageReport, ingest_paced, play};

type Error = Box<dyn std::error::Error + Send + Sync>;

const NAME: &str = "orders";

struct OutageFlags {
    engine: String,
    brokers: String,
    seconds: u64,
    rate: u64,
}

fn main() -> ExitCode {
    let options = match parse(std::env::args().skip(1)) {
        Ok(options) => options,
        Err(error) => {
            eprintln!("redrive-outage: {error}");
            return ExitCode::from(2);
        }
    };
    let report = run(&options);
    match report.and_then(|report| {
        println!(
            "{} s without a downstream at {} orders/s, engine {}",
            options.seconds, options.rate, options.engine
        );
        println!("{report}");
        report.check().map_err(Error::from)
    }) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("redrive-outage: {error}");
            ExitCode::FAILURE
        }
    }
}

fn parse(mut args: impl Iterator<Item = String>) -> Result<OutageFlags, Error> {
    let mut options =
        OutageFlags { engine: "embedded".to_owned(), brokers: String::new(), seconds: 60, rate: 2_000 };
    while let Some(flag) = args.next() {
        let mut value = || args.next().ok_or_else(|| format!("{flag} needs a value"));
        match flag.as_str() {
            "--engine" => options.engine = value()?,
            "--brokers" => options.brokers = value()?,
            "--seconds" => options.seconds = value()?.parse()?,
            "--rate" => options.rate = value()?.parse()?,
            other => return Err(format!("no flag `{other}`").into()),
        }
    }
    Ok(options)
}

fn run(options: &OutageFlags) -> Result<OutageReport, Error> {
    let plan = OutagePlan::lasting(Duration::from_secs(options.seconds), options.rate);
    let dir = std::env::temp_dir().join(format!("redrive-outage-{}", std::process::id()));
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let report = match options.engine.as_str() {
        "embedded" => runtime.block_on(embedded(&dir, &plan)),
        "kafka" => runtime.block_on(kafka(&options.brokers, &dir, &plan)),
        other => Err(format!("no engine `{other}`").into()),
    };
    let _ = std::fs::remove_dir_all(&dir);
    report
}

async fn embedded(dir: &std::path::Path, plan: &OutagePlan) -> Result<OutageReport, Error> {
    let downstream = Arc::new(OutageDownstream::default());
    let engine = Embedded::open(dir)?;
    let redrive = Redrive::builder().engine(engine).pipeline(downstream.pipeline(NAME, plan)).build()?;
    let rate = plan.rate;
    play(redrive, NAME, &downstream, plan, |stop, handle| ingest_paced(rate, stop, handle)).await
}

#[cfg(feature = "kafka")]
async fn kafka(brokers: &str, dir: &std::path::Path, plan: &OutagePlan) -> Result<OutageReport, Error> {
    let name = format!("outage-{}", std::process::id());
    redrive_lab::kafka::outage::run(brokers, &name, dir, plan).await
}

#[cfg(not(feature = "kafka"))]
async fn kafka(_: &str, _: &std::path::Path, _: &OutagePlan) -> Result<OutageReport, Error> {
    Err("built without Kafka; build with --features kafka".into())
}
