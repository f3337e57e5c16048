//! The index: tables beside the journal that can be thrown away and rebuilt at any time.

pub mod healing;
pub mod rebuild;
pub mod runs;
pub mod tables;
