//! Finds out which messages of a replay job are held.

use std::collections::HashSet;

use super::page::scan;
use crate::engine::{EngineError, PendingState};
use crate::handle::{HandleError, PipelineHandle};
use crate::run::steer::Part;

/// Messages read in one step.
const STEP: usize = 256;
/// Held messages that are looked at, since others are held too.
const LOOK_MAX: u64 = 100_000;

/// Those of `letters` that wait in this process as held, each with whether a call has failed since it was put back.
pub(crate) async fn held(
    handle: &PipelineHandle,
    letters: &HashSet<u64>,
) -> Result<Vec<(u64, bool)>, HandleError> {
    let (mut found, mut looked, mut after) = (Vec::new(), 0, None);
    while looked < LOOK_MAX && found.len() < letters.len() {
        let step = match scan(handle, Part::Waiting(PendingState::Held), after, STEP, STEP).await {
            Err(HandleError::Engine(EngineError::Damaged(_))) => break,
            step => step?,
        };
        looked += step.scanned;
        let of_job = step.messages.iter().filter(|message| letters.contains(&message.at.number));
        found.extend(of_job.map(|held| (held.at.number, held.meta.attempts + held.meta.uncounted > 0)));
        after = step.next;
        if after.is_none() {
            break;
        }
    }
    Ok(found)
}
