//! A pipeline from outside: ingest messages, and look up, replay and change dead letters.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use redrive_core::breaker::BreakerState;
use redrive_core::fingerprint::GroupRules;
use redrive_core::policy::Mode;
use redrive_core::{Message, Policy, Time};
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use crate::dispatch::{BreakerAnswer, BreakerOrder, KeySuccesses};
use crate::engine::continued::ids_before;
use crate::engine::ingest::DUE_MAX;
use crate::engine::{
    Accepted, Counts, DeliveryOrder, EditAnswer, Engine, EngineError, EraseAnswer, EraseOrder, ForeignLetter,
    ImportAnswer, Ingest, IngestError, KeyLine, Letter, LetterChange, LetterEdit, LetterScan, LetterStanding,
    LetterState, MessageState, NewMessage, OnBehalf, ReplayAnswer, ReplayJob, ReplayTarget, SharedRecords,
    TakeGate, WipeProgress,
};
use crate::figures::Figures;
use crate::handler::SinkDescription;
use crate::run::built::Built;
use crate::run::clock::Clock;
use crate::run::command::EngineAccess;

/// How long a query about letters waits for them to be loaded: ten seconds.
const LOADING_LOOK_EVERY: Duration = Duration::from_millis(25);
const LOADING_LOOKS_MAX: u32 = 400;

/// How to resume a pipeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Resume {
    /// Resumes even if the messages that triggered the guard will be dead-lettered, until that flood is over.
    pub dead_letter_anyway: bool,
    /// Ends a wait for a `Retry-After` that applies to all messages. The message that received it still waits.
    pub now: bool,
}

/// How [`PipelineHandle::replay_with`] replays letters.
///
/// ```
/// use redrive::ReplayOptions;
///
/// let options = ReplayOptions { force: true, actor: Some("alice".to_owned()), ..ReplayOptions::default() };
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct ReplayOptions {
    /// The job it belongs to: a job takes no letter twice, even if it is resumed. `None` starts a new job.
    pub job: Option<u64>,
    /// Also replay letters that were replayed three times.
    pub force: bool,
    /// Where letters are replayed to.
    pub target: ReplayTarget,
    /// Who asks for it. An engine whose records are shared stores the name with the change.
    pub actor: Option<String>,
}

/// A handle to one pipeline. It works both before and while the pipeline runs, and is cheap to clone.
///
/// ```
/// use redrive::{HandleError, LetterState, PipelineHandle};
///
/// async fn show(orders: &PipelineHandle) -> Result<(), HandleError> {
///     let counts = orders.counts().await?;
///     println!("{} pending, {} dead", counts.pending(), counts.letters_open);
///     for letter in orders.letters(Some(LetterState::Open), None, 10).await? {
///         println!("{} is dead for {}", letter.message.id(), letter.reason);
///     }
///     Ok(())
/// }
/// ```
#[derive(Clone)]
pub struct PipelineHandle {
    built: Arc<Built>,
    clock: Arc<dyn Clock>,
}

/// Why a pipeline could not answer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HandleError {
    /// The pipeline has stopped.
    #[error("pipeline `{0}` has stopped")]
    Stopped(String),
    /// Ids are not remembered, so messages cannot be found by id.
    #[error(
        "pipeline `{0}` does not remember ids, so a message cannot be asked for by its id; set `dedup` to a window, for \
         example 24h"
    )]
    NotRemembered(String),
    /// The engine failed.
    #[error(transparent)]
    Engine(#[from] EngineError),
}

impl PipelineHandle {
    pub(crate) fn new(built: Arc<Built>, clock: Arc<dyn Clock>) -> Self {
        Self { built, clock }
    }

    /// The name of the pipeline.
    pub fn name(&self) -> &str {
        &self.built.settings.name
    }

    /// The policy, with the mode the pipeline runs in.
    pub fn policy(&self) -> &Policy {
        &self.built.settings.policy
    }

    /// Whether a failed message blocks those behind it.
    pub fn mode(&self) -> Mode {
        self.built.settings.policy.mode()
    }

    /// Whether messages of one key wait for each other.
    pub fn ordering(&self) -> DeliveryOrder {
        self.built.settings.ordering
    }

