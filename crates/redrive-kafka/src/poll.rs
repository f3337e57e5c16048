//! The polling thread: it serves the consumer, reads partition queues that have room, and does nothing else.
//!
//! Each assigned partition has a queue of its own. One that is not read holds back by itself, without a record being
//! fetched twice; the main queue is served always, so that the group never takes this member for dead.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rdkafka::consumer::base_consumer::PartitionQueue;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::BorrowedMessage;
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};
use rdkafka::{ClientConfig, Message as _};

use crate::assign::{self, AssignFault, Begun, Plan};
use crate::committer::Committer;
use crate::desk::{Change, Desk};
use crate::mailbox::{Mailbox, Note, Order, Place};
use crate::record::Reader;
use crate::room::Room;
use crate::waiting;

/// Records of one partition before the next one has its turn.
const BATCH: usize = 512;
/// Events of the consumer that are served in one go.
const EVENTS: usize = 256;
/// Longest sleep: everything that matters calls.
const SLEEP: Duration = Duration::from_millis(40);
/// How soon the engine is called if it asked for that: commits do not wait for the next record.
const REMIND_EVERY: Duration = Duration::from_millis(20);
/// How long the broker may take to answer a last commit.
const LAST_COMMIT_MAX: Duration = Duration::from_secs(10);
/// How much later than the engine the polling thread gives up on it.
const RELEASE_GRACE: Duration = Duration::from_secs(2);
const ASSIGN_AGAIN_AFTER: Duration = Duration::from_millis(300);
/// A member that the group takes for replaced comes back after this, since it may have been replaced by itself: by an
/// answer that was lost, when the broker was restarted.
const JOIN_AGAIN_AFTER: Duration = Duration::from_secs(3);
/// Replaced so often within this span, it was by another process.
const FENCED_MAX: usize = 3;
const FENCED_WITHIN: Duration = Duration::from_mins(1);

type Queue = PartitionQueue<Desk>;

/// The polling thread, seen from the engine.
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
        plan: Plan,
        reader: Reader,
        drain: Duration,
        mailbox: &Arc<Mailbox>,
    ) -> Result<Self, KafkaError> {
        let consumer = join(config, topics, mailbox)?;
        let abort = Arc::new(AtomicBool::new(false));
        let polling = Polling {
            committer: Committer::start(&consumer, mailbox)?,
            consumer,
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
            topics: topics.to_vec(),
            fenced: Vec::new(),
            joining_at: None,
        };
        let name = format!("poll-{}", polling.plan.pipeline);
        let thread = std::thread::Builder::new().name(name).spawn(move || polling.run());
        let thread = thread.map_err(|error| KafkaError::ClientCreation(error.to_string()))?;
        Ok(Self { thread: Some(thread), mailbox: Arc::clone(mailbox), abort })
    }

    /// Whether the thread is still there.
    pub fn is_running(&self) -> bool {
        self.thread.as_ref().is_some_and(|thread| !thread.is_finished())
    }

    /// Ends it as it is, without another commit.
    pub fn abort(&mut self) {
        self.abort.store(true, Ordering::SeqCst);
        self.mailbox.call_reader();
        self.join();
    }

    pub fn join(&mut self) {
        if let Some(thread) = self.thread.take() {
            // Its panic has been printed; what was not committed is delivered again.
            let _ = thread.join();
        }
    }
}

/// A consumer that joins the group and calls the polling thread when there is something for it.
fn join(
    config: &ClientConfig,
    topics: &[String],
    mailbox: &Arc<Mailbox>,
) -> Result<Arc<BaseConsumer<Desk>>, KafkaError> {
    let mut consumer: BaseConsumer<Desk> = config.create_with_context(Desk::default())?;
    let bell = Arc::clone(mailbox);
    consumer.set_nonempty_callback(move || bell.call_reader());
    let topics: Vec<&str> = topics.iter().map(String::as_str).collect();
    consumer.subscribe(&topics)?;
    Ok(Arc::new(consumer))
}

struct Reading {
    topic: Arc<str>,
    partition: i32,
    queue: Queue,
    room: Arc<Room>,
    /// Set by the queue when something has come.
    filled: Arc<AtomicBool>,
    stopped: bool,
}

