//! What the runtime tests share: messages, a policy with short waits, and a wait with a hang guard.
#![allow(dead_code)] // each test binary uses its own part

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use redrive::engine::{
    Counts, Delivery, Engine, EngineError, Event, Ingest, LetterChange, LetterScan, LetterStanding,
    ReplayAnswer, ReplayJob, Settlement, Ticket,
};
use redrive::{Letter, LetterState, Message, PipelineHandle, Policy, Redrive, Time};
use redrive_core::PolicyBuilder;

/// No test takes this long unless something hangs.
pub(crate) const HANG_GUARD: Duration = Duration::from_mins(1);

pub(crate) fn message(id: impl Into<String>) -> Message {
    Message::builder(id).build().unwrap()
}

pub(crate) fn keyed(id: impl Into<String>, key: impl Into<String>) -> Message {
    Message::builder(id).key(key.into()).build().unwrap()
}

/// Retries almost at once.
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
    until(handle, |c| c.ready + c.delayed + c.key_wait + c.in_flight == 0).await;
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

/// An engine that cannot settle; all else it leaves to another.
pub(crate) struct Unsettling(pub(crate) Box<dyn Engine>);

impl Engine for Unsettling {
    fn take(&mut self, now: Time, room: usize, out: &mut Vec<Delivery>) -> Result<(), EngineError> {
        self.0.take(now, room, out)
    }

    fn settle(&mut self, _: Vec<Settlement>) -> Result<Ticket, EngineError> {
        Err(EngineError::Storage("no space left on device".into()))
    }

    fn poll(&mut self, out: &mut Vec<Event>) -> Result<(), EngineError> {
        self.0.poll(out)
    }

    fn next_due(&self) -> Option<Time> {
        self.0.next_due()
    }

    fn gate(&mut self, closed: bool) {
        self.0.gate(closed);
    }

    fn counts(&self) -> Counts {
        self.0.counts()
    }

    fn ingest(&self) -> Option<Arc<dyn Ingest>> {
        self.0.ingest()
    }

    fn on_wake(&mut self, wake: Arc<dyn Fn() + Send + Sync>) {
        self.0.on_wake(wake);
    }

    fn letters(
        &mut self,
        state: Option<LetterState>,
        after: Option<u64>,
        limit: usize,
    ) -> Result<Vec<Letter>, EngineError> {
        self.0.letters(state, after, limit)
    }

    fn scan_letters(
        &mut self,
        state: Option<LetterState>,
        after: Option<u64>,
        limit: usize,
        look_max: usize,
    ) -> Result<LetterScan, EngineError> {
        self.0.scan_letters(state, after, limit, look_max)
    }

    fn letter(&mut self, id: u64) -> Result<Option<Letter>, EngineError> {
        self.0.letter(id)
    }

    fn letter_standings(
        &mut self,
        job: u64,
        ids: &[u64],
    ) -> Result<Vec<Option<LetterStanding>>, EngineError> {
        self.0.letter_standings(job, ids)
    }

    fn replay(&mut self, job: &ReplayJob, ids: &[u64], now: Time) -> Result<Vec<ReplayAnswer>, EngineError> {
        self.0.replay(job, ids, now)
    }

    fn change_letters(
        &mut self,
        change: &LetterChange,
        ids: &[u64],
        now: Time,
    ) -> Result<Vec<bool>, EngineError> {
        self.0.change_letters(change, ids, now)
    }

    fn close(&mut self) -> Result<(), EngineError> {
        self.0.close()
    }
}