    /// The user's rules for grouping dead letters.
    pub fn group_rules(&self) -> &GroupRules {
        &self.built.settings.grouping.rules
    }

    /// How long the receiver remembers ids, if set.
    pub fn ledger_horizon(&self) -> Option<Duration> {
        self.built.settings.ledger_horizon
    }

    /// The handler or sink that delivers the messages, and its target.
    pub fn sink(&self) -> &SinkDescription {
        &self.built.settings.handler.description
    }

    /// Handlers that may run at once.
    pub fn concurrency(&self) -> usize {
        self.built.settings.concurrency
    }

    /// Whether [`Self::ingest`] accepts new messages; otherwise they come from a topic.
    pub fn takes_messages(&self) -> bool {
        self.built.ingest.is_some()
    }

    /// Whether it is paused.
    pub fn is_paused(&self) -> bool {
        self.built.slot.is_paused()
    }

    /// Whether a pause applies to all processes that share the pipeline, and is stored by the engine. Call it before
    /// the pipeline runs; while it runs, the answer is `false`.
    pub fn shares_pause(&self) -> bool {
        self.built.slot.look(|engine| engine.shared_gate().is_some()).unwrap_or(false)
    }

    /// The records that all processes of this pipeline share; `None` if it has one process only.
    pub(crate) fn shared_records(&self) -> Option<Arc<dyn SharedRecords>> {
        self.built.shared_records.clone()
    }

    /// The current time of the clock that determines when messages are due.
    pub fn now(&self) -> Time {
        self.clock.now()
    }

    /// The figures of the pipeline: a copy that is at most 50 ms old while it runs, and final afterwards. Never makes
    /// the dispatch thread wait.
    pub fn figures(&self) -> Figures {
        let board = &self.built.board;
        let at_rest = self.built.slot.look(|engine| {
            // A store that has failed reports that when it runs; here only its last known state is shown.
            let _ = engine.poll(&mut Vec::new());
            (engine.counts(), engine.oldest().unwrap_or_default(), engine.condition())
        });
        let Some((pending, oldest, condition)) = at_rest else { return board.figures() };
        let paused = self.is_paused();
        let pending = if paused { pending.all_held() } else { pending };
        let (oldest_pending, oldest_letter) = (oldest.pending, oldest.letter);
        Figures { pending, oldest_pending, oldest_letter, paused, condition, ..board.figures() }
    }

    /// Accepts messages that are due after `delay`. See [`Self::ingest`].
    pub async fn ingest_in(
        &self,
        delay: Duration,
        messages: impl IntoIterator<Item = Message>,
    ) -> Result<Vec<Accepted>, IngestError> {
        let due = self.clock.now().plus(delay);
        self.ingest(messages.into_iter().map(|message| (message, due))).await
    }

    /// Accepts messages, all or nothing; they are durable when this returns. A message without a creation time gets
    /// the current time, one without a deadline that of the policy. To delay a message, pass `(message, due)`, with a
    /// time from [`Self::now`] that is at most [`DUE_MAX`] ahead, or use [`Self::ingest_in`].
    pub async fn ingest<I>(&self, messages: I) -> Result<Vec<Accepted>, IngestError>
    where
        I: IntoIterator,
        I::Item: Into<NewMessage>,
    {
        let board = &self.built.board;
        let Some(ingest) = self.built.ingest.as_ref().filter(|_| !board.is_closed()) else {
            return Err(IngestError::NotTaking);
        };
        let now = self.clock.now();
        let policy = &self.built.settings.policy;
        let stamp = |new: NewMessage| NewMessage { message: stamped(new.message, policy, now), due: new.due };
        let batch: Vec<NewMessage> = messages.into_iter().map(|new| stamp(new.into())).collect();
        if let Some(far) = batch.iter().find(|new| new.due.is_some_and(|due| due > now.plus(DUE_MAX))) {
            return Err(IngestError::TooFar { id: far.message.id().to_owned() });
        }
        if batch.iter().all(|new| ids_before(new.message.id()).next().is_none()) {
            return self.submit(batch, ingest, now).await;
        }
        let (mut answers, mut rest) = (Vec::new(), Vec::new());
        for new in batch {
            let given = self.letter_with(new.message.id()).await;
            answers.push(given.map(|seq| Accepted::Duplicate { seq }));
            rest.extend(given.is_none().then_some(new));
        }
        let submitted = if rest.is_empty() { Vec::new() } else { self.submit(rest, ingest, now).await? };
        // There is one submitted answer for each message without an answer.
        let mut submitted = submitted.into_iter();
        Ok(answers.into_iter().filter_map(|answer| answer.or_else(|| submitted.next())).collect())
    }

