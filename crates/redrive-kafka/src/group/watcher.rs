//! Watches the cluster with a client of its own: whether it answers, which partitions of the group have no owner, and
//! where partitions end that are not being fetched. The consumer itself reports nothing of these when it gets no
//! answers.

use std::collections::BTreeSet;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rdkafka::consumer::{BaseConsumer, Consumer as _};

use crate::Cluster;
use crate::client::threads::ClientThreads;
use crate::group::members::members_by;
use crate::locked::locked;

/// How often the ends of partitions are requested, if there are any to request.
const EVERY: Duration = Duration::from_secs(1);
/// The cluster as a whole is queried once in this many rounds.
const CLUSTER_EVERY: u32 = 5;
/// Partitions whose ends are requested per round; if there are more, the next ones follow a second later.
const ENDS_MAX: usize = 64;
/// A prime number, so that rounds over many partitions begin with different ones.
const ENDS_STEP: usize = 61;
const ANSWER_MAX: Duration = Duration::from_secs(5);
/// Unanswered queries after which the cluster counts as unreachable: one broker of several may be away.
const UNANSWERED_MAX: u32 = 2;
/// The group is queried once in this many cluster queries. A partition counts as unowned if it was so twice in a row,
/// because the group may have been rebalancing in between.
const GROUP_EVERY: u32 = 4;
/// How long a process may be in no group before that is a problem. A rebalance takes as long as the others need to
/// release partitions.
const ABSENT_MAX: Duration = Duration::from_mins(1);

type Name = (Arc<str>, i32);

/// The latest findings.
#[derive(Clone, Debug, Default)]
pub struct ClusterFindings {
    unanswered: u32,
    /// Why the cluster did not answer.
    pub silence: Option<String>,
    /// Partitions without an owner, as of the last query and the one before.
    unowned: [BTreeSet<Name>; 2],
    /// Where the requested partitions end.
    pub ends: Vec<(Name, u64)>,
}

impl ClusterFindings {
    pub fn is_reachable(&self) -> bool {
        self.unanswered < UNANSWERED_MAX
    }

    /// Returns the partitions that had no owner twice in a row.
    pub fn unowned(&self) -> impl Iterator<Item = &Name> {
        self.unowned[0].intersection(&self.unowned[1])
    }

    fn answered(&mut self, problem: Option<String>) {
        self.unanswered = if problem.is_some() { self.unanswered.saturating_add(1) } else { 0 };
        self.silence = problem;
    }

    fn owned(&mut self, unowned: BTreeSet<Name>) {
        self.unowned.swap(0, 1);
        self.unowned[0] = unowned;
    }
}

/// Returns the partitions of `topics` that are in none of the assignments.
fn unowned(topics: &[(Arc<str>, i32)], owned: &BTreeSet<(String, i32)>) -> BTreeSet<Name> {
    let all = topics.iter().flat_map(|(topic, count)| (0..*count).map(move |partition| (topic, partition)));
    all.filter(|(topic, partition)| !owned.contains(&(topic.to_string(), *partition)))
        .map(|(topic, partition)| (Arc::clone(topic), partition))
        .collect()
}

#[derive(Debug, Default)]
struct WatcherShared {
    found: Mutex<ClusterFindings>,
    /// Partitions whose ends are to be requested.
    asked: Mutex<Vec<Name>>,
}

/// Queries the cluster until it is dropped.
#[derive(Debug)]
pub struct Watcher {
    shared: Arc<WatcherShared>,
    // Dropped before the thread, which ends once the sender is gone.
    _stop: Sender<()>,
    _thread: ClientThreads,
    /// Since when the process has been in no group.
    absent: Option<Instant>,
}

impl Watcher {
    pub fn start(cluster: &Cluster, topics: Vec<Arc<str>>) -> Self {
        let shared = Arc::new(WatcherShared::default());
        let (stop, stopped) = mpsc::channel::<()>();
        let (cluster, asking) = (cluster.clone(), Arc::clone(&shared));
        let watch = move || {
            let Ok(consumer) = cluster.reader().create::<BaseConsumer>() else { return };
            let (mut look, mut round) = (0_u32, 0_u32);
            while stopped.recv_timeout(EVERY) == Err(RecvTimeoutError::Timeout) {
                look = look.wrapping_add(1);
                if look.is_multiple_of(CLUSTER_EVERY) {
                    ask(&cluster, &consumer, &topics, &asking, round);
                    round = round.wrapping_add(1);
                }
                if locked(&asking.found).silence.is_none() {
                    ask_ends(&consumer, &asking, look);
                }
            }
        };
        let mut thread = ClientThreads::default();
        thread.spawn("redrive-watch", watch);
        Self { shared, _stop: stop, _thread: thread, absent: None }
    }

