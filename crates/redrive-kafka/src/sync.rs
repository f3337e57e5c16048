//! What the hand-over between threads is made of. `redrive-models` compiles the same file with a model checker's threads and
//! locks under the same names.

pub(crate) use std::sync::atomic::{AtomicBool, Ordering};
pub(crate) use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
pub(crate) use std::thread::{Thread, current};
