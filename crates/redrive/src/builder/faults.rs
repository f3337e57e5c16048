//! Faults in a user's settings, reported all at once.

use std::fmt;

use redrive_core::PolicyFault;

use crate::engine::EngineError;

/// Who can fix a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FaultKind {
    /// The author of the settings: they are wrong, or do not match the stored data.
    Setting,
    /// The process that has the store open; or the store is only unavailable for now.
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

/// One fault: where it is, the setting, its value, what is wrong and what to write instead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BuildFault {
    /// Who can fix it.
    pub kind: FaultKind,
    /// The pipeline; `None` if the fault concerns all of them.
    pub pipeline: Option<String>,
    /// The setting.
    pub key: String,
    /// The value that was given.
    pub value: String,
    /// What is wrong with it.
    pub problem: String,
    /// The fix; empty if the problem says what to do.
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

/// All faults that were found, at least one. Nothing was opened or started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BuildError {
    /// The faults.
    pub faults: Vec<BuildFault>,
}

impl fmt::Display for BuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines: Vec<String> = self.faults.iter().map(ToString::to_string).collect();
        f.write_str(&lines.join("\n"))
    }
}

impl std::error::Error for BuildError {}
