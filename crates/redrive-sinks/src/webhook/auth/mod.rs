//! Who we are to the receiver.
//!
//! - `authorizer`: what a user sets, and the header that comes of it
//! - `authorization`: that header, and the files of its secrets; `oauth`: tokens by client credentials

mod authorization;
mod authorizer;
mod oauth;

pub(super) use authorization::Authorization;
pub use authorizer::Auth;
pub(super) use authorizer::Authorizer;
pub use oauth::OAuth2;
