//! The topics of a pipeline: their names, what they must be like, and how they come to be.

mod blocking;
mod describe;
mod plan;
mod survey;

use std::time::Duration;

use redrive::engine::EngineError;
use redrive_core::duration;

use crate::{Cluster, KafkaPipeline, TopicsMode, reach};

pub(crate) use blocking::wait;
pub(crate) use describe::ANSWER_WITHIN;
pub use describe::TopicFacts;
pub use plan::{Planned, Role, acl_commands};
pub use survey::{Survey, Uneven, Wrong, survey};

/// The way out for somebody whose source has grown while keys are ordered.
pub const EXTEND_TIERS: &str = "extend the tiers and the replay topic to the same number (`redrive check --kafka` prints the \
     commands), then start again; messages that wait in a tier by then may be overtaken once by later ones of their key, and \
     redrive_key_order_voided_total counts them, so wait until nothing is pending before you add partitions";

/// Every topic of a pipeline by its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Topics {
    pub source: String,
    /// Shortest delay first.
    pub tiers: Vec<(Duration, String)>,
    /// Tiers of an earlier configuration. They are read until nobody needs them, and never written.
    pub retired: Vec<String>,
    pub replay: String,
    pub dlq: String,
    pub dlq_state: String,
    pub progress: String,
    /// One partition: what holds for all processes.
    pub control: String,
}

impl Topics {
    /// As the configuration names them; what is retired is known only to the cluster.
    pub fn of(pipeline: &KafkaPipeline) -> Self {
        let KafkaPipeline { name, source, tiers, .. } = pipeline;
        Self {
            source: source.clone(),
            tiers: tiers
                .iter()
                .map(|delay| (*delay, format!("{name}.retry.{}", duration::print(*delay))))
                .collect(),
            retired: Vec::new(),
            replay: format!("{name}.replay"),
            dlq: format!("{name}.DLQ"),
            dlq_state: format!("{name}.DLQ.state"),
            progress: format!("{name}.progress"),
            control: format!("{name}.control"),
        }
    }

    /// Those that the pipeline owns, with what each is for.
    pub fn owned(&self) -> Vec<(Role, &str)> {
        let tiers = self.tiers.iter().map(|(_, name)| (Role::Tier, name.as_str()));
        let others = [
            (Role::Replay, self.replay.as_str()),
            (Role::Letters, self.dlq.as_str()),
            (Role::LetterStates, self.dlq_state.as_str()),
            (Role::Progress, self.progress.as_str()),
            (Role::Control, self.control.as_str()),
        ];
        tiers.chain(others).collect()
    }

    /// Whether `name` can be a tier of the pipeline `pipeline`: `orders.retry.30s`.
    pub fn is_tier_of(pipeline: &str, name: &str) -> bool {
        let delay = name.strip_prefix(pipeline).and_then(|rest| rest.strip_prefix(".retry."));
        delay.is_some_and(|delay| duration::parse(delay).is_ok())
    }
}

/// Why a pipeline cannot be started as its topics are.
#[derive(Debug, thiserror::Error)]
pub enum TopicsFault {
    #[error("{}", reach::silent_text(brokers, problem))]
    Unreachable { brokers: String, problem: String },
    /// A wrong password, an unknown certificate.
    #[error("{}", reach::refused_text(brokers, problem))]
    Refused { brokers: String, problem: String, fix: &'static str },
    #[error("the source topic {topic} does not exist; create it, or correct `source`")]
    NoSource { topic: String },
    /// Without permission to see a topic nobody can say whether it exists.
    #[error("the topic {} is not visible to this user: it lacks the permission Describe, so it cannot be said whether it exists", topics.join(", "))]
    Hidden { topics: Vec<String> },
    #[error("{}", survey::missing_text(missing, bootstrap))]
    Missing { missing: Vec<Planned>, bootstrap: String },
    #[error("{}", survey::wrong_text(wrong, bootstrap))]
    Wrong { wrong: Vec<Wrong>, bootstrap: String },
    /// Where keys are ordered, a key has to have the same partition number in all topics.
    #[error("{0}")]
    Uneven(Uneven),
    #[error("the topic {topic} could not be made: {problem}")]
    NotMade { topic: String, problem: String },
}

impl From<TopicsFault> for EngineError {
    fn from(fault: TopicsFault) -> Self {
        match fault {
            TopicsFault::Unreachable { .. } => Self::Unavailable(fault.to_string()),
            // Whoever produces knows how many partitions it needs.
            TopicsFault::NoSource { topic } => Self::Directory {
                problem: format!("the source topic {topic} does not exist"),
                fix: "create it, or correct `source`; Redrive makes the topics beside it, never the source itself",
            },
            TopicsFault::Refused { fix, .. } => Self::Directory { problem: fault.to_string(), fix },
            TopicsFault::Hidden { .. } => Self::Directory {
                problem: fault.to_string(),
                fix: "give it; `redrive check --kafka` prints the commands",
            },
            TopicsFault::Uneven(_) => Self::Directory { problem: fault.to_string(), fix: EXTEND_TIERS },
            // The commands would bury what is wrong; `check` prints them all.
            _ => Self::Directory {
                problem: fault.to_string().lines().next().unwrap_or_default().to_owned(),
                fix: "`redrive check --kafka` prints the commands that help; `topics = \"create\"` makes what is missing",
            },
        }
    }
}

/// Makes sure that all topics of a pipeline are there and as they must be. With [`TopicsMode::Create`] missing ones are
/// made and such with too few partitions extended; nothing else is ever changed.
pub fn prepare(cluster: &Cluster, pipeline: &KafkaPipeline, mode: TopicsMode) -> Result<Topics, TopicsFault> {
    let mut found = survey(cluster, pipeline)?;
    if mode == TopicsMode::Create
        && found.hidden.is_empty()
        && (!found.missing.is_empty() || found.wrong.iter().any(Wrong::is_growth))
    {
        survey::make(cluster, &found)?;
        found = survey(cluster, pipeline)?;
    }
    let bootstrap = cluster.bootstrap().to_owned();
    if !found.hidden.is_empty() {
        return Err(TopicsFault::Hidden { topics: found.hidden });
    }
    if !found.missing.is_empty() {
        return Err(TopicsFault::Missing { missing: found.missing, bootstrap });
    }
    if !found.wrong.is_empty() {
        return Err(TopicsFault::Wrong { wrong: found.wrong, bootstrap });
    }
    for warning in &found.warnings {
        tracing::warn!(pipeline = %pipeline.name, "{warning}");
    }
    Ok(found.topics)
}

/// Refuses a pipeline with ordered keys whose source has other partitions than its tiers, whether topics may be made or not:
/// keys have moved, and only a person can say that their order does not matter.
pub fn refuse_uneven(cluster: &Cluster, pipeline: &KafkaPipeline) -> Result<(), TopicsFault> {
    match survey(cluster, pipeline)?.uneven {
        None => Ok(()),
        Some(uneven) => Err(TopicsFault::Uneven(uneven)),
    }
}
