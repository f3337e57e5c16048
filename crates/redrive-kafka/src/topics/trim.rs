//! Deletes finished records from the tiers and the replay topic, and resolved letters: nothing in these topics expires
//! by itself.
//!
//! Tiers and replays are cut only below the committed offsets, so no waiting message is touched. Any member may do it,
//! even several at once.

use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rdkafka::TopicPartitionList;
use rdkafka::admin::{AdminClient, AdminOptions};
use rdkafka::client::DefaultClientContext;
use rdkafka::error::KafkaError;
use redrive::internal::engine::{EngineError, WipeProgress};

use crate::Cluster;
use crate::client::threads::ClientThreads;
use crate::clock::wall_time;
use crate::letters::{LetterTrimmer, Trimmed};
use crate::topics::scan::Scan;
use crate::topics::{ANSWER_WITHIN, Topics, wait};

const EVERY: Duration = Duration::from_hours(1);
/// Not at once: a process that is restarted again and again should not begin with this each time.
const FIRST_AFTER: Duration = Duration::from_mins(5);

/// Trims once an hour until it is dropped, and on request.
#[derive(Debug)]
pub struct Trimmer {
    // Dropped before the thread, which ends once the sender is gone.
    asking: Sender<()>,
    asked: Arc<Mutex<TrimRequest>>,
    /// Where copies of erased letters remain.
    remains: Vec<String>,
    _thread: ClientThreads,
}

/// The progress of a request.
#[derive(Debug, Default)]
enum TrimRequest {
    #[default]
    None,
    UnderWay,
    Done(Result<Trimmed, EngineError>),
}

impl Trimmer {
    pub fn start(cluster: &Cluster, topics: &Topics, mut letters: LetterTrimmer) -> Self {
        let (asking, orders) = mpsc::channel::<()>();
        let asked = Arc::<Mutex<TrimRequest>>::default();
        let (cluster, names, answer) = (cluster.clone(), topics.clone(), Arc::clone(&asked));
        let mut thread = ClientThreads::default();
        thread.spawn("redrive-trim", move || {
            let mut pause = FIRST_AFTER;
            loop {
                let is_asked = match orders.recv_timeout(pause) {
                    Ok(()) => true,
                    Err(RecvTimeoutError::Timeout) => false,
                    Err(RecvTimeoutError::Disconnected) => break,
                };
                pause = EVERY;
                match trim(&cluster, &names) {
                    Ok(0) => {}
                    Ok(partitions) => tracing::info!(partitions, "trimmed completed records from the tiers"),
                    Err(error) => {
                        tracing::warn!(%error, "could not trim completed records from the tiers; will try again");
                    }
                }
                let now = wall_time();
                let trimmed = if is_asked { letters.run_eagerly(now) } else { letters.run(now) };
                match &trimmed {
                    Ok(Trimmed { deleted: 0, gone: 0, .. }) => {}
                    Ok(Trimmed { deleted, moved, gone }) => {
                        tracing::info!(deleted, moved, gone, "deleted resolved letters");
                    }
                    Err(error) => tracing::warn!(%error, "resolved letters could not be deleted; next time"),
                }
                if is_asked {
                    *answer.lock().unwrap_or_else(PoisonError::into_inner) = TrimRequest::Done(trimmed);
                }
            }
        });
        Self { asking, asked, remains: remains(topics), _thread: thread }
    }

    /// Trims now, unless that is in progress, and returns the progress. Never blocks.
    pub fn trim_now(&self) -> WipeProgress {
        let mut asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        let (next, mut progress) = match std::mem::take(&mut *asked) {
            TrimRequest::None => {
                // The thread ends only with this object.
                let _ = self.asking.send(());
                (TrimRequest::UnderWay, WipeProgress { parts_left: 1, ..WipeProgress::default() })
            }
            TrimRequest::UnderWay => {
                (TrimRequest::UnderWay, WipeProgress { parts_left: 1, ..WipeProgress::default() })
            }
            TrimRequest::Done(Ok(Trimmed { deleted, .. })) => {
                (TrimRequest::None, WipeProgress { deleted, ..WipeProgress::default() })
            }
            TrimRequest::Done(Err(error)) => {
                let failed =
                    format!("records could not be deleted now, which is tried again every hour: {error}");
                (TrimRequest::None, WipeProgress { remains: vec![failed], ..WipeProgress::default() })
            }
        };
        *asked = next;
        if progress.parts_left == 0 {
            progress.remains.extend(self.remains.iter().cloned());
        }
        progress
    }
}

/// Describes where copies of erased letters remain for a while, and for how long.
fn remains(topics: &Topics) -> Vec<String> {
    let Topics { source, dlq, dlq_state, replay, .. } = topics;
    vec![
        format!(
            "{dlq}: a record that lies behind a foreign record, or behind more than 10,000 letters, stays until these \
             are gone; the broker frees deleted records with their segment"
        ),
        format!("{dlq_state}: earlier versions of edited letters, until the broker compacts the topic"),
        format!(
            "the retry topics and {replay}: copies, until they are trimmed below what the group has committed"
        ),
        format!("{source}: the message itself, until the retention of that topic, which is not Redrive's"),
    ]
}

/// Cuts off tiers and replays below the committed offsets. Returns the number of partitions that became shorter.
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
