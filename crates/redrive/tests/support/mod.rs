//! Shared by the runtime tests: messages, a policy with short waits, and a wait with a hang guard.
#![allow(dead_code)] // each test binary uses its own part

pub(crate) mod service;

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use redrive::internal::engine::{
    Claimed, Counts, Deliver, Delivery, EditAnswer, Engine, EngineError, EraseAnswer, EraseOrder, Event,
    Ingest, KeepLetters, LetterChange, LetterEdit, LetterScan, LetterStanding, OnBehalf, PendingAt,
    PendingScan, PendingState, Query, ReplayAnswer, ReplayJob, Settlement, TakeGate, Ticket, WipeProgress,
};
use redrive::{Letter, LetterState, Message, PipelineHandle, Policy, Redrive, Time};
use redrive_core::PolicyBuilder;

/// No test takes this long unless it hangs.
pub(crate) const HANG_GUARD: Duration = Duration::from_mins(5);

pub(crate) fn message(id: impl Into<String>) -> Message {
    Message::builder(id).build().unwrap()
}

pub(crate) fn keyed(id: impl Into<String>, key: impl Into<String>) -> Message {
    Message::builder(id).key(key.into()).build().unwrap()
}

/// A policy that retries almost at once.
pub(crate) fn quick(retries: u32) -> PolicyBuilder {
    Policy::fixed("1ms").retries(retries).jitter("none")
}

pub(crate) async fn guarded<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(HANG_GUARD, future).await.expect("it hangs")
}

/// Waits until the counts are as wanted.
pub(crate) async fn until(handle: &PipelineHandle, wanted: impl Fn(&Counts) -> bool) {
    while !wanted(&handle.counts().await.unwrap()) {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// Waits until nothing is left to do.
pub(crate) async fn at_rest(handle: &PipelineHandle) {
    until(handle, |c| c.pending() == 0).await;
}

/// Ingests messages into the pipeline `p`, runs until nothing is left to do, and returns the letters.
pub(crate) async fn letters(redrive: &Redrive, messages: Vec<Message>) -> Vec<Letter> {
    let handle = redrive.pipeline("p").unwrap();
    handle.ingest(messages).await.unwrap();
    let mut letters = Vec::new();
    let look = async {
        at_rest(&handle).await;
        letters = handle.letters(None, None, 100).await.unwrap();
    };
    guarded(redrive.run_until(look)).await.unwrap();
    letters
}

/// The calls before which a [`Faulty`] engine asks whether to fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asked {
    Settle,
    Replay,
}

/// An engine that fails on request and passes everything else to another engine.
pub(crate) struct Faulty {
    engine: Box<dyn Engine>,
    fails: Box<dyn FnMut(Asked) -> Option<EngineError> + Send>,
}

impl Faulty {
    pub(crate) fn new(
        engine: Box<dyn Engine>,
        fails: impl FnMut(Asked) -> Option<EngineError> + Send + 'static,
    ) -> Self {
        Self { engine, fails: Box::new(fails) }
    }

    /// An engine that can never settle.
    pub(crate) fn unsettling(engine: Box<dyn Engine>) -> Self {
        let full = || EngineError::Storage("no space left on device".into());
        Self::new(engine, move |asked| (asked == Asked::Settle).then(full))
    }

    fn ask(&mut self, asked: Asked) -> Result<(), EngineError> {
        (self.fails)(asked).map_or(Ok(()), Err)
    }
}

impl Deliver for Faulty {
    fn take(&mut self, now: Time, room: usize, out: &mut Vec<Delivery>) -> Result<(), EngineError> {
        self.engine.take(now, room, out)
    }

    fn settle(&mut self, batch: Vec<Settlement>) -> Result<Ticket, EngineError> {
        self.ask(Asked::Settle)?;
        self.engine.settle(batch)
    }

    fn poll(&mut self, out: &mut Vec<Event>) -> Result<(), EngineError> {
        self.engine.poll(out)
    }

    fn next_due(&self) -> Option<Time> {
        self.engine.next_due()
    }

    fn claim(&mut self, at: &PendingAt, now: Time) -> Result<Claimed, EngineError> {
        self.engine.claim(at, now)
    }

    fn gate(&mut self, gate: TakeGate) {
        self.engine.gate(gate);
    }

    fn ingest(&self) -> Option<Arc<dyn Ingest>> {
        self.engine.ingest()
    }

    fn on_wake(&mut self, wake: Arc<dyn Fn() + Send + Sync>) {
        self.engine.on_wake(wake);
    }

    fn close(&mut self) -> Result<(), EngineError> {
        self.engine.close()
    }
}

impl KeepLetters for Faulty {
    fn replay(
        &mut self,
        job: &ReplayJob,
        ids: &[u64],
        asked: OnBehalf<'_>,
    ) -> Result<Vec<ReplayAnswer>, EngineError> {
        self.ask(Asked::Replay)?;
        self.engine.replay(job, ids, asked)
    }

    fn change_letters(
        &mut self,
        change: &LetterChange,
        ids: &[u64],
        asked: OnBehalf<'_>,
    ) -> Result<Vec<bool>, EngineError> {
        self.engine.change_letters(change, ids, asked)
    }

    fn edit_letters(
        &mut self,
        edit: &str,
        letters: &[LetterEdit],
        asked: OnBehalf<'_>,
    ) -> Result<Vec<EditAnswer>, EngineError> {
        self.engine.edit_letters(edit, letters, asked)
    }

    fn undo_edit(
        &mut self,
        edit: &str,
        ids: &[u64],
        asked: OnBehalf<'_>,
    ) -> Result<Vec<EditAnswer>, EngineError> {
        self.engine.undo_edit(edit, ids, asked)
    }

    fn erase_letters(
        &mut self,
        order: &EraseOrder,
        ids: &[u64],
        now: Time,
    ) -> Result<Vec<EraseAnswer>, EngineError> {
        self.engine.erase_letters(order, ids, now)
    }

    fn wipe(&mut self, now: Time) -> Result<WipeProgress, EngineError> {
        self.engine.wipe(now)
    }
}

impl Query for Faulty {
    fn counts(&self) -> Counts {
        self.engine.counts()
    }

    fn letters(
        &mut self,
        state: Option<LetterState>,
        after: Option<u64>,
        limit: usize,
    ) -> Result<Vec<Letter>, EngineError> {
        self.engine.letters(state, after, limit)
    }

    fn scan_letters(
        &mut self,
        state: Option<LetterState>,
        after: Option<u64>,
        limit: usize,
        look_max: usize,
    ) -> Result<LetterScan, EngineError> {
        self.engine.scan_letters(state, after, limit, look_max)
    }

    fn letter(&mut self, id: u64) -> Result<Option<Letter>, EngineError> {
        self.engine.letter(id)
    }

    fn letters_of(&mut self, id: &str) -> Result<Option<Vec<u64>>, EngineError> {
        self.engine.letters_of(id)
    }

    fn letter_standings(
        &mut self,
        job: u64,
        ids: &[u64],
    ) -> Result<Vec<Option<LetterStanding>>, EngineError> {
        self.engine.letter_standings(job, ids)
    }

    fn message_before(&mut self, id: u64, edit: &str) -> Result<Option<Message>, EngineError> {
        self.engine.message_before(id, edit)
    }

    fn scan_pending(
        &mut self,
        state: PendingState,
        after: Option<(u64, u64)>,
        limit: usize,
        look_max: usize,
    ) -> Result<PendingScan, EngineError> {
        self.engine.scan_pending(state, after, limit, look_max)
    }
}
