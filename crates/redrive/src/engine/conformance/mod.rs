//! The conformance suite: one model test that every engine must pass.
//!
//! Random commands (ingest, take, settle, crash, reopen, replay, discard, edit, erase, import, clock steps) run against an engine and against
//! a plain model of what it promised. After every command the two are compared; at the end everything is driven to its
//! end, so that a message which silently vanished is noticed. What a crash may forget (verdicts that were given but not
//! yet reported durable) the model carries in both forms until the engine shows which one is true.
//!
//! # Layout, in reading order
//!
//! - `command`: what can happen, drawn from a seed
//! - `situation`: what is known of one message
//! - `model`: all messages, and what an engine's answers say about them
//! - `order`: which message of a key may start
//! - `bounds`: what counts and `next_due` may say
//! - `suite`, `settling`, `operator`, `editing`, `erasing`, `importing`, `groups`, `steering`, `lookup`: carry commands out and compare; `finish` drives everything to its end
//! - `report`: runs seeds, shrinks a failure and says how to repeat it

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

/// An engine under test, and the three things a test does to it that a pipeline does not.
pub trait Harness {
    fn engine(&mut self) -> &mut dyn Engine;

    /// The process dies now, without any warning, and the store is opened again.
    fn crash_and_reopen(&mut self);

    /// `Deliver::close` was called and succeeded; the store is opened again.
    fn reopen_after_close(&mut self);

    /// Called again and again while the suite waits for something to become durable or readable: let background work
    /// go on, or carry out a step of it.
    fn idle(&mut self) {
        std::thread::sleep(std::time::Duration::from_micros(200));
    }

    /// How many due messages the engine is sure to see at once; one with a window in memory may not know of more yet.
    fn window(&self) -> usize {
        usize::MAX
    }

    /// What of the options the engine keeps; one that cannot do a thing is not asked for it.
    fn options(&self, asked: StoreOptions) -> StoreOptions {
        asked
    }

    /// The message as it can enter this engine. One whose source is elsewhere may know no delay and no deadline.
    fn admissible(&self, new: NewMessage) -> NewMessage {
        new
    }

    /// Whether each acceptance has a higher number than all before it. With partitions it is so in each of them.
    fn numbers_rise(&self) -> bool {
        true
    }

    /// Whether a message may exist twice after a crash, if its verdict was given and not yet durable: where it was, and
    /// where it went. What is known of such a message is only that it becomes terminal. Followers of a key may start on
    /// such a verdict too.
    fn may_leave_twins(&self) -> bool {
        false
    }

    /// Whether a listing shows everything that waits; one whose source is elsewhere may not have read all of it.
    fn lists_everything(&self) -> bool {
        true
    }

    /// Where messages enter. An engine whose source is elsewhere puts them there.
    fn submit(&mut self, batch: Vec<NewMessage>, now: Time) -> oneshot::Receiver<IngestAnswer> {
        let ingest = self.engine().ingest().expect("an engine without ingest overrides submit");
        ingest.submit(batch, now)
    }
}

/// Opens an empty store for one run.
pub type Open<'a> = &'a dyn Fn(StoreOptions) -> Box<dyn Harness>;
