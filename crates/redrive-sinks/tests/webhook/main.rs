//! The webhook sink against real servers on loopback.

mod answers;
mod docs;
mod guard;
mod pipeline;
mod server;
mod tls;
mod transport;
