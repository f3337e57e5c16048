//! Values as people write and read them: durations, rates, shares, paths into a message, printable text.

pub mod connection_header;
pub mod duration;
pub mod nearest;
pub mod number;
pub mod pick;
pub mod printable;
pub mod rate;
pub mod ratio;
pub mod redact;
pub mod secret_header;
