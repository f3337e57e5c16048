//! Redrive: retries and dead letters for messages whose downstream fails.
//!
//! # Layout, in the order a message passes through
//!
//! - [`builder`]: what a user writes; [`handler`], [`json`], [`failure`], [`backoff`]: their code and what it says
//!   when it fails
//! - `redrive`, [`handle`]: what a user holds while it runs; [`figures`]: what it shows
//! - [`engine`]: where messages live; the seam, and the engines behind it; [`stores`] opens one per pipeline
//! - [`messages`]: what waits, listed and steered; [`letters`]: which dead letters are meant; [`replay`]: jobs that put them back; [`actions`]: who did what; [`adopt`]: dead letters of other frameworks; [`events`]: what happens, for whoever follows it; [`subscriptions`]: which endpoints of a push pipeline are alive
//! - [`dispatch`]: what to take, whom to start, what to settle; no I/O
//! - [`run`]: threads, handlers, shutdown
//! - [`settle`]: from the end of an attempt to what is stored
//! - `sim` (feature `testing`): the dispatch machine on a virtual clock, with a checker per invariant

pub mod backoff;
pub mod builder;
pub mod failure;
pub mod figures;
pub mod handler;
pub mod json;

pub mod handle;
pub mod name;
pub mod naming;
mod private;
mod redrive;
mod sync;

pub mod engine;
pub mod stores;

pub mod actions;
pub mod adopt;
pub mod events;
pub mod letters;
pub mod messages;
pub mod replay;
pub mod subscriptions;
pub mod timestamp;

pub mod dispatch;
pub mod run;
pub mod settle;

#[cfg(feature = "testing")]
pub mod sim;

pub use backoff::FailedAttempt;
pub use builder::{BuildError, BuildFault, Builder, FaultKind, Pipeline};
pub use dispatch::{AttemptFailed, Decided, HealthChange, HealthChanged, HealthEntry, HealthFigures};
pub use dispatch::{BreakerAnswer, BreakerOrder};
pub use engine::embedded::Embedded;
pub use engine::{
    Accepted, AfterDead, Counts, IngestError, KeyLine, LastEnd, Letter, LetterState, MessagePhase,
    MessageState, NewMessage, Ordering, PendingMessage, PendingState,
};
pub use failure::{Failure, TimedOut};
pub use figures::{Figures, Histogram};
pub use handle::{HandleError, PipelineHandle, Resume};
pub use handler::{Call, Delivery, Handler, MessageExt, Notes, Sink, SinkDescription};
pub use json::{Json, PayloadError};
pub use redrive::Redrive;
pub use run::clock::{Clock, VirtualClock, WallClock};
pub use run::hooks::DeadLetter;
pub use run::report::{PipelineReport, RunError, RunReport};
pub use run::watchdog::Stuck;
pub use stores::{MemoryStores, Stores};

pub use redrive_core::endpoints::{Endpoint, LimitBy};
pub use redrive_core::policy::Mode;
pub use redrive_core::{BreakerSettings, Class, FailureKind, Fingerprint, GroupId, GroupRule, GuardSettings};
pub use redrive_core::{Decision, Message, Meta, Outcome, Policy, Reason, Time};

/// The guide's examples compile.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/guide/dead-letters.md")]
struct DeadLettersGuide;

/// So do those of the guide to the library.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/guide/library.md")]
struct LibraryGuide;
