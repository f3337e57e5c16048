//! `[server]`: the address of the API, access to it, and its certificate.
//!
//! - `table`: reads the table; [`tls`]: reads the certificate files

mod table;
pub mod tls;

pub(super) use table::READS;
pub use table::{LISTEN_DEFAULT, ServerConfig, TokenConfig};
