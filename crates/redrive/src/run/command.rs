//! Commands for an engine, and its owner: at rest, owned by its dispatch thread, or closed.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use redrive_core::Time;

use super::steer::DurableAnswers;
use super::wake::Wake;
use crate::dispatch::Machine;
use crate::engine::{Engine, EngineError, TakeGate};

/// A query or an order, which replies by itself. It is carried out even if the caller is gone.
pub(crate) type Command = Box<dyn FnOnce(&mut EngineAccess<'_>) + Send>;

/// What a command works on: the engine, and the machine while the pipeline runs.
pub(crate) struct EngineAccess<'a> {
    pub(crate) engine: &'a mut dyn Engine,
    pub(crate) running: Option<MachineAccess<'a>>,
    pub(crate) now: Time,
    paused: &'a AtomicBool,
}

/// The state that the dispatch thread has besides the engine.
pub(crate) struct MachineAccess<'a> {
    pub(crate) machine: &'a mut Machine,
    pub(crate) answers: &'a mut DurableAnswers,
}

impl EngineAccess<'_> {
    /// Shuts or opens the take gate of all processes that share the pipeline. After an error it is unchanged.
    pub(crate) fn gate_all(&mut self, gate: TakeGate) -> Result<(), EngineError> {
        self.engine.gate_all(gate)?;
        self.paused.store(gate.is_shut(), Ordering::SeqCst);
        Ok(())
    }
}

/// Holds a pipeline's engine before it runs, and its commands while it runs.
pub(crate) struct EngineSlot {
    state: Mutex<EngineState>,
    /// Whether the engine's gate is shut.
    paused: AtomicBool,
}

enum EngineState {
    /// Not running yet: the caller carries out commands.
    AtRest(Box<dyn Engine>),
    /// Owned by the dispatch thread, which carries out the collected commands.
    Running(Vec<Command>),
    Closed,
}

impl EngineSlot {
    pub(crate) fn new(engine: Box<dyn Engine>) -> Self {
        Self { state: Mutex::new(EngineState::AtRest(engine)), paused: AtomicBool::new(false) }
    }

    pub(crate) fn is_paused(&self) -> bool {
        self.paused.load(Ordering::SeqCst)
    }

    pub(crate) fn gate(&self) -> TakeGate {
        TakeGate::of_pause(self.is_paused())
    }

    /// Carries out a command on the engine, which the caller owns. `running` is set if that is the dispatch thread.
    pub(crate) fn carry_out(
        &self,
        command: Command,
        engine: &mut dyn Engine,
        running: Option<MachineAccess<'_>>,
        now: Time,
    ) {
        command(&mut EngineAccess { engine, running, now, paused: &self.paused });
    }

    /// Follows another process that has paused or resumed the pipeline for all.
    pub(crate) fn follow(&self, gate: TakeGate) {
        self.paused.store(gate.is_shut(), Ordering::SeqCst);
    }

    /// Pauses an engine that the caller owns, for all processes that share it if possible.
    pub(crate) fn pause(&self, engine: &mut dyn Engine) {
        // If the others cannot be reached, only this process is paused.
        if engine.gate_all(TakeGate::Shut).is_err() {
            engine.gate(TakeGate::Shut);
        }
        self.paused.store(true, Ordering::SeqCst);
    }

    /// Accesses the engine while it is at rest; `None` otherwise.
    pub(crate) fn look<T>(&self, look: impl FnOnce(&mut dyn Engine) -> T) -> Option<T> {
        match &mut *self.lock() {
            EngineState::AtRest(engine) => Some(look(engine.as_mut())),
            EngineState::Running(_) | EngineState::Closed => None,
        }
    }

    /// Passes a command to the owner of the engine. If the engine is closed the command is dropped, which its caller
    /// notices.
    pub(crate) fn ask(&self, command: Command, now: Time, wake: &Wake) {
        match &mut *self.lock() {
            EngineState::AtRest(engine) => {
                // Process earlier ingests first. Nothing was settled yet, so no events are lost, and a store that has
                // failed reports that when it runs.
                let _ = engine.poll(&mut Vec::new());
                return self.carry_out(command, engine.as_mut(), None, now);
            }
            EngineState::Running(commands) => commands.push(command),
            EngineState::Closed => return,
        }
        wake.call();
    }

    /// Takes the engine for the dispatch thread; `None` if it was taken before.
    pub(crate) fn take(&self) -> Option<Box<dyn Engine>> {
        let mut state = self.lock();
        match std::mem::replace(&mut *state, EngineState::Closed) {
            EngineState::AtRest(engine) => {
                *state = EngineState::Running(Vec::new());
                Some(engine)
            }
            other => {
                *state = other;
                None
            }
        }
    }

    /// The commands since the last call.
    pub(crate) fn commands(&self) -> Vec<Command> {
        match &mut *self.lock() {
            EngineState::Running(commands) => std::mem::take(commands),
            EngineState::AtRest(_) | EngineState::Closed => Vec::new(),
        }
    }

    /// Closes the slot; pending commands are dropped.
    pub(crate) fn close(&self) {
        *self.lock() = EngineState::Closed;
    }

    fn lock(&self) -> MutexGuard<'_, EngineState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for EngineSlot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EngineSlot").field("paused", &self.is_paused()).finish_non_exhaustive()
    }
}
