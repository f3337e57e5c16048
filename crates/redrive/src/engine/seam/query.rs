//! The lookups of an engine. None of them changes a message or a letter.

use std::sync::Arc;

use redrive_core::{GroupId, Message, Time};

use super::counts::{Counts, Oldest};
use crate::engine::condition::Condition;
use crate::engine::error::EngineError;
use crate::engine::groups::{GroupFigures, GroupMarks};
use crate::engine::letter::{Letter, LetterScan, LetterStanding, LetterState};
use crate::engine::message_state::KeyLine;
use crate::engine::message_state::MessageState;
use crate::engine::pending::{PendingAt, PendingScan, PendingState};
use crate::engine::shared_records::SharedRecords;
use crate::engine::store_notice::Upkeep;

/// Answers questions about what an engine holds. `&mut self` allows for caches and file reads.
pub trait Query: Send + 'static {
    /// How many messages are in which state.
    fn counts(&self) -> Counts;

    /// The times of the oldest waiting message and open letter. It is called about once a second and may be
    /// approximate, but must be cheap: never a walk through everything. The default knows none.
    fn oldest(&mut self) -> Result<Oldest, EngineError> {
        Ok(Oldest::default())
    }

    /// The condition of the engine. Cheap: it is called as often as [`Query::counts`].
    fn condition(&self) -> Condition {
        Condition::default()
    }

    /// How often the store repaired itself, and how far its scrub has come.
    fn upkeep(&self) -> Upkeep {
        Upkeep::default()
    }

    /// Letters in order of their id, after `after`, in `state` if one is given.
    fn letters(
        &mut self,
        state: Option<LetterState>,
        after: Option<u64>,
        limit: usize,
    ) -> Result<Vec<Letter>, EngineError>;

    /// Like [`Query::letters`], but looks at no more than `look_max` letters, whatever their state, and says how far it
    /// came: a search for few among many must not delay deliveries. It also ends once it holds [`SCAN_BYTES`].
    ///
    /// [`SCAN_BYTES`]: crate::engine::letter::SCAN_BYTES
    fn scan_letters(
        &mut self,
        state: Option<LetterState>,
        after: Option<u64>,
        limit: usize,
        look_max: usize,
    ) -> Result<LetterScan, EngineError>;

    /// One letter; `None` if there is none with this id.
    fn letter(&mut self, id: u64) -> Result<Option<Letter>, EngineError>;

    /// The numbers of the letters of messages with this id, in order, without a search. The result may contain others
    /// but misses none. `None` if the engine has no index of ids, or finds too many: then the caller scans all letters.
    fn letters_of(&mut self, id: &str) -> Result<Option<Vec<u64>>, EngineError> {
        let _ = id;
        Ok(None)
    }

    /// The state of letters with regard to a replay job; `None` where there is no such letter.
    fn letter_standings(&mut self, job: u64, ids: &[u64])
    -> Result<Vec<Option<LetterStanding>>, EngineError>;

    /// The message that a letter had before one of its edits.
    fn message_before(&mut self, id: u64, edit: &str) -> Result<Option<Message>, EngineError>;

    /// The groups that have open letters, in no order. Taken from running counters, never by a walk through the
    /// letters.
    fn groups(&mut self, now: Time) -> Result<Vec<GroupFigures>, EngineError> {
        let _ = now;
        Ok(Vec::new())
    }

    /// The numbers of the open letters counted in this group, after `after` and in order.
    fn letters_in_group(
        &mut self,
        group: GroupId,
        after: Option<u64>,
        limit: usize,
    ) -> Result<Vec<u64>, EngineError> {
        let _ = (group, after, limit);
        Ok(Vec::new())
    }

    /// How many open letters of this group died after `since`, counted up to `max`.
    fn open_since(&mut self, group: GroupId, since: Time, max: u64) -> Result<u64, EngineError> {
        let _ = (group, since, max);
        Ok(0)
    }

    /// The decisions about groups, for all processes that share the pipeline; `None` if they are stored outside the
    /// engine.
    fn group_marks(&self) -> Option<GroupMarks> {
        None
    }

    /// The state of the message with this id. An id is known for the deduplication window after its acceptance, perhaps
    /// for longer; if it was accepted again, the latest message is meant. Without such a window the answer is
    /// [`EngineError::NotRemembered`].
    fn message(&mut self, id: &str, now: Time) -> Result<Option<MessageState>, EngineError> {
        let _ = (id, now);
        Err(EngineError::NotRemembered)
    }

    /// The line of a key on a pipeline that orders keys: its head, and how many messages wait. `None` if no message of
    /// the key waits or runs. As with [`Query::message`], waiting messages are found only if ids are remembered.
    fn key_line(&mut self, key: &[u8]) -> Result<Option<KeyLine>, EngineError> {
        let _ = key;
        Err(EngineError::NotRemembered)
    }

    /// Messages that wait in `state`, after the key `after`, in the engine's own order. Looks at no more than
    /// `look_max` entries and holds about [`SCAN_BYTES`]: a listing must not delay deliveries. Messages in flight are
    /// known above the seam, so the engine is not asked for them.
    ///
    /// [`SCAN_BYTES`]: crate::engine::letter::SCAN_BYTES
    fn scan_pending(
        &mut self,
        state: PendingState,
        after: Option<(u64, u64)>,
        limit: usize,
        look_max: usize,
    ) -> Result<PendingScan, EngineError>;

    /// Where the message with this id waits, without a search; `None` if it does not wait or cannot be found at once.
    /// Engines that do not remember ids answer [`EngineError::NotRemembered`].
    fn locate(&mut self, id: &str) -> Result<Option<PendingAt>, EngineError> {
        let _ = id;
        Err(EngineError::NotRemembered)
    }

    /// The records shared by all processes of the pipeline: replay jobs, the action log. `None` if it has only one
    /// process.
    fn shared_records(&self) -> Option<Arc<dyn SharedRecords>> {
        None
    }
}
