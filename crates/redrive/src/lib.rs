//! Redrive: retries and dead letters for messages whose downstream fails.
//!
//! A [`Pipeline`] accepts messages, calls a handler for each, and settles the outcome: done, retry later, or dead
//! letter. A [`Redrive`] runs pipelines on an engine: [`Embedded`] keeps messages on disk, [`MemoryStores`] in memory
//! for tests.
//!
//! ```
//! use redrive::{Failure, MemoryStores, Message, Pipeline, Policy, Redrive};
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let redrive = Redrive::builder()
//!     .engine(MemoryStores::new()) // `Embedded::open(dir)` keeps them on disk
//!     .pipeline(Pipeline::new("orders").policy(Policy::fixed("30s").retries(5)).handler_fn(
//!         |message: Message| async move {
//!             if message.payload().is_some() { Ok(()) } else { Err(Failure::permanent("no payload")) }
//!         },
//!     ))
//!     .build()?;
//! # Ok(())
//! # }
//! ```
//!
//! # Layout
//!
//! - at the root: the types to write a program with ([`Builder`], [`Pipeline`], [`Handler`], [`Sink`], [`Failure`]),
//!   those it holds while it runs ([`Redrive`], [`PipelineHandle`]), and the arguments of hooks
//! - [`letters`]: selections and edits of dead letters; [`replay`]: replay jobs; [`actions`]: recorded discards,
//!   edits and imports; [`messages`]: listing and steering pending messages
//! - [`figures`]: the figures of a pipeline; [`timestamp`]: times as text
//!
//! # Features
//!
//! - `embedded` (default): the engine that keeps messages in a directory, [`Embedded`]
//! - `testing`: the conformance suite and the simulation, for tests of engines

// The modules come in blocks: what a user writes, what is held while it runs, where messages are stored, what is done
// with letters and messages, and what runs. ARCHITECTURE.md describes each.

#![warn(missing_docs, unreachable_pub)]
// Modules reachable only through `internal` are exempt from the first lint; their files with public types enable it
// again.

mod backoff;
mod builder;
mod failure;
pub mod figures;
mod handler;
mod json;

mod handle;
#[allow(missing_docs)]
mod name;
#[allow(missing_docs)]
mod naming;
mod owner_only;
mod redrive;
mod sync;

#[allow(missing_docs)]
mod engine;
mod stores;

mod lease;

pub mod actions;
#[allow(missing_docs)]
mod adopt;
#[allow(missing_docs)]
mod events;
pub mod letters;
pub mod messages;
pub mod replay;
#[allow(missing_docs)]
mod subscriptions;

#[allow(missing_docs)]
mod dispatch;
mod run;
mod settle;

#[cfg(feature = "testing")]
#[allow(missing_docs)]
mod sim;

#[doc(hidden)]
pub mod internal;

pub use backoff::FailedAttempt;
pub use builder::{BuildError, BuildFault, Builder, FaultKind, Pipeline};
pub use dispatch::{AttemptFailed, Decided, HealthChange, HealthChanged, HealthEntry, HealthFigures};
pub use dispatch::{BreakerAnswer, BreakerOrder};
#[cfg(feature = "embedded")]
pub use engine::embedded::Embedded;
pub use engine::{
    Accepted, AfterDead, Counts, DeliveryOrder, EngineError, IngestError, KeyLine, LastEnd, Letter,
    LetterState, MessagePhase, MessageState, NewMessage, PendingMessage, PendingState, StoreNotice,
};
/// The former name of [`DeliveryOrder`], which looked like the `Ordering` of the standard library.
#[deprecated(note = "it is called `DeliveryOrder` now")]
#[doc(hidden)]
pub type Ordering = DeliveryOrder;
pub use failure::{Failure, TimedOut};
pub use figures::{Figures, Histogram};
pub use handle::{HandleError, PipelineHandle, ReplayOptions, Resume};
pub use handler::{Call, Delivery, Handler, MessageExt, Notes, Sink, SinkDescription, StatusPage};
pub use json::{Json, PayloadError};
pub use redrive::Redrive;
pub use run::clock::{Clock, VirtualClock, WallClock};
pub use run::hooks::DeadLetter;
pub use run::report::{PipelineReport, RunError, RunReport};
pub use run::watchdog::Stuck;
pub use stores::{MemoryStores, Stores};

#[doc(inline)]
pub use redrive_core::endpoints::{Endpoint, LimitBy};
#[doc(inline)]
pub use redrive_core::policy::Mode;
#[doc(inline)]
pub use redrive_core::timestamp;
#[doc(inline)]
pub use redrive_core::{BreakerSettings, Class, FailureKind, Fingerprint, GroupId, GroupRule, GuardSettings};
#[doc(inline)]
pub use redrive_core::{Message, Meta, Policy, Reason, Time};

/// Compiles the examples of the guide to dead letters.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/guide/dead-letters.md")]
struct DeadLettersGuide;

/// Compiles the examples of the guide to the library.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/guide/library.md")]
struct LibraryGuide;
