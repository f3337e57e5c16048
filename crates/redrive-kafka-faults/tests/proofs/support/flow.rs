//! A load that runs beside the test, at a fixed rate.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use redrive_lab::kafka::load::Loader;

const PIECE: Duration = Duration::from_millis(100);

/// Writes orders 0, 1, 2 … until it is ended.
#[derive(Debug)]
pub(crate) struct Flow {
    ended: Arc<AtomicBool>,
    written: Arc<AtomicU64>,
    thread: JoinHandle<()>,
}

impl Flow {
    pub(crate) fn start(loader: Loader, per_second: u64) -> Self {
        let (ended, written) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let (end, count) = (Arc::clone(&ended), Arc::clone(&written));
        let thread = std::thread::spawn(move || {
            let mut next = 0;
            while !end.load(Ordering::Relaxed) {
                next += loader.write_paced(next, per_second, PIECE).expect("orders are acknowledged");
                count.store(next, Ordering::Relaxed);
            }
        });
        Self { ended, written, thread }
    }

    /// Returns how many orders were acknowledged so far; it grows in steps.
    pub(crate) fn written(&self) -> u64 {
        self.written.load(Ordering::Relaxed)
    }

    /// Ends the load and returns how many orders were written.
    pub(crate) fn end(self) -> u64 {
        self.ended.store(true, Ordering::Relaxed);
        self.thread.join().expect("the load ends well");
        self.written.load(Ordering::Relaxed)
    }
}
