//! `redrive check --kafka`: compares the cluster with what the pipelines need, and prints commands that help.

use std::time::Duration;

use redrive::DeliveryOrder;
use redrive_core::duration;
use redrive_kafka::client::build::Build;
use redrive_kafka::consume::begin::ran_before;
use redrive_kafka::topics::scan::Scan;
use redrive_kafka::topics::{Survey, Topics, TopicsFault, acl_commands, survey};
use redrive_kafka::{Cluster, KafkaPipeline, TopicsMode};
use serde_json::{Value, json};

use super::sink::{Answered, ask};
use crate::config::{Config, PipelineConfig};
use crate::exit::{Exit, Failed};
use crate::output::{Output, Style};
use crate::service::engine_failed::engine_failed;
use crate::service::kafka;

/// The result of one check.
struct KafkaFinding {
    /// `None` is neither good nor bad.
    good: Option<bool>,
    text: String,
    /// Further lines: commands and lists.
    more: Vec<String>,
}

impl KafkaFinding {
    fn new(good: Option<bool>, text: impl Into<String>) -> Self {
        Self { good, text: text.into(), more: Vec::new() }
    }

    fn to_json(&self) -> Value {
        let state = match self.good {
            Some(true) => "ok",
            Some(false) => "bad",
            None => "note",
        };
        json!({"state": state, "text": self.text, "more": self.more})
    }
}

pub fn run(config: &Config, out: &mut Output) -> Result<Exit, Failed> {
    let cluster = kafka::cluster(config)?;
    let build = Build::of_this();
    // Comes first, since it may explain why the rest is unknown.
    if !out.is_json() {
        write(&KafkaFinding::new(None, format!("this build: {build}")), out)?;
    }
    let mut good = true;
    let mut documents = Vec::new();
    for (pipeline, settings) in kafka::pipelines(config).iter().zip(&config.pipelines) {
        let mut findings = topics(&cluster, pipeline, settings)?;
        findings.push(sink(settings));
        good &= findings.iter().all(|finding| finding.good != Some(false));
        if out.is_json() {
            let findings: Vec<Value> = findings.iter().map(KafkaFinding::to_json).collect();
            documents.push(json!({"name": pipeline.name, "findings": findings}));
            continue;
        }
        out.line(&format!("pipeline {}", pipeline.name))?;
        for finding in &findings {
            write(finding, out)?;
        }
    }
    if out.is_json() {
        out.json(&json!({
            "pipelines": documents,
            "build": build_json(&build),
            "ok": good,
        }))?;
    }
    Ok(if good { Exit::Ok } else { Exit::Bad })
}

/// What the client library of this build supports, for a check of the file alone.
pub fn build_of(config: &Config, out: &mut Output) -> Result<Option<Value>, Failed> {
    if config.engine.kafka.is_none() {
        return Ok(None);
    }
    let build = Build::of_this();
    if !out.is_json() {
        out.line(&format!("Kafka client of this build: {build}"))?;
    }
    Ok(Some(build_json(&build)))
}

fn build_json(build: &Build) -> Value {
    json!({"librdkafka": build.version, "sasl": build.mechanisms, "tls": build.tls, "compression": build.compression})
}

fn write(finding: &KafkaFinding, out: &mut Output) -> Result<(), Failed> {
    let sign = match finding.good {
        Some(true) => out.paint(Style::Good, "✓"),
        Some(false) => out.paint(Style::Error, "✗"),
        None => "·".to_owned(),
    };
    out.line(&format!("{sign} {}", finding.text))?;
    for line in finding.more.iter().flat_map(|text| text.lines()) {
        out.line(&format!("  {line}"))?;
    }
    Ok(())
}

