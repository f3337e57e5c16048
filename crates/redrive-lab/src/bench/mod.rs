//! Shared by all benchmarks of the workload: cheap counters, a description of the machine, tables of figures.

pub mod figures;
pub mod histogram;
pub mod machine;
pub mod striped;

pub use figures::{FigureTable, Figures, Repeats, Spread};
pub use histogram::Histogram;
pub use striped::Striped;
