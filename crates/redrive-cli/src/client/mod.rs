//! The client of the HTTP API: what `dlq`, `status`, `pause`, `resume` and `audit` talk to.
//!
//! - `address`: where the processor is (`--url`), and what is refused as an address
//! - `token`: which token is sent, and that it never shows
//! - `wire`: one request and its bounded answer
//! - `answer`: an answer as it came and as it is understood; its shapes are those of `redrive-api`
//! - `api`: a method per route
//! - `fault`: what can go wrong, what to do about it, and the exit code
//! - `session`: from the global flags to an API, on a small runtime

pub mod address;
pub mod answer;
pub mod api;
pub mod fault;
pub mod session;
pub mod token;
pub mod wire;

pub use address::ApiAddress;
pub use answer::ApiAnswer;
pub use api::{Api, MessageQuery, PageQuery};
pub use fault::ClientFault;
pub use session::{Session, block_on, wall_clock, with_api};
pub use token::Bearer;
