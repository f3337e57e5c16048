//! The result of a comparison: success, or the property that was violated.

/// A violated property.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The name of the property.
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
