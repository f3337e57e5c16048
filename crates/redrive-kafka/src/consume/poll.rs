//! The polling thread: it serves the consumer, reads partition queues that have room, and does nothing else.
//!
//! Each assigned partition has a queue of its own. A queue that is not read applies backpressure by itself, without
//! records being fetched twice. The main queue is always served, so the group never takes this member for dead.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::BorrowedMessage;
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};
use rdkafka::{ClientConfig, Message as _};

use crate::client::threads::ClientThreads;
use crate::commit::committer::Committer;
use crate::consume::callbacks::ConsumerCallbacks;
use crate::consume::mailbox::{FailKind, LaneEnd, Mailbox, Note, Order, PartitionCommit};
use crate::consume::membership::{self, Absent, Fenced};
use crate::consume::partition::PartitionReader;
use crate::consume::plan::ReadPlan;
use crate::record::RecordReader;

/// Events of the consumer that are served in one go.
const EVENTS: usize = 256;
/// Longest sleep; everything that matters wakes the thread.
const SLEEP: Duration = Duration::from_millis(40);
/// How soon the engine is woken if it asked for that, so that commits do not wait for the next record.
const REMIND_EVERY: Duration = Duration::from_millis(20);
/// How long the broker may take to answer a last commit.
const LAST_COMMIT_MAX: Duration = Duration::from_secs(10);

/// The engine's handle on the polling thread.
#[derive(Debug)]
pub struct Poller {
    thread: Option<JoinHandle<()>>,
    mailbox: Arc<Mailbox>,
    abort: Arc<AtomicBool>,
}

impl Poller {
    /// Joins the group and begins to poll.
    pub fn start(
        config: &ClientConfig,
        topics: &[String],
        plan: ReadPlan,
        reader: RecordReader,
        drain: Duration,
        mailbox: &Arc<Mailbox>,
    ) -> Result<Self, KafkaError> {
        let consumer = membership::join(config, topics, mailbox)?;
        let abort = Arc::new(AtomicBool::new(false));
        let polling = Polling {
            committer: Committer::start(&consumer, mailbox)?,
            consumer,
            topics: topics.to_vec(),
            rejoined: false,
            plan,
            reader,
            drain,
            mailbox: Arc::clone(mailbox),
            abort: Arc::clone(&abort),
            lanes: Vec::new(),
            epoch: first_epoch(),
            assigning: None,
            releasing: None,
            committing: None,
            config: config.clone(),
            fenced: Fenced::default(),
            absent: Absent::default(),
            ending: ClientThreads::default(),
        };
        let name = format!("poll-{}", polling.plan.pipeline);
        let thread = std::thread::Builder::new().name(name).spawn(move || polling.run());
        let thread = thread.map_err(|error| KafkaError::ClientCreation(error.to_string()))?;
        Ok(Self { thread: Some(thread), mailbox: Arc::clone(mailbox), abort })
    }

    /// Whether the thread is running.
    pub fn is_running(&self) -> bool {
        self.thread.as_ref().is_some_and(|thread| !thread.is_finished())
    }

    /// Ends the thread without another commit.
    pub fn abort(&mut self) {
        self.abort.store(true, Ordering::SeqCst);
        self.mailbox.call_reader();
        self.join();
    }

    pub fn join(&mut self) {
        if let Some(thread) = self.thread.take() {
            // The panic has been printed already; what was not committed is delivered again.
            let _ = thread.join();
        }
    }
}

pub(super) struct Polling {
    // Dropped before the consumer, which each queue keeps alive.
    pub(super) lanes: Vec<PartitionReader>,
    pub(super) consumer: Arc<BaseConsumer<ConsumerCallbacks>>,
    pub(super) topics: Vec<String>,
    /// Whether the group was asked to reassign its partitions.
    pub(super) rejoined: bool,
    pub(super) plan: ReadPlan,
    pub(super) reader: RecordReader,
    pub(super) drain: Duration,
    pub(super) mailbox: Arc<Mailbox>,
    pub(super) abort: Arc<AtomicBool>,
    pub(super) epoch: u32,
    /// An assignment that waits for answers of the broker, and when to ask again.
    pub(super) assigning: Option<(TopicPartitionList, Instant)>,
    /// Set while partitions are revoked: until when the engine may finish its work.
    pub(super) releasing: Option<Instant>,
    pub(super) committer: Committer,
    pub(super) committing: Option<u64>,
    pub(super) config: ClientConfig,
    pub(super) fenced: Fenced,
    pub(super) absent: Absent,
    /// Threads that drop replaced consumers.
    pub(super) ending: ClientThreads,
}

impl Polling {
    fn run(mut self) {
        self.mailbox.be_reader();
        let mut reminded = Instant::now();
        loop {
            if self.abort.load(Ordering::SeqCst) {
                break;
            }
            if self.carry_out_orders() {
                break;
            }
            if self.is_out() {
                std::thread::park_timeout(SLEEP);
                continue;
            }
            let served = self.serve_consumer();
            self.change_assignment();
            let read = self.read_lanes();
            if reminded.elapsed() >= REMIND_EVERY {
                reminded = Instant::now();
                self.mailbox.wake_engine_if_requested();
                self.look_for_group();
            }
            if !served && !read {
                std::thread::park_timeout(SLEEP);
            }
        }
        self.consumer.context().close();
        self.lanes.clear();
        self.committer.end();
    }

