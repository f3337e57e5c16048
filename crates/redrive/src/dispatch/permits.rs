//! Limits how many handlers run at once, with guards: a permit is freed when it is dropped, wherever that happens.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The permits of one sink.
#[derive(Debug)]
pub struct Permits {
    used: Arc<AtomicUsize>,
    limit: usize,
}

/// The right to run one handler. It cannot be copied, and dropping it is the only way to return it.
#[derive(Debug)]
pub struct Permit {
    used: Arc<AtomicUsize>,
}

impl Permits {
    pub fn new(limit: usize) -> Self {
        Self { used: Arc::default(), limit }
    }

    /// Returns a permit, if one is free. `&mut`: only one thread takes permits, so the check and the increment cannot
    /// race.
    pub fn take(&mut self) -> Option<Permit> {
        if self.free() == 0 {
            return None;
        }
        self.used.fetch_add(1, Ordering::Relaxed);
        Some(Permit { used: Arc::clone(&self.used) })
    }

    pub fn free(&self) -> usize {
        self.limit.saturating_sub(self.used.load(Ordering::Relaxed))
    }

    pub fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.used.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_permit_is_free_again_when_it_is_dropped() {
        let mut permits = Permits::new(2);
        let (first, second) = (permits.take(), permits.take());
        assert!(first.is_some() && second.is_some() && permits.take().is_none());
        drop(first);
        assert_eq!(permits.free(), 1);
        assert!(permits.take().is_some());
    }
}
