//! Limits the file descriptors of connections. The store needs one for each segment it opens, and a sink one for each
//! call: without a reserve, idle clients could stop both.

use rustix::process::{Resource, getrlimit};

/// Shares of the limit, determined once at the start. Pure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileBudget {
    /// The descriptor limit of this process; `None` if unlimited.
    limit: Option<u64>,
}

impl FileBudget {
    /// The limit of this process now.
    pub fn of_process() -> Self {
        Self { limit: getrlimit(Resource::Nofile).current }
    }

    /// The maximum number of connections: as many as wanted, but no more than half of the limit.
    pub fn connections(self, wanted: usize) -> usize {
        let half = self.limit.map_or(usize::MAX, |limit| usize::try_from(limit / 2).unwrap_or(usize::MAX));
        wanted.min(half).max(1)
    }

    /// Whether a connection may keep this descriptor.
    ///
    /// The operating system assigns the lowest free number, so one in the last quarter means that hardly more than a
    /// quarter is left. As no connection keeps such a number, that quarter is reserved for the store and the sinks.
    pub fn may_keep(self, descriptor: i32) -> bool {
        self.limit
            .is_none_or(|limit| u64::try_from(descriptor).is_ok_and(|number| number < limit - limit / 4))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_take_half_of_the_files_and_never_the_last_quarter() {
        let usual = FileBudget { limit: Some(1_024) };
        assert_eq!(usual.connections(4_096), 512);
        assert!(usual.may_keep(767) && !usual.may_keep(768) && !usual.may_keep(1_023));
        let large = FileBudget { limit: Some(65_536) };
        assert_eq!(large.connections(4_096), 4_096);
        let none = FileBudget { limit: None };
        assert_eq!(none.connections(4_096), 4_096);
        assert!(none.may_keep(i32::MAX));
        assert_eq!(FileBudget { limit: Some(1) }.connections(4_096), 1);
    }
}
