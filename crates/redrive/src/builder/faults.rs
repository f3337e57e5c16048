//! What is wrong with what a user wrote, all of it at once.

use std::fmt;

use redrive_core::PolicyFault;

use crate::engine::EngineError;

/// Who can do something about a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FaultKind {
    /// The author of the settings: they are wrong, or do not fit what is stored.
    Setting,
    /// The process that has the store open, or time.
    Busy,
    /// The operator of the disk.
    Storage,
}

impl FaultKind {
    pub(super) fn of(error: &EngineError) -> Self {
        match error {
            EngineError::Directory { .. } | EngineError::Version(_) | EngineError::NotRemembered => {
                Self::Setting
            }
            EngineError::Owned(_) | EngineError::Unavailable(_) => Self::Busy,
            EngineError::Storage(_) | EngineError::Damaged(_) => Self::Storage,
        }
    }
}

/// One thing that has to be repaired: where it is, the setting, its value, what is wrong and what to write instead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BuildFault {
    /// What it is about.
    pub kind: FaultKind,
    /// `None` if it concerns all of them.
    pub pipeline: Option<String>,
    /// The setting.
    pub key: String,
    /// The value that was given.
    pub value: String,
    /// What is wrong with it.
    pub problem: String,
    /// Empty where the problem says what to do.
    pub fix: String,
}

impl BuildFault {
    pub(super) fn general(key: &str, value: impl Into<String>, problem: &str, fix: &str) -> Self {
        Self {
            kind: FaultKind::Setting,
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
        let (kind, pipeline) = (FaultKind::Setting, Some(pipeline.to_owned()));
        Self { kind, pipeline, key, value, problem, fix }
    }
}

impl fmt::Display for BuildFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(pipeline) = &self.pipeline {
            write!(f, "pipeline `{pipeline}`: ")?;
        }
        match self.fix.as_str() {
            "" => write!(f, "{}\n  nothing was started", self.problem),
            fix => write!(f, "{}\n  fix: {fix}", self.problem),
        }
    }
}

/// Every fault that was found. Never empty; nothing was opened or started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BuildError {
    /// All of them.
    pub faults: Vec<BuildFault>,
}

impl fmt::Display for BuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines: Vec<String> = self.faults.iter().map(ToString::to_string).collect();
        f.write_str(&lines.join("\n"))
    }
}

impl std::error::Error for BuildError {}
