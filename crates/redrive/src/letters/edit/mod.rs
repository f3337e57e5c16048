//! What an edit does to a message. Pure: parsing, applying, comparing.

pub mod change;
pub mod condition;
pub mod diff;
mod json_scalars;
pub mod json_text;
pub mod json_value;

pub use change::{EditFault, MessageChange, MessageIds};
pub use condition::{Condition, ConditionError};
pub use diff::{Difference, differences};
pub use json_text::Pointer;
pub use json_value::JsonValue;
