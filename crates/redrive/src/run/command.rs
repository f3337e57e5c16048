//! What the outside may ask of an engine, and where it is while it is asked: at rest, owned by its dispatch thread, or
//! closed.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use redrive_core::breaker::BreakerState;
use redrive_core::{GroupId, Message, Time};
use tokio::sync::oneshot;

use super::steer::{self, FoundMessages, Part, Steer, Steered};
use super::wake::Wake;
use crate::dispatch::{BreakerAnswer, BreakerOrder, KeySuccesses};
use crate::engine::{
    Counts, EditAnswer, Engine, EngineError, EraseAnswer, EraseOrder, ForeignLetter, GroupMark, GroupMarks,
    GroupSummary, ImportAnswer, KeyLine, Letter, LetterChange, LetterEdit, LetterScan, LetterStanding,
    LetterState, MessageState, OnBehalf, PendingAt, PendingScan, ReplayAnswer, ReplayJob, TakeGate,
    WipeProgress, groups,
};

type Reply<T> = oneshot::Sender<Result<T, EngineError>>;

/// One question or order, with the place for its answer. Nobody waiting for an answer is no reason not to act.
#[derive(Debug)]
pub(crate) enum Command {
    Letters {
        state: Option<LetterState>,
        after: Option<u64>,
        limit: usize,
        reply: Reply<Vec<Letter>>,
    },
    Letter {
        id: u64,
        reply: Reply<Option<Letter>>,
    },
    Scan {
        state: Option<LetterState>,
        after: Option<u64>,
        limit: usize,
        look_max: usize,
        reply: Reply<LetterScan>,
    },
    LettersOf {
        id: String,
        reply: Reply<Option<Vec<u64>>>,
    },
    Groups {
        kept: GroupMarks,
        samples: bool,
        reply: Reply<Vec<GroupSummary>>,
    },
    GroupLetters {
        group: GroupId,
        after: Option<u64>,
        limit: usize,
        reply: Reply<LetterScan>,
    },
    MarkGroup {
        mark: GroupMark,
        reply: Reply<()>,
    },
    Message {
        id: String,
        reply: Reply<Option<MessageState>>,
    },
    KeyLine {
        key: Bytes,
        reply: Reply<Option<KeyLine>>,
    },
    Pending {
        part: Part,
        after: Option<(u64, u64)>,
        limit: usize,
        look_max: usize,
        reply: Reply<PendingScan>,
    },
    Find {
        id: String,
        number: Option<u64>,
        reply: Reply<FoundMessages>,
    },
    Steer {
        at: PendingAt,
        how: Steer,
        reply: Reply<Steered>,
    },
    Breaker {
        order: BreakerOrder,
        reply: Reply<BreakerAnswer>,
    },
    KeySuccesses {
        reply: Reply<KeySuccesses>,
    },
    Standings {
        job: u64,
        ids: Vec<u64>,
        reply: Reply<Vec<Option<LetterStanding>>>,
    },
    Replay {
        job: ReplayJob,
        ids: Vec<u64>,
        by: Option<Arc<str>>,
        reply: Reply<Vec<ReplayAnswer>>,
    },
    Change {
        change: LetterChange,
        ids: Vec<u64>,
        by: Option<Arc<str>>,
        reply: Reply<Vec<bool>>,
    },
    Edit {
        edit: String,
        letters: Vec<LetterEdit>,
        by: Option<Arc<str>>,
        reply: Reply<Vec<EditAnswer>>,
    },
    UndoEdit {
        edit: String,
        ids: Vec<u64>,
        by: Option<Arc<str>>,
        reply: Reply<Vec<EditAnswer>>,
    },
    Erase {
        order: EraseOrder,
        ids: Vec<u64>,
        reply: Reply<Vec<EraseAnswer>>,
    },
    Wipe {
        reply: Reply<WipeProgress>,
    },
    MessageBefore {
        id: u64,
        edit: String,
        reply: Reply<Option<Message>>,
    },
    Import {
        letters: Vec<ForeignLetter>,
        dry_run: bool,
        by: Option<Arc<str>>,
        reply: Reply<Vec<ImportAnswer>>,
    },
    Counts {
        reply: Reply<Counts>,
    },
    Gate {
        gate: Gate,
        reply: Reply<()>,
    },
}

