//! Builds the Kafka engine from its configuration.

use std::time::Duration;

use redrive_core::policy::Mode;
use redrive_core::{Class, Policy, Schedule};
use redrive_kafka::{Cluster, GroupStart, KafkaPipeline, Only, TopicsMode};

use crate::config::{Config, KafkaConfig, MissingTopics, Part, PipelineConfig, StartAt};
use crate::exit::Failed;

/// Each delay of a backoff has its own tier up to this number; beyond it, neighbours share one.
const TIERS_MAX: usize = 10;
/// The tier for held messages if the policy has no retries.
const ONLY_TIER: Duration = Duration::from_secs(30);

/// The configured cluster, with every secret read.
pub fn cluster(config: &Config) -> Result<Cluster, Failed> {
    let Some(kafka) = &config.engine.kafka else {
        return Err(Failed::usage(format!("the engine is {}, not kafka", config.engine.kind.name()))
            .hint("set kind = \"kafka\" in [engine], or give --engine kafka --brokers --group"));
    };
    let mut passed_on = vec![("client.id".to_owned(), client_id(config, kafka))];
    for passed in &kafka.passed_on {
        let value =
            passed.read().map_err(|problem| Failed::usage(format!("`kafka.{}`: {problem}", passed.key)))?;
        passed_on.push((passed.key.clone(), value));
    }
    Ok(Cluster {
        brokers: kafka.brokers.clone(),
        group: kafka.group.clone(),
        member: kafka.member.clone(),
        start: kafka.start.map(|start| match start {
            StartAt::Earliest => GroupStart::Earliest,
            StartAt::Latest => GroupStart::Latest,
        }),
        topics: match kafka.topics {
            MissingTopics::Verify => TopicsMode::Verify,
            MissingTopics::Create => TopicsMode::Create,
        },
        state_dir: config.engine.dir.clone(),
        passed_on,
    })
}

/// What the engine must know about each pipeline.
pub fn pipelines(config: &Config) -> Vec<KafkaPipeline> {
    let only = config.engine.kafka.as_ref().map_or(Only::Everything, |kafka| match kafka.only {
        Part::Everything => Only::Everything,
        Part::Source => Only::Source,
        Part::Tiers => Only::Tiers,
    });
    config.pipelines.iter().map(|pipeline| pipeline_of(pipeline, only)).collect()
}

fn pipeline_of(pipeline: &PipelineConfig, only: Only) -> KafkaPipeline {
    KafkaPipeline {
        name: pipeline.name.clone(),
        source: pipeline.source.clone().unwrap_or_else(|| pipeline.name.clone()),
        tiers: tiers(&pipeline.policy),
        id: pipeline.id.clone(),
        tenant: pipeline.tenant.clone(),
        ttl: pipeline.policy.ttl(),
        blocking: pipeline.policy.mode() == Mode::Blocking,
        only,
        subscriptions: pipeline.sink.settings.subscriptions().is_some(),
    }
}

/// The delays that become topics: the policy's tiers, or the steps of its backoff.
fn tiers(policy: &Policy) -> Vec<Duration> {
    let schedule = policy.schedule();
    if let Schedule::Tiers(tiers) = schedule
        && !tiers.is_empty()
    {
        return tiers.clone();
    }
    let mut delays: Vec<u64> =
        (1..=policy.retries().min(1_000)).map(|n| schedule.delay_ms(n, Class::Transient)).collect();
    delays.sort_unstable();
    delays.dedup();
    delays.retain(|delay| *delay > 0);
    if delays.len() > TIERS_MAX {
        let last = delays.len() - 1;
        delays = (0..TIERS_MAX).map(|i| delays[i * last / (TIERS_MAX - 1)]).collect();
    }
    if delays.is_empty() {
        return vec![ONLY_TIER];
    }
    delays.into_iter().map(Duration::from_millis).collect()
}

/// How other members see this process: program, version, settings, name. See `status --members`.
fn client_id(config: &Config, kafka: &KafkaConfig) -> String {
    let host = std::fs::read_to_string("/etc/hostname").unwrap_or_default();
    let host = host.trim().split('.').next().unwrap_or_default().to_owned();
    let member = kafka.member.clone().unwrap_or_else(|| format!("{host}-{}", std::process::id()));
    format!("redrive_{}_{:08x}_{member}", env!("CARGO_PKG_VERSION"), settings_hash(config))
}

/// A hash (FNV-1a) that is the same for the same pipelines and settings, on every machine and in every version.
fn settings_hash(config: &Config) -> u32 {
    let text = config
        .pipelines
        .iter()
        .flat_map(|pipeline| pipeline.resolved(None))
        .flat_map(|table| table.text(false));
    text.flat_map(String::into_bytes)
        .fold(0x811c_9dc5, |hash: u32, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}
