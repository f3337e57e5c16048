//! Edits of letters: a letter is rewritten with its new message, and its earlier versions in the same frame. So code
//! that reads, replays or moves letters need not know about edits.

use std::collections::HashSet;

use redrive_core::{Message, Meta};

use crate::engine::edit::{EDIT_NAME_BYTES_MAX, EDITS_MAX, EditAnswer, LetterEdit};
use crate::engine::embedded::disk::real::Disk;
use crate::engine::embedded::index::tables::IndexTables;
use crate::engine::embedded::journal::record::{ReplacedWire, Stored, Was};
use crate::engine::embedded::store::find::Lookup;
use crate::engine::letter::LetterState;
use crate::engine::seam::EngineError;

/// The maximum size of a letter with all of its versions. A frame holds more, but later attempts must still fit in.
const BYTES_MAX: usize = 48 << 20;

/// How a letter is rewritten, or why it is not.
type Revised = Result<Stored, EditAnswer>;

/// The answers for several letters, and the letters to be written.
#[derive(Debug, Default)]
pub(super) struct Revision {
    pub(super) answers: Vec<EditAnswer>,
    pub(super) letters: Vec<(u64, Stored)>,
}

/// Gives open letters new messages.
pub(super) fn edit<D: Disk, S: IndexTables>(
    lookup: &Lookup<'_, D, S>,
    edit: &str,
    letters: &[LetterEdit],
) -> Result<Revision, EngineError> {
    if edit.len() > EDIT_NAME_BYTES_MAX {
        return Ok(Revision { answers: vec![EditAnswer::TooLarge; letters.len()], ..Revision::default() });
    }
    revise(lookup, letters.iter().map(|letter| (letter.letter, letter)), |stored, letter| {
        let last = stored.replaced.last().map(|version| version.edit.as_str());
        if !letter.from.is_current(redrive_core::Time::from_millis(stored.dead_at), last) {
            return Err(EditAnswer::Changed);
        }
        if stored.replaced.len() >= EDITS_MAX {
            return Err(EditAnswer::TooMany);
        }
        let wire = std::mem::replace(&mut stored.wire, letter.message.wire().clone());
        stored.replaced.push(ReplacedWire { edit: edit.to_owned(), wire });
        if stored.len_hint() > BYTES_MAX { Err(EditAnswer::TooLarge) } else { Ok(()) }
    })
}

/// Gives letters whose last edit is this one their previous message back.
pub(super) fn undo<D: Disk, S: IndexTables>(
    lookup: &Lookup<'_, D, S>,
    edit: &str,
    ids: &[u64],
) -> Result<Revision, EngineError> {
    revise(lookup, ids.iter().map(|seq| (*seq, ())), |stored, ()| {
        let before = stored.replaced.pop_if(|version| version.edit == edit);
        stored.wire = before.ok_or(EditAnswer::Changed)?.wire;
        Ok(())
    })
}

/// The message that a letter had before one of its edits.
pub(crate) fn message_before<D: Disk, S: IndexTables>(
    lookup: &Lookup<'_, D, S>,
    seq: u64,
    edit: &str,
) -> Result<Option<Message>, EngineError> {
    let Some(slot) = lookup.book.asked_letter(seq)? else { return Ok(None) };
    let replaced = lookup.contents.replaced(&slot)?;
    let version = replaced.into_iter().find(|version| version.edit == edit);
    Ok(version.and_then(|version| Message::from_wire(version.wire).ok()))
}

/// Plans how open letters are rewritten, each at most once.
fn revise<D: Disk, S: IndexTables, T>(
    lookup: &Lookup<'_, D, S>,
    letters: impl Iterator<Item = (u64, T)>,
    change: impl Fn(&mut Stored, T) -> Result<(), EditAnswer>,
) -> Result<Revision, EngineError> {
    let (mut revision, mut chosen) = (Revision::default(), HashSet::new());
    for (seq, wish) in letters {
        let revised = match open_letter(lookup, seq)? {
            // The first edit is not written yet, so the second one is made from an outdated version.
            _ if chosen.contains(&seq) => Err(EditAnswer::Changed),
            Err(refused) => Err(refused),
            Ok(mut stored) => change(&mut stored, wish).map(|()| stored),
        };
        revision.answers.push(match revised {
            Ok(stored) => {
                chosen.insert(seq);
                revision.letters.push((seq, stored));
                EditAnswer::Done
            }
            Err(refused) => refused,
        });
    }
    Ok(revision)
}

/// An open letter, ready to be rewritten.
fn open_letter<D: Disk, S: IndexTables>(lookup: &Lookup<'_, D, S>, seq: u64) -> Result<Revised, EngineError> {
    let Some(slot) = lookup.book.asked_letter(seq)? else { return Ok(Err(EditAnswer::NotFound)) };
    if slot.state != LetterState::Open {
        return Ok(Err(EditAnswer::NotOpen(slot.state)));
    }
    let Some(stored) = lookup.contents.stored_letter(&slot)? else {
        return Ok(Err(EditAnswer::Damaged));
    };
    let meta = Meta { replays: slot.replays, ..stored.meta };
    Ok(Ok(Stored { was: Was::Letter, jobs: slot.jobs, meta, ..stored }))
}
