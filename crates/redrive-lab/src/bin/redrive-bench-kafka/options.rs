//! The command line of the whole run and of the process of each measurement.

use std::path::PathBuf;

#[derive(Clone, Debug)]
pub struct KafkaBenchOptions {
    /// Runs a single measurement in this process.
    pub scenario: Option<Scenario>,
    pub brokers: String,
    pub size: KafkaBenchSize,
    pub repeats: u32,
    /// Only run measurements whose name contains this.
    pub only: Option<String>,
    pub concurrency: u32,
    pub partitions: u64,
    pub n: u64,
    pub fates: KafkaBenchFates,
    /// The number of the only order that fails; overrides `fates`.
    pub poison: Option<u64>,
    pub mode: Mode,
    /// Compression of the orders that a load produces.
    pub compression: &'static str,
    pub rate: u64,
    pub seconds: u64,
    /// The topic of the orders.
    pub source: String,
    /// Group and pipeline of the measurement; also the prefix of its topics.
    pub name: String,
    /// librdkafka settings that override the engine's, to measure their cost.
    pub passed_on: Vec<(String, String)>,
    /// File in which the process records its handler calls.
    pub trace: Option<PathBuf>,
    /// Directory for the engine's local files.
    pub dir: PathBuf,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scenario {
    /// A loop around a bare client.
    Raw,
    /// Produces orders at a fixed rate.
    Load,
    /// All orders exist before the engine starts.
    Drain,
    /// Orders arrive at a fixed rate.
    Paced,
    /// Like `Paced`, with the pipeline paused for a minute.
    Outage,
    /// Runs until it is killed.
    Serve,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    NonBlocking,
    Blocking,
}

/// How the handler decides whether an order fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KafkaBenchFates {
    Succeed,
    /// The fates of the workload.
    Workload,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KafkaBenchSize {
    Quick,
    Normal,
    /// One long run with kills, instead of the measurements.
    Soak,
}

pub const USAGE: &str = "usage: redrive-bench-kafka --brokers HOST:PORT [--quick] [--repeats N] [--concurrency N] [--only NAME]

  --brokers HOST:PORT  a broker on this machine; topics beginning with `bench-` are made and removed there
  --quick              small numbers: does it still work, not how fast is it
  --repeats N          how often each measurement is made (default 3)
  --n N                orders that are there before a drain begins (default 5,000,000)
  --concurrency N      handlers that may run at once (default 1024)
  --partitions N       partitions of the source and of every tier (default 4)
  --only NAME          only measurements whose name contains NAME: drain, mixed, paced, highest, outage, moving, poison
  --set KEY=VALUE      a setting of librdkafka for the engine, instead of ours; may be repeated
  --soak               instead: --seconds N (default 30) at --rate N, killed every few minutes, audited by id
  --dir PATH           for local files (default target/bench-kafka); emptied before and after";

impl KafkaBenchOptions {
    pub fn parse(mut args: impl Iterator<Item = String>) -> Result<Self, String> {
        let mut options = Self {
            scenario: None,
            brokers: String::new(),
            size: KafkaBenchSize::Normal,
            repeats: 3,
            only: None,
            concurrency: 1024,
            partitions: 4,
            n: 5_000_000,
            fates: KafkaBenchFates::Succeed,
            poison: None,
            mode: Mode::NonBlocking,
            compression: "none",
            rate: 50_000,
            seconds: 30,
            source: "bench-orders".into(),
            name: "bench-one".into(),
            passed_on: Vec::new(),
            trace: None,
            dir: PathBuf::from("target/bench-kafka"),
        };
        while let Some(arg) = args.next() {
            let mut value = || args.next().ok_or_else(|| format!("{arg} needs a value\n{USAGE}"));
            match arg.as_str() {
                "--quick" => (options.size, options.n) = (KafkaBenchSize::Quick, 200_000),
                "--soak" => options.size = KafkaBenchSize::Soak,
                "--lz4" => options.compression = "lz4",
                "--blocking" => options.mode = Mode::Blocking,
                "--poison" => options.poison = Some(number(&value()?)?),
                "--brokers" => options.brokers = value()?,
                "--only" => options.only = Some(value()?),
                "--scenario" => options.scenario = Some(scenario(&value()?)?),
                "--repeats" => options.repeats = number(&value()?)?,
                "--concurrency" => options.concurrency = number(&value()?)?,
                "--partitions" => options.partitions = number(&value()?)?,
                "--n" => options.n = number(&value()?)?,
                "--rate" => options.rate = number(&value()?)?,
                "--seconds" => options.seconds = number(&value()?)?,
                "--fates" => options.fates = fates(&value()?)?,
                "--source" => options.source = value()?,
                "--name" => options.name = value()?,
                "--set" => options.passed_on.push(setting(&value()?)?),
                "--trace" => options.trace = Some(value()?.into()),
                "--dir" => options.dir = value()?.into(),
                _ => return Err(USAGE.into()),
            }
        }
        if options.brokers.is_empty() { Err(USAGE.into()) } else { Ok(options) }
    }
}

fn number<T: std::str::FromStr>(text: &str) -> Result<T, String> {
    text.replace('_', "").parse().map_err(|_| format!("`{text}` is not a number\n{USAGE}"))
}

fn setting(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or_else(|| format!("`{text}` is not KEY=VALUE\n{USAGE}"))?;
    Ok((key.to_owned(), value.to_owned()))
}

fn scenario(word: &str) -> Result<Scenario, String> {
    Scenario::ALL.into_iter().find(|one| one.word() == word).ok_or_else(|| format!("no scenario `{word}`"))
}

impl Scenario {
    const ALL: [Self; 6] = [Self::Raw, Self::Load, Self::Drain, Self::Paced, Self::Outage, Self::Serve];

    pub fn word(self) -> &'static str {
        match self {
            Self::Raw => "raw",
            Self::Load => "load",
            Self::Drain => "drain",
            Self::Paced => "paced",
            Self::Outage => "outage",
            Self::Serve => "serve",
        }
    }
}

fn fates(word: &str) -> Result<KafkaBenchFates, String> {
    match word {
        "succeed" => Ok(KafkaBenchFates::Succeed),
        "workload" => Ok(KafkaBenchFates::Workload),
        _ => Err(format!("no fates `{word}`\n{USAGE}")),
    }
}

impl KafkaBenchFates {
    pub fn word(self) -> &'static str {
        match self {
            Self::Succeed => "succeed",
            Self::Workload => "workload",
        }
    }
}
