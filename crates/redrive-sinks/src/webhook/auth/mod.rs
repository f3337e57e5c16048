//! Authentication to the receiver.
//!
//! - `authorizer`: user settings, and the resulting header
//! - `authorization`: that header, and its secret files; `oauth`: tokens by client credentials

mod authorization;
mod authorizer;
mod oauth;

pub(super) use authorization::Authorization;
pub use authorizer::Auth;
pub(super) use authorizer::Authorizer;
pub use oauth::OAuth2;