/// What shall become of a pipeline's gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Gate {
    Close,
    /// With `anyway` the dead-letter guard lets this flood pass; with `lifted` a wait for a Retry-After ends.
    Open {
        anyway: bool,
        lifted: bool,
    },
}

impl Command {
    fn carry_out(self, engine: &mut dyn Engine, now: Time) {
        // Whether somebody still waits for the answer does not matter.
        let _unheard = match self {
            Self::Letters { state, after, limit, reply } => {
                reply.send(engine.letters(state, after, limit)).is_err()
            }
            Self::Letter { id, reply } => reply.send(engine.letter(id)).is_err(),
            Self::Scan { state, after, limit, look_max, reply } => {
                reply.send(engine.scan_letters(state, after, limit, look_max)).is_err()
            }
            Self::LettersOf { id, reply } => reply.send(engine.letters_of(&id)).is_err(),
            Self::Groups { kept, samples, reply } => {
                reply.send(groups::list::list(engine, &kept, samples, now)).is_err()
            }
            Self::GroupLetters { group, after, limit, reply } => {
                reply.send(groups::list::letters(engine, group, after, limit)).is_err()
            }
            Self::MarkGroup { mark, reply } => reply.send(engine.mark_group(&mark)).is_err(),
            Self::Message { id, reply } => reply.send(engine.message(&id, now)).is_err(),
            Self::KeyLine { key, reply } => reply.send(engine.key_line(&key)).is_err(),
            Self::Pending { part: Part::Waiting(state), after, limit, look_max, reply } => {
                reply.send(engine.scan_pending(state, after, limit, look_max)).is_err()
            }
            // What the machine would answer: nothing was taken.
            Self::Pending { reply, .. } => reply.send(Ok(PendingScan::default())).is_err(),
            Self::Find { id, reply, .. } => reply.send(steer::locate(&id, engine)).is_err(),
            Self::Steer { at, how, reply } => reply.send(steer::steer_at_rest(at, how, engine, now)).is_err(),
            Self::Breaker { reply, .. } => {
                let answer = BreakerAnswer { was: BreakerState::Closed, endpoints: 0 };
                reply.send(Ok(answer)).is_err()
            }
            // Nothing was delivered yet.
            Self::KeySuccesses { reply } => reply.send(Ok(KeySuccesses::default())).is_err(),
            Self::Standings { job, ids, reply } => reply.send(engine.letter_standings(job, &ids)).is_err(),
            Self::Replay { job, ids, by, reply } => {
                let asked = OnBehalf { at: now, by: by.as_deref() };
                reply.send(engine.replay(&job, &ids, asked)).is_err()
            }
            Self::Change { change, ids, by, reply } => {
                let asked = OnBehalf { at: now, by: by.as_deref() };
                reply.send(engine.change_letters(&change, &ids, asked)).is_err()
            }
            Self::Edit { edit, letters, by, reply } => {
                let asked = OnBehalf { at: now, by: by.as_deref() };
                reply.send(engine.edit_letters(&edit, &letters, asked)).is_err()
            }
            Self::UndoEdit { edit, ids, by, reply } => {
                let asked = OnBehalf { at: now, by: by.as_deref() };
                reply.send(engine.undo_edit(&edit, &ids, asked)).is_err()
            }
            Self::Erase { order, ids, reply } => reply.send(engine.erase_letters(&order, &ids, now)).is_err(),
            Self::Wipe { reply } => reply.send(engine.wipe(now)).is_err(),
            Self::MessageBefore { id, edit, reply } => reply.send(engine.message_before(id, &edit)).is_err(),
            Self::Import { letters, dry_run, by, reply } => {
                let asked = OnBehalf { at: now, by: by.as_deref() };
                reply.send(engine.import(letters, dry_run, asked)).is_err()
            }
            Self::Counts { reply } => reply.send(Ok(engine.counts())).is_err(),
            Self::Gate { gate, reply } => {
                reply.send(engine.gate_all(TakeGate::of_pause(gate == Gate::Close))).is_err()
            }
        };
    }
}

