//! One pipeline with topics of its own on some broker, and everything known about it from outside.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use redrive::timestamp;
use redrive_lab::kafka::audit::{Audit, AuditVerdict};
use redrive_lab::kafka::broker::{Broker, SHARED};
use redrive_lab::kafka::load::Loader;
use redrive_lab::kafka::topics::{self, Topic};
use redrive_lab::kafka::{letters, trace};
use tempfile::TempDir;

use super::{Member, PATIENCE};

/// One attempt and three retries.
const ATTEMPTS_MAX: u8 = 4;
/// Short, so that messages become terminal within a test; long enough that many wait whenever something is killed.
const TIERS: &str = "300ms,600ms,1200ms";
/// How long a member may be silent before its partitions go to another. Short, since a test waits for that.
pub(crate) const SESSION: Duration = Duration::from_secs(3);
/// A session for tests in which no member is meant to be removed, so that a busy machine does not cause it.
const PATIENT_SESSION: Duration = Duration::from_secs(30);
/// Effectively turns quarantine off. A message that runs alone whenever the process is killed from outside looks like
/// one that kills it, and many kills come right after a start, when the prime suspect runs. The pill proofs check which
/// message is quarantined.
const NEVER_QUARANTINED: &str = "100";
/// Log messages of a member that takes over a partition that another one, or itself, has lost.
const TOOK_OVER: [&str; 2] =
    ["the last owner did not end in order", "the partition was lost, and has come back to this process"];

/// A pipeline under test. Its topics are deleted on drop.
#[derive(Debug)]
pub(crate) struct World {
    pub(crate) brokers: String,
    /// Pipeline, group and prefix of its topics.
    pub(crate) name: String,
    partitions: u64,
    scratch: TempDir,
    session: Duration,
    begun_us: u64,
    interruptions_us: Vec<u64>,
}

impl World {
    /// Uses the broker that all tests share.
    pub(crate) fn shared(what: &str, partitions: u64) -> Self {
        let brokers = std::env::var(SHARED);
        Self::at(&brokers.unwrap_or_else(|_| shared_broker()), what, partitions)
    }

    pub(crate) fn at(brokers: &str, what: &str, partitions: u64) -> Self {
        static WORLDS: AtomicU32 = AtomicU32::new(0);
        let world = WORLDS.fetch_add(1, Ordering::Relaxed);
        let name = format!("proof-{what}-{}-{world}", std::process::id());
        let source = Topic { name: &name, partitions: partitions as i32, settings: &[] };
        topics::create(brokers, &[source]).expect("a topic can be made");
        // A broker reports a topic as created shortly before it knows the topic itself.
        super::wait_for("the topic", || {
            topics::reach(brokers, &name).is_ok_and(|reach| reach.len() as u64 == partitions)
        });
        let scratch = tempfile::tempdir().expect("a scratch directory");
        let (brokers, begun_us) = (brokers.to_owned(), trace::wall_us());
        let (session, interruptions_us) = (SESSION, Vec::new());
        Self { brokers, name, partitions, scratch, session, begun_us, interruptions_us }
    }

    /// Uses a long session, so that no member is removed from the group for being slow.
    pub(crate) fn patient(mut self) -> Self {
        self.session = PATIENT_SESSION;
        self
    }

    pub(crate) fn loader(&self) -> Loader {
        Loader::new(&self.brokers, &self.name, self.partitions, &[]).expect("orders can be written")
    }

    /// Starts a member with a static name that it keeps over restarts.
    pub(crate) fn member(&self, name: &str) -> Member {
        self.member_with(&["--member", name, "--state", name, "--crash-threshold", NEVER_QUARANTINED])
    }

    /// Starts a member without a static name.
    pub(crate) fn stranger(&self, state: &str) -> Member {
        self.member_with(&["--state", state, "--crash-threshold", NEVER_QUARANTINED])
    }

    pub(crate) fn member_with(&self, flags: &[&str]) -> Member {
        let trace = self.trace();
        let mut args: Vec<String> = vec!["--brokers".into(), self.brokers.clone()];
        args.extend(["--name".into(), self.name.clone(), "--tiers".into(), TIERS.into()]);
        args.extend(["--trace".into(), trace.to_string_lossy().into_owned()]);
        args.extend(["--session-ms".into(), self.session.as_millis().to_string()]);
        args.extend(["--dir".into(), self.scratch.path().to_string_lossy().into_owned()]);
        args.extend(flags.iter().map(|flag| (*flag).to_owned()));
        Member::spawn(&args, &self.scratch.path().join("log"))
    }

    fn trace(&self) -> PathBuf {
        self.scratch.path().join("trace")
    }

    /// Returns the number of attempts so far.
    pub(crate) fn attempts(&self) -> u64 {
        trace::len(&self.trace())
    }

