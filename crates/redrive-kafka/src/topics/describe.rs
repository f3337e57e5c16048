//! Queries what the cluster knows about topics.

use std::collections::HashMap;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake};
use std::thread::{self, Thread};
use std::time::Duration;

use rdkafka::admin::{AdminClient, AdminOptions, ConfigResource, OwnedResourceSpecifier, ResourceSpecifier};
use rdkafka::client::DefaultClientContext;
use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::metadata::{Metadata, MetadataTopic};
use rdkafka::types::RDKafkaErrorCode;

use super::fault::TopicsFault;
use super::plan::TopicFacts;
use crate::Cluster;
use crate::client::reach::{self, Unreached};

pub(crate) const ANSWER_WITHIN: Duration = Duration::from_secs(10);

pub(super) type Admin = AdminClient<DefaultClientContext>;

impl Cluster {
    pub(super) fn unreachable(&self, problem: &impl ToString) -> TopicsFault {
        TopicsFault::Unreachable { brokers: self.brokers.join(","), problem: problem.to_string() }
    }
}

pub(super) fn connect(cluster: &Cluster) -> Result<Admin, TopicsFault> {
    cluster.admin().create().map_err(|error| cluster.unreachable(&error))
}

/// Returns the metadata of all topics that are visible to us.
pub(super) fn metadata(cluster: &Cluster, admin: &Admin) -> Result<Metadata, TopicsFault> {
    let asked = reach::metadata(cluster, |wait| admin.inner().fetch_metadata(None, wait));
    asked.map_err(|unreached| match unreached {
        Unreached::Silent(problem) => cluster.unreachable(&problem),
        Unreached::Refused { problem, fix } => {
            TopicsFault::Refused { brokers: cluster.brokers.join(","), problem, fix }
        }
    })
}

pub(super) fn options() -> AdminOptions {
    AdminOptions::new().request_timeout(Some(ANSWER_WITHIN)).operation_timeout(Some(ANSWER_WITHIN))
}

/// Returns the facts of the existing topics among `names`, in that order.
pub(super) fn describe(
    cluster: &Cluster,
    admin: &Admin,
    metadata: &Metadata,
    names: &[&str],
) -> Result<Vec<TopicFacts>, TopicsFault> {
    let by_name: HashMap<_, _> = metadata
        .topics()
        .iter()
        .filter(|topic| topic.error().is_none() && !topic.partitions().is_empty())
        .map(|topic| (topic.name(), topic))
        .collect();
    let existing: Vec<_> = names.iter().filter_map(|name| by_name.get(*name)).collect();
    if existing.is_empty() {
        return Ok(Vec::new());
    }
    let wanted: Vec<_> = existing.iter().map(|topic| ResourceSpecifier::Topic(topic.name())).collect();
    let settings = wait(admin.describe_configs(wanted.iter(), &options()))
        .map_err(|error| cluster.unreachable(&error))?;
    let settings: HashMap<_, _> = settings.iter().flatten().filter_map(named).collect();
    let facts = existing.iter().map(|topic| {
        let settings = settings.get(topic.name());
        let text = |key: &str| settings?.get(key)?.value.as_deref();
        let number =
            |key: &str, default: i64| text(key).and_then(|text| text.parse().ok()).unwrap_or(default);
        TopicFacts {
            name: topic.name().to_owned(),
            partitions: small(topic.partitions().len()),
            replication: small(topic.partitions().iter().map(|p| p.replicas().len()).min().unwrap_or(1)),
            min_insync: number("min.insync.replicas", 1) as i32,
            retention_ms: number("retention.ms", -1),
            retention_bytes: number("retention.bytes", -1),
            max_message_bytes: number("max.message.bytes", 1_048_588),
            cleanup: text("cleanup.policy").unwrap_or("delete").to_owned(),
            compression: text("compression.type").unwrap_or("producer").to_owned(),
            // A cluster returns no settings to a user who may not read them.
            settings_known: text("cleanup.policy").is_some(),
        }
    });
    Ok(facts.collect())
}

/// Returns the topics among `names` that this user may not see, whether or not they exist. Asked about one topic, the
/// cluster reports the missing permission; a list of all topics just omits it.
pub(super) fn hidden(cluster: &Cluster, names: &[&str]) -> Result<Vec<String>, TopicsFault> {
    let mut config = cluster.reader();
    // A topic that does not exist must not be created by asking for it by name.
    config.set("allow.auto.create.topics", "false");
    let consumer: BaseConsumer = config.create().map_err(|error| cluster.unreachable(&error))?;
    let mut hidden = Vec::new();
    for name in names {
        let asked = consumer.fetch_metadata(Some(name), ANSWER_WITHIN);
        let metadata = asked.map_err(|error| cluster.unreachable(&error))?;
        let refused = |topic: &MetadataTopic| {
            topic.error().is_some_and(|code| {
                RDKafkaErrorCode::from(code) == RDKafkaErrorCode::TopicAuthorizationFailed
            })
        };
        if metadata.topics().iter().any(refused) {
            hidden.push((*name).to_owned());
        }
    }
    Ok(hidden)
}

fn named(resource: &ConfigResource) -> Option<(&str, &ConfigResource)> {
    match &resource.specifier {
        OwnedResourceSpecifier::Topic(name) => Some((name, resource)),
        _ => None,
    }
}

/// Converts a count, saturating.
fn small(count: usize) -> i32 {
    i32::try_from(count).unwrap_or(i32::MAX)
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Blocks the calling thread until the asynchronous admin client answers.
///
/// The client completes the future on a thread of its own, so nothing needs to be driven here.
pub(crate) fn wait<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    let waker = Arc::new(Unpark(thread::current())).into();
    let mut context = Context::from_waker(&waker);
    loop {
        match future.as_mut().poll(&mut context) {
            Poll::Ready(output) => return output,
            Poll::Pending => thread::park(),
        }
    }
}
