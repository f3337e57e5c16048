//! Builds pipelines from their configuration, and what the API needs to know about them.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use redrive::actions::Actions;
use redrive::internal::engine::StoreNotice;
use redrive::internal::engine::embedded::Tuning;
use redrive::internal::events::Events;
use redrive::internal::naming::Naming;
use redrive::internal::subscriptions::Subscriptions;
use redrive::replay::{AutoReplay, Replays};
use redrive::{
    BuildError, Clock as _, DeadLetter, Embedded, FaultKind, MemoryStores, Pipeline, Redrive, Sink, Time,
    WallClock,
};
use redrive_server::alerts::AlertKind;
use redrive_server::log::FailureLog;
use redrive_server::{Intake, Readers, Served, ServerOptions, ServerTls, Service, Token};
use redrive_sinks::Secret;

use super::alerts::{Pills, watch};
use super::delivered_log::DeliveredLog;
use super::engine_failed::engine_failed;
use super::hangup::Certificate;
use super::health_log::HealthLog;
use super::on_purged::OnPurged;
use super::subscriptions::LogScrub;
use super::{events, orphans, subscriptions, tokens};
use crate::args::Global;
use crate::config::server;
use crate::config::sinks::SinkParts;
use crate::config::{AlertConfig, Config, EngineKind, PipelineConfig};
use crate::exit::{Exit, Failed};

/// The file in the engine's directory that holds the key of endpoint hashes.
const HASH_KEY_FILE: &str = "hash.key";

/// Everything needed to run, not running yet.
#[derive(Debug)]
pub struct Assembled {
    pub redrive: Redrive,
    pub service: Service,
    pub server: ServerOptions,
    /// The certificate of the API, to be reloaded on SIGHUP.
    pub certificate: Option<Certificate>,
    /// Findings from opening the stores, for the log.
    pub findings: Vec<String>,
    pub alerts: Vec<AlertConfig>,
    /// Filled by the pipelines, for the alerts.
    pub pills: Arc<Pills>,
    /// The directory of the stores, if they are on disk.
    pub dir: Option<PathBuf>,
    pub on_purged: Vec<OnPurged>,
    /// Logs of subscriptions to check for damage.
    pub log_scrubs: Vec<LogScrub>,
    /// Pipelines with automatic replay, by name.
    pub auto_replays: Vec<(String, AutoReplay)>,
    /// Pipelines that discard old open letters, by name, with the retention.
    pub retentions: Vec<(String, Duration)>,
}

/// Builds everything. Problems that can be detected without the stores are all reported before these are opened.
pub fn assemble(config: &Config, global: &Global) -> Result<Assembled, Failed> {
    let pills = Arc::new(Pills::default());
    let health = HealthLog::default();
    let tokens = check(config, global)?;
    let parts: Vec<PipelineParts> = config.pipelines.iter().map(PipelineParts::of).collect();
    let pipelines = |hash_key: Option<&Secret>| prepare(config, hash_key, &parts, &pills, &health);
    let files = config.server.tls.clone();
    let tls = files.as_ref().map(|(cert, key)| server::tls::read(cert, key));
    let tls = tls.transpose().map_err(|fault| Failed::usage(fault.problem))?.map(ServerTls::new);
    let certificate = tls.clone().zip(files);
    let certificate =
        certificate.map(|(served, (cert_file, key_file))| Certificate { served, cert_file, key_file });
    let (redrive, mut findings) = match config.engine.kind {
        EngineKind::Memory => (build(pipelines(None)?, MemoryStores::new())?, Vec::new()),
        EngineKind::Embedded => {
            let tuning = Tuning { scrub: config.engine.scrub, ..Tuning::default() };
            let stores = Embedded::open_with(&config.engine.dir, tuning);
            let stores = stores.map_err(|error| engine_failed(&error))?;
            let stores = Arc::new(stores);
            let hash_key = hash_key(&config.engine.dir)?;
            let redrive = build(pipelines(Some(&hash_key))?, Arc::clone(&stores))?;
            let findings = config.pipelines.iter().flat_map(|pipeline| findings(&stores, &pipeline.name));
            let orphans = orphans::look(&config.engine.dir, &config.pipelines);
            (redrive, findings.chain(orphans).collect())
        }
        EngineKind::Kafka => (on_kafka(config, pipelines)?, Vec::new()),
    };
    let dir = (config.engine.kind != EngineKind::Memory).then_some(config.engine.dir.as_path());
    let events: Vec<Events> = parts.iter().map(|parts| parts.events.clone()).collect();
    let mut service = service(config, &redrive, dir, &events)?;
    let (mut on_purged, mut log_scrubs) = (Vec::new(), Vec::new());
    for (pipeline, parts) in config.pipelines.iter().zip(parts) {
        let served = service.pipelines.iter_mut().find(|served| served.handle.name() == pipeline.name);
        if let (Some(served), Some(table)) = (served, parts.subscriptions) {
            follow(&table, &served.events);
            let settings = pipeline.sink.settings.subscriptions();
            if let Some(to) = settings.and_then(|settings| settings.on_purged) {
                table.announce_purges();
                let source = || served.source.clone().unwrap_or_else(|| pipeline.name.clone());
                on_purged.push(OnPurged {
                    subscriptions: table.clone(),
                    to: to.clone(),
                    handle: served.handle.clone(),
                    shared_source: (config.engine.kind == EngineKind::Kafka).then(source),
                });
            }
            findings.extend(subscriptions::open(&table, config, pipeline)?);
            log_scrubs.extend(LogScrub::of(&table, config, pipeline));
            served.subscriptions = Some(table);
        }
    }
    health.write_to(&service.actions);
    let tokens = match tokens {
        Some(given) => given,
        None => vec![tokens::made(&config.engine)?],
    };
    let server = ServerOptions {
        tls,
        listen: config.server.listen,
        tokens,
        reads: config.server.reads,
        ..ServerOptions::default()
    };
    let (alerts, dir) = (config.alerts.clone(), watch::watched_dir(config));
    let auto_replays = config.pipelines.iter().filter(|pipeline| pipeline.auto_replay.enabled);
    let auto_replays =
        auto_replays.map(|pipeline| (pipeline.name.clone(), pipeline.auto_replay.settings.clone())).collect();
    let retention = |pipeline: &PipelineConfig| Some((pipeline.name.clone(), pipeline.letter_retention?));
    let retentions = config.pipelines.iter().filter_map(retention).collect();
    Ok(Assembled {
        redrive,
        service,
        server,
        certificate,
        findings,
        alerts,
        pills,
        dir,
        on_purged,
        log_scrubs,
        auto_replays,
        retentions,
    })
}