    /// The letter that got this id from an edit. Such an id stays taken, however long ago the edit was.
    async fn letter_with(&self, id: &str) -> Option<u64> {
        ids_before(id).next()?;
        for number in self.letters_of(id).await.ok().flatten()? {
            let letter = self.letter(number).await.ok().flatten();
            if letter.is_some_and(|letter| letter.message.id() == id) {
                return Some(number);
            }
        }
        None
    }

    async fn submit(
        &self,
        batch: Vec<NewMessage>,
        ingest: &Arc<dyn Ingest>,
        now: Time,
    ) -> Result<Vec<Accepted>, IngestError> {
        let board = &self.built.board;
        let entering = match board.enter(batch.len(), self.built.settings.max_pending) {
            Ok(entering) => entering,
            // Duplicates need no room. Report them as such, or the sender would retry for ever.
            Err(full) => return self.duplicates(&batch).await.ok_or(full),
        };
        let accepted = ingest.submit(batch, now).await.unwrap_or(Err(IngestError::Stopped))?;
        entering.accepted(accepted.iter().filter(|one| matches!(one, Accepted::New { .. })).count());
        Ok(accepted)
    }

    /// The answer to a batch of which every message was accepted before; `None` if one was not, or may not have been.
    async fn duplicates(&self, batch: &[NewMessage]) -> Option<Vec<Accepted>> {
        let mut accepted = Vec::new();
        for new in batch {
            let known = self.message(new.message.id()).await.ok().flatten()?;
            accepted.push(Accepted::Duplicate { seq: known.duplicate_of? });
        }
        Some(accepted)
    }

    /// Up to `limit` letters in the order of their ids, after the id `after`; in all states if `state` is `None`.
    pub async fn letters(
        &self,
        state: Option<LetterState>,
        after: Option<u64>,
        limit: usize,
    ) -> Result<Vec<Letter>, HandleError> {
        self.ask_about_letters(move |asked| asked.engine.letters(state, after, limit)).await
    }

    /// Like [`Self::letters`], but scans at most `look_max` letters of whatever state, and says how far it got.
    #[doc(hidden)]
    pub async fn scan_letters(
        &self,
        state: Option<LetterState>,
        after: Option<u64>,
        limit: usize,
        look_max: usize,
    ) -> Result<LetterScan, HandleError> {
        // A scan that looks at no letters would never end.
        let (limit, look_max) = (limit.max(1), look_max.max(1));
        self.ask_about_letters(move |asked| asked.engine.scan_letters(state, after, limit, look_max)).await
    }

    /// One letter; `None` if there is none with this id.
    pub async fn letter(&self, id: u64) -> Result<Option<Letter>, HandleError> {
        self.ask_about_letters(move |asked| asked.engine.letter(id)).await
    }

    /// The numbers of letters that include all letters of the message with this id; `None` if the engine would have
    /// to search.
    pub(crate) async fn letters_of(&self, id: &str) -> Result<Option<Vec<u64>>, HandleError> {
        let id = id.to_owned();
        self.ask_about_letters(move |asked| asked.engine.letters_of(&id)).await
    }

    /// The current state of the message with this id, with its history. `None` if the id is unknown: it was never
    /// accepted, or longer ago than the window of [`crate::Pipeline::dedup`]. A pipeline without such a window
    /// returns [`HandleError::NotRemembered`].
    pub async fn message(&self, id: &str) -> Result<Option<MessageState>, HandleError> {
        let id = id.to_owned();
        let answer = self.ask(move |asked| asked.engine.message(&id, asked.now)).await;
        answer.map_err(|error| self.unless_remembered(error))
    }

    fn unless_remembered(&self, error: HandleError) -> HandleError {
        match error {
            HandleError::Engine(EngineError::NotRemembered) => {
                HandleError::NotRemembered(self.name().to_owned())
            }
            other => other,
        }
    }

