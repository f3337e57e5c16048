//! Authenticates to the receiver: basic, a bearer token, or OAuth2 client credentials. Every secret comes from a file.

use std::path::PathBuf;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hyper::header::HeaderValue;
use redrive::Failure;

use super::super::connect::Pool;
use super::super::signing::watched::Watched;
use super::authorization::{Authorization, current, open};
use super::oauth::{OAuth2, TokenSource};
use crate::fault::SinkFault;
use crate::secret::Secret;

/// The user settings of authentication.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Auth {
    #[default]
    None,
    Basic {
        user: String,
        password_file: PathBuf,
    },
    Bearer {
        token_file: PathBuf,
    },
    OAuth2(OAuth2),
}

/// Creates the header `authorization`.
#[derive(Debug)]
pub(in super::super) enum Authorizer {
    None,
    Basic { user: String, password: Watched<Secret> },
    Bearer(Watched<Secret>),
    OAuth2(Box<TokenSource>),
}

impl Auth {
    /// Reads the files and reports their faults. `pool` is used to fetch tokens.
    pub(in super::super) fn authorizer(&self, pool: impl FnOnce() -> Pool) -> Result<Authorizer, SinkFault> {
        Ok(match self {
            Self::None => Authorizer::None,
            Self::Basic { user, password_file } => {
                if user.contains(':') || user.chars().any(char::is_control) {
                    let problem = "`auth.user` has a colon or a control character in it, which basic authentication does not allow";
                    return Err(SinkFault::of("auth.user", user, problem, "auth.user = \"redrive\""));
                }
                let password = open("auth.password_file", password_file)?;
                Authorizer::Basic { user: user.clone(), password }
            }
            Self::Bearer { token_file } => Authorizer::Bearer(open("auth.token_file", token_file)?),
            Self::OAuth2(options) => {
                let secret = open("auth.client_secret_file", &options.client_secret_file)?;
                Authorizer::OAuth2(Box::new(TokenSource::new(options, secret, pool())?))
            }
        })
    }
}

impl Authorizer {
    /// The header for an attempt; `refused` is the one that the receiver answered with 401.
    pub(in super::super) async fn authorize(
        &self,
        refused: Option<&Authorization>,
    ) -> Result<Option<Authorization>, Failure> {
        let fixed = |text: String| {
            let mut value = HeaderValue::try_from(text)
                .map_err(|_| Failure::credential("the secret for the receiver cannot be sent in a header"))?;
            value.set_sensitive(true);
            Ok(Some(Authorization { value, generation: 0 }))
        };
        match self {
            Self::None => Ok(None),
            Self::Basic { user, password } => {
                let pair = format!("{user}:{}", current(password).expose());
                fixed(format!("Basic {}", STANDARD.encode(pair)))
            }
            Self::Bearer(token) => fixed(format!("Bearer {}", current(token).expose())),
            Self::OAuth2(tokens) => tokens.authorization(refused.map(|one| one.generation)).await.map(Some),
        }
    }

    /// Secrets that a receiver may repeat and that no error text may show.
    pub(in super::super) fn secrets(&self) -> Option<Secret> {
        match self {
            Self::Basic { password: file, .. } | Self::Bearer(file) => Some((*current(file)).clone()),
            Self::None | Self::OAuth2(_) => None,
        }
    }

    /// Whether a 401 may only mean that a token expired early.
    pub(in super::super) fn can_refresh(&self) -> bool {
        matches!(self, Self::OAuth2(_))
    }
}
