//! Finds one message by its id, or by the number shown in listings; by a scan if ids are not remembered.

use super::cursor::PARTS;
use super::page::{scan, shown_as};
use crate::engine::continued::ids_before;
use crate::engine::{EngineError, MessagePhase, MessageState, PendingAt, PendingMessage, PendingState};
use crate::handle::{HandleError, PipelineHandle};
use crate::letters::select::{self, LetterIds, SelectError};
use crate::run::steer::{self, FoundMessages, Part};

/// Messages that are scanned before giving up.
pub(crate) const SEARCH_MAX: u64 = 1_000_000;
/// Messages read in one step of the scan.
const STEP: usize = 1_024;

/// Where a named message is.
#[derive(Clone, Debug)]
pub(super) enum Located {
    /// It waits, or was taken but not started.
    Waits(PendingAt),
    InFlight,
    /// It is not pending.
    Ended(Box<MessageState>),
    NotFound,
    /// The scan reached its limit.
    TooMany,
}

/// The result of a scan.
enum Searched {
    Found(Part, Box<PendingMessage>),
    NotFound,
    TooMany,
}

/// The current state of a message, by its id or by the number shown in listings (`orders/17`); `None` if this process
/// does not know it. If ids are not remembered, the pending messages of this process and the dead letters are
/// scanned.
pub async fn message(handle: &PipelineHandle, name: &str) -> Result<Option<MessageState>, HandleError> {
    let gated = handle.figures().is_gated();
    match handle.message(name).await {
        // Ids given by edits and ids of imported letters are known only to the letters.
        Ok(None) if number_of(handle, name).is_none() => return letter(handle, name).await,
        Err(HandleError::NotRemembered(_)) | Ok(None) => {}
        // As in a listing: while nothing may start, messages that would be ready or delayed are shown as held.
        Ok(Some(known)) if gated && matches!(known.state, MessagePhase::Ready | MessagePhase::Delayed) => {
            return Ok(Some(MessageState { state: MessagePhase::Held, ..known }));
        }
        known => return known,
    }
    if let Searched::Found(part, found) = search(handle, name, &PARTS).await? {
        let state = MessageState::of_pending(&found);
        let phase = match state.state {
            MessagePhase::Replaying => MessagePhase::Replaying,
            _ => shown_as(part, gated).into(),
        };
        return Ok(Some(MessageState { state: phase, ..state }));
    }
    letter(handle, name).await
}

/// The letter of a message, by the id of either.
async fn letter(handle: &PipelineHandle, name: &str) -> Result<Option<MessageState>, HandleError> {
    let numbers = match select::resolve(handle, &[name.to_owned()]).await {
        Ok(numbers) => numbers,
        Err(SelectError::Handle(error)) => return Err(error),
        Err(_) => return Ok(None),
    };
    let Some(number) = numbers.first() else { return Ok(None) };
    let letter = handle.letter(*number).await?;
    Ok(letter.map(|letter| {
        let state = MessageState::of_letter(&letter);
        // Show the id that was asked for, unless that was a number.
        if letter.is_of(name) { MessageState { id: name.to_owned(), ..state } } else { state }
    }))
}

/// Locates the message with this id or number.
pub(super) async fn locate(handle: &PipelineHandle, name: &str) -> Result<Located, HandleError> {
    let number = number_of(handle, name);
    let id = name.to_owned();
    let found = handle.ask(move |asked| {
        let held = asked.running.as_ref().and_then(|running| steer::find_held(&id, number, running.machine));
        held.map_or_else(|| steer::locate(&id, asked.engine), Ok)
    });
    let found = found.await?;
    let parts: &[Part] = match found {
        FoundMessages::Runs => return Ok(Located::InFlight),
        FoundMessages::Waits(at) => return Ok(Located::Waits(at)),
        FoundMessages::NotWaiting => match handle.message(name).await {
            Ok(Some(known)) => match known.state {
                // Ready messages are in no table.
                MessagePhase::Ready => &[Part::Waiting(PendingState::Ready)],
                MessagePhase::InFlight => return Ok(Located::InFlight),
                MessagePhase::Dead | MessagePhase::Discarded | MessagePhase::Succeeded => {
                    return Ok(Located::Ended(Box::new(known)));
                }
                _ => &PARTS,
            },
            Ok(None) if number.is_none() && !is_continued(name) => return Ok(Located::NotFound),
            Ok(None) | Err(HandleError::NotRemembered(_)) => &PARTS,
            Err(error) => return Err(error),
        },
        FoundMessages::Unknown => &PARTS,
    };
    Ok(match search(handle, name, parts).await? {
        Searched::Found(Part::Started, _) => Located::InFlight,
        Searched::Found(_, found) => Located::Waits(found.at),
        Searched::TooMany => Located::TooMany,
        Searched::NotFound => match letter(handle, name).await? {
            Some(known) => Located::Ended(Box::new(known)),
            None => Located::NotFound,
        },
    })
}

/// Whether this id may have been given by an edit.
fn is_continued(name: &str) -> bool {
    ids_before(name).next().is_some()
}

/// The number in a name like `orders/17`.
fn number_of(handle: &PipelineHandle, name: &str) -> Option<u64> {
    LetterIds::of(handle).number(name)
}

/// Scans pending messages, step by step. An id takes precedence over a number, for messages with an id like
/// `orders/17`.
async fn search(handle: &PipelineHandle, name: &str, parts: &[Part]) -> Result<Searched, HandleError> {
    let number = number_of(handle, name);
    let (mut looked, mut by_number) = (0, None);
    for part in parts {
        let mut after = None;
        loop {
            let step = match scan(handle, *part, after, STEP, STEP).await {
                Err(HandleError::Engine(EngineError::Damaged(_))) => break,
                step => step?,
            };
            looked += step.scanned;
            for found in step.messages {
                if found.message.id() == name {
                    return Ok(Searched::Found(*part, Box::new(found)));
                }
                if Some(found.at.number) == number {
                    by_number = Some((*part, Box::new(found)));
                }
            }
            after = step.next;
            if after.is_none() {
                break;
            }
            if looked >= SEARCH_MAX {
                return Ok(by_number.map_or(Searched::TooMany, |(part, found)| Searched::Found(part, found)));
            }
        }
    }
    Ok(by_number.map_or(Searched::NotFound, |(part, found)| Searched::Found(part, found)))
}
