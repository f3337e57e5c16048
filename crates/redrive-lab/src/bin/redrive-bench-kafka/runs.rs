//! Measurements in separate processes, so that none inherits memory or threads from another.

use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};

use redrive_lab::bench::Figures;
use redrive_lab::kafka::Error;
use redrive_lab::kafka::topics::{self, Topic};

use super::options::{KafkaBenchFates, KafkaBenchOptions, Mode, Scenario};

/// Starts measurements. Each gets a unique name, so that it finds no existing topics or group.
pub struct Runs<'a> {
    pub options: &'a KafkaBenchOptions,
    count: u32,
}

/// The settings that differ between measurements.
#[derive(Clone, Copy, Debug)]
pub struct Measurement<'a> {
    pub scenario: Scenario,
    pub name: &'a str,
    pub source: &'a str,
    pub fates: KafkaBenchFates,
    pub mode: Mode,
    pub poison: Option<u64>,
    pub n: u64,
    pub rate: u64,
    pub seconds: u64,
    pub partitions: u64,
    pub trace: Option<&'a Path>,
    pub lz4: bool,
}

impl<'a> Measurement<'a> {
    /// A drain without orders; callers override what they need.
    pub fn new(name: &'a str) -> Self {
        Self {
            scenario: Scenario::Drain,
            name,
            source: name,
            fates: KafkaBenchFates::Succeed,
            mode: Mode::NonBlocking,
            poison: None,
            n: 0,
            rate: 0,
            seconds: 0,
            partitions: 0,
            trace: None,
            lz4: false,
        }
    }
}

impl<'a> Runs<'a> {
    pub fn new(options: &'a KafkaBenchOptions) -> Self {
        Self { options, count: 0 }
    }

    pub fn name(&mut self) -> String {
        self.count += 1;
        format!("bench-{}-{}", std::process::id(), self.count)
    }

    pub fn create(&self, name: &str) -> Result<(), Error> {
        self.create_with(name, self.options.partitions)
    }

    pub fn create_with(&self, name: &str, partitions: u64) -> Result<(), Error> {
        let partitions = partitions as i32;
        topics::create(&self.options.brokers, &[Topic { name, partitions, settings: &[] }])
    }

    /// Removes all topics that begin with `prefix`, and the engine's local files.
    pub fn clear(&self, prefix: &str) -> Result<(), Error> {
        let found = topics::beginning_with(&self.options.brokers, prefix)?;
        let names: Vec<&str> = found.iter().map(String::as_str).collect();
        if !names.is_empty() {
            topics::delete(&self.options.brokers, &names)?;
        }
        let _ = std::fs::remove_dir_all(&self.options.dir);
        Ok(())
    }

    pub fn start(&self, setting: &Measurement<'_>) -> Result<Started, Error> {
        let Measurement {
            scenario,
            name,
            source,
            fates,
            mode,
            poison,
            n,
            rate,
            seconds,
            partitions,
            trace,
            lz4,
        } = *setting;
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["--scenario", scenario.word(), "--brokers", &self.options.brokers]);
        command.args(["--name", name, "--source", source, "--fates", fates.word()]);
        let numbers = [
            ("--n", n),
            ("--rate", rate),
            ("--seconds", seconds),
            ("--concurrency", u64::from(self.options.concurrency)),
            ("--partitions", if partitions == 0 { self.options.partitions } else { partitions }),
        ];
        for (flag, value) in numbers {
            command.args([flag, &value.to_string()]);
        }
        command.arg("--dir").arg(self.options.dir.join(name));
        for (key, value) in &self.options.passed_on {
            command.arg("--set").arg(format!("{key}={value}"));
        }
        if mode == Mode::Blocking {
            command.arg("--blocking");
        }
        if lz4 {
            command.arg("--lz4");
        }
        if let Some(poison) = poison {
            command.args(["--poison", &poison.to_string()]);
        }
        if let Some(trace) = trace {
            command.arg("--trace").arg(trace);
        }
        let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit()).spawn()?;
        let what = format!("{} {} n {n} rate {rate} seconds {seconds}", scenario.word(), fates.word());
        Ok(Started { child, what })
    }

    pub fn measure(&self, setting: &Measurement<'_>) -> Result<Figures, Error> {
        self.start(setting)?.figures()
    }
}

/// A running measurement.
pub struct Started {
    child: Child,
    what: String,
}

impl Started {
    /// Waits for the measurement to end and returns its figures. Closes its standard input, which signals that no
    /// more orders follow.
    pub fn figures(mut self) -> Result<Figures, Error> {
        drop(self.child.stdin.take());
        let mut text = String::new();
        if let Some(mut stdout) = self.child.stdout.take() {
            std::io::Read::read_to_string(&mut stdout, &mut text)?;
        }
        let status = self.child.wait()?;
        if !status.success() {
            return Err(format!("{}: {status}", self.what).into());
        }
        eprintln!("{}: {}", self.what, text.split_whitespace().collect::<Vec<_>>().join(" "));
        Ok(Figures::parse(&text))
    }

    /// Resident memory of the process, in MB.
    pub fn rss_mb(&self) -> f64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kb: Option<f64> = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
        kb.unwrap_or(0.0) / 1000.0
    }

    pub fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// The standard input of the process, for sending it the number of orders.
    pub fn stdin(&mut self) -> Option<&mut ChildStdin> {
        self.child.stdin.as_mut()
    }

    /// Sends SIGKILL.
    pub fn kill(mut self) -> Result<(), Error> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