#[cfg(feature = "kafka")]
fn on_kafka(
    config: &Config,
    pipelines: impl Fn(Option<&Secret>) -> Result<Vec<Pipeline>, Failed>,
) -> Result<Redrive, Failed> {
    use std::os::unix::fs::DirBuilderExt as _;

    use super::kafka;
    let dir = &config.engine.dir;
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(dir)
        .map_err(|error| Failed::usage(format!("`{}` cannot be used: {error}", dir.display())))?;
    let pipelines = pipelines(Some(&hash_key(dir)?))?;
    build(pipelines, redrive_kafka::KafkaStores::new(kafka::cluster(config)?, kafka::pipelines(config)))
}

/// Finds other readers of a pipeline's topic, for replays onto it.
#[cfg(feature = "kafka")]
fn readers(config: &Config, topic: &str) -> Readers {
    match (config.engine.kind, super::kafka::cluster(config)) {
        (EngineKind::Kafka, Ok(cluster)) => {
            let topic = topic.to_owned();
            Readers::new(move || redrive_kafka::letters::other_groups(&cluster, &topic))
        }
        _ => Readers::default(),
    }
}

#[cfg(not(feature = "kafka"))]
fn readers(_: &Config, _: &str) -> Readers {
    Readers::default()
}

#[cfg(not(feature = "kafka"))]
fn on_kafka(
    _: &Config,
    _: impl Fn(Option<&Secret>) -> Result<Vec<Pipeline>, Failed>,
) -> Result<Redrive, Failed> {
    Err(Failed::usage("this build has no Kafka engine").hint("build it with the feature `kafka`"))
}

/// Parts of a pipeline that its observers share.
struct PipelineParts {
    /// Set if the sink has subscriptions. Loaded once the stores are open.
    subscriptions: Option<Subscriptions>,
    events: Events,
}

impl PipelineParts {
    fn of(pipeline: &PipelineConfig) -> Self {
        Self { subscriptions: subscriptions::table(pipeline), events: Events::default() }
    }
}

/// The key of endpoint hashes for sinks that name none. It is kept, so that a hash means the same endpoint after a
/// restart, and open breakers of endpoints stay open.
fn hash_key(dir: &Path) -> Result<Secret, Failed> {
    let path = dir.join(HASH_KEY_FILE);
    Secret::read_or_make(&path).map_err(|error| {
        let text = format!("the key of endpoint hashes cannot be used: {error}");
        Failed::usage(text).hint("remove the file, or make it readable for this user")
    })
}

