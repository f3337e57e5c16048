//! `[server]`: the address of the API, who may use it, and its certificate.
//!
//! - `table`: what the table says; [`tls`]: the certificate from its files

mod table;
pub mod tls;

pub(super) use table::READS;
pub use table::{LISTEN_DEFAULT, ServerConfig, TokenConfig};