    /// The message that blocks a key, and how many wait behind it, in a pipeline with [`crate::DeliveryOrder::Key`].
    /// `None` if no message of the key waits or runs. A pipeline without a window of [`crate::Pipeline::dedup`]
    /// returns [`HandleError::NotRemembered`].
    pub async fn key_line(&self, key: &[u8]) -> Result<Option<KeyLine>, HandleError> {
        let key = key.to_vec();
        let answer = self.ask(move |asked| asked.engine.key_line(&key)).await;
        answer.map_err(|error| self.unless_remembered(error))
    }

    /// The standing of letters with regard to a replay job, without reading their content; `None` for letters that do
    /// not exist.
    pub(crate) async fn letter_standings(
        &self,
        job: u64,
        ids: impl Into<Vec<u64>>,
    ) -> Result<Vec<Option<LetterStanding>>, HandleError> {
        let ids = ids.into();
        self.ask_about_letters(move |asked| asked.engine.letter_standings(job, &ids)).await
    }

    /// The keys with a recent success in this process. A copy of up to 100,000 entries.
    pub(crate) async fn key_successes(&self) -> Result<KeySuccesses, HandleError> {
        self.ask(|asked| {
            // While it does not run, nothing is delivered.
            let running = asked.running.as_ref();
            let successes = running.map(|running| running.machine.key_successes().clone());
            Ok(successes.unwrap_or_default().of_share(asked.engine.own_share()))
        })
        .await
    }

