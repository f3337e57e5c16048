//! A private broker or cluster: the same pinned Kafka that `scripts/kafka.sh up` starts, with its own ports and data,
//! so that a test can kill it without disturbing others.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use super::Error;

/// The variable with the address of a shared broker; `make test` sets it for the tests.
pub const SHARED: &str = "REDRIVE_TEST_KAFKA";

/// A running broker. Dropping it ends its process and deletes its data.
#[derive(Debug)]
pub struct Broker {
    script: PathBuf,
    /// Contains the address and process id.
    dir: PathBuf,
    settings: Vec<(&'static str, String)>,
    address: String,
}

/// How a broker is ended before a restart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BrokerEnd {
    /// A clean shutdown.
    Stop,
    /// `kill -9`.
    Kill,
}

/// An action on one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    /// A clean shutdown.
    Stop,
    /// `kill -9`.
    Kill,
    Start,
    /// Connections stay open, but the node does not respond.
    Freeze,
    Thaw,
}

impl Act {
    const fn word(self) -> &'static str {
        match self {
            Self::Stop => "stop",
            Self::Kill => "kill",
            Self::Start => "start",
            Self::Freeze => "freeze",
            Self::Thaw => "thaw",
        }
    }
}

impl Broker {
    /// Starts a broker; `root` is the checkout, `dir` a directory for its few files.
    pub fn up(root: &Path, dir: &Path) -> Result<Self, Error> {
        Self::up_with(root, dir, Vec::new())
    }

    /// Starts a broker that advertises the port `advertised`, so that a proxy in front of it sees all traffic.
    pub fn up_behind(root: &Path, dir: &Path, advertised: u16) -> Result<Self, Error> {
        Self::up_with(root, dir, vec![("REDRIVE_KAFKA_ADVERTISED", advertised.to_string())])
    }

    /// Starts a broker with two more listeners, for TLS, passwords and ACLs.
    pub fn up_secure(root: &Path, dir: &Path) -> Result<Self, Error> {
        Self::up_with(root, dir, vec![("REDRIVE_KAFKA_SECURE", "1".to_owned())])
    }

    /// Starts a cluster of three nodes that enforces ACLs, with listeners for TLS and passwords; `extra` are
    /// additional lines of `server.properties`.
    pub fn up_three_secure(root: &Path, dir: &Path, extra: &str) -> Result<Self, Error> {
        let three =
            [("REDRIVE_KAFKA_NODES", "3"), ("REDRIVE_KAFKA_HEAP", "384m"), ("REDRIVE_KAFKA_SECURE", "1")];
        let settings = three.into_iter().chain([("REDRIVE_KAFKA_EXTRA", extra)]);
        Self::up_with(root, dir, settings.map(|(name, value)| (name, value.to_owned())).collect())
    }

    fn up_with(root: &Path, dir: &Path, settings: Vec<(&'static str, String)>) -> Result<Self, Error> {
        let (script, dir) = (root.join("scripts/kafka.sh"), dir.to_owned());
        let mut broker = Self { script, dir, settings, address: String::new() };
        broker.address = broker.run(&["up"])?;
        Ok(broker)
    }

    /// The address of the broker itself, whatever it advertises; for a cluster, all addresses separated by commas.
    pub fn address(&self) -> &str {
        &self.address
    }

    pub fn port(&self) -> u16 {
        self.address.rsplit_once(':').and_then(|(_, port)| port.parse().ok()).unwrap_or(0)
    }

    /// Restarts the broker on the same port with the same data; returns when it responds.
    pub fn restart(&mut self, end: BrokerEnd) -> Result<(), Error> {
        match end {
            BrokerEnd::Stop => self.run(&["restart"]),
            BrokerEnd::Kill => self.run(&["restart", "-9"]),
        }
        .map(drop)
    }

    /// Freezes the first node for `time`: connections stay open, but it does not respond.
    pub fn stall(&self, time: Duration) -> Result<(), Error> {
        self.node(1, Act::Freeze)?;
        std::thread::sleep(time);
        self.node(1, Act::Thaw)
    }

    /// Performs an action on one node; nodes count from 1.
    pub fn node(&self, node: u32, act: Act) -> Result<(), Error> {
        self.run(&[act.word(), &node.to_string()]).map(drop)
    }

    /// Runs one of Kafka's own tools: `kafka-acls.sh --bootstrap-server … --add …`.
    pub fn tool(&self, line: &str) -> Result<String, Error> {
        let words: Vec<&str> = std::iter::once("run").chain(line.split_whitespace()).collect();
        self.run(&words)
    }

    /// Reads a file of `secure`, such as the address of a listener for passwords.
    pub fn secure(&self, name: &str) -> Result<String, Error> {
        Ok(std::fs::read_to_string(self.dir.join("secure").join(name))?.trim().to_owned())
    }

    /// The directory in which node 1 stores a partition.
    pub fn partition_dir(&self, topic: &str, partition: i32) -> Result<PathBuf, Error> {
        let home = std::fs::read_to_string(self.dir.join("home"))?;
        Ok(Path::new(home.trim()).join(format!("node-1/data/{topic}-{partition}")))
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
