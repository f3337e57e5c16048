//! Cluster, processors, receiver and load together, and waiting for their effects.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use redrive_lab::kafka::broker::Act;
use redrive_lab::kafka::topics::Topic;
use redrive_lab::kafka::{Error, letters, trace};

use super::audit::{self, Evidence, StormAudit, Window};
use super::cluster::Cluster;
use super::fleet::{Fleet, Settings};
use super::flow::Flow;
use super::load::StormLoad;
use super::receiver::StormReceiver;
use super::seen::CallLog;

/// Initial number of partitions of each source.
pub const PARTITIONS: i32 = 6;
/// Nothing takes this long, even on a busy machine.
const PATIENCE: Duration = Duration::from_mins(6);
/// The same bound for a whole load.
const LONG: Duration = Duration::from_hours(2);
const PAUSE: Duration = Duration::from_millis(50);

/// Everything that runs.
#[derive(Debug)]
pub struct Scene<'a> {
    pub cluster: &'a Cluster,
    pub fleet: Fleet,
    pub seen: Arc<CallLog>,
    pub load: StormLoad,
    pub settings: Settings<'a>,
    interrupted: Arc<AtomicBool>,
    _receiver: StormReceiver,
}

impl<'a> Scene<'a> {
    /// Creates the topics, starts receiver, processors and load, and waits until every partition moves.
    pub fn start(
        cluster: &'a Cluster,
        redrive: &Path,
        dir: &Path,
        settings: Settings<'a>,
        per_second: u64,
        interrupted: &Arc<AtomicBool>,
    ) -> Result<Self, Error> {
        let topics = Flow::ALL.map(|flow| settings.topic(flow));
        let zstd: &[(&str, &str)] = &[("compression.type", "zstd")];
        for (name, settings) in topics.iter().zip([&[], zstd]) {
            cluster.create(Topic { name, partitions: PARTITIONS, settings })?;
        }
        let seen = Arc::new(CallLog::default());
        let receiver = StormReceiver::start(Arc::clone(&seen))?;
        let fleet = Fleet::start(redrive, dir, cluster, &receiver, settings)?;
        let load = StormLoad::start(cluster.address(), topics, PARTITIONS, per_second, Arc::clone(&seen))?;
        let interrupted = Arc::clone(interrupted);
        let mut scene = Self { cluster, fleet, seen, load, settings, interrupted, _receiver: receiver };
        scene.until_moving(&Flow::ALL, trace::wall_us())?;
        Ok(scene)
    }

    /// Waits for a condition, and restarts processors that end by themselves in the meantime.
    pub fn until(
        &mut self,
        what: &str,
        is: impl FnMut(&mut Self) -> Result<bool, Error>,
    ) -> Result<(), Error> {
        self.wait(what, PATIENCE, is)
    }

    /// Like [`Self::until`], for conditions that take long.
    pub fn until_long(
        &mut self,
        what: &str,
        is: impl FnMut(&mut Self) -> Result<bool, Error>,
    ) -> Result<(), Error> {
        self.wait(what, LONG, is)
    }

    fn wait(
        &mut self,
        what: &str,
        patience: Duration,
        mut is: impl FnMut(&mut Self) -> Result<bool, Error>,
    ) -> Result<(), Error> {
        let begun = Instant::now();
        while !is(self)? {
            self.fleet.supervise()?;
            if self.interrupted.load(Ordering::Relaxed) {
                return Err("interrupted".into());
            }
            if self.load.has_failed() {
                return Err(self
                    .load
                    .end()
                    .map_or_else(|error| error, |_| "the load has ended by itself".into()));
            }
            if begun.elapsed() > patience {
                let logs: Vec<String> = (0..3).map(|number| self.fleet.log(number)).collect();
                return Err(format!("waited in vain for {what}\n{}", logs.join("\n--\n")).into());
            }
            std::thread::sleep(PAUSE);
        }
        Ok(())
    }

    /// Waits until every partition of these flows has had a call since `since_us`.
    pub fn until_moving(&mut self, flows: &[Flow], since_us: u64) -> Result<(), Error> {
        for flow in flows {
            self.until(&format!("every partition of {}", flow.name()), |scene| {
                let partitions = scene.load.partitions(*flow);
                Ok(scene.seen.silent_since(*flow, partitions, since_us).is_empty())
            })?;
        }
        Ok(())
    }

    pub fn until_in_sync(&mut self) -> Result<(), Error> {
        self.until("all replicas in sync", |scene| Ok(scene.cluster.is_in_sync()))
    }

    /// Starts or thaws a node and waits until it has caught up.
    pub fn bring_back(&mut self, node: u32, act: Act) -> Result<(), Error> {
        self.cluster.node(node, act)?;
        self.until_in_sync()
    }

    /// Kills a processor with `kill -9` and restarts it at once, as a supervisor does.
    pub fn crash(&mut self, processor: usize, disk_lost: bool) -> Result<(), Error> {
        self.fleet.kill(processor)?;
        if disk_lost {
            self.fleet.lose_disk(processor)?;
        }
        self.fleet.launch(processor)
    }

    /// Stops a processor cleanly; fails if its exit status reports an error.
    pub fn stop(&mut self, processor: usize) -> Result<(), Error> {
        self.fleet.signal(processor, "TERM")?;
        let mut status = None;
        let begun = Instant::now();
        while status.is_none() {
            status = self.fleet.ended(processor)?;
            if begun.elapsed() > PATIENCE {
                return Err(
                    format!("processor {processor} does not end\n{}", self.fleet.log(processor)).into()
                );
            }
            std::thread::sleep(PAUSE);
        }
        match status {
            Some(status) if status.success() => Ok(()),
            status => Err(format!("processor {processor}: {status:?}\n{}", self.fleet.log(processor)).into()),
        }
    }

    /// Waits until every record is terminal, stops everything cleanly, and compares.
    pub fn finish(&mut self, put_back: [&[u64]; 2], windows: &[Window]) -> Result<[StormAudit; 2], Error> {
        let written = self.load.end()?;
        for flow in Flow::ALL {
            let produced = written[flow.index()];
            // Read the letters only when little else is missing.
            self.until_long("the end of every record", |scene| {
                let mut open = scene.seen.open(flow, produced);
                if open.len() as u64 <= produced / 20 {
                    for letter in scene.letters(flow)? {
                        open.remove(&letter);
                    }
                }
                if !open.is_empty() {
                    std::thread::sleep(Duration::from_secs(1));
                }
                Ok(open.is_empty())
            })?;
        }
        for processor in 0..3 {
            self.stop(processor)?;
        }
        let mut found = [StormAudit::default(), StormAudit::default()];
        for flow in Flow::ALL {
            let (attempts, letters) = (self.seen.attempts(flow), self.letters(flow)?);
            found[flow.index()] = audit::audit(&Evidence {
                flow,
                produced: written[flow.index()],
                attempts: &attempts,
                letters: &letters,
                put_back: put_back[flow.index()],
                windows,
            });
        }
        Ok(found)
    }

    fn letters(&self, flow: Flow) -> Result<Vec<u64>, Error> {
        let topic = format!("{}.DLQ", self.settings.topic(flow));
        Ok(letters::read(self.cluster.address(), &topic)?.into_iter().map(|letter| letter.order).collect())
    }
}
