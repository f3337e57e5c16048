//! A broker or a cluster of one's own: the same pinned Kafka as `scripts/kafka.sh up` starts, with its own ports and data,
//! so that a test may kill it without disturbing another.

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
pub enum BrokerEnd {
    /// It closes its files.
    Stop,
    /// `kill -9`.
    Kill,
}

/// What can be done to one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    /// It closes its files.
    Stop,
    /// `kill -9`.
    Kill,
    Start,
    /// Its connections stay, and it does not answer.
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
    /// Starts one; `root` is the checkout, `dir` a place for its few files.
    pub fn up(root: &Path, dir: &Path) -> Result<Self, Error> {
        Self::up_with(root, dir, Vec::new())
    }

    /// Starts one that tells its clients to come back through `advertised`: a proxy in front of it sees everything.
    pub fn up_behind(root: &Path, dir: &Path, advertised: u16) -> Result<Self, Error> {
        Self::up_with(root, dir, vec![("REDRIVE_KAFKA_ADVERTISED", advertised.to_string())])
    }

    /// Starts one with two more listeners, for TLS, passwords and ACLs.
    pub fn up_secure(root: &Path, dir: &Path) -> Result<Self, Error> {
        Self::up_with(root, dir, vec![("REDRIVE_KAFKA_SECURE", "1".to_owned())])
    }

    /// Starts a cluster of three on which ACLs count, with listeners for TLS and passwords; `extra` are more lines of
    /// `server.properties`.
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

    /// Where it listens itself, whatever it tells clients; of a cluster, all addresses with commas between them.
    pub fn address(&self) -> &str {
        &self.address
    }

    pub fn port(&self) -> u16 {
        self.address.rsplit_once(':').and_then(|(_, port)| port.parse().ok()).unwrap_or(0)
    }

    /// Ends it and starts it again on the same port with the same data; returns when it answers.
    pub fn restart(&mut self, end: BrokerEnd) -> Result<(), Error> {
        match end {
            BrokerEnd::Stop => self.run(&["restart"]),
            BrokerEnd::Kill => self.run(&["restart", "-9"]),
        }
        .map(drop)
    }

    /// Freezes its first node for a while: connections stay, and nobody answers.
    pub fn stall(&self, time: Duration) -> Result<(), Error> {
        self.node(1, Act::Freeze)?;
        std::thread::sleep(time);
        self.node(1, Act::Thaw)
    }

    /// Does something to one node; nodes count from 1.
    pub fn node(&self, node: u32, act: Act) -> Result<(), Error> {
        self.run(&[act.word(), &node.to_string()]).map(drop)
    }

    /// One of Kafka's own tools: `kafka-acls.sh --bootstrap-server … --add …`.
    pub fn tool(&self, line: &str) -> Result<String, Error> {
        let words: Vec<&str> = std::iter::once("run").chain(line.split_whitespace()).collect();
        self.run(&words)
    }

    /// Where one of its listeners for passwords is, or another file of `secure`.
    pub fn secure(&self, name: &str) -> Result<String, Error> {
        Ok(std::fs::read_to_string(self.dir.join("secure").join(name))?.trim().to_owned())
    }

    /// Where node 1 keeps the files of a partition.
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