    pub(crate) fn tried(&self) -> Vec<trace::Tried> {
        trace::read(&self.trace()).expect("the trace can be read")
    }

    /// Notes that something happened at this moment that may have caused repeats.
    pub(crate) fn interrupted(&mut self, at_us: u64) {
        self.interruptions_us.push(at_us);
    }

    /// Waits until some member makes an attempt.
    pub(crate) fn wait_until_moving(&self) {
        let before = self.attempts();
        super::wait_for("an attempt", || self.attempts() > before);
    }

    /// Waits until each of the first `orders` was attempted at least once.
    pub(crate) fn wait_until_reached(&self, orders: u64) {
        super::wait_for("everybody to be tried", || {
            let mut open: HashSet<u64> = (0..orders).collect();
            for tried in self.tried() {
                open.remove(&tried.order);
            }
            open.is_empty()
        });
    }

    /// Waits until every order is terminal.
    pub(crate) fn wait_until_ended(&self, produced: u64) {
        let begun = Instant::now();
        loop {
            let mut open: HashSet<u64> = (0..produced).collect();
            for tried in self.tried().iter().filter(|tried| tried.succeeded) {
                open.remove(&tried.order);
            }
            if open.len() as u64 <= produced / 20 {
                for letter in self.letters() {
                    open.remove(&letter.order);
                }
            }
            if open.is_empty() {
                return;
            }
            let few: Vec<&u64> = open.iter().take(5).collect();
            assert!(begun.elapsed() < PATIENCE, "{} without an end, {few:?} …\n{}", open.len(), self.log());
            std::thread::sleep(Duration::from_millis(250));
        }
    }

    /// Returns the records of the dead-letter topic; none while it does not exist.
    pub(crate) fn letters(&self) -> Vec<letters::LetterRecord> {
        letters::read(&self.brokers, &format!("{}.DLQ", self.name)).unwrap_or_default()
    }

    /// Compares everything that is known; fails the test if something does not add up.
    pub(crate) fn audit(&self, produced: u64, what: &str) -> AuditVerdict {
        let mut audit = Audit::new(produced, ATTEMPTS_MAX, self.begun_us, &self.interruptions_us);
        self.tried().into_iter().for_each(|tried| audit.tried(tried));
        self.letters().into_iter().for_each(|letter| audit.letter(letter));
        let told = audit.verdict();
        println!("{what}: {told}");
        told.all_ended_once().unwrap_or_else(|error| panic!("{what}: {error}\n{}", self.log()));
        told
    }

    /// Adds interruptions that no test caused, before the audit: a member was removed from its group or replaced, and
    /// another one took over, according to the log of the latter.
    pub(crate) fn members_were_replaced(&mut self) {
        let said = self.said();
        let times = said
            .lines()
            .filter(|line| TOOK_OVER.iter().any(|said| line.contains(said)))
            .filter_map(|line| line.split(' ').next());
        let at_us: Vec<u64> =
            times.filter_map(timestamp::parse).map(|time| time.as_millis() * 1_000).collect();
        println!("{} partitions were taken over from owners that did not end in order", at_us.len());
        self.interruptions_us.extend(at_us);
    }

    /// Simulates a machine that lost its disk.
    pub(crate) fn forget(&self, state: &str) {
        let _ = std::fs::remove_dir_all(self.scratch.path().join(state));
    }

    /// Returns the whole log of the members.
    pub(crate) fn said(&self) -> String {
        std::fs::read_to_string(self.scratch.path().join("log")).unwrap_or_default()
    }

    /// Returns the last log lines of the members.
    pub(crate) fn log(&self) -> String {
        let text = self.said();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(30)..].join("\n")
    }
}

impl Drop for World {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.scratch.disable_cleanup(true);
            println!("kept for a look: {}", self.scratch.path().display());
        }
        let found = topics::beginning_with(&self.brokers, &self.name).unwrap_or_default();
        let names: Vec<&str> = found.iter().map(String::as_str).collect();
        if !names.is_empty() {
            let _ = topics::delete(&self.brokers, &names);
        }
    }
}

/// Returns the checkout, which has the script that starts brokers.
pub(crate) fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

/// Starts a broker for one test alone.
pub(crate) fn own_broker(dir: &TempDir) -> Broker {
    Broker::up(root(), dir.path()).expect("a broker starts")
}

/// Outside `make test`, uses the broker of this checkout, if it runs.
fn shared_broker() -> String {
    let status = std::process::Command::new(root().join("scripts/kafka.sh")).arg("status").output();
    let status = status.expect("scripts/kafka.sh can be called");
    assert!(status.status.success(), "no broker: run `make kafka-up`, or set {SHARED}=host:port");
    String::from_utf8_lossy(&status.stdout).trim().to_owned()
}