    /// Carries out the engine's orders. Returns whether it was told to close.
    fn carry_out_orders(&mut self) -> bool {
        while let Some(order) = self.mailbox.next_order() {
            match order {
                Order::Commit { epoch, round, places } => self.commit(epoch, round, &places),
                Order::Release { epoch, places } if epoch == self.epoch && self.releasing.is_some() => {
                    self.release(&places);
                }
                Order::Release { .. } => {}
                Order::Close { epoch, places } => {
                    let places = if self.owns(epoch) { places } else { Vec::new() };
                    let problem = self.commit_and_wait(&places);
                    self.mailbox.tell(Note::Committed { round: u64::MAX, problem });
                    return true;
                }
            }
        }
        false
    }

    /// Whether the partitions of an assignment are still ours. If not, nothing is committed for them, because others
    /// may have got further.
    fn owns(&self, epoch: u32) -> bool {
        epoch == self.epoch && !self.lanes.is_empty() && !self.consumer.assignment_lost()
    }

    fn commit(&mut self, epoch: u32, round: u64, places: &[PartitionCommit]) {
        if !self.owns(epoch) {
            let problem = Some("the partitions were reassigned".to_owned());
            return self.mailbox.tell(Note::Committed { round, problem });
        }
        match self.hand_over(round, places) {
            None => self.committing = Some(round),
            problem => self.mailbox.tell(Note::Committed { round, problem }),
        }
    }

    /// Hands a commit to the committer. Returns the problem if it could not be begun.
    fn hand_over(&self, round: u64, places: &[PartitionCommit]) -> Option<String> {
        let list = match listed(places) {
            Ok(list) => list,
            Err(error) => return Some(error.to_string()),
        };
        let given = self.committer.commit(round, list);
        (!given).then(|| "the commit before is not answered yet".to_owned())
    }

    /// Commits and serves the consumer until the answer has arrived.
    pub(super) fn commit_and_wait(&mut self, places: &[PartitionCommit]) -> Option<String> {
        let until = Instant::now() + LAST_COMMIT_MAX;
        let mut open = usize::from(self.committing.is_some());
        if !places.is_empty() {
            if let Some(problem) = self.hand_over(u64::MAX, places) {
                return Some(problem);
            }
            open += 1;
        }
        let mut problem = None;
        while open > 0 {
            if Instant::now() > until || self.abort.load(Ordering::SeqCst) {
                return Some("the broker did not answer the last commit in time".to_owned());
            }
            // The next owner of the partition reads records again that arrive this way.
            let _ = self.consumer.poll(Duration::from_millis(1));
            if let Some((round, ended)) = self.committer.answer() {
                open = if round == u64::MAX { 0 } else { open.saturating_sub(1) };
                problem = ended;
            }
        }
        self.committing = None;
        problem
    }

    /// Serves callbacks, errors, and records that are not in the queue of their partition.
    fn serve_consumer(&mut self) -> bool {
        let mut served = false;
        let consumer = Arc::clone(&self.consumer);
        for _ in 0..EVENTS {
            let Some(event) = consumer.poll(Duration::ZERO) else { break };
            served = true;
            match event {
                Ok(record) => self.route(&record),
                Err(KafkaError::MessageConsumptionFatal(code)) => self.fail(code),
                Err(error) => consumer.context().met(&error, ""),
            }
        }
        if let Some((round, problem)) = self.committer.answer() {
            self.committing = None;
            self.mailbox.tell(Note::Committed { round, problem });
        }
        let ends: Vec<LaneEnd> = consumer
            .context()
            .ends()
            .into_iter()
            .filter_map(|of| {
                let lane = self.lane_of(&of.topic, of.partition)?;
                Some(LaneEnd { lane, end: of.end, is_met: of.is_met })
            })
            .collect();
        if !ends.is_empty() {
            self.mailbox.tell(Note::Ends { epoch: self.epoch, ends });
        }
        served
    }

    pub(super) fn lane_of(&self, topic: &str, partition: i32) -> Option<usize> {
        self.lanes.iter().position(|lane| lane.is(topic, partition))
    }

    fn fail(&mut self, code: RDKafkaErrorCode) {
        let owned = code == RDKafkaErrorCode::FencedInstanceId;
        if owned && !self.was_replaced() {
            return;
        }
        let problem = if owned {
            "another process runs under the same member name".to_owned()
        } else {
            format!("the Kafka consumer gave up: {code}")
        };
        let kind = if owned { FailKind::Owned } else { FailKind::Unavailable };
        self.mailbox.tell(Note::Failed { problem, kind });
    }

    fn route(&self, record: &BorrowedMessage<'_>) {
        let Some(lane) = self.lane_of(record.topic(), record.partition()) else { return };
        self.lanes[lane].route(&self.reader, record, &self.mailbox, self.epoch, lane);
    }

    /// Reads from every partition that has records and room. Returns whether there was anything.
    fn read_lanes(&mut self) -> bool {
        if self.releasing.is_some() {
            return false;
        }
        let mut any = false;
        for (at, lane) in self.lanes.iter_mut().enumerate() {
            any |= lane.read(&self.reader, &self.mailbox, self.epoch, at);
        }
        any
    }
}

/// Picks a first epoch that differs from those in receipts of an earlier process.
fn first_epoch() -> u32 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    since.as_millis() as u32
}

fn listed(places: &[PartitionCommit]) -> Result<TopicPartitionList, KafkaError> {
    let mut list = TopicPartitionList::with_capacity(places.len());
    for place in places {
        let mut element = list.add_partition(&place.topic, place.partition);
        element.set_offset(Offset::Offset(place.offset.cast_signed()))?;
        element.set_metadata(&place.note);
    }
    Ok(list)
}