/// Where a pipeline's engine is.
pub(crate) struct Seat {
    place: Mutex<AnswerSlot>,
    /// Whether the engine's gate is closed.
    paused: AtomicBool,
}

enum AnswerSlot {
    /// Not running yet: whoever asks carries out the command.
    AtRest(Box<dyn Engine>),
    /// Owned by the dispatch thread, which carries out what is collected here.
    Running(Vec<Command>),
    Closed,
}

impl Seat {
    pub(crate) fn new(engine: Box<dyn Engine>) -> Self {
        Self { place: Mutex::new(AnswerSlot::AtRest(engine)), paused: AtomicBool::new(false) }
    }

    pub(crate) fn is_paused(&self) -> bool {
        self.paused.load(Ordering::SeqCst)
    }

    /// Carries out a command on the engine, which is the caller's now.
    pub(crate) fn carry_out(&self, command: Command, engine: &mut dyn Engine, now: Time) {
        if let Command::Gate { gate, reply } = command {
            let paused = gate == Gate::Close;
            let done = engine.gate_all(TakeGate::of_pause(paused));
            if done.is_ok() {
                self.paused.store(paused, Ordering::SeqCst);
            }
            // Nobody may wait for the answer.
            let _ = reply.send(done);
            return;
        }
        command.carry_out(engine, now);
    }

    /// Another process has paused or resumed the pipeline for all.
    pub(crate) fn follow(&self, paused: bool) {
        self.paused.store(paused, Ordering::SeqCst);
    }

    /// Pauses an engine, which is the caller's, for all who share it if they can be told.
    pub(crate) fn pause(&self, engine: &mut dyn Engine) {
        // If the others cannot be told, this process is paused alone.
        if engine.gate_all(TakeGate::Closed).is_err() {
            engine.gate(TakeGate::Closed);
        }
        self.paused.store(true, Ordering::SeqCst);
    }

    /// Looks at the engine while it is at rest; `None` if it is not.
    pub(crate) fn look<T>(&self, look: impl FnOnce(&mut dyn Engine) -> T) -> Option<T> {
        match &mut *self.lock() {
            AnswerSlot::AtRest(engine) => Some(look(engine.as_mut())),
            AnswerSlot::Running(_) | AnswerSlot::Closed => None,
        }
    }

    /// Gives a command to whoever has the engine. If it is closed the command is dropped, which its asker sees.
    pub(crate) fn ask(&self, command: Command, now: Time, wake: &Wake) {
        match &mut *self.lock() {
            AnswerSlot::AtRest(engine) => {
                // What was ingested before is taken in first. Nothing was settled yet, so there is nothing to hear, and
                // a store that has failed says so again when it runs.
                let _ = engine.poll(&mut Vec::new());
                return self.carry_out(command, engine.as_mut(), now);
            }
            AnswerSlot::Running(commands) => commands.push(command),
            AnswerSlot::Closed => return,
        }
        wake.call();
    }

    /// Takes the engine for the dispatch thread; `None` if it was taken before.
    pub(crate) fn take(&self) -> Option<Box<dyn Engine>> {
        let mut place = self.lock();
        match std::mem::replace(&mut *place, AnswerSlot::Closed) {
            AnswerSlot::AtRest(engine) => {
                *place = AnswerSlot::Running(Vec::new());
                Some(engine)
            }
            other => {
                *place = other;
                None
            }
        }
    }

    /// What was asked since the last time.
    pub(crate) fn commands(&self) -> Vec<Command> {
        match &mut *self.lock() {
            AnswerSlot::Running(commands) => std::mem::take(commands),
            AnswerSlot::AtRest(_) | AnswerSlot::Closed => Vec::new(),
        }
    }

    /// The engine is gone; commands that nobody carried out are dropped.
    pub(crate) fn close(&self) {
        *self.lock() = AnswerSlot::Closed;
    }

    fn lock(&self) -> MutexGuard<'_, AnswerSlot> {
        self.place.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Seat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Seat").field("paused", &self.is_paused()).finish_non_exhaustive()
    }
}
