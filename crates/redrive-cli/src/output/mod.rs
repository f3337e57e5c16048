//! What a command prints: data to stdout, everything else to stderr.

mod number;
mod progress;
mod style;
mod table;
mod writer;

pub use number::{bytes, count, percent, rate};
pub use progress::Progress;
pub use style::{Paint, Style};
pub use table::{Align, Table};
pub use writer::Output;
