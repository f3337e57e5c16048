//! The primitives of the hand-over between threads. `redrive-models` compiles the same hand-over with a model checker's
//! threads and locks under these names.

pub(crate) use std::sync::atomic::{AtomicBool, Ordering};
pub(crate) use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
pub(crate) use std::thread::{Thread, current};
