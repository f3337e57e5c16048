//! The output of a command: data to stdout, everything else to stderr.

pub mod age;
pub mod instant;
mod number;
mod progress;
pub mod safe;
mod style;
mod table;
mod writer;

pub use number::{bytes, count, percent, rate};
pub use progress::Progress;
pub use style::{Paint, Style};
pub use table::{Align, TextTable};
pub use writer::Output;
