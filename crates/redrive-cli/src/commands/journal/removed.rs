//! Stores that were removed: the file PIPELINES lists them with what they held, and their directory is gone. Reads only.

use std::path::{Path, PathBuf};

use redrive::{Time, timestamp};
use serde_json::{Value, json};

use crate::output::count;

/// The engine's list of its stores.
const FILE: &str = "PIPELINES";
const HEAD: &str = "redrive pipelines\n";

/// A store whose directory is missing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Removed {
    pub pipeline: String,
    pub path: PathBuf,
    /// What it held when it was last counted.
    pending: u64,
    letters: u64,
    at: Time,
}

/// The stores that were removed from `dir`. A list that is missing or damaged misses none: its owner writes it anew.
pub fn removed(dir: &Path) -> Vec<Removed> {
    let listed = std::fs::read_to_string(dir.join(FILE)).ok().and_then(|text| read(dir, &text));
    let is_gone = |store: &Removed| !store.path.join("journal").is_dir();
    listed.unwrap_or_default().into_iter().filter(is_gone).collect()
}

fn read(dir: &Path, text: &str) -> Option<Vec<Removed>> {
    let (body, checksum) = text.rsplit_once("checksum ")?;
    if checksum != format!("{:08x}\n", crc32fast::hash(body.as_bytes())) {
        return None;
    }
    let line = |line: &str| {
        let words: Vec<&str> = line.split(' ').collect();
        let [name, "pending", pending, "letters", letters, "at", at] = words[..] else { return None };
        Some(Removed {
            pipeline: name.to_owned(),
            path: dir.join(name),
            pending: pending.parse().ok()?,
            letters: letters.parse().ok()?,
            at: Time::from_millis(at.parse().ok()?),
        })
    };
    body.strip_prefix(HEAD)?.lines().map(line).collect()
}

impl Removed {
    /// What is gone, and what it held.
    pub fn lines(&self) -> [String; 2] {
        let Self { pipeline, path, pending, letters, at } = self;
        let when = if *at > Time::ZERO { format!(" at {}", timestamp::print(*at)) } else { String::new() };
        [
            format!(
                "{}: the directory of pipeline `{pipeline}` is missing; it held {} pending messages and {} dead letters{when}",
                path.display(),
                count(*pending),
                count(*letters)
            ),
            format!(
                "  restore it from a backup, or accept the loss: `redrive journal --pipeline {pipeline} --accept-loss`"
            ),
        ]
    }

    pub fn to_json(&self) -> Value {
        json!({
            "pipeline": self.pipeline,
            "path": self.path.display().to_string(),
            "pending": self.pending,
            "letters": self.letters,
            "at": (self.at > Time::ZERO).then(|| timestamp::print(self.at)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn manifest(body: &str) -> String {
        let body = format!("{HEAD}{body}");
        format!("{body}checksum {:08x}\n", crc32fast::hash(body.as_bytes()))
    }

    #[test]
    fn a_store_is_missed_if_it_is_listed_and_has_no_directory() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(removed(dir.path()), [], "no list");
        std::fs::create_dir_all(dir.path().join("orders/journal")).unwrap();
        let text = manifest("orders pending 1 letters 2 at 0\nother pending 0 letters 50 at 1790000000000\n");
        std::fs::write(dir.path().join(FILE), &text).unwrap();
        let missed = removed(dir.path());
        assert_eq!(missed.iter().map(|store| store.pipeline.as_str()).collect::<Vec<_>>(), ["other"]);
        let [what, fix] = missed[0].lines();
        assert!(what.contains("0 pending messages and 50 dead letters at 2026-"), "{what}");
        assert!(fix.contains("--pipeline other --accept-loss"), "{fix}");
        std::fs::write(dir.path().join(FILE), text.replace("other", "othre")).unwrap();
        assert_eq!(removed(dir.path()), [], "a damaged list");
    }
}