    /// Replays letters at once, as a job of their own. [`crate::replay::Replays`] replays large numbers, at a pace
    /// and across restarts.
    ///
    /// ```
    /// # async fn example(orders: &redrive::PipelineHandle) -> Result<(), redrive::HandleError> {
    /// use redrive::LetterState;
    ///
    /// let open = orders.letters(Some(LetterState::Open), None, 100).await?;
    /// let ids: Vec<u64> = open.iter().map(|letter| letter.id).collect();
    /// orders.replay(ids).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn replay(&self, ids: impl Into<Vec<u64>>) -> Result<Vec<ReplayAnswer>, HandleError> {
        self.replay_with(ReplayOptions::default(), ids).await
    }

    /// Replays letters at once, with `options`.
    pub async fn replay_with(
        &self,
        options: ReplayOptions,
        ids: impl Into<Vec<u64>>,
    ) -> Result<Vec<ReplayAnswer>, HandleError> {
        static JOBS: AtomicU64 = AtomicU64::new(0);
        let ReplayOptions { job, force, target, actor } = options;
        let due = self.clock.now();
        // Unique across restarts as long as fewer than 1024 jobs begin per millisecond.
        let unique = || due.as_millis().wrapping_mul(1024).wrapping_add(JOBS.fetch_add(1, Ordering::Relaxed));
        let job = ReplayJob { id: job.unwrap_or_else(unique), due, force, target };
        self.replay_by(actor.as_deref(), job, ids).await
    }

    /// Replays letters under a job of the caller, on behalf of an actor. An engine whose records are shared stores
    /// the actor's name with the change.
    pub(crate) async fn replay_by(
        &self,
        actor: Option<&str>,
        job: ReplayJob,
        ids: impl Into<Vec<u64>>,
    ) -> Result<Vec<ReplayAnswer>, HandleError> {
        let ids = ids.into();
        self.change_as(actor, move |engine, asked| engine.replay(&job, &ids, asked)).await
    }

    /// Discards open letters; `false` where a letter was not open.
    pub async fn discard(&self, ids: impl Into<Vec<u64>>) -> Result<Vec<bool>, HandleError> {
        self.discard_by(None, ids).await
    }

    /// Like [`Self::discard`], on behalf of an actor.
    pub(crate) async fn discard_by(
        &self,
        actor: Option<&str>,
        ids: impl Into<Vec<u64>>,
    ) -> Result<Vec<bool>, HandleError> {
        let ids = ids.into();
        self.change_as(actor, move |engine, asked| engine.change_letters(&LetterChange::Discard, &ids, asked))
            .await
    }

    /// Undoes a discard; `false` for a letter that was not discarded.
    pub async fn undo(&self, ids: impl Into<Vec<u64>>) -> Result<Vec<bool>, HandleError> {
        self.undo_by(None, ids).await
    }

    /// Like [`Self::undo`], on behalf of an actor.
    pub(crate) async fn undo_by(
        &self,
        actor: Option<&str>,
        ids: impl Into<Vec<u64>>,
    ) -> Result<Vec<bool>, HandleError> {
        let ids = ids.into();
        self.change_as(actor, move |engine, asked| engine.change_letters(&LetterChange::Undo, &ids, asked))
            .await
    }

    /// Creates open letters of messages that died elsewhere, except for messages that have a letter already. They are
    /// durable when this returns; a dry run only returns what would happen to each. Deliveries wait meanwhile, so
    /// pass at most a hundred at once.
    pub(crate) async fn import_by(
        &self,
        actor: Option<&str>,
        letters: Vec<ForeignLetter>,
        dry_run: bool,
    ) -> Result<Vec<ImportAnswer>, HandleError> {
        self.change_as(actor, move |engine, asked| engine.import(letters, dry_run, asked)).await
    }

    /// Changes letters on behalf of an actor. An engine whose records are shared stores the actor's name with the
    /// change.
    async fn change_as<T: Send + 'static>(
        &self,
        actor: Option<&str>,
        change: impl FnOnce(&mut dyn Engine, OnBehalf<'_>) -> Result<T, EngineError> + Send + 'static,
    ) -> Result<T, HandleError> {
        let actor = actor.map(str::to_owned);
        self.ask_about_letters(move |asked| {
            change(asked.engine, OnBehalf { at: asked.now, by: actor.as_deref() })
        })
        .await
    }

    /// Replaces the messages of open letters; the previous versions are kept under the name of the edit. See
    /// [`crate::actions::Actions::edit`], which names and records edits.
    pub(crate) async fn edit_by(
        &self,
        actor: Option<&str>,
        edit: &str,
        letters: Vec<LetterEdit>,
    ) -> Result<Vec<EditAnswer>, HandleError> {
        let edit = edit.to_owned();
        self.change_as(actor, move |engine, asked| engine.edit_letters(&edit, &letters, asked)).await
    }

    /// Restores the messages that letters had before this edit, if it is their last one.
    pub(crate) async fn undo_edit_by(
        &self,
        actor: Option<&str>,
        edit: &str,
        ids: impl Into<Vec<u64>>,
    ) -> Result<Vec<EditAnswer>, HandleError> {
        let (edit, ids) = (edit.to_owned(), ids.into());
        self.change_as(actor, move |engine, asked| engine.undo_edit(&edit, &ids, asked)).await
    }

    /// Erases the content of letters, except those in a replay. It cannot be undone. [`Self::wipe`] overwrites the
    /// copies that are still stored; see [`crate::actions::Actions::erase`], which does both and records it.
    pub async fn erase(
        &self,
        order: EraseOrder,
        ids: impl Into<Vec<u64>>,
    ) -> Result<Vec<EraseAnswer>, HandleError> {
        let ids = ids.into();
        self.ask_about_letters(move |asked| asked.engine.erase_letters(&order, &ids, asked.now)).await
    }

    /// Continues to overwrite the stored copies of erased letters, and returns what is left to do.
    pub async fn wipe(&self) -> Result<WipeProgress, HandleError> {
        self.ask_about_letters(|asked| asked.engine.wipe(asked.now)).await
    }

    /// The message that a letter had before one of its edits.
    pub async fn message_before(&self, id: u64, edit: &str) -> Result<Option<Message>, HandleError> {
        let edit = edit.to_owned();
        self.ask_about_letters(move |asked| asked.engine.message_before(id, &edit)).await
    }

    /// The number of messages in each state.
    pub async fn counts(&self) -> Result<Counts, HandleError> {
        self.ask(|asked| Ok(asked.engine.counts())).await
    }

    /// Takes nothing until [`Self::resume`]. Running calls continue, and new messages are still accepted.
    pub async fn pause(&self) -> Result<(), HandleError> {
        self.ask(|asked| {
            asked.gate_all(TakeGate::Shut)?;
            if let Some(running) = &mut asked.running {
                running.machine.gate(TakeGate::Shut);
            }
            Ok(())
        })
        .await
    }

    /// Resumes a paused pipeline. [`Self::resume_with`] can also lift other obstacles.
    pub async fn resume(&self) -> Result<(), HandleError> {
        self.resume_with(Resume::default()).await
    }

    /// Resumes the pipeline, with options.
    pub async fn resume_with(&self, resume: Resume) -> Result<(), HandleError> {
        self.ask(move |asked| {
            asked.gate_all(TakeGate::Open)?;
            if let Some(running) = &mut asked.running {
                running.machine.resume(resume.dead_letter_anyway);
                if resume.now {
                    running.machine.lift_wait(asked.now);
                }
            }
            Ok(())
        })
        .await
    }

    /// Sends probes now instead of after the cooldown, or closes the breaker by hand; for a sink with an endpoint per
    /// message also those of the endpoints. Returns the previous state.
    pub async fn order_breaker(&self, order: BreakerOrder) -> Result<BreakerAnswer, HandleError> {
        self.ask(move |asked| {
            let now = asked.now;
            let answer = asked.running.as_mut().map(|running| running.machine.order_breaker(order, now));
            Ok(answer.unwrap_or(BreakerAnswer { was: BreakerState::Closed, endpoints: 0 }))
        })
        .await
    }

    /// Like [`Self::ask`], for letters: while an engine is still loading them, the query waits for a while, and
    /// deliveries do not.
    pub(crate) async fn ask_about_letters<T: Send + 'static>(
        &self,
        question: impl FnOnce(&mut EngineAccess<'_>) -> Result<T, EngineError> + Send + 'static,
    ) -> Result<T, HandleError> {
        for _ in 0..LOADING_LOOKS_MAX {
            if !self.figures().condition.letters_loading || Handle::try_current().is_err() {
                break;
            }
            tokio::time::sleep(LOADING_LOOK_EVERY).await;
        }
        self.ask(question).await
    }

    /// Runs a query where the engine is owned: on its dispatch thread, or, while the pipeline does not run, on the
    /// caller's.
    pub(crate) async fn ask<T: Send + 'static>(
        &self,
        question: impl FnOnce(&mut EngineAccess<'_>) -> Result<T, EngineError> + Send + 'static,
    ) -> Result<T, HandleError> {
        // Ignore a caller that no longer waits for the answer.
        self.ask_later(move |asked, reply| drop(reply.send(question(asked)))).await
    }

    /// Like [`Self::ask`], for a query that is answered later.
    pub(crate) async fn ask_later<T: Send + 'static>(
        &self,
        question: impl FnOnce(&mut EngineAccess<'_>, oneshot::Sender<Result<T, EngineError>>) + Send + 'static,
    ) -> Result<T, HandleError> {
        let (reply, answer) = oneshot::channel();
        let command = Box::new(move |asked: &mut EngineAccess<'_>| question(asked, reply));
        self.built.slot.ask(command, self.clock.now(), &self.built.wake);
        let answer = answer.await.map_err(|_| HandleError::Stopped(self.name().to_owned()))?;
        Ok(answer?)
    }
}

