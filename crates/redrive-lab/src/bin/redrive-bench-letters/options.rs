//! The command line of the whole run and of the process of each step.

use std::path::PathBuf;

/// Numbers of letters to measure, in this order.
const SIZES: [u64; 3] = [10_000, 1_000_000, 10_000_000];
/// Enough letters for a smoke test.
const QUICK: u64 = 2_000;

#[derive(Clone, Debug)]
pub struct LettersOptions {
    /// Runs one step in this process.
    pub step: Option<LettersStep>,
    /// Engines to measure, one after the other.
    pub engines: Vec<LettersEngine>,
    pub sizes: Vec<u64>,
    /// Processes per size that open the letters and ask the questions.
    pub repeats: u32,
    /// How often a process asks each question.
    pub asked: u32,
    pub seed: u64,
    /// Whether this is a quick run; its few letters cannot show whether the aims are met.
    pub is_quick: bool,
    pub brokers: String,
    /// The broker's data directory, if it is on this machine.
    pub broker_dir: Option<PathBuf>,
    /// Pipeline, group and topic prefix of one size on Kafka.
    pub name: String,
    pub dir: PathBuf,
}

/// What a child process does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LettersStep {
    /// Ingests messages that all become dead letters.
    Fill,
    /// Opens the existing letters and asks the questions.
    Ask,
}

impl LettersStep {
    pub fn word(self) -> &'static str {
        match self {
            Self::Fill => "fill",
            Self::Ask => "ask",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LettersEngine {
    Embedded,
    Kafka,
}

impl LettersEngine {
    pub fn word(self) -> &'static str {
        match self {
            Self::Embedded => "embedded",
            Self::Kafka => "kafka",
        }
    }
}

pub const USAGE: &str = "usage: redrive-bench-letters [--engine embedded|kafka|both] [--n N[,N…]] [--brokers HOST:PORT] [--quick]

  --engine E           which engine (default both)
  --n N[,N…]           letters, size by size (default 10_000,1_000_000,10_000_000)
  --brokers HOST:PORT  a broker; topics beginning with `bench-letters-` are made and removed there
  --broker-dir PATH    where that broker keeps its data, to count it
  --repeats N          processes that open the letters and ask, for each size (default 3)
  --asked N            how often each question is asked in a process (default 21)
  --seed N             which letter has which error (default 17)
  --quick              2,000 letters: does it still work, not how fast is it
  --dir PATH           where stores and local files go (default target/bench-letters); emptied before and after";

impl LettersOptions {
    pub fn parse(mut args: impl Iterator<Item = String>) -> Result<Self, String> {
        let mut options = Self {
            step: None,
            engines: vec![LettersEngine::Embedded, LettersEngine::Kafka],
            sizes: SIZES.to_vec(),
            repeats: 3,
            asked: 21,
            seed: 17,
            is_quick: false,
            brokers: String::new(),
            broker_dir: None,
            name: "bench-letters-one".into(),
            dir: PathBuf::from("target/bench-letters"),
        };
        while let Some(arg) = args.next() {
            let mut value = || args.next().ok_or_else(|| format!("{arg} needs a value\n{USAGE}"));
            match arg.as_str() {
                "--quick" => {
                    (options.sizes, options.repeats, options.asked) = (vec![QUICK], 1, 3);
                    options.is_quick = true;
                }
                "--engine" => options.engines = engines(&value()?)?,
                "--n" => options.sizes = value()?.split(',').map(number).collect::<Result<_, _>>()?,
                "--brokers" => options.brokers = value()?,
                "--broker-dir" => options.broker_dir = Some(value()?.into()),
                "--repeats" => options.repeats = number(&value()?)?,
                "--asked" => options.asked = number::<u32>(&value()?)?.max(1),
                "--seed" => options.seed = number(&value()?)?,
                "--step" => options.step = Some(step(&value()?)?),
                "--name" => options.name = value()?,
                "--dir" => options.dir = value()?.into(),
                _ => return Err(USAGE.into()),
            }
        }
        if options.engines.contains(&LettersEngine::Kafka) && options.brokers.is_empty() {
            return Err(format!("the Kafka engine needs --brokers, or choose --engine embedded\n{USAGE}"));
        }
        Ok(options)
    }
}

fn number<T: std::str::FromStr>(text: &str) -> Result<T, String> {
    text.replace('_', "").parse().map_err(|_| format!("`{text}` is not a number\n{USAGE}"))
}

fn engines(word: &str) -> Result<Vec<LettersEngine>, String> {
    match word {
        "embedded" => Ok(vec![LettersEngine::Embedded]),
        "kafka" => Ok(vec![LettersEngine::Kafka]),
        "both" => Ok(vec![LettersEngine::Embedded, LettersEngine::Kafka]),
        _ => Err(format!("no engine `{word}`\n{USAGE}")),
    }
}

fn step(word: &str) -> Result<LettersStep, String> {
    [LettersStep::Fill, LettersStep::Ask]
        .into_iter()
        .find(|step| step.word() == word)
        .ok_or_else(|| format!("no step `{word}`\n{USAGE}"))
}
