//! An HTTP/2 client for one server: several connections, each with as many streams as the server allows.
//!
//! - [`dial`]: a connection with TLS; [`session`]: one connection in use; [`sessions`]: chooses one for a request
//! - [`lost`]: why a request got no answer

pub mod dial;
pub mod lost;
pub mod session;
pub mod sessions;

pub use dial::ServerAddress;
pub use lost::Lost;
pub use session::Answer;
pub use sessions::Sessions;
