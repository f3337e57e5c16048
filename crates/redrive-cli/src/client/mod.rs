//! The client of the HTTP API: what `dlq`, `status`, `pause`, `resume` and `audit` talk to.
//!
//! - `address`: the address of the processor (`--url`), and its checks
//! - `token`: the token to send; it is never shown
//! - `wire`: one request and its bounded answer
//! - `answer`: an answer, raw and parsed; its types are those of `redrive-api`
//! - `api`: one method per route
//! - `fault`: what can go wrong, how to fix it, and the exit code
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
