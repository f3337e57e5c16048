//! `T.control`: state that all processes of a group share. A pause is a record there, so it holds for members that join
//! later, over restarts and rebalances, until the pipeline is resumed at any member. The topic also holds decisions
//! about groups of letters, replay jobs with their selections, and the action log.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use bytes::Bytes;
use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::error::KafkaError;
use rdkafka::message::BorrowedMessage;
use rdkafka::producer::{BaseProducer, BaseRecord, DeliveryResult, Producer as _, ProducerContext};
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};
use rdkafka::{ClientContext, Message as _};
use redrive::internal::engine::{EngineError, GroupMark, GroupMarks, SharedRecords};
use redrive_core::GroupId;
use serde::{Deserialize, Serialize};

use crate::Cluster;
use crate::client::reports::collect_reports;
use crate::consume::mailbox::Mailbox;
use crate::locked::locked;
use crate::topics::Topics;

const PAUSE: &str = "pause";
/// Prefix of the key for the state of a group of letters.
const GROUP: &str = "group/";
/// Prefixes of keys that other parts choose: replay jobs, actions and leases.
const SHARED: [&str; 3] = ["replay/", "action/", "lease/"];
/// How long the cluster may take to accept a record, and to return it.
const WRITE_MAX: Duration = Duration::from_secs(10);
const POLL: Duration = Duration::from_millis(100);
/// If the topic has not been read by then, a problem is reported.
const UNREAD_MAX: Duration = Duration::from_secs(5);

/// A pause as stored in the topic.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pause {
    /// The process that was asked to pause.
    pub by: String,
    /// RFC 3339.
    pub at: String,
}

/// What was read from the topic.
#[derive(Debug, Default)]
struct ControlState {
    /// The first offset that has not been read.
    next: i64,
    /// Whether the topic was read to its end once.
    caught_up: bool,
    pause: Option<Pause>,
    /// Decisions about groups of letters.
    marks: GroupMarks,
    /// Replay jobs with their selections, actions and leases.
    shared: BTreeMap<String, Bytes>,
    problem: Option<String>,
}

impl ControlState {
    fn read(&mut self, offset: i64, key: Option<&[u8]>, value: Option<&[u8]>) {
        self.next = self.next.max(offset + 1);
        self.problem = None;
        if key == Some(PAUSE.as_bytes()) {
            // A later version may store more; the mere existence of the record means a pause.
            let unnamed = || Pause { by: String::new(), at: String::new() };
            self.pause = value.map(|value| serde_json::from_slice(value).unwrap_or_else(|_| unnamed()));
        } else if let Some(group) = key.and_then(group_of) {
            // A record in the format of a later version counts as no decision.
            let mark = value.and_then(|value| serde_json::from_slice(value).ok());
            match mark.and_then(|mark| GroupMark::from_json(&mark)).filter(|mark| mark.group == group) {
                Some(mark) => self.marks.set(mark),
                None => self.marks.remove(group),
            }
        } else if let Some(key) = key.and_then(shared_key) {
            match value {
                Some(value) => drop(self.shared.insert(key.to_owned(), Bytes::copy_from_slice(value))),
                None => drop(self.shared.remove(key)),
            }
        }
    }
}

#[derive(Debug, Default)]
struct ControlShared {
    state: Mutex<ControlState>,
    changed: Condvar,
    ends: AtomicBool,
}

/// Follows the topic until it is dropped.
#[derive(Debug)]
pub struct Control {
    writer: ControlWriter,
    thread: Option<JoinHandle<()>>,
    opened: Instant,
}

/// Writes to the topic, and knows what was read from it.
#[derive(Clone, Debug)]
struct ControlWriter {
    shared: Arc<ControlShared>,
    cluster: Cluster,
    topic: String,
}

impl Control {
    pub fn follow(cluster: &Cluster, topics: &Topics, mailbox: &Arc<Mailbox>) -> Result<Self, KafkaError> {
        let consumer = reader(cluster, &topics.control)?;
        let shared = Arc::new(ControlShared::default());
        let (following, bell) = (Arc::clone(&shared), Arc::clone(mailbox));
        let name = format!("control-{}", topics.control);
        let thread =
            std::thread::Builder::new().name(name).spawn(move || follow(&consumer, &following, &bell));
        let thread = thread.map_err(|error| KafkaError::ClientCreation(error.to_string()))?;
        let (cluster, topic) = (cluster.clone(), topics.control.clone());
        let writer = ControlWriter { shared, cluster, topic };
        Ok(Self { writer, thread: Some(thread), opened: Instant::now() })
    }

