//! What every benchmark of the workload needs: counters that cost nothing, the machine it ran on, tables of figures.

pub mod figures;
pub mod histogram;
pub mod machine;
pub mod striped;

pub use figures::{FigureTable, Figures, Repeats, Spread};
pub use histogram::Histogram;
pub use striped::Striped;
