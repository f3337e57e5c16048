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

/// Answers questions about what an engine holds. `&mut self` is for caches and reads of files.
pub trait Query: Send + 'static {
    /// How many messages are in which state.
    fn counts(&self) -> Counts;

    /// The oldest of what waits and of the open letters. It is asked about once a second and may be approximate, but must
    /// be cheap: a look at what is at hand, never a walk through everything. An engine that cannot tell says so.
    fn oldest(&mut self) -> Result<Oldest, EngineError> {
        Ok(Oldest::default())
    }

    /// How the engine stands beside its messages. Cheap: it is asked about as often as [`Query::counts`].
    fn condition(&self) -> Condition {
        Condition::default()
    }

    /// How often it repaired itself and how far it has checked itself.
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
    /// came: a search for few among many must not hold up deliveries. It also ends once it holds [`SCAN_BYTES`].
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

    /// The numbers of the letters of messages with this id, in order, without a search. Others may be among them; none is
    /// missing. `None` if the engine has no index of ids, or finds too many: then the caller looks through all letters.
    fn letters_of(&mut self, id: &str) -> Result<Option<Vec<u64>>, EngineError> {
        let _ = id;
        Ok(None)
    }

    /// How letters stand towards a replay job; `None` where there is no such letter.
    fn letter_standings(&mut self, job: u64, ids: &[u64])
    -> Result<Vec<Option<LetterStanding>>, EngineError>;

    /// The message that a letter had before one of its edits.
    fn message_before(&mut self, id: u64, edit: &str) -> Result<Option<Message>, EngineError>;

    /// The groups that have open letters, in no order. Counted as letters come and go; never by a walk through them.
    fn groups(&mut self, now: Time) -> Result<Vec<GroupFigures>, EngineError> {
        let _ = now;
        Ok(Vec::new())
    }

    /// The numbers of open letters that are counted in this group, after `after` and in order.
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

    /// What was decided about groups, for all processes that share the pipeline; `None` where that is kept outside of the
    /// engine.
    fn group_marks(&self) -> Option<GroupMarks> {
        None
    }

    /// Where the message with this id is. An id is known for the window of deduplication after it was accepted, and may
    /// be known for longer; if it was accepted again, the latest one is meant. Without such a window the answer is
    /// [`EngineError::NotRemembered`].
    fn message(&mut self, id: &str, now: Time) -> Result<Option<MessageState>, EngineError> {
        let _ = (id, now);
        Err(EngineError::NotRemembered)
    }

    /// The line of a key, where keys are ordered: whom its messages wait for, and how many wait. `None` if nothing of the
    /// key waits or runs. As with [`Query::message`], who waits is found only where ids are remembered.
    fn key_line(&mut self, key: &[u8]) -> Result<Option<KeyLine>, EngineError> {
        let _ = key;
        Err(EngineError::NotRemembered)
    }

    /// Messages that wait in `state`, after the key `after`, in an order that is the engine's own. Looks at no more than
    /// `look_max` entries and holds about [`SCAN_BYTES`]: a listing must not hold up deliveries. What is handed out is
    /// known above the seam, so the engine is not asked for what is in flight.
    ///
    /// [`SCAN_BYTES`]: crate::engine::letter::SCAN_BYTES
    fn scan_pending(
        &mut self,
        state: PendingState,
        after: Option<(u64, u64)>,
        limit: usize,
        look_max: usize,
    ) -> Result<PendingScan, EngineError>;

    /// Where the message with this id waits, without a search; `None` if it does not wait, or not where that can be known
    /// at once. Engines that do not remember ids answer [`EngineError::NotRemembered`].
    fn locate(&mut self, id: &str) -> Result<Option<PendingAt>, EngineError> {
        let _ = id;
        Err(EngineError::NotRemembered)
    }

    /// What all processes of the pipeline share: replay jobs, the action log. `None` where it has one process only.
    fn shared_records(&self) -> Option<Arc<dyn SharedRecords>> {
        None
    }
}