    fn state(&self) -> MutexGuard<'_, ControlState> {
        locked(&self.writer.shared.state)
    }

    /// Returns the records that the members of the group share.
    pub fn shared_records(&self) -> Arc<dyn SharedRecords> {
        Arc::new(self.writer.clone())
    }

    /// Whether nothing may be delivered because the pipeline is paused, or because that is not known yet.
    pub fn holds(&self) -> bool {
        let state = self.state();
        state.pause.is_some() || !state.caught_up
    }

    /// Whether the topic was read to its end, so that it is known whether the pipeline is paused.
    pub fn is_known(&self) -> bool {
        self.state().caught_up
    }

    pub fn is_paused(&self) -> bool {
        self.state().pause.is_some()
    }

    /// Returns why it is still unknown whether the pipeline is paused, if that takes too long.
    pub fn problem(&self, now: Instant) -> Option<String> {
        let state = self.state();
        let late = !state.caught_up && now.duration_since(self.opened) > UNREAD_MAX;
        late.then(|| {
            let why = state.problem.as_deref().unwrap_or("no answer");
            format!("cannot read the pause state, so deliveries are on hold: {why}")
        })
    }

    /// Returns the decisions about groups of letters.
    pub fn marks(&self) -> GroupMarks {
        self.state().marks.clone()
    }

    /// Writes a pause, or removes it.
    pub fn pause(&self, pause: Option<&Pause>) -> Result<(), EngineError> {
        let value = pause.map(serde_json::to_vec).transpose();
        let value = value.map_err(|error| EngineError::Unavailable(error.to_string()))?;
        self.writer.write(PAUSE, value.as_deref())
    }

    /// Writes the decision about a group.
    pub fn mark(&self, mark: &GroupMark) -> Result<(), EngineError> {
        let value = (!mark.is_empty()).then(|| mark.to_json().to_string().into_bytes());
        self.writer.write(&format!("{GROUP}{}", mark.group), value.as_deref())
    }
}

impl ControlWriter {
    /// Writes a record, or deletes it, and waits until this process has read it back: by then the others can read it
    /// too.
    fn write(&self, key: &str, value: Option<&[u8]>) -> Result<(), EngineError> {
        let failed = |problem: &dyn std::fmt::Display| {
            let topic = &self.topic;
            EngineError::Unavailable(format!(
                "{topic} could not be written, so nothing has changed: {problem}"
            ))
        };
        let mut config = self.cluster.producer();
        config.set("linger.ms", "0").set("delivery.timeout.ms", WRITE_MAX.as_millis().to_string());
        let producer: BaseProducer<WriteReceipt> =
            config.create_with_context(WriteReceipt::default()).map_err(|error| failed(&error))?;
        let mut record = BaseRecord::<str, [u8]>::to(&self.topic).partition(0).key(key);
        record.payload = value;
        producer.send(record).map_err(|(error, _)| failed(&error))?;
        let until = Instant::now() + WRITE_MAX;
        let offset = loop {
            collect_reports(&producer);
            match locked(&producer.context().0).take() {
                Some(Ok(offset)) => break offset,
                Some(Err(error)) => return Err(failed(&error)),
                None if Instant::now() > until => {
                    producer.purge(rdkafka::producer::PurgeConfig::default().queue().inflight());
                    return Err(failed(&"no answer"));
                }
                None => {}
            }
        };
        let state = locked(&self.shared.state);
        let read = self.shared.changed.wait_timeout_while(state, WRITE_MAX, |state| state.next <= offset);
        let (state, _) = read.unwrap_or_else(PoisonError::into_inner);
        if state.next > offset {
            return Ok(());
        }
        Err(EngineError::Unavailable(format!("{} was written, but cannot be read back", self.topic)))
    }
}

impl SharedRecords for ControlWriter {
    fn write(&self, key: &str, value: Option<&[u8]>) -> Result<(), EngineError> {
        Self::write(self, key, value)
    }

    fn records(&self, prefix: &str) -> Vec<(String, Bytes)> {
        let state = locked(&self.shared.state);
        let from = state.shared.range(prefix.to_owned()..);
        let records = from.take_while(|(key, _)| key.starts_with(prefix));
        records.map(|(key, value)| (key.clone(), value.clone())).collect()
    }

    fn is_known(&self) -> bool {
        locked(&self.shared.state).caught_up
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        self.writer.shared.ends.store(true, Ordering::SeqCst);
        if let Some(thread) = self.thread.take() {
            // Its panic has been printed already.
            let _ = thread.join();
        }
    }
}

/// The result of a producer's only record: its offset, or the error.
#[derive(Default)]
struct WriteReceipt(Mutex<Option<Result<i64, KafkaError>>>);

impl ClientContext for WriteReceipt {}

impl ProducerContext for WriteReceipt {
    type DeliveryOpaque = ();

    fn delivery(&self, result: &DeliveryResult<'_>, (): ()) {
        let ended = match result {
            Ok(record) => Ok(record.offset()),
            Err((error, _)) => Err(error.clone()),
        };
        *locked(&self.0) = Some(ended);
    }
}

