//! The two pipelines of the storm.

/// A pipeline with a source topic of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Flow {
    /// Unordered; its source grows during the storm.
    Orders,
    /// `ordering = "key"`; every batch is compressed with zstd.
    Accounts,
}

/// Number of keys of each flow; record `i` has key `i % KEYS`.
pub const KEYS: u64 = 120;

impl Flow {
    pub const ALL: [Self; 2] = [Self::Orders, Self::Accounts];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Orders => "orders",
            Self::Accounts => "accounts",
        }
    }

    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|flow| flow.name() == name)
    }

    pub const fn keeps_order(self) -> bool {
        matches!(self, Self::Accounts)
    }

    pub const fn index(self) -> usize {
        self as usize
    }
}
