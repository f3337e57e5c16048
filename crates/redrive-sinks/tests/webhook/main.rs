//! The webhook sink against real servers on loopback.

mod answers;
mod docs;
mod guard;
mod identity;
mod pipeline;
mod server;
mod signed;
mod tls;
mod transport;
