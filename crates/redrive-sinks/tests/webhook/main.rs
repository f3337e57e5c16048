//! The webhook sink against real servers on loopback.

mod answers;
mod docs;
mod guard;
mod headers;
mod identity;
mod limits;
mod pipeline;
mod proxied;
mod server;
mod signed;
mod tls;
mod transport;