fn topics(
    cluster: &Cluster,
    pipeline: &KafkaPipeline,
    settings: &PipelineConfig,
) -> Result<Vec<KafkaFinding>, Failed> {
    let found = match survey(cluster, pipeline) {
        Ok(found) => found,
        Err(TopicsFault::NoSource { topic }) => {
            let text =
                format!("the source topic {topic} does not exist; Redrive does not create source topics");
            let mut finding = KafkaFinding::new(Some(false), text);
            let bootstrap = cluster.bootstrap();
            finding.more = vec![
                "create it with as many partitions as shall be worked on at once, or correct `source`:"
                    .to_owned(),
                format!(
                    "  kafka-topics.sh --bootstrap-server {bootstrap} --create --topic {topic} --partitions 12"
                ),
            ];
            return Ok(vec![finding]);
        }
        Err(fault @ TopicsFault::Hidden { .. }) => {
            return Ok(vec![KafkaFinding::new(Some(false), fault.to_string()), allowed(cluster, pipeline)]);
        }
        Err(fault) => return Err(engine_failed(&fault.into())),
    };
    let bootstrap = cluster.bootstrap();
    let mut findings = source(&found, settings);
    if !found.hidden.is_empty() {
        let fault = TopicsFault::Hidden { topics: found.hidden.clone() };
        findings.push(KafkaFinding::new(Some(false), fault.to_string()));
    }
    findings.extend(found.unread.iter().map(|name| {
        let text =
            format!("the settings of {name} may not be read: the permission DescribeConfigs is missing");
        KafkaFinding::new(Some(false), text)
    }));
    findings.extend(uneven(&found, settings, bootstrap));
    if !found.missing.is_empty() {
        findings.push(missing(&found, bootstrap, cluster.topics));
    }
    for wrong in &found.wrong {
        let mut finding = KafkaFinding::new(Some(false), format!("topic {} {}", wrong.topic, wrong.problem));
        finding.more = vec!["repair it with:".to_owned(), indented(&wrong.command(bootstrap))];
        findings.push(finding);
    }
    let known = found.hidden.is_empty() && found.unread.is_empty();
    if found.missing.is_empty() && found.wrong.is_empty() && known {
        let facts = &found.found[0];
        findings.push(KafkaFinding::new(
            Some(true),
            format!(
                "{} topics with {} partitions each and {}, replication {}, min.insync.replicas {}; nothing in them expires",
                found.found.len().saturating_sub(1),
                facts.partitions,
                found.topics.control,
                facts.replication,
                facts.min_insync
            ),
        ));
    }
    findings.extend(found.warnings.iter().map(|warning| KafkaFinding::new(None, warning.as_str())));
    findings.push(lost_broker(&found));
    findings.push(start(cluster, pipeline, &found.topics)?);
    findings.push(KafkaFinding::new(None, OLDEST_KAFKA));
    findings.push(allowed(cluster, pipeline));
    Ok(findings)
}

/// The engine uses features that older brokers lack: static members, transactions, headers, deleting records.
const OLDEST_KAFKA: &str = "needs Apache Kafka 2.4 or later; tested with 4.3";

fn allowed(cluster: &Cluster, pipeline: &KafkaPipeline) -> KafkaFinding {
    let (commands, to_source) = acl_commands(cluster, pipeline);
    let mut needed = KafkaFinding::new(None, "ACLs needed, where the cluster has any:");
    needed.more = commands.iter().map(|command| indented(command)).collect();
    needed.more.push("for `dlq replay --to source` also:".to_owned());
    needed.more.extend(to_source.iter().map(|command| indented(command)));
    needed
}

/// With ordering by key, the tiers need as many partitions as the source, retired ones included.
fn uneven(found: &Survey, settings: &PipelineConfig, bootstrap: &str) -> Option<KafkaFinding> {
    let uneven = found.uneven.as_ref().filter(|_| settings.ordering == DeliveryOrder::Key)?;
    let mut finding = KafkaFinding::new(Some(false), uneven.to_string());
    finding.more =
        vec!["wait until nothing is pending if you can, then give all of them the same number:".to_owned()];
    let tiers = found.topics.tiers.iter().map(|(_, name)| name).chain(&found.topics.retired);
    let count = uneven.of_source.max(uneven.of_tier);
    finding.more.extend(tiers.chain([&found.topics.replay]).map(|topic| {
        format!(
            "  kafka-topics.sh --bootstrap-server {bootstrap} --alter --topic {topic} --partitions {count}"
        )
    }));
    finding.more.push(
        "messages that wait in a tier by then may be overtaken once by later ones of their key, and are counted"
            .to_owned(),
    );
    Some(finding)
}

fn missing(found: &Survey, bootstrap: &str, mode: TopicsMode) -> KafkaFinding {
    let names: Vec<&str> = found.missing.iter().map(|planned| planned.name.as_str()).collect();
    if mode == TopicsMode::Create {
        let text =
            format!("not there yet, and made at the start (topics = \"create\"): {}", names.join(", "));
        return KafkaFinding::new(None, text);
    }
    let text = match names.as_slice() {
        [first, rest @ ..] if !rest.is_empty() => {
            format!("topic {first} is missing (also {})", rest.join(", "))
        }
        _ => format!("topic {} is missing", names.concat()),
    };
    let mut finding = KafkaFinding::new(Some(false), text);
    finding.more = vec!["create them with:".to_owned()];
    finding.more.extend(found.missing.iter().map(|planned| indented(&planned.command(bootstrap))));
    finding.more.push("or set topics = \"create\" in [engine]".to_owned());
    finding
}

fn indented(command: &str) -> String {
    command.lines().map(|line| format!("  {line}")).collect::<Vec<_>>().join("\n")
}

