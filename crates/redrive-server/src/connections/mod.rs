//! Connections from the outside: how many there may be, which one goes when there are too many, and how long a client may
//! take to read its answer.
//!
//! Nothing that a client does, or does not do, may keep others out:
//!
//! - [`files`]: how many descriptors connections may take, so that the store always finds one
//! - [`registry`]: who is connected; when it is full, idle connections make room
//! - [`write_pace`], [`stream`]: a client that does not read its answer is cut off
//! - [`serve`]: a request on its way to the router, and the lane that answers probes when everything else is taken

pub(crate) mod files;
pub(crate) mod registry;
pub(crate) mod serve;
pub(crate) mod stream;
pub(crate) mod write_pace;