/// Reads the pause of a pipeline without joining its group.
pub fn read(cluster: &Cluster, topics: &Topics) -> Result<Option<Pause>, EngineError> {
    let failed = |problem: String| EngineError::Unavailable(format!("{}: {problem}", topics.control));
    let consumer = reader(cluster, &topics.control).map_err(|error| failed(error.to_string()))?;
    let mut state = ControlState::default();
    let until = Instant::now() + WRITE_MAX;
    while !state.caught_up {
        match consumer.poll(POLL) {
            Some(Ok(record)) => take(&mut state, &record),
            Some(Err(KafkaError::PartitionEOF(_))) => state.caught_up = true,
            Some(Err(error)) => state.problem = Some(error.to_string()),
            None => {}
        }
        if Instant::now() > until {
            return Err(failed(state.problem.unwrap_or_else(|| "no answer".to_owned())));
        }
    }
    Ok(state.pause)
}

fn reader(cluster: &Cluster, topic: &str) -> Result<BaseConsumer, KafkaError> {
    let mut config = cluster.reader();
    config.set("auto.offset.reset", "earliest");
    let consumer: BaseConsumer = config.create()?;
    let mut list = TopicPartitionList::new();
    list.add_partition_offset(topic, 0, Offset::Beginning)?;
    consumer.assign(&list)?;
    Ok(consumer)
}

/// Returns the group whose state a record holds.
fn group_of(key: &[u8]) -> Option<GroupId> {
    std::str::from_utf8(key).ok()?.strip_prefix(GROUP)?.parse().ok()
}

/// Returns the key of a record that the members share.
fn shared_key(key: &[u8]) -> Option<&str> {
    std::str::from_utf8(key).ok().filter(|key| SHARED.iter().any(|prefix| key.starts_with(prefix)))
}

fn take(state: &mut ControlState, record: &BorrowedMessage<'_>) {
    state.read(record.offset(), record.key(), record.payload());
}

fn follow(consumer: &BaseConsumer, shared: &ControlShared, mailbox: &Mailbox) {
    while !shared.ends.load(Ordering::SeqCst) {
        let Some(event) = consumer.poll(POLL) else { continue };
        {
            let mut state = locked(&shared.state);
            match event {
                Ok(record) => take(&mut state, &record),
                Err(KafkaError::PartitionEOF(_)) => state.caught_up = true,
                Err(error) => state.problem = Some(error.to_string()),
            }
        }
        shared.changed.notify_all();
        mailbox.call_engine();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_word_counts_and_a_pause_that_says_nothing_is_one() {
        let mut state = ControlState::default();
        state.read(0, Some(b"other"), Some(b"{}"));
        assert_eq!((state.pause.clone(), state.next), (None, 1));
        state.read(1, Some(b"pause"), Some(br#"{"by":"redrive-0","at":"2026-01-31T09:00:00Z"}"#));
        assert_eq!(state.pause.as_ref().map(|pause| pause.by.as_str()), Some("redrive-0"));
        state.read(2, Some(b"pause"), Some(b"yes"));
        assert!(state.pause.is_some());
        state.read(7, Some(b"pause"), None);
        assert_eq!((state.pause, state.next), (None, 8));
    }

    #[test]
    fn a_replay_job_is_known_until_it_is_forgotten() {
        let mut state = ControlState::default();
        state.read(0, Some(b"replay/r-a-1/job"), Some(b"{}"));
        state.read(1, Some(b"replay/r-a-1/job"), Some(b"{\"beat\":2}"));
        state.read(2, Some(b"replay/r-a-1/ids/000000"), Some(b"\x02"));
        let keys: Vec<&str> = state.shared.keys().map(String::as_str).collect();
        assert_eq!(keys, ["replay/r-a-1/ids/000000", "replay/r-a-1/job"]);
        assert_eq!(&*state.shared["replay/r-a-1/job"], b"{\"beat\":2}");
        state.read(3, Some(b"replay/r-a-1/job"), None);
        assert_eq!(state.shared.len(), 1);
        state.read(4, Some(b"action/1-a/0000"), Some(b"{}"));
        state.read(5, Some(b"other/1"), Some(b"{}"));
        assert_eq!(state.shared.len(), 2);
    }

    #[test]
    fn what_was_decided_about_a_group_holds_until_it_is_taken_back() {
        let mark = GroupMark {
            group: GroupId::of(1, &["x"]),
            handling: redrive::internal::engine::Handling::Resolved,
            at: redrive_core::Time::from_millis(1_000),
            by: "ops".to_owned(),
            note: None,
            title: "503".to_owned(),
        };
        let (key, value) = (format!("group/{}", mark.group), mark.to_json().to_string());
        let mut state = ControlState::default();
        state.read(0, Some(key.as_bytes()), Some(value.as_bytes()));
        assert_eq!(state.marks.get(mark.group), Some(&mark));
        state.read(1, Some(b"group/g1"), Some(value.as_bytes()));
        assert_eq!(state.marks.iter().count(), 1);
        state.read(2, Some(key.as_bytes()), None);
        assert_eq!(state.marks.iter().count(), 0);
    }
}
