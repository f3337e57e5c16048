//! Failing messages and their effect on others: blocking, order, poison, wrong classes.

pub(super) mod blocking;
pub(super) mod failure_sweep;
pub(super) mod misclassification;
pub(super) mod mixed;
pub(super) mod ordering;
pub(super) mod poison_growth;
