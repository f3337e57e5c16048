//! Three brokers that enforce ACLs: their topics, their permissions, and whether all replicas are in sync.

use std::collections::HashSet;
use std::path::Path;
use std::time::Duration;

use rdkafka::Message;
use rdkafka::admin::{AdminClient, AdminOptions, NewPartitions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::message::{Header, Headers, OwnedHeaders};
use rdkafka::metadata::MetadataTopic;
use rdkafka::producer::{BaseProducer, BaseRecord, Producer};
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};
use redrive_lab::kafka::broker::{Act, Broker};
use redrive_lab::kafka::topics::{self, Topic};
use redrive_lab::kafka::{Error, orders};

use super::plan::NODES;

/// Port distance between the listener without a password and the one with it, as set up by `scripts/kafka.sh`.
const SASL_BELOW: u16 = 7_000;

/// A running cluster. It is stopped on drop.
#[derive(Debug)]
pub struct Cluster {
    broker: Broker,
    password: String,
}

impl Cluster {
    /// Starts the cluster. `broker_session_ms` is how long the controller waits for a silent broker.
    pub fn up(root: &Path, dir: &Path, broker_session_ms: u64) -> Result<Self, Error> {
        let extra = format!("broker.session.timeout.ms={broker_session_ms}");
        let broker = Broker::up_three_secure(root, dir, &extra)?;
        let password = broker.secure("password")?;
        let cluster = Self { broker, password };
        for resource in ["--topic *", "--group *", "--transactional-id *", "--cluster"] {
            cluster.acl(&format!("--add --allow-principal User:redrive --operation All {resource}"))?;
        }
        Ok(cluster)
    }

    /// Returns the address for the storm itself, which may do everything.
    pub fn address(&self) -> &str {
        self.broker.address()
    }

    /// Returns the addresses for the processors, which log in with a password and have limited permissions.
    pub fn guarded(&self) -> Result<Vec<String>, Error> {
        let guarded = |address: &str| -> Result<String, Error> {
            let (host, port) = address.rsplit_once(':').ok_or("an address without a port")?;
            Ok(format!("{host}:{}", port.parse::<u16>()? - SASL_BELOW))
        };
        self.address().split(',').map(guarded).collect()
    }

    pub fn password(&self) -> &str {
        &self.password
    }

    pub fn node(&self, node: u32, act: Act) -> Result<(), Error> {
        self.broker.node(node, act)
    }

    /// Creates a topic with as many replicas as there are nodes.
    pub fn create(&self, wanted: Topic<'_>) -> Result<(), Error> {
        let new = NewTopic::new(wanted.name, wanted.partitions, TopicReplication::Fixed(NODES as i32));
        let new = wanted.settings.iter().fold(new, |new, (key, value)| new.set(key, value));
        for made in waiting(self.admin()?.create_topics([&new], &options()))?? {
            made.map_err(|(name, code)| format!("topic {name} cannot be made: {code}"))?;
        }
        Ok(())
    }

    /// Gives a topic more partitions.
    pub fn grow(&self, topic: &str, partitions: i32) -> Result<(), Error> {
        let more = NewPartitions::new(topic, partitions as usize);
        for made in waiting(self.admin()?.create_partitions([&more], &options()))?? {
            made.map_err(|(name, code)| format!("{name} cannot grow: {code}"))?;
        }
        Ok(())
    }

    /// Whether every partition of every topic has a leader and all of its replicas in sync.
    pub fn is_in_sync(&self) -> bool {
        let Ok(consumer) = self.looking() else { return false };
        let Ok(metadata) = consumer.fetch_metadata(None, Duration::from_secs(5)) else { return false };
        let mut partitions = metadata.topics().iter().flat_map(MetadataTopic::partitions);
        partitions
            .all(|partition| partition.leader() >= 0 && partition.isr().len() == partition.replicas().len())
    }

    pub fn revoke_write(&self, topics: &[String]) -> Result<(), Error> {
        self.deny_write("--add", topics)
    }

    pub fn grant_write(&self, topics: &[String]) -> Result<(), Error> {
        self.deny_write("--remove", topics)
    }

