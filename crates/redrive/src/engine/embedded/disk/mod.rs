//! Disk abstraction: a real disk, a read-only one, and a simulated one that loses unsynced data.

pub mod read_only;
pub mod real;
pub mod sim;
mod sim_inode;

pub use real::{Disk, DiskFile, RealDisk, Traffic};
pub use sim::{SimDisk, SimOp};
