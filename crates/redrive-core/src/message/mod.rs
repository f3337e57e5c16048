//! A message: its parts, and the one form in which it is stored and sent.

mod mask;
mod parts;
mod wire;

pub use mask::mask;
pub use parts::{MessageBuilder, MessageParts};
pub use wire::{Message, MessageError, limits};