struct Polling {
    // Before the consumer: each queue holds on to it.
    lanes: Vec<Reading>,
    consumer: Arc<BaseConsumer<Desk>>,
    plan: Plan,
    reader: Reader,
    drain: Duration,
    mailbox: Arc<Mailbox>,
    abort: Arc<AtomicBool>,
    epoch: u32,
    /// An assignment that waits for answers of the broker, and when to ask again.
    assigning: Option<(TopicPartitionList, Instant)>,
    /// The partitions are wanted by others: until when the engine may finish what it has.
    releasing: Option<Instant>,
    committer: Committer,
    committing: Option<u64>,
    config: ClientConfig,
    topics: Vec<String>,
    /// When the group took this member for replaced.
    fenced: Vec<Instant>,
    /// The consumer is of no use any more, and when there shall be another.
    joining_at: Option<Instant>,
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
            if let Some(at) = self.joining_at {
                if Instant::now() >= at {
                    self.join_again();
                }
                std::thread::park_timeout(SLEEP);
                continue;
            }
            let served = self.serve_consumer();
            self.change_assignment();
            let read = self.read_lanes();
            if reminded.elapsed() >= REMIND_EVERY {
                reminded = Instant::now();
                self.mailbox.remind_engine();
            }
            if !served && !read {
                std::thread::park_timeout(SLEEP);
            }
        }
        self.consumer.context().close();
        self.lanes.clear();
        self.committer.end();
    }

    /// Whether that was the last one.
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

    /// Whether the partitions of an assignment are still ours. Others may have got further with them: nothing is committed
    /// for those that are not.
    fn owns(&self, epoch: u32) -> bool {
        epoch == self.epoch && !self.lanes.is_empty() && !self.consumer.assignment_lost()
    }

    fn commit(&mut self, epoch: u32, round: u64, places: &[Place]) {
        if !self.owns(epoch) {
            let problem = Some("the partitions belong to somebody else by now".to_owned());
            return self.mailbox.tell(Note::Committed { round, problem });
        }
        match self.hand_over(round, places) {
            None => self.committing = Some(round),
            problem => self.mailbox.tell(Note::Committed { round, problem }),
        }
    }

    /// What is wrong, if the commit could not be begun.
    fn hand_over(&self, round: u64, places: &[Place]) -> Option<String> {
        let list = match listed(places) {
            Ok(list) => list,
            Err(error) => return Some(error.to_string()),
        };
        let given = self.committer.commit(round, list);
        (!given).then(|| "the commit before is not answered yet".to_owned())
    }

    /// Commits and serves the consumer until the answer is there.
    fn commit_and_wait(&mut self, places: &[Place]) -> Option<String> {
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
            // Records that come by this way are read again by whoever has the partition next.
            let _ = self.consumer.poll(Duration::from_millis(1));
            if let Some((round, ended)) = self.committer.answer() {
                open = if round == u64::MAX { 0 } else { open.saturating_sub(1) };
                problem = ended;
            }
        }
        self.committing = None;
        problem
    }

    /// Serves callbacks, errors, and records that did not go into the queue of their partition.
    fn serve_consumer(&mut self) -> bool {
        let mut served = false;
        let consumer = Arc::clone(&self.consumer);
        for _ in 0..EVENTS {
            let Some(event) = consumer.poll(Duration::ZERO) else { break };
            served = true;
            match event {
                Ok(record) => self.route(&record),
                Err(KafkaError::MessageConsumptionFatal(code)) => self.fail(code),
                Err(error) => tracing::warn!(%error, "the Kafka consumer reports"),
            }
        }
        if let Some((round, problem)) = self.committer.answer() {
            self.committing = None;
            self.mailbox.tell(Note::Committed { round, problem });
        }
        let ends: Vec<(usize, u64)> = consumer
            .context()
            .ends()
            .into_iter()
            .filter_map(|(topic, partition, end)| Some((self.lane_of(&topic, partition)?, end)))
            .collect();
        if !ends.is_empty() {
            self.mailbox.tell(Note::Ends { epoch: self.epoch, ends });
        }
        served
    }

    fn lane_of(&self, topic: &str, partition: i32) -> Option<usize> {
        self.lanes.iter().position(|lane| lane.partition == partition && *lane.topic == *topic)
    }

    fn fail(&mut self, code: RDKafkaErrorCode) {
        let owned = code == RDKafkaErrorCode::FencedInstanceId;
        if owned && self.joining_at.is_some() {
            return;
        }
        if owned {
            let now = Instant::now();
            self.fenced.retain(|at| now.duration_since(*at) < FENCED_WITHIN);
            self.fenced.push(now);
            if self.fenced.len() < FENCED_MAX {
                tracing::warn!("the group has replaced this member; it joins again in a moment");
                self.joining_at = Some(now + JOIN_AGAIN_AFTER);
                self.forget_partitions();
                return;
            }
        }
        let problem = if owned {
            "another process runs under the same member name".to_owned()
        } else {
            format!("the Kafka consumer gave up: {code}")
        };
        self.mailbox.tell(Note::Failed { problem, owned });
    }

    /// They are somebody else's already: there is nothing to drain and nothing to commit.
    fn forget_partitions(&mut self) {
        self.assigning = None;
        self.releasing = None;
        self.committing = None;
        self.lanes.clear();
        self.mailbox.tell(Note::Gone { epoch: self.epoch });
    }

    /// A consumer after a fatal error is of no use; another one takes its place.
    fn join_again(&mut self) {
        let joined = join(&self.config, &self.topics, &self.mailbox)
            .and_then(|consumer| Ok((Committer::start(&consumer, &self.mailbox)?, consumer)));
        match joined {
            Ok((committer, consumer)) => {
                self.consumer.context().close();
                let old = std::mem::replace(&mut self.consumer, consumer);
                let mut commits = std::mem::replace(&mut self.committer, committer);
                // Its end waits for its threads.
                std::thread::spawn(move || {
                    commits.end();
                    drop(old);
                });
                self.joining_at = None;
            }
            Err(error) => {
                tracing::warn!(%error, "the group cannot be joined again yet");
                self.joining_at = Some(Instant::now() + JOIN_AGAIN_AFTER);
            }
        }
    }

    fn route(&self, record: &BorrowedMessage<'_>) {
        let Some(lane) = self.lane_of(record.topic(), record.partition()) else { return };
        let polled = waiting::read(&self.reader, record);
        self.lanes[lane].room.fill(1, polled.bytes);
        self.mailbox.tell(Note::Records { epoch: self.epoch, lane, records: vec![polled] });
    }

    fn change_assignment(&mut self) {
        while let Some(change) = self.consumer.context().next_change() {
            match change {
                Change::Assign(list) => self.assigning = Some((list, Instant::now())),
                Change::Revoke => {
                    self.assigning = None;
                    if self.lanes.is_empty() || self.consumer.assignment_lost() {
                        self.let_go();
                    } else {
                        self.releasing = Some(Instant::now() + self.drain + RELEASE_GRACE);
                        self.mailbox.tell(Note::Wanted { epoch: self.epoch });
                    }
                }
            }
        }
        if let Some(until) = self.releasing
            && (Instant::now() > until || self.consumer.assignment_lost())
        {
            tracing::warn!(
                "partitions go before everything in flight was settled; it will be delivered again"
            );
            self.let_go();
        }
        if let Some((list, at)) = self.assigning.take() {
            if Instant::now() < at {
                self.assigning = Some((list, at));
            } else {
                self.assign(list);
            }
        }
    }

    fn release(&mut self, places: &[Place]) {
        if let Some(problem) = self.commit_and_wait(places) {
            tracing::warn!(problem, "the last commit before partitions go failed; some deliveries repeat");
        }
        self.let_go();
    }

    fn let_go(&mut self) {
        self.releasing = None;
        self.committing = None;
        self.lanes.clear();
        if let Err(error) = self.consumer.unassign() {
            tracing::warn!(%error, "letting partitions go");
        }
        self.mailbox.tell(Note::Gone { epoch: self.epoch });
    }

    fn assign(&mut self, list: TopicPartitionList) {
        let began = match assign::begin(&self.consumer, &self.plan, &list) {
            Ok(began) => began,
            Err(AssignFault::Kafka(error)) => {
                tracing::warn!(%error, "new partitions cannot begin yet; asking again");
                self.assigning = Some((list, Instant::now() + ASSIGN_AGAIN_AFTER));
                return;
            }
            Err(
                fault @ (AssignFault::NoStart { .. } | AssignFault::Grown { .. } | AssignFault::Topics(_)),
            ) => {
                self.mailbox.tell(Note::Failed { problem: fault.to_string(), owned: false });
                return;
            }
        };
        let Begun { lanes: began, partitions } = began;
        let mut places = TopicPartitionList::with_capacity(began.len());
        for lane in &began {
            let offset = Offset::Offset(lane.done.prefix().cast_signed());
            if let Err(error) = places.add_partition_offset(&lane.topic, lane.partition, offset) {
                tracing::error!(%error, topic = %lane.topic, "an offset that cannot be");
            }
        }
        // Before the assignment: a queue that was split stays so, and nothing comes by the main queue, where the end of a
        // partition could not be told from that of another.
        self.lanes.clear();
        for lane in &began {
            let Some(mut queue) = self.consumer.split_partition_queue(&lane.topic, lane.partition) else {
                tracing::error!(topic = %lane.topic, partition = lane.partition, "a partition without a queue");
                continue;
            };
            let filled = Arc::new(AtomicBool::new(true));
            let (bell, flag) = (Arc::clone(&self.mailbox), Arc::clone(&filled));
            queue.set_nonempty_callback(move || {
                flag.store(true, Ordering::SeqCst);
                bell.call_reader();
            });
            self.lanes.push(Reading {
                topic: Arc::clone(&lane.topic),
                partition: lane.partition,
                queue,
                room: Arc::clone(&lane.room),
                filled,
                stopped: false,
            });
        }
        if let Err(error) = self.consumer.assign(&places) {
            tracing::warn!(%error, "assigning partitions");
            self.lanes.clear();
            self.assigning = Some((list, Instant::now() + ASSIGN_AGAIN_AFTER));
            return;
        }
        self.epoch = self.epoch.wrapping_add(1);
        self.mailbox.tell(Note::Assigned { epoch: self.epoch, lanes: began, partitions });
    }

    /// Reads from every partition that has records and room. Whether there was anything.
    fn read_lanes(&mut self) -> bool {
        if self.releasing.is_some() {
            return false;
        }
        let mut any = false;
        for lane in 0..self.lanes.len() {
            any |= self.read_lane(lane);
        }
        any
    }

    fn read_lane(&mut self, lane: usize) -> bool {
        let reading = &mut self.lanes[lane];
        if reading.stopped || !reading.filled.load(Ordering::SeqCst) {
            return false;
        }
        let limit = reading.room.left().min(BATCH);
        if limit == 0 {
            return false;
        }
        // Before reading: what comes while we read sets it again.
        reading.filled.store(false, Ordering::SeqCst);
        let epoch = self.epoch;
        let mut records = Vec::new();
        let mut bytes = 0;
        let mut notes = Vec::new();
        let mut events = 0;
        while events < limit {
            let Some(event) = reading.queue.poll(Duration::ZERO) else { break };
            events += 1;
            match event {
                Ok(record) => {
                    let polled = waiting::read(&self.reader, &record);
                    bytes += polled.bytes;
                    records.push(polled);
                }
                Err(KafkaError::PartitionEOF(_)) => notes.push(Note::End { epoch, lane }),
                Err(KafkaError::MessageConsumption(
                    code @ (RDKafkaErrorCode::AutoOffsetReset | RDKafkaErrorCode::OffsetOutOfRange),
                )) => {
                    reading.stopped = true;
                    notes.push(Note::Stopped { epoch, lane, problem: code.to_string() });
                }
                Err(error) => {
                    tracing::warn!(%error, topic = %reading.topic, partition = reading.partition, "reading");
                }
            }
        }
        if events == limit {
            reading.filled.store(true, Ordering::SeqCst);
        }
        if !records.is_empty() {
            reading.room.fill(records.len(), bytes);
            self.mailbox.tell(Note::Records { epoch, lane, records });
        }
        notes.into_iter().for_each(|note| self.mailbox.tell(note));
        events > 0
    }
}

/// Receipts of an earlier process name other epochs than ours.
fn first_epoch() -> u32 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    since.as_millis() as u32
}

fn listed(places: &[Place]) -> Result<TopicPartitionList, KafkaError> {
    let mut list = TopicPartitionList::with_capacity(places.len());
    for place in places {
        let mut element = list.add_partition(&place.topic, place.partition);
        element.set_offset(Offset::Offset(place.offset.cast_signed()))?;
        element.set_metadata(&place.note);
    }
    Ok(list)
}
