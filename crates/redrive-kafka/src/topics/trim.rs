//! Deletes what is done from the tiers and the dead-letter topic: nothing in them expires by itself.
//!
//! Only below what the group has committed, so nothing that waits is touched. Any member may do it, also several at once.

use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::time::Duration;

use rdkafka::TopicPartitionList;
use rdkafka::admin::{AdminClient, AdminOptions};
use rdkafka::client::DefaultClientContext;
use rdkafka::error::KafkaError;
use redrive::engine::EngineError;

use crate::Cluster;
use crate::client::threads::ClientThreads;
use crate::clock::wall_time;
use crate::letters::{LetterTrimmer, Trimmed};
use crate::topics::scan::Scan;
use crate::topics::{ANSWER_WITHIN, Topics, wait};

const EVERY: Duration = Duration::from_hours(1);
/// Not at once: a process that is restarted again and again shall not begin with this each time.
const FIRST_AFTER: Duration = Duration::from_mins(5);

/// Trims once an hour until it is dropped.
#[derive(Debug)]
pub struct Trimmer {
    // Before the thread, which ends when it is gone.
    _stop: Sender<()>,
    _thread: ClientThreads,
}

impl Trimmer {
    pub fn start(cluster: &Cluster, topics: &Topics, mut letters: LetterTrimmer) -> Self {
        let (stop, stopped) = mpsc::channel::<()>();
        let (cluster, topics) = (cluster.clone(), topics.clone());
        let mut thread = ClientThreads::default();
        thread.spawn("redrive-trim", move || {
            let mut pause = FIRST_AFTER;
            while stopped.recv_timeout(pause) == Err(RecvTimeoutError::Timeout) {
                pause = EVERY;
                match trim(&cluster, &topics) {
                    Ok(0) => {}
                    Ok(partitions) => tracing::info!(partitions, "what is done was cut off the tiers"),
                    Err(error) => {
                        tracing::warn!(%error, "what is done could not be cut off the tiers; next time");
                    }
                }
                match letters.run(wall_time()) {
                    Ok(Trimmed { deleted: 0, gone: 0, .. }) => {}
                    Ok(Trimmed { deleted, moved, gone }) => {
                        tracing::info!(deleted, moved, gone, "closed letters have left");
                    }
                    Err(error) => tracing::warn!(%error, "closed letters could not be deleted; next time"),
                }
            }
        });
        Self { _stop: stop, _thread: thread }
    }
}

/// Cuts tiers and replays off below the committed offsets. Gives the number of partitions that became shorter.
pub fn trim(cluster: &Cluster, topics: &Topics) -> Result<usize, EngineError> {
    let scan = Scan::new(cluster)?;
    let tiers = topics.tiers.iter().map(|(_, name)| name).chain(&topics.retired);
    let mut list = TopicPartitionList::new();
    for topic in tiers.chain([&topics.replay]) {
        for span in scan.spans(topic)? {
            if let Some(done) = span.committed.filter(|committed| *committed > span.low) {
                let done = rdkafka::Offset::Offset(done.min(span.end));
                list.add_partition_offset(topic, span.partition, done).map_err(|error| failed(&error))?;
            }
        }
    }
    if list.count() == 0 {
        return Ok(0);
    }
    let admin: AdminClient<DefaultClientContext> =
        cluster.admin().create().map_err(|error| failed(&error))?;
    let options = AdminOptions::new().operation_timeout(Some(ANSWER_WITHIN));
    let cut = wait(admin.delete_records(&list, &options)).map_err(|error| failed(&error))?;
    Ok(cut.count())
}

fn failed(error: &KafkaError) -> EngineError {
    EngineError::Unavailable(format!("records could not be deleted: {error}"))
}