    pub fn found(&self) -> ClusterFindings {
        locked(&self.shared.found).clone()
    }

    /// Sets the partitions whose ends are requested from now on.
    pub fn ask_ends(&self, names: Vec<Name>) {
        *locked(&self.shared.asked) = names;
    }

    /// Notes whether the process is a member of its group.
    pub fn note_membership(&mut self, is_member: bool, now: Instant) {
        self.absent = if is_member { None } else { self.absent.or(Some(now)) };
    }

    /// Whether the process has been in no group for too long.
    pub fn is_absent(&self, now: Instant) -> bool {
        self.absent.is_some_and(|since| now.duration_since(since) > ABSENT_MAX)
    }
}

fn ask(cluster: &Cluster, consumer: &BaseConsumer, topics: &[Arc<str>], shared: &WatcherShared, round: u32) {
    let mut counts = Vec::new();
    let mut problem = None;
    // One topic suffices to tell whether the cluster answers; the others are needed only when the group is queried.
    let all = if round.is_multiple_of(GROUP_EVERY) { topics.len() } else { 1 };
    for topic in topics.iter().take(all) {
        match consumer.fetch_metadata(Some(topic), ANSWER_MAX) {
            Ok(metadata) => {
                let partitions = metadata.topics().first().map_or(0, |found| found.partitions().len());
                counts.push((Arc::clone(topic), i32::try_from(partitions).unwrap_or(i32::MAX)));
            }
            Err(error) => {
                problem = Some(error.to_string());
                break;
            }
        }
    }
    let is_silent = problem.is_some();
    locked(&shared.found).answered(problem);
    if is_silent {
        return;
    }
    if counts.len() == topics.len()
        && let Ok((state, members)) = members_by(consumer, cluster, ANSWER_MAX)
        && state == "Stable"
    {
        let owned = members.into_iter().flat_map(|member| member.assigned);
        let owned =
            owned.flat_map(|(topic, partitions)| partitions.into_iter().map(move |p| (topic.clone(), p)));
        locked(&shared.found).owned(unowned(&counts, &owned.collect()));
    }
}

fn ask_ends(consumer: &BaseConsumer, shared: &WatcherShared, look: u32) {
    let mut asked = locked(&shared.asked).clone();
    // Partitions whose broker is away use up the whole time limit, so every round begins with another one.
    let step = if asked.len() > ENDS_MAX { ENDS_STEP } else { 1 };
    let first = (look as usize).wrapping_mul(step) % asked.len().max(1);
    asked.rotate_left(first);
    asked.truncate(ENDS_MAX);
    let until = Instant::now() + ANSWER_MAX;
    let end = |(topic, partition): Name| {
        let left = until.saturating_duration_since(Instant::now());
        let (_, end) = consumer.fetch_watermarks(&topic, partition, left).ok()?;
        Some(((topic, partition), end.max(0) as u64))
    };
    let ends = asked.into_iter().filter_map(end).collect();
    locked(&shared.found).ends = ends;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_unanswered_question_is_not_an_outage() {
        let mut found = ClusterFindings::default();
        found.answered(Some("timed out".to_owned()));
        assert!(found.is_reachable());
        found.answered(Some("timed out".to_owned()));
        assert!(!found.is_reachable());
        found.answered(None);
        assert!(found.is_reachable() && found.silence.is_none());
    }

    #[test]
    fn a_partition_has_no_owner_if_that_was_so_twice() {
        let topics = [(Arc::from("orders"), 2), (Arc::from("orders.retry.5s"), 2)];
        let owned = BTreeSet::from([
            ("orders".to_owned(), 0),
            ("orders".to_owned(), 1),
            ("orders.retry.5s".to_owned(), 0),
        ]);
        let mut found = ClusterFindings::default();
        found.owned(unowned(&topics, &owned));
        assert_eq!(found.unowned().count(), 0);
        found.owned(unowned(&topics, &owned));
        let names: Vec<_> = found.unowned().cloned().collect();
        assert_eq!(names, [(Arc::from("orders.retry.5s"), 1)]);
    }
}
