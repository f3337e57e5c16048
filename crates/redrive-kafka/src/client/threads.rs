//! Threads that own or drop a librdkafka client. A process that exits while such a thread works may crash in it,
//! because the exit handlers of the libraries below have run by then. So whoever starts a thread waits for it, within
//! bounds.

use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// A client that cannot reach its brokers may take long to end; after this time the process exits anyway.
const END_MAX: Duration = Duration::from_secs(5);
const STEP: Duration = Duration::from_millis(2);

/// Waits on drop for the threads that were started here.
#[derive(Debug, Default)]
pub(crate) struct ClientThreads(Vec<JoinHandle<()>>);

impl ClientThreads {
    /// Runs `work` on a thread of its own.
    pub(crate) fn spawn(&mut self, name: &str, work: impl FnOnce() + Send + 'static) {
        self.0.retain(|thread| !thread.is_finished());
        match std::thread::Builder::new().name(name.to_owned()).spawn(work) {
            Ok(thread) => self.0.push(thread),
            Err(error) => tracing::warn!(%error, name, "a thread cannot be started"),
        }
    }
}

impl Drop for ClientThreads {
    fn drop(&mut self) {
        let until = Instant::now() + END_MAX;
        while self.0.iter().any(|thread| !thread.is_finished()) && Instant::now() < until {
            std::thread::sleep(STEP);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    #[test]
    fn who_drops_it_waits_for_what_runs() {
        let (mut threads, ended) = (ClientThreads::default(), Arc::new(AtomicBool::new(false)));
        let end = Arc::clone(&ended);
        threads.spawn("ends", move || {
            std::thread::sleep(Duration::from_millis(20));
            end.store(true, Ordering::SeqCst);
        });
        drop(threads);
        assert!(ended.load(Ordering::SeqCst));
    }
}
