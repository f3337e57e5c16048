//! Standard Webhooks: how requests are signed, and how a signature is checked.
//!
//! - [`id`]: the message id as signed; [`key`]: one secret; [`keyring`]: the secrets of one receiver, and of many
//! - `watched`: a file that is reread when it changes; `command`: a command that provides the secrets of endpoints
//! - `signer`: chooses the secrets for a message and signs
//! - [`verify`]: checks a signature

pub mod id;
pub mod key;
pub mod keyring;
pub(crate) mod watched;

mod command;

pub(super) mod signer;
pub mod verify;

pub use key::{KeyFault, SigningKey, VerifyingKey};
pub use keyring::{EndpointKeys, Keyring, KeyringFault};
pub(super) use signer::{Fetched, Signer, Unsigned};
pub use signer::{Signing, SigningError};
pub use verify::{NotVerified, Received};
