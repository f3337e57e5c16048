//! The public state of a pipeline while its engine belongs to the dispatch thread: the last published figures, and
//! the account that limits new messages.

use std::sync::atomic::{AtomicBool, AtomicI64, Ordering::SeqCst};
use std::sync::{Mutex, PoisonError};

use redrive_core::Policy;

use crate::engine::{Condition, Counts, IngestError};
use crate::figures::Figures;

#[derive(Debug)]
pub(crate) struct SharedFigures {
    figures: Mutex<Figures>,
    closed: AtomicBool,
    account: Account,
}

/// The number of pending messages without asking the engine: pending at a known moment, plus accepted since, minus
/// terminal since. The dispatch thread reconciles it with the engine whenever it publishes.
#[derive(Debug, Default)]
struct Account {
    base: AtomicI64,
    /// Messages that the engine had accepted before the run began.
    before: u64,
    entered: AtomicI64,
    left: AtomicI64,
    /// Messages that were offered but not answered yet.
    entering: AtomicI64,
}

impl SharedFigures {
    pub(crate) fn new(policy: &Policy, counts: Counts, condition: Condition) -> Self {
        let base = AtomicI64::new(signed(counts.pending()));
        let account = Account { base, before: counts.accepted, ..Account::default() };
        let figures = Figures { pending: counts, condition, ..Figures::new(policy) };
        Self { figures: Mutex::new(figures), closed: AtomicBool::new(false), account }
    }

    /// A copy of the last published figures.
    pub(crate) fn figures(&self) -> Figures {
        self.figures.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn publish(&self, figures: Figures) {
        // The old figures are dropped after the lock is released.
        let old = {
            let mut shown = self.figures.lock().unwrap_or_else(PoisonError::into_inner);
            std::mem::replace(&mut *shown, figures)
        };
        drop(old);
    }

    /// The run is over: nothing more is accepted.
    pub(crate) fn close(&self) {
        self.closed.store(true, SeqCst);
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(SeqCst)
    }

    /// Sets how many messages have become terminal since the run began.
    pub(crate) fn left(&self, left: u64) {
        self.account.left.store(signed(left), SeqCst);
    }

    /// Reconciles the pending estimate with engine counts taken after `left` messages had finished. `counts.accepted`
    /// says how many had been accepted by then: the engine counts a message before its sender gets the answer.
    pub(crate) fn settle_account(&self, counts: &Counts, left: u64) {
        self.left(left);
        let entered = signed(counts.accepted.saturating_sub(self.account.before));
        self.account.base.store(signed(counts.pending()) - entered + signed(left), SeqCst);
    }

    /// Admits `len` messages, if no more than `max` are then pending; 0 means no limit.
    pub(crate) fn enter(&self, len: usize, max: u64) -> Result<Entering<'_>, IngestError> {
        let len = signed(len as u64);
        let Account { base, entered, left, entering, .. } = &self.account;
        let before = entering.fetch_add(len, SeqCst);
        let guard = Entering { board: self, len };
        let pending = base.load(SeqCst) + entered.load(SeqCst) - left.load(SeqCst) + before;
        let pending = u64::try_from(pending).unwrap_or(0);
        if max > 0 && pending.saturating_add(len as u64) > max {
            return Err(IngestError::TooMany { pending, max });
        }
        Ok(guard)
    }
}

/// Messages being ingested; if this is dropped without an answer, they do not count.
#[derive(Debug)]
pub(crate) struct Entering<'a> {
    board: &'a SharedFigures,
    len: i64,
}

impl Entering<'_> {
    /// `new` of them were accepted.
    pub(crate) fn accepted(self, new: usize) {
        self.board.account.entered.fetch_add(signed(new as u64), SeqCst);
    }
}

impl Drop for Entering<'_> {
    fn drop(&mut self) {
        self.board.account.entering.fetch_sub(self.len, SeqCst);
    }
}

/// Saturates; real counts are far below the limit.
fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn board(pending: u64) -> SharedFigures {
        SharedFigures::new(
            &Policy::default(),
            Counts { ready: pending, ..Counts::default() },
            Condition::default(),
        )
    }

    #[test]
    fn no_more_enter_than_may_be_pending() {
        let board = board(3);
        let first = board.enter(2, 5).unwrap();
        assert_eq!(board.enter(1, 5).unwrap_err(), IngestError::TooMany { pending: 5, max: 5 });
        first.accepted(2);
        assert!(board.enter(1, 5).is_err());
        board.left(1);
        drop(board.enter(1, 5).unwrap());
        drop(board.enter(1, 5).expect("one that was not accepted takes no place"));
        assert!(board.enter(1_000_000, 0).is_ok(), "0 is no limit");
    }

    #[test]
    fn a_publication_sets_the_account_right() {
        let board = board(0);
        board.enter(4, 0).unwrap().accepted(4);
        // Two of the four have ended, and a letter was replayed, which the account did not know.
        let counts = Counts { ready: 1, delayed: 2, accepted: 4, ..Counts::default() };
        board.settle_account(&counts, 2);
        assert_eq!(board.enter(1, 3).unwrap_err(), IngestError::TooMany { pending: 3, max: 3 });
        board.left(3);
        assert!(board.enter(1, 3).is_ok());
    }

    #[test]
    fn a_message_that_is_counted_before_its_answer_counts_once() {
        let board = board(0);
        let entering = board.enter(1, 2).unwrap();
        board.settle_account(&Counts { ready: 1, accepted: 1, ..Counts::default() }, 0);
        assert!(board.enter(1, 2).is_ok(), "one is on its way, and has a place for another");
        entering.accepted(1);
        drop(board.enter(1, 2).expect("the same when it has its answer"));
        board.enter(1, 2).unwrap().accepted(1);
        assert!(board.enter(1, 2).is_err());
    }
}
