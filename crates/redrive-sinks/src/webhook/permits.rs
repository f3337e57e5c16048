//! Limits the concurrent requests to one endpoint, tenant or key, each identified by a number.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Semaphore;

/// Permits per endpoint. An endpoint is known only while calls run or wait, so there are never more endpoints than
/// calls.
#[derive(Debug)]
pub(super) struct EndpointPermits {
    each: usize,
    known: Mutex<HashMap<u64, KnownEndpoint>>,
}

#[derive(Debug)]
struct KnownEndpoint {
    /// Calls that run or wait.
    calls: usize,
    free: Arc<Semaphore>,
}

/// A call to an endpoint, waiting for its permit or holding it. Dropping it releases everything.
#[derive(Debug)]
pub(super) struct EndpointPermit<'a> {
    permits: &'a EndpointPermits,
    unit: u64,
    free: Arc<Semaphore>,
    taken: bool,
}

impl EndpointPermits {
    pub(super) fn new(each: usize) -> Self {
        Self { each, known: Mutex::default() }
    }

    /// The number of permits of each endpoint.
    pub(super) fn limit(&self) -> usize {
        self.each
    }

    /// Waits for a permit.
    pub(super) async fn take(&self, unit: u64) -> EndpointPermit<'_> {
        let mut permit = self.join(unit);
        // The semaphore is never closed, so this cannot fail.
        if let Ok(acquired) = permit.free.acquire().await {
            acquired.forget();
            permit.taken = true;
        }
        permit
    }

    fn join(&self, unit: u64) -> EndpointPermit<'_> {
        let mut known = self.known();
        let new = || KnownEndpoint { calls: 0, free: Arc::new(Semaphore::new(self.each)) };
        let entry = known.entry(unit).or_insert_with(new);
        entry.calls += 1;
        EndpointPermit { permits: self, unit, free: Arc::clone(&entry.free), taken: false }
    }

    fn known(&self) -> MutexGuard<'_, HashMap<u64, KnownEndpoint>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for EndpointPermit<'_> {
    fn drop(&mut self) {
        if self.taken {
            self.free.add_permits(1);
        }
        let mut known = self.permits.known();
        if let Some(entry) = known.get_mut(&self.unit) {
            entry.calls -= 1;
            if entry.calls == 0 {
                known.remove(&self.unit);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;

    const SOON: Duration = Duration::from_millis(20);

    #[tokio::test]
    async fn a_full_endpoint_makes_its_own_calls_wait_and_no_others() {
        let permits = EndpointPermits::new(2);
        let first = permits.take(1).await;
        let _second = permits.take(1).await;
        assert!(timeout(SOON, permits.take(1)).await.is_err());
        assert!(timeout(SOON, permits.take(2)).await.is_ok());
        drop(first);
        assert!(timeout(SOON, permits.take(1)).await.is_ok());
    }

    #[tokio::test]
    async fn an_endpoint_is_forgotten_with_its_last_call() {
        let permits = EndpointPermits::new(1);
        let held = permits.take(1).await;
        assert!(timeout(SOON, permits.take(1)).await.is_err(), "gave up waiting");
        assert_eq!(permits.known().len(), 1);
        drop(held);
        assert_eq!(permits.known().len(), 0);
    }
}