/// The given tokens, if any. Reports all faults of sinks and tokens; reads the files that the configuration names.
fn check(config: &Config, global: &Global) -> Result<Option<Vec<Token>>, Failed> {
    let faults = config.pipelines.iter().flat_map(|pipeline| {
        let faults = pipeline.sink.settings.check(Some(pipeline.policy.timeout()));
        faults.into_iter().map(|fault| format!("pipeline `{}`: {fault}", pipeline.name))
    });
    let mut wrong: Vec<String> = faults.collect();
    match tokens::given(&config.server, global) {
        Ok(tokens) if wrong.is_empty() => Ok(tokens),
        tokens => {
            wrong.extend(tokens.err().unwrap_or_default());
            Err(Failed::usage(wrong.join("\n")))
        }
    }
}

/// Builds the pipelines with their sinks.
fn prepare(
    config: &Config,
    hash_key: Option<&Secret>,
    parts: &[PipelineParts],
    pills: &Arc<Pills>,
    health: &HealthLog,
) -> Result<Vec<Pipeline>, Failed> {
    let pipelines =
        config.pipelines.iter().zip(parts).map(|(pipeline, PipelineParts { subscriptions, events })| {
            let parts = SinkParts {
                timeout: pipeline.policy.timeout(),
                other_members: other_members(pipeline),
                hash_key: hash_key.cloned(),
                subscriptions: subscriptions.clone(),
            };
            let sink = pipeline.sink.settings.build(&parts).map_err(|faults| {
                let faults: Vec<String> =
                    faults.iter().map(|fault| format!("pipeline `{}`: {fault}", pipeline.name)).collect();
                Failed::usage(faults.join("\n"))
            })?;
            let redaction = pipeline.redaction.clone();
            let sink: Arc<dyn Sink> =
                Arc::new(DeliveredLog::new(sink, pipeline.log_delivered, redaction.clone()));
            let are_places = config.engine.kind == EngineKind::Kafka;
            let log = FailureLog::new(&pipeline.name, are_places).redacting(redaction);
            let pills = watches_pills(config, pipeline).then(|| Arc::clone(pills));
            let made = pipeline_of(pipeline, sink, health.clone(), &log, events.clone());
            let (on_dead_letter, events) = (on_dead_letter(log.clone(), pills), events.clone());
            Ok(made.on_dead_letter(move |letter| {
                let now = WallClock.now();
                on_dead_letter(letter, now);
                events::dead_letter(&events, letter, log.ids(&letter.message), are_places, now);
            }))
        });
    pipelines.collect()
}

/// Members of a JSON payload that the pipeline reads for ids and tenants.
fn other_members(pipeline: &PipelineConfig) -> Vec<String> {
    let picks = [&pipeline.id, &pipeline.tenant].into_iter().flatten();
    picks.filter_map(redrive_core::pick::Pick::top_member).collect()
}

fn build(pipelines: Vec<Pipeline>, stores: impl redrive::Stores + 'static) -> Result<Redrive, Failed> {
    let builder = Redrive::builder().engine(stores);
    let builder = pipelines.into_iter().fold(builder, redrive::Builder::pipeline);
    builder.build().map_err(|error| build_failed(&error))
}

fn pipeline_of(
    config: &PipelineConfig,
    sink: Arc<dyn Sink>,
    health: HealthLog,
    log: &FailureLog,
    events: Events,
) -> Pipeline {
    let log = log.clone();
    let pipeline = Pipeline::new(&config.name)
        .policy(config.policy.clone())
        // The sink ends an exchange by itself and knows the reason; this limit is for a sink that does not.
        .grace(Duration::from_secs(1))
        .ordering(config.ordering)
        .after_dead(config.after_dead)
        .max_pending(config.max_pending)
        .dyn_sink(sink)
        .breaker(config.breaker.clone())
        .guard(config.guard.clone())
        .on_stuck(super::stuck::leave)
        .on_health(move |changed| {
            health.tell(changed);
            events::health(&events, changed);
        })
        .on_store(store_log(&config.name))
        .on_failure(move |failed| log.attempt_failed(failed));
    let pipeline = config.groups.iter().cloned().fold(pipeline, Pipeline::group);
    let pipeline = match config.ledger_horizon {
        Some(horizon) => pipeline.ledger_horizon(horizon),
        None => pipeline,
    };
    match config.dedup {
        Some(window) => pipeline.dedup(window),
        None => pipeline,
    }
}