impl fmt::Debug for PipelineHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("PipelineHandle").field(&self.built.settings.name).finish()
    }
}

impl From<Message> for NewMessage {
    fn from(message: Message) -> Self {
        Self { message, due: None }
    }
}

impl From<(Message, Time)> for NewMessage {
    fn from((message, due): (Message, Time)) -> Self {
        Self { message, due: Some(due) }
    }
}

/// Adds a creation time and a deadline to a message that needs them.
fn stamped(message: Message, policy: &Policy, now: Time) -> Message {
    let created = if message.created() == Time::ZERO { now } else { message.created() };
    let deadline = message.deadline().or_else(|| policy.deadline(created));
    if created == message.created() && deadline == message.deadline() {
        return message;
    }
    let mut builder = Message::builder(message.id()).created(created);
    if let Some(key) = message.key() {
        builder = builder.key(key.to_vec());
    }
    if let Some(payload) = message.payload() {
        builder = builder.payload(payload.to_vec());
    }
    if let Some(tenant) = message.tenant() {
        builder = builder.tenant(tenant);
    }
    if let Some(deadline) = deadline {
        builder = builder.deadline(deadline);
    }
    for (name, value) in message.headers() {
        builder = builder.header(name, value.to_vec());
    }
    // The parts were valid before. If they are not now, keep the message unstamped rather than refuse it.
    builder.build().unwrap_or(message)
}
