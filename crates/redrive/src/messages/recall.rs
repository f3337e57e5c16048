//! Takes back the messages that an aborted replay job has published and that were not started: each becomes its
//! former letter again.

use std::collections::HashSet;

use super::cursor::PARTS;
use super::find::SEARCH_MAX;
use super::page::scan;
use super::steer::steer;
use crate::engine::{EngineError, LetterState, PendingMessage};
use crate::handle::{HandleError, PipelineHandle};
use crate::run::steer::{FormerLetter, Steer, Steered};

/// Messages read in one step.
const STEP: usize = 256;

/// Turns the waiting messages of a replay job in this process back into letters. Returns how many; running ones
/// continue.
pub(crate) async fn recall(
    handle: &PipelineHandle,
    job: u64,
    letters: &HashSet<u64>,
) -> Result<u64, HandleError> {
    let (mut recalled, mut looked) = (0, 0);
    for part in PARTS {
        let mut after = None;
        while looked < SEARCH_MAX {
            let step = match scan(handle, part, after, STEP, STEP).await {
                Err(HandleError::Engine(EngineError::Damaged(_))) => break,
                step => step?,
            };
            looked += step.scanned;
            let is_meant =
                |found: &&PendingMessage| letters.contains(&found.at.number) && found.meta.replays > 0;
            for found in step.messages.iter().filter(is_meant) {
                let letter = handle.letter(found.at.number).await?;
                let is_of_job = |state, last| state == LetterState::Replaying && last == Some(job);
                let Some(letter) = letter.filter(|letter| is_of_job(letter.state, letter.job)) else {
                    continue;
                };
                let former = FormerLetter::of(&letter);
                let (at, how) = (found.at, Steer::Recall(former));
                let steered = handle.ask_later(move |asked, reply| steer(at, how, asked, reply)).await?;
                recalled += u64::from(steered == Steered::Done);
            }
            after = step.next;
            if after.is_none() {
                break;
            }
        }
    }
    Ok(recalled)
}
