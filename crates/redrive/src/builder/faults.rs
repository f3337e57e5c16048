//! What is wrong with what a user wrote, all of it at once.

use std::fmt;

use redrive_core::PolicyFault;

/// One thing that has to be repaired: where it is, the setting, its value, what is wrong and what to write instead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BuildFault {
    /// `None` if it concerns all of them.
    pub pipeline: Option<String>,
    pub key: String,
    pub value: String,
    pub problem: String,
    pub fix: String,
}

impl BuildFault {
    pub(super) fn general(key: &str, value: impl Into<String>, problem: &str, fix: &str) -> Self {
        Self {
            pipeline: None,
            key: key.to_owned(),
            value: value.into(),
            problem: problem.to_owned(),
            fix: fix.to_owned(),
        }
    }

    pub(super) fn of(pipeline: &str, key: &str, value: impl Into<String>, problem: &str, fix: &str) -> Self {
        Self { pipeline: Some(pipeline.to_owned()), ..Self::general(key, value, problem, fix) }
    }

    pub(super) fn of_policy(pipeline: &str, fault: PolicyFault) -> Self {
        let PolicyFault { key, value, problem, fix, .. } = fault;
        Self { pipeline: Some(pipeline.to_owned()), key, value, problem, fix }
    }
}

impl fmt::Display for BuildFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(pipeline) = &self.pipeline {
            write!(f, "pipeline `{pipeline}`: ")?;
        }
        write!(f, "{}\n  fix: {}", self.problem, self.fix)
    }
}

/// Every fault that was found. Never empty; nothing was opened or started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BuildError {
    pub faults: Vec<BuildFault>,
}

impl fmt::Display for BuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines: Vec<String> = self.faults.iter().map(ToString::to_string).collect();
        f.write_str(&lines.join("\n"))
    }
}

impl std::error::Error for BuildError {}
