//! Why an experiment could not run, or its result could not be written.

use std::path::PathBuf;

use crate::results::ResultFault;
use crate::scenario::ScenarioFault;

#[derive(Debug, thiserror::Error)]
pub enum LabError {
    #[error("there is no scenario `{name}`; there are {known}")]
    Unknown { name: String, known: String },
    #[error("{}: {error}", .path.display())]
    File { path: PathBuf, error: std::io::Error },
    #[error("scenario file: {0}")]
    Scenario(#[from] ScenarioFault),
    #[error("the run failed: {0}")]
    Run(String),
    #[error("scenario `{name}` does not run on the engine {engine}: {why}")]
    Unfit { name: String, engine: String, why: &'static str },
    #[error(transparent)]
    Result(#[from] ResultFault),
}
