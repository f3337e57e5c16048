//! Imports letters; the actor is recorded before they are created.

use redrive_core::Fingerprint;

use super::action::{Action, ActionKind};
use super::error::ActionError;
use super::log::ActionLog;
use crate::engine::{ForeignLetter, ImportAnswer};
use crate::handle::PipelineHandle;

/// Letters that are given to the engine in one batch.
const BATCH_MAX: usize = 100;
/// Approximate bytes of one batch.
const BATCH_BYTES: usize = 4 << 20;

/// The result of an import, or of its dry run.
#[derive(Clone, Debug, Default)]
pub struct Imported {
    /// An answer for each letter, in the order of the letters.
    pub answers: Vec<ImportAnswer>,
}

impl Imported {
    /// The groups of the letters that were new.
    pub fn groups(&self) -> impl Iterator<Item = &Fingerprint> {
        self.answers.iter().filter_map(|answer| match answer {
            ImportAnswer::Imported { group, .. } => Some(group),
            _ => None,
        })
    }
}

/// Imports letters; `from` describes their origin in words. The record comes first, as with a discard: a crash in
/// between leaves a record of letters that do not exist, and importing them again creates them.
pub(super) async fn import(
    log: &ActionLog,
    handle: &PipelineHandle,
    letters: Vec<ForeignLetter>,
    dry_run: bool,
    actor: &str,
    from: &str,
) -> Result<Imported, ActionError> {
    let _alone = log.alone().await;
    let batches = batches(letters);
    let mut would = Imported::default();
    for batch in &batches {
        would.answers.extend(handle.import_by(Some(actor), batch.clone(), true).await?);
    }
    let new = would.groups().count() as u64;
    if dry_run || new == 0 {
        return Ok(would);
    }
    let action = Action::new(handle.now(), actor, ActionKind::Import, handle.name()).note(from);
    log.record(Action { letters: new, ..action }).await?;
    let mut done = Imported::default();
    for batch in batches {
        done.answers.extend(handle.import_by(Some(actor), batch, false).await?);
    }
    Ok(done)
}

fn batches(letters: Vec<ForeignLetter>) -> Vec<Vec<ForeignLetter>> {
    let mut batches: Vec<Vec<ForeignLetter>> = Vec::new();
    let mut bytes = 0;
    for letter in letters {
        let size = letter.message.wire().len() + letter.history.raw().len();
        match batches.last_mut() {
            Some(batch) if batch.len() < BATCH_MAX && bytes + size <= BATCH_BYTES => batch.push(letter),
            _ => {
                bytes = 0;
                batches.push(vec![letter]);
            }
        }
        bytes += size;
    }
    batches
}