/// The source must keep waiting messages while the sink is down.
fn source(found: &Survey, settings: &PipelineConfig) -> Vec<KafkaFinding> {
    let facts = &found.source;
    if !facts.settings_known {
        let text = format!(
            "source {}: {} partitions, replication {}; its settings may not be read",
            facts.name, facts.partitions, facts.replication
        );
        return vec![KafkaFinding::new(None, text)];
    }
    let mut findings = vec![kept(found, settings)];
    if facts.retention_bytes >= 0 {
        let text = format!(
            "source {} has retention.bytes={}: under load it keeps its records for a shorter time than retention.ms suggests, \
             and what was not read by then is lost",
            facts.name, facts.retention_bytes
        );
        findings.push(KafkaFinding::new(None, text));
    }
    if facts.cleanup.contains("compact") {
        let text = format!(
            "source {} has cleanup.policy={}: of records with one key only the last stays, so messages that were not read in \
             time are never delivered",
            facts.name, facts.cleanup
        );
        findings.push(KafkaFinding::new(None, text));
    }
    if !matches!(facts.compression.as_str(), "producer" | "uncompressed") {
        let text =
            format!("source {} is compressed with {}, which this build reads", facts.name, facts.compression);
        findings.extend(
            found.wrong.iter().all(|wrong| wrong.topic != facts.name).then(|| KafkaFinding::new(None, text)),
        );
    }
    findings
}

fn kept(found: &Survey, settings: &PipelineConfig) -> KafkaFinding {
    let facts = &found.source;
    let what = format!(
        "source {}: {} partitions, replication {}, min.insync.replicas {}",
        facts.name, facts.partitions, facts.replication, facts.min_insync
    );
    let hold = settings.policy.hold_max();
    let keeps = u64::try_from(facts.retention_ms).ok().map(Duration::from_millis);
    match keeps {
        None => KafkaFinding::new(Some(true), format!("{what}, keeps everything")),
        Some(keeps) if keeps > hold => {
            KafkaFinding::new(Some(true), format!("{what}, keeps {}", duration::rough(keeps)))
        }
        Some(keeps) => {
            let mut finding =
                KafkaFinding::new(None, format!("{what}, keeps {} only", duration::rough(keeps)));
            finding.more = vec![format!(
                "a sink that is down for longer loses messages, although hold_max is {}",
                duration::print(hold)
            )];
            finding
        }
    }
}

/// The consequences of losing one broker.
fn lost_broker(found: &Survey) -> KafkaFinding {
    let (replication, needed) = found
        .found
        .iter()
        .chain([&found.source])
        .map(|facts| (facts.replication, facts.min_insync))
        .min_by_key(|(replication, needed)| (replication - needed, *replication))
        .unwrap_or((1, 1));
    let text = match (replication, replication - needed) {
        (1, _) => {
            "one broker lost: its partitions are unavailable until it returns; if its disk is lost, so are their messages"
        }
        (_, spare) if spare > 0 => "one broker lost: nothing is lost, and deliveries continue",
        _ => "one broker lost: nothing is lost, but retries and letters cannot be written until it is back",
    };
    let counts =
        format!("{text} ({replication} replicas, {needed} must acknowledge, {} brokers)", found.brokers);
    KafkaFinding::new(if replication > needed { Some(true) } else { None }, counts)
}

fn start(cluster: &Cluster, pipeline: &KafkaPipeline, topics: &Topics) -> Result<KafkaFinding, Failed> {
    let scan = Scan::new(cluster).map_err(|error| engine_failed(&error))?;
    let spans = scan.spans(&pipeline.source).map_err(|error| engine_failed(&error))?;
    let group = &cluster.group;
    let known = spans.iter().filter(|span| span.committed.is_some()).count();
    if let Some(lost) = spans.iter().find(|span| span.committed.is_some_and(|committed| committed < span.low))
    {
        let text = format!(
            "group {group} is at {} of {}/{}, whose first record is {}; the records in between have expired",
            lost.committed.unwrap_or_default(),
            lost.topic,
            lost.partition,
            lost.low
        );
        return Ok(KafkaFinding::new(Some(false), text));
    }
    if known == 0
        && let Some(ran) = ran_before(cluster, topics).map_err(|error| engine_failed(&error))?
    {
        let mut finding = KafkaFinding::new(Some(false), ran.problem());
        finding.more = vec!["choose where it continues:".to_owned()];
        finding.more.extend(ran.commands().iter().map(|command| indented(command)));
        return Ok(finding);
    }
    Ok(match (known, cluster.start) {
        (0, None) => {
            let mut finding =
                KafkaFinding::new(Some(false), format!("group {group} is new, and `start` is not set"));
            finding.more = vec!["set start = \"earliest\" or start = \"latest\" in [engine]".to_owned()];
            finding
        }
        (0, Some(start)) => {
            let at = match start {
                redrive_kafka::GroupStart::Earliest => "the earliest record",
                redrive_kafka::GroupStart::Latest => "what comes from now on",
            };
            KafkaFinding::new(Some(true), format!("group {group} is new and begins with {at}"))
        }
        _ => {
            let lag: i64 = spans.iter().map(redrive_kafka::topics::scan::Span::lag).sum();
            KafkaFinding::new(
                Some(true),
                format!("group {group} continues where it stopped, {lag} offsets behind the end"),
            )
        }
    })
}

fn sink(settings: &PipelineConfig) -> KafkaFinding {
    match ask(settings) {
        Answered::Nobody(why) => KafkaFinding::new(None, why),
        Answered::Yes(what) => KafkaFinding::new(Some(true), format!("service answers: {what}")),
        Answered::No(what) => KafkaFinding::new(Some(false), format!("service does not answer: {what}")),
    }
}
