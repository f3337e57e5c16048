//! Commits offsets one at a time, on a thread of its own.
//!
//! The result of an asynchronous commit needs a callback that the Rust client does not set. So commits are synchronous,
//! on a thread that does nothing else.

use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer};
use rdkafka::error::KafkaError;
use rdkafka::topic_partition_list::TopicPartitionList;

use crate::consume::callbacks::ConsumerCallbacks;
use crate::consume::mailbox::Mailbox;
use crate::locked::locked;

/// At shutdown a commit that hangs is abandoned after this time.
const END_MAX: Duration = Duration::from_secs(2);

/// One in progress, and the last one of an assignment behind it.
const WAITING_MAX: usize = 2;

/// How a commit ended: its round, and the error if it failed.
pub type Answer = (u64, Option<String>);

#[derive(Debug)]
pub struct Committer {
    orders: Option<SyncSender<(u64, TopicPartitionList)>>,
    answer: Arc<Mutex<Option<Answer>>>,
    thread: Option<JoinHandle<()>>,
}

impl Committer {
    pub fn start(
        consumer: &Arc<BaseConsumer<ConsumerCallbacks>>,
        mailbox: &Arc<Mailbox>,
    ) -> Result<Self, KafkaError> {
        let (orders, inbox) = sync_channel::<(u64, TopicPartitionList)>(WAITING_MAX);
        let answer = Arc::new(Mutex::new(None));
        let (consumer, mailbox, answered) = (Arc::clone(consumer), Arc::clone(mailbox), Arc::clone(&answer));
        let commit = move || {
            for (round, list) in inbox {
                let problem = consumer.commit(&list, CommitMode::Sync).err().map(|error| error.to_string());
                *locked(&answered) = Some((round, problem));
                mailbox.call_reader();
            }
        };
        let thread = std::thread::Builder::new().name("commit".to_owned()).spawn(commit);
        let thread = thread.map_err(|error| KafkaError::ClientCreation(error.to_string()))?;
        Ok(Self { orders: Some(orders), answer, thread: Some(thread) })
    }

    /// Hands over a commit; `false` if earlier ones hang.
    pub fn commit(&self, round: u64, list: TopicPartitionList) -> bool {
        self.orders.as_ref().is_some_and(|orders| orders.try_send((round, list)).is_ok())
    }

    pub fn answer(&self) -> Option<Answer> {
        locked(&self.answer).take()
    }

    pub fn end(&mut self) {
        self.orders = None;
        let Some(thread) = self.thread.take() else { return };
        let until = Instant::now() + END_MAX;
        while !thread.is_finished() {
            if Instant::now() > until {
                tracing::warn!("a commit is still not answered; giving up on it");
                return;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        let _ = thread.join();
    }
}
