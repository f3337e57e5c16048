//! Removed stores, as `journal` prints them.

use std::path::{Path, PathBuf};

use redrive::internal::engine::embedded::directory::manifest::{self, Holding};
use redrive::{Time, timestamp};
use serde_json::{Value, json};

/// A store whose directory is missing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Removed {
    pub pipeline: String,
    path: PathBuf,
    held: Holding,
}

/// The stores that were removed from `dir`.
pub fn removed(dir: &Path) -> Vec<Removed> {
    let missing = |(pipeline, held)| Removed { path: dir.join(&pipeline), pipeline, held };
    manifest::removed(dir).into_iter().map(missing).collect()
}

impl Removed {
    /// What was removed, and what it held.
    pub fn lines(&self) -> [String; 2] {
        let Self { pipeline, path, held } = self;
        [
            format!("{}: the directory of pipeline `{pipeline}` is missing; it held {held}", path.display()),
            format!(
                "  restore it from a backup, or accept the loss: `redrive journal --pipeline {pipeline} --accept-loss`"
            ),
        ]
    }

    pub fn to_json(&self) -> Value {
        let Holding { pending, letters, at } = self.held;
        json!({
            "pipeline": self.pipeline,
            "path": self.path.display().to_string(),
            "pending": pending,
            "letters": letters,
            "at": (at > Time::ZERO).then(|| timestamp::print(at)),
        })
    }
}
