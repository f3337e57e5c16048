//! An HTTP/2 client for one server: several connections, each with as many streams as the server allows.
//!
//! - [`dial`]: a connection with TLS; [`session`]: one connection in use; [`sessions`]: which one a request takes

pub mod dial;
pub mod session;
pub mod sessions;

pub use dial::Server;
pub use session::{Answer, Lost};
pub use sessions::Sessions;
