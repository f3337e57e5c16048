//! The primitives of hand-overs between threads. `redrive-models` compiles the same files with the threads, locks and
//! atomics of a model checker under the same names.

pub(crate) use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};
pub(crate) use std::sync::{Arc, OnceLock};
#[cfg(feature = "embedded")]
pub(crate) use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
pub(crate) use std::thread::{Thread, current, park_timeout};

pub(crate) use crossbeam_queue::{ArrayQueue, SegQueue};
pub(crate) use tokio::sync::Notify;
