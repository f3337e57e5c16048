//! The effect of an edit on a message. Pure: parsing, applying, comparing.

pub(crate) mod change;
mod condition;
mod diff;
mod json_scalars;
pub(crate) mod json_text;
mod json_value;

#[doc(hidden)]
pub use change::header_fault;
pub use change::{EditFault, MessageChange, MessageIds};
pub use condition::{Condition, ConditionError};
pub use diff::Difference;
#[doc(hidden)]
pub use diff::differences;
pub use json_text::Pointer;
#[doc(hidden)]
pub use json_text::{JsonFault, JsonText};
#[doc(hidden)]
pub use json_value::JsonValue;
