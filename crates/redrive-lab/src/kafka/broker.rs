//! A broker of one's own: the same pinned Kafka as `scripts/kafka.sh up` starts, with its own port and data, so that a test
//! may kill it without disturbing another.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use super::Error;

/// Where a broker that others share stands; the tests are told by `make test`.
pub const SHARED: &str = "REDRIVE_TEST_KAFKA";

/// A running broker. Its process and its data go when this is dropped.
#[derive(Debug)]
pub struct Broker {
    script: PathBuf,
    /// Keeps its address and process id.
    dir: PathBuf,
    settings: Vec<(&'static str, String)>,
    address: String,
}

/// How a broker ends before it is started again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// It closes its files.
    Stop,
    /// `kill -9`.
    Kill,
}

impl Broker {
    /// Starts one; `root` is the checkout, `dir` a place for its few files.
    pub fn up(root: &Path, dir: &Path) -> Result<Self, Error> {
        Self::up_with(root, dir, Vec::new())
    }

    /// Starts one that tells its clients to come back through `advertised`: a proxy in front of it sees everything.
    pub fn up_behind(root: &Path, dir: &Path, advertised: u16) -> Result<Self, Error> {
        Self::up_with(root, dir, vec![("REDRIVE_KAFKA_ADVERTISED", advertised.to_string())])
    }

    fn up_with(root: &Path, dir: &Path, settings: Vec<(&'static str, String)>) -> Result<Self, Error> {
        let (script, dir) = (root.join("scripts/kafka.sh"), dir.to_owned());
        let mut broker = Self { script, dir, settings, address: String::new() };
        broker.address = broker.run(&["up"])?;
        Ok(broker)
    }

    /// Where it listens itself, whatever it tells clients.
    pub fn address(&self) -> &str {
        &self.address
    }

    pub fn port(&self) -> u16 {
        self.address.rsplit_once(':').and_then(|(_, port)| port.parse().ok()).unwrap_or(0)
    }

    /// Ends it and starts it again on the same port with the same data; returns when it answers.
    pub fn restart(&mut self, end: End) -> Result<(), Error> {
        match end {
            End::Stop => self.run(&["restart"]),
            End::Kill => self.run(&["restart", "-9"]),
        }
        .map(drop)
    }

    /// Freezes it for a while: connections stay, and nobody answers.
    pub fn stall(&self, time: Duration) -> Result<(), Error> {
        let home = std::fs::read_to_string(self.dir.join("home"))?;
        let process = std::fs::read_to_string(Path::new(home.trim()).join("pid"))?;
        let signal = |name: &str| -> Result<(), Error> {
            let sent = Command::new("kill").args([name, process.trim()]).status()?;
            if sent.success() {
                Ok(())
            } else {
                Err(format!("kill {name} {process} ended with {sent}").into())
            }
        };
        signal("-STOP")?;
        std::thread::sleep(time);
        signal("-CONT")
    }

    fn run(&self, args: &[&str]) -> Result<String, Error> {
        let mut command = Command::new(&self.script);
        command.args(args).env("REDRIVE_KAFKA_DIR", &self.dir).envs(self.settings.iter().cloned());
        let output = command.stdin(Stdio::null()).output()?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            return Err(format!("kafka.sh {} ended with {}: {said}", args.join(" "), output.status).into());
        }
        Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        if let Err(error) = self.run(&["down"]) {
            eprintln!("the broker at {} may still run: {error}", self.address);
        }
    }
}
