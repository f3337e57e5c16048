//! Incoming connections: their number, which ones are closed when there are too many, and how long a client may take to
//! read its answer.
//!
//! No client may keep others out, whatever it does or does not do:
//!
//! - [`files`]: the limit of descriptors for connections, so that the store always gets one
//! - [`registry`]: all connections; when it is full, idle ones are closed
//! - [`write_pace`], [`stream`]: disconnect a client that does not read its answer
//! - [`serve`]: passes requests to the router, and answers probes when all slots are taken

pub(crate) mod files;
pub(crate) mod registry;
pub(crate) mod serve;
pub(crate) mod stream;
pub(crate) mod write_pace;
