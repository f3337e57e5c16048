//! The end of a suspect on its way into the store.

use crate::engine::Ticket;

/// The suspect that ran last, until its end is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(super) enum Settling {
    #[default]
    No,
    /// Its verdict is in the batch.
    InBatch {
        cleared: bool,
    },
    Given {
        ticket: Ticket,
        cleared: bool,
    },
}
