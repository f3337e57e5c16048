//! The conformance suite: one model-based test that every engine must pass.
//!
//! Random commands (ingest, take, settle, crash, reopen, replay, discard, edit, erase, import, clock steps) run against
//! an engine and against a simple model of what it promises. The two are compared after every command; at the end
//! everything is finished, so that a lost message is noticed. After a crash, verdicts that were not yet reported
//! durable may be lost: the model keeps both possibilities until the engine shows which is true.
//!
//! # Layout, in reading order
//!
//! - `command`: the commands, drawn from a seed
//! - `situation`: what is known about one message
//! - `model`: all messages, and how the engine's answers change what is known
//! - `order`: which message of a key may start
//! - `bounds`: bounds for counts and `next_due`
//! - `suite`, `settling`, `operator`, `editing`, `erasing`, `importing`, `groups`, `steering`, `lookup`: run commands
//!   and compare; `finish` brings everything to its end
//! - `report`: runs seeds, shrinks failures and says how to repeat them

mod check;
mod command;
mod situation;

mod bounds;
mod model;
mod order;

mod editing;
mod erasing;
mod finish;
mod groups;
mod importing;
mod lookup;
mod operator;
mod report;
mod settling;
mod steering;
mod suite;

use redrive_core::Time;
use tokio::sync::oneshot;

pub use check::Violation;
pub use command::Command;
pub use redrive_core::SplitMix64 as Rng;
pub use report::{Failure, check_seeds, run, run_commands, seeds_from_env};

use super::ingest::{IngestAnswer, NewMessage};
use super::seam::{Engine, StoreOptions};

/// An engine under test, with the operations that only a test performs.
pub trait Harness {
    fn engine(&mut self) -> &mut dyn Engine;

    /// The process dies without warning, and the store is opened again.
    fn crash_and_reopen(&mut self);

    /// `Deliver::close` was called and succeeded; the store is opened again.
    fn reopen_after_close(&mut self);

    /// Called repeatedly while the suite waits for something to become durable or readable. Lets background work go on,
    /// or performs a step of it.
    fn idle(&mut self) {
        std::thread::sleep(std::time::Duration::from_micros(200));
    }

    /// How many due messages the engine is certain to see at once; one with a window in memory may not know more yet.
    fn window(&self) -> usize {
        usize::MAX
    }

    /// The subset of the options that the engine supports; the others are not tested.
    fn options(&self, asked: StoreOptions) -> StoreOptions {
        asked
    }

    /// The message as it can enter this engine. An engine with an external source may support no delay and no
    /// deadline.
    fn admissible(&self, new: NewMessage) -> NewMessage {
        new
    }

    /// Whether each accepted message has a higher number than all before it. With partitions that holds only within
    /// each.
    fn numbers_rise(&self) -> bool {
        true
    }

    /// Whether a crash may duplicate a message whose verdict was given but not yet durable: one copy where it was, and
    /// one where it went. The model then knows only that it becomes terminal. Followers in its key line may have
    /// started on such a verdict too.
    fn may_leave_twins(&self) -> bool {
        false
    }

    /// Whether a listing shows all waiting messages; an engine with an external source may not have read all of them.
    fn lists_everything(&self) -> bool {
        true
    }

    /// Submits messages. For an engine with an external source, writes them there.
    fn submit(&mut self, batch: Vec<NewMessage>, now: Time) -> oneshot::Receiver<IngestAnswer> {
        let ingest = self.engine().ingest().expect("an engine without ingest overrides submit");
        ingest.submit(batch, now)
    }
}

/// Opens an empty store for one run.
pub type Open<'a> = &'a dyn Fn(StoreOptions) -> Box<dyn Harness>;
