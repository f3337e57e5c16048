//! Counts each tenant once per origin: a share of tenants, not of calls.

use crate::protection::breaker::FastWindow;
use crate::protection::window::Sum;

/// An origin that has served this many tenants in the window is not down, whatever other tenants experience.
pub(super) const SERVED_MAX: usize = 64;

/// The tenants whose calls failed or succeeded at an origin, each once.
#[derive(Clone, Debug, Default)]
pub(super) struct TenantOutcomes {
    /// Tenants that failed, at most as many as needed to decide.
    pub(super) failed: Vec<u64>,
    /// Tenants that were served, at most [`SERVED_MAX`].
    pub(super) served: Vec<u64>,
}

impl TenantOutcomes {
    /// Records a result of a tenant. One success is enough: a tenant that was served can reach the origin.
    pub(super) fn record(&mut self, tenant: u64, is_good: bool, failed_max: u32) {
        if self.served.contains(&tenant) {
            return;
        }
        if is_good {
            self.failed.retain(|failed| *failed != tenant);
            if self.served.len() < SERVED_MAX {
                self.served.push(tenant);
            }
        } else if !self.failed.contains(&tenant) && self.failed.len() < failed_max as usize {
            self.failed.push(tenant);
        }
    }

    /// Whether enough tenants failed, and a large enough share of them.
    pub(super) fn reach(&self, limit: &FastWindow) -> bool {
        let count = |all: &[u64]| u32::try_from(all.len()).unwrap_or(u32::MAX);
        let (failed, served) = (count(&self.failed), count(&self.served));
        let share = Sum { calls: failed + served, failed };
        self.served.len() < SERVED_MAX && failed >= limit.min && share.reaches(limit.failures)
    }
}
