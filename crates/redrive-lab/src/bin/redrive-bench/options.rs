//! The command line of the whole run and of the process of each measurement.

use std::path::PathBuf;

use super::witness::BenchFates;

#[derive(Clone, Debug)]
pub struct BenchOptions {
    /// Runs a single measurement in this process.
    pub scenario: Option<String>,
    pub dir: PathBuf,
    pub size: BenchSize,
    pub repeats: u32,
    pub concurrency: u32,
    /// Only run measurements whose name contains this.
    pub only: Option<String>,
    pub n: u64,
    pub fates: BenchFates,
    pub rate: u64,
    pub seconds: u64,
    pub pending: u64,
    pub bytes: u64,
    pub syncs: u64,
    pub kill: bool,
    pub style: Style,
}

/// Other variations of the pipeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    Plain,
    /// Messages of the same customer are delivered in order.
    Keyed,
    /// The handler awaits once, so that each call needs its own task and timer.
    Waiting,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BenchSize {
    Quick,
    Normal,
    Full,
}

pub const USAGE: &str = "usage: redrive-bench [--quick | --full] [--dir PATH] [--repeats N] [--concurrency N] [--only NAME]

  --quick          small numbers: does it still work, not how fast is it
  --full           also 10,000,000 pending retries
  --dir PATH       where the stores go (default target/bench-data); emptied before and after each measurement
  --repeats N      how often each measurement is made (default 3)
  --concurrency N  handlers that may run at once (default 1024)
  --only NAME      only measurements whose name contains NAME

One measurement alone, for a profile: redrive-bench --scenario drain|flow|paced|pending --n N --fates succeed|workload|one-in-N";

impl BenchOptions {
    pub fn parse(mut args: impl Iterator<Item = String>) -> Result<Self, String> {
        let mut options = Self {
            scenario: None,
            dir: PathBuf::from("target/bench-data"),
            size: BenchSize::Normal,
            repeats: 3,
            concurrency: 1024,
            only: None,
            n: 100_000,
            fates: BenchFates::AllSucceed,
            rate: 10_000,
            seconds: 10,
            pending: 100_000,
            bytes: 0,
            syncs: 1,
            kill: false,
            style: Style::Plain,
        };
        while let Some(arg) = args.next() {
            let mut value = || args.next().ok_or_else(|| format!("{arg} needs a value\n{USAGE}"));
            match arg.as_str() {
                "--quick" => options.size = BenchSize::Quick,
                "--full" => options.size = BenchSize::Full,
                "--kill" => options.kill = true,
                "--keyed" => options.style = Style::Keyed,
                "--waiting" => options.style = Style::Waiting,
                "--dir" => options.dir = value()?.into(),
                "--only" => options.only = Some(value()?),
                "--scenario" => options.scenario = Some(value()?),
                "--repeats" => options.repeats = number(&value()?)?,
                "--concurrency" => options.concurrency = number(&value()?)?,
                "--n" => options.n = number(&value()?)?,
                "--rate" => options.rate = number(&value()?)?,
                "--seconds" => options.seconds = number(&value()?)?,
                "--pending" => options.pending = number(&value()?)?,
                "--bytes" => options.bytes = number(&value()?)?,
                "--syncs" => options.syncs = number(&value()?)?,
                "--fates" => {
                    let word = value()?;
                    options.fates = fates(&word).ok_or_else(|| format!("no fates `{word}`\n{USAGE}"))?;
                }
                _ => return Err(USAGE.into()),
            }
        }
        Ok(options)
    }
}

fn number<T: std::str::FromStr>(text: &str) -> Result<T, String> {
    text.replace('_', "").parse().map_err(|_| format!("`{text}` is not a number\n{USAGE}"))
}

/// Parses the value of `--fates`.
fn fates(word: &str) -> Option<BenchFates> {
    match word {
        "succeed" => Some(BenchFates::AllSucceed),
        "workload" => Some(BenchFates::Workload),
        other => Some(BenchFates::OneIn(other.strip_prefix("one-in-")?.parse().ok().filter(|n| *n > 0)?)),
    }
}