/// Logs the notices of a store.
fn store_log(pipeline: &str) -> impl Fn(&StoreNotice) + Send + Sync + 'static {
    let pipeline = pipeline.to_owned();
    move |notice| {
        if notice.is_bad() {
            tracing::warn!(target: "redrive::store", pipeline, "{notice}");
        } else {
            tracing::info!(target: "redrive::store", pipeline, "{notice}");
        }
    }
}

/// Whether an alert covers this pipeline's poison pills; other pipelines skip the work.
fn watches_pills(config: &Config, pipeline: &PipelineConfig) -> bool {
    let wants = |alert: &AlertConfig| {
        alert.on.contains(&AlertKind::PoisonPill) && alert.pipelines.contains(&pipeline.name)
    };
    config.alerts.iter().any(wants)
}

fn on_dead_letter(
    log: FailureLog,
    pills: Option<Arc<Pills>>,
) -> impl Fn(&DeadLetter, Time) + Send + Sync + 'static {
    move |letter, now| {
        log.dead_letter(letter, now);
        pills.iter().for_each(|pills| pills.notice(letter, now));
    }
}

/// Logs changes of subscriptions, and publishes them as events.
fn follow(subscriptions: &Subscriptions, events: &Events) {
    let (pipeline, events) = (subscriptions.pipeline().to_owned(), events.clone());
    subscriptions.on_change(move |changed| {
        events::log_subscription(&pipeline, changed);
        events::subscription(&events, changed);
    });
}

fn service(
    config: &Config,
    redrive: &Redrive,
    dir: Option<&Path>,
    events: &[Events],
) -> Result<Service, Failed> {
    let storage = |error: String| Failed::new(Exit::Storage, error);
    let served = config.pipelines.iter().zip(events).filter_map(|(pipeline, events)| {
        let handle = redrive.pipeline(&pipeline.name)?;
        let intake = Intake { id: pipeline.id.clone(), tenant: pipeline.tenant.clone() };
        let engine = config.engine.kind.name().to_owned();
        let source = pipeline.source.clone();
        let readers = readers(config, source.as_deref().unwrap_or(&pipeline.name));
        let (events, redaction) = (events.clone(), pipeline.redaction.clone());
        let mut served = Served::new(handle);
        (served.intake, served.engine, served.source, served.readers) = (intake, engine, source, readers);
        (served.events, served.redaction) = (events, redaction);
        Some(served)
    });
    // If several processes share the letters, they must not use the same name for different things.
    let naming = match dir.filter(|_| config.engine.kind == EngineKind::Kafka) {
        Some(dir) => Naming::kept_in(dir).map_err(|error| storage(format!("{}: {error}", dir.display())))?,
        None => Naming::default(),
    };
    let replays = Replays::open_named(dir, naming.clone()).map_err(|error| storage(error.to_string()))?;
    let followed: HashMap<String, Events> =
        config.pipelines.iter().map(|pipeline| pipeline.name.clone()).zip(events.iter().cloned()).collect();
    replays.on_change(move |replay| {
        if let Some(events) = followed.get(&replay.pipeline) {
            events::replay(events, replay, WallClock.now());
        }
    });
    Ok(Service {
        pipelines: served.collect(),
        replays,
        actions: Actions::open_named(dir, naming).map_err(|error| storage(error.to_string()))?,
    })
}

/// Findings about an opened store for the operator.
fn findings(stores: &Embedded, pipeline: &str) -> Vec<String> {
    let Some(report) = stores.report(pipeline) else { return Vec::new() };
    let mut found = Vec::new();
    if let Some(why) = &report.rebuilt {
        found.push(format!("pipeline {pipeline}: the index was rebuilt: {why}"));
    }
    found.extend(report.notes.iter().map(|note| format!("pipeline {pipeline}: {note}")));
    for (log, damage) in [("journal", &report.journal), ("letter log", &report.letters)] {
        let rot = damage.rot.len();
        if rot > 0 {
            found.push(format!(
                "pipeline {pipeline}: {rot} damaged frames in the {log}; see `redrive journal`"
            ));
        }
        for missing in &damage.missing {
            found.push(format!(
                "pipeline {pipeline}: positions {} to {} of the {log} are missing",
                missing.start, missing.end
            ));
        }
    }
    found
}

/// The configuration passed the same checks before. The remaining failures are stores that cannot be opened, or not
/// with these settings.
fn build_failed(error: &BuildError) -> Failed {
    let any = |kind: FaultKind| error.faults.iter().any(|fault| fault.kind == kind);
    let exit = if any(FaultKind::Storage) {
        Exit::Storage
    } else if any(FaultKind::Busy) {
        Exit::TryAgain
    } else {
        Exit::Usage
    };
    Failed::new(exit, error.to_string())
}
