//! Why a pipeline cannot start with its topics as they are, with the commands that repair it.

use std::fmt::Write;

use redrive::internal::engine::EngineError;

use super::plan::Planned;
use crate::client::reach;

/// What to do when the source has grown while keys are ordered.
pub const EXTEND_TIERS: &str = "extend the tiers and the replay topic to the same number (`redrive check --kafka` prints the \
     commands), then start again; messages that wait in a tier by then may be overtaken once by later ones of their key, and \
     redrive_key_order_voided_total counts them, so wait until nothing is pending before you add partitions";

/// Why a pipeline cannot start with its topics as they are.
#[derive(Debug, thiserror::Error)]
pub enum TopicsFault {
    #[error("{}", reach::silent_text(brokers, problem))]
    Unreachable { brokers: String, problem: String },
    /// A wrong password, or an unknown certificate.
    #[error("{}", reach::refused_text(brokers, problem))]
    Refused { brokers: String, problem: String, fix: &'static str },
    #[error("the source topic {topic} does not exist; create it, or correct `source`")]
    NoSource { topic: String },
    /// Without permission to see a topic, whether it exists is unknown.
    #[error("the topic {} is not visible to this user: it lacks the permission Describe, so it is unknown whether it exists", topics.join(", "))]
    Hidden { topics: Vec<String> },
    #[error("{}", missing_text(missing, bootstrap))]
    Missing { missing: Vec<Planned>, bootstrap: String },
    #[error("{}", wrong_text(wrong, bootstrap))]
    Wrong { wrong: Vec<Wrong>, bootstrap: String },
    /// With key order, a key must have the same partition number in all topics.
    #[error("{0}")]
    Uneven(Uneven),
    #[error("the topic {topic} could not be made: {problem}")]
    NotMade { topic: String, problem: String },
}

impl From<TopicsFault> for EngineError {
    fn from(fault: TopicsFault) -> Self {
        match fault {
            TopicsFault::Unreachable { .. } => Self::Unavailable(fault.to_string()),
            // The number of its partitions is the producer's decision.
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
            // The commands would bury the problem; `check` prints them all.
            _ => Self::Directory {
                problem: fault.to_string().lines().next().unwrap_or_default().to_owned(),
                fix: "`redrive check --kafka` prints the commands that help; `topics = \"create\"` makes what is missing",
            },
        }
    }
}

/// A source and a tier with different numbers of partitions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Uneven {
    pub source: String,
    pub of_source: i32,
    pub tier: String,
    pub of_tier: i32,
}

impl std::fmt::Display for Uneven {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { source, of_source, tier, of_tier } = self;
        write!(
            f,
            "{source} has {of_source} partitions and {tier} has {of_tier}: with ordering = \"key\" the retries of a key \
             would wait in another partition than its new messages"
        )
    }
}

/// A property of an existing topic that would lose messages or stop the pipeline.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wrong {
    pub topic: String,
    pub problem: String,
    pub repair: Repair,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Repair {
    Partitions(i32),
    Setting(&'static str, String),
}

impl Wrong {
    /// Whether the source has grown and this topic has not.
    pub fn is_growth(&self) -> bool {
        matches!(self.repair, Repair::Partitions(_))
    }

    pub fn command(&self, bootstrap: &str) -> String {
        let topic = &self.topic;
        match &self.repair {
            Repair::Partitions(count) => {
                format!(
                    "kafka-topics.sh --bootstrap-server {bootstrap} --alter --topic {topic} --partitions {count}"
                )
            }
            Repair::Setting(key, value) => format!(
                "kafka-configs.sh --bootstrap-server {bootstrap} --alter --entity-type topics --entity-name {topic} \\\n  --add-config {key}={value}"
            ),
        }
    }
}

fn missing_text(missing: &[Planned], bootstrap: &str) -> String {
    let names: Vec<_> = missing.iter().map(|planned| planned.name.as_str()).collect();
    let mut text = match names.as_slice() {
        [name] => format!("topic {name} is missing"),
        [first, rest @ ..] => format!("topic {first} is missing (also {})", rest.join(", ")),
        [] => String::new(),
    };
    text.push_str("\ncreate them with:");
    for planned in missing {
        let _ = write!(text, "\n  {}", planned.command(bootstrap).replace('\n', "\n  "));
    }
    text
}

fn wrong_text(wrong: &[Wrong], bootstrap: &str) -> String {
    let mut text = String::new();
    for wrong in wrong {
        let command = wrong.command(bootstrap).replace('\n', "\n  ");
        let _ = writeln!(text, "topic {} {}\n  {command}", wrong.topic, wrong.problem);
    }
    text.trim_end().to_owned()
}
