//! A counter for many threads.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// A counter split into stripes on separate cache lines, so that threads do not contend for one.
#[derive(Debug, Default)]
pub struct Striped([Stripe; 8]);

#[derive(Debug, Default)]
#[repr(align(128))]
struct Stripe(AtomicU64);

impl Striped {
    pub fn add(&self, n: u64) {
        thread_local!(static STRIPE: Cell<Option<usize>> = const { Cell::new(None) });
        static THREADS: AtomicUsize = AtomicUsize::new(0);
        let stripe = STRIPE.get().unwrap_or_else(|| {
            let stripe = THREADS.fetch_add(1, Ordering::Relaxed) % 8;
            STRIPE.set(Some(stripe));
            stripe
        });
        self.0[stripe].0.fetch_add(n, Ordering::Relaxed);
    }

    pub fn sum(&self) -> u64 {
        self.0.iter().map(|stripe| stripe.0.load(Ordering::Relaxed)).sum()
    }
}
