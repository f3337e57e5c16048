//! The disk behind a seam: the real one, one that is only read, and a simulated one that loses what was not synced.

pub mod read_only;
pub mod real;
pub mod sim;
mod sim_inode;

pub use real::{Disk, DiskFile, RealDisk, Traffic};
pub use sim::{SimDisk, SimOp};