    /// Uses one call for all topics, because each call starts a Java process.
    fn deny_write(&self, change: &str, topics: &[String]) -> Result<(), Error> {
        let topics = topics.iter().map(|topic| format!("--topic {topic}")).collect::<Vec<_>>().join(" ");
        self.acl(&format!("{change} --deny-principal User:redrive --operation Write {topics}"))
    }

    /// Returns the node that coordinates a group.
    pub fn coordinator(&self, group: &str) -> Result<u32, Error> {
        let line = format!(
            "kafka-consumer-groups.sh --bootstrap-server {} --describe --group {group} --state",
            self.address()
        );
        let said = self.broker.tool(&line)?;
        let node =
            said.lines().find_map(|line| line.split_once('(')?.1.split_once(')')?.0.trim().parse().ok());
        node.ok_or_else(|| format!("no coordinator of {group}: {said}").into())
    }

    /// Copies up to `max` letters from `from` to `to`, with key, value and headers, except those in `without`. Passes
    /// their numbers to `told` before anything is written, so that the receiver knows them first, and returns them.
    pub fn put_back(
        &self,
        from: &str,
        to: &str,
        without: &HashSet<u64>,
        max: usize,
        told: impl FnOnce(&[u64]),
    ) -> Result<Vec<u64>, Error> {
        let reach = topics::reach(self.address(), from)?;
        let consumer = self.looking()?;
        let mut places = TopicPartitionList::new();
        let mut open = 0;
        for (partition, _) in (0..).zip(&reach).filter(|(_, (low, high))| low < high) {
            places.add_partition_offset(from, partition, Offset::Beginning)?;
            open += 1;
        }
        consumer.assign(&places)?;
        let (mut numbers, mut records) = (Vec::new(), Vec::new());
        while open > 0 {
            match consumer.poll(Duration::from_secs(30)) {
                Some(Ok(record)) => {
                    let number =
                        record.payload().and_then(orders::number).ok_or("a letter of somebody else")?;
                    if records.len() < max && !without.contains(&number) && !numbers.contains(&number) {
                        numbers.push(number);
                        records.push(record.detach());
                    }
                }
                Some(Err(rdkafka::error::KafkaError::PartitionEOF(_))) => open -= 1,
                Some(Err(error)) => return Err(error.into()),
                None => return Err(format!("{from} is not readable").into()),
            }
        }
        told(&numbers);
        let producer: BaseProducer = self.client().set("enable.idempotence", "true").create()?;
        for record in &records {
            let headers = record.headers().into_iter().flat_map(Headers::iter);
            let headers = headers
                .fold(OwnedHeaders::new(), |all, Header { key, value }| all.insert(Header { key, value }));
            let mut back = BaseRecord::<[u8], [u8]>::to(to).partition(record.partition()).headers(headers);
            (back.key, back.payload) = (record.key(), record.payload());
            producer.send(back).map_err(|(error, _)| error)?;
        }
        producer.flush(Duration::from_mins(2))?;
        Ok(numbers)
    }

    fn acl(&self, what: &str) -> Result<(), Error> {
        let line = format!("kafka-acls.sh --bootstrap-server {} --force {what}", self.address());
        self.broker.tool(&line).map(drop)
    }

    fn client(&self) -> ClientConfig {
        let mut config = ClientConfig::new();
        config.set("bootstrap.servers", self.address());
        config
    }

    fn looking(&self) -> Result<BaseConsumer, Error> {
        let mut config = self.client();
        config.set("group.id", "storm-look").set("enable.auto.commit", "false");
        config.set("enable.partition.eof", "true").set("isolation.level", "read_committed");
        Ok(config.create()?)
    }

    fn admin(&self) -> Result<AdminClient<DefaultClientContext>, Error> {
        Ok(self.client().create()?)
    }
}

fn options() -> AdminOptions {
    AdminOptions::new()
        .operation_timeout(Some(Duration::from_mins(1)))
        .request_timeout(Some(Duration::from_mins(1)))
}

fn waiting<T>(answer: impl Future<Output = T>) -> Result<T, Error> {
    Ok(tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(answer))
}
