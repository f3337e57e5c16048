//! What a comparison ends in: nothing, or the property that was broken.

/// A promise that was broken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The name of the promise.
    pub property: &'static str,
    pub detail: String,
}

pub(super) type Check = Result<(), Violation>;

impl Violation {
    pub(super) fn new(property: &'static str, detail: impl Into<String>) -> Self {
        Self { property, detail: detail.into() }
    }
}

pub(super) fn violation<T>(property: &'static str, detail: impl Into<String>) -> Result<T, Violation> {
    Err(Violation::new(property, detail))
}
