//! Steps in separate processes, so that none inherits memory from another.

use std::fs;
use std::process::{Command, Stdio};

use redrive_lab::bench::{Figures, Repeats};
use redrive_lab::kafka::Error;
use redrive_lab::kafka::topics::{self, Topic};

use super::options::{LettersEngine, LettersOptions, LettersStep};
use super::store::PARTITIONS;

/// One engine with a given number of letters.
pub struct LettersRun<'a> {
    options: &'a LettersOptions,
    engine: LettersEngine,
    n: u64,
    name: String,
}

/// The figures of one run.
pub struct Measured {
    pub filled: Figures,
    pub asked: Repeats,
}

impl<'a> LettersRun<'a> {
    pub fn new(options: &'a LettersOptions, engine: LettersEngine, n: u64) -> Self {
        Self { options, engine, n, name: format!("bench-letters-{}-{n}", std::process::id()) }
    }

    pub fn measure(&self) -> Result<Measured, Error> {
        self.clear()?;
        let measured = self.steps();
        self.clear()?;
        measured
    }

    fn steps(&self) -> Result<Measured, Error> {
        if self.engine == LettersEngine::Kafka {
            let source = Topic { name: &self.name, partitions: PARTITIONS as i32, settings: &[] };
            topics::create(&self.options.brokers, &[source])?;
        }
        let filled = self.step(LettersStep::Fill)?;
        let asked = (0..self.options.repeats).map(|_| self.step(LettersStep::Ask));
        Ok(Measured { filled, asked: Repeats(asked.collect::<Result<_, _>>()?) })
    }

    fn step(&self, step: LettersStep) -> Result<Figures, Error> {
        let Self { options, engine, n, name } = self;
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["--step", step.word(), "--engine", engine.word(), "--n", &n.to_string()]);
        command.args(["--name", name, "--seed", &options.seed.to_string()]);
        command.args(["--asked", &options.asked.to_string(), "--brokers", &options.brokers]);
        command.arg("--dir").arg(options.dir.join(name));
        if let (Some(dir), LettersEngine::Kafka) = (&options.broker_dir, engine) {
            command.arg("--broker-dir").arg(dir);
        }
        let output = command.stderr(Stdio::inherit()).output()?;
        let what = format!("{} {n} {}", engine.word(), step.word());
        if !output.status.success() {
            return Err(format!("{what}: {}", output.status).into());
        }
        let text = String::from_utf8_lossy(&output.stdout);
        eprintln!("{what}: {}", text.split_whitespace().collect::<Vec<_>>().join(" "));
        Ok(Figures::parse(&text))
    }

    /// Removes the leftovers of an earlier run and waits for the disk.
    fn clear(&self) -> Result<(), Error> {
        if self.engine == LettersEngine::Kafka {
            let found = topics::beginning_with(&self.options.brokers, "bench-letters-")?;
            let names: Vec<&str> = found.iter().map(String::as_str).collect();
            if !names.is_empty() {
                topics::delete(&self.options.brokers, &names)?;
            }
        }
        let _ = fs::remove_dir_all(self.options.dir.join(&self.name));
        fs::create_dir_all(&self.options.dir)?;
        Command::new("sync").status()?;
        Ok(())
    }
}
