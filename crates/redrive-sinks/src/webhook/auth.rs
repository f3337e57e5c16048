//! Who we are to the receiver: basic, a bearer token, or OAuth2 client credentials. Every secret comes from a file.

use std::path::{Path, PathBuf};
use std::time::Instant;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hyper::header::HeaderValue;
use redrive::Failure;

use super::connect::Pool;
use super::oauth::{OAuth2, TokenSource};
use super::signing::watched::Watched;
use crate::fault::SinkFault;
use crate::secret::Secret;

const SECRET_BYTES_MAX: u64 = 64 * 1024;

/// How requests are authenticated, as a user describes it.
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

/// Makes the header `authorization`.
#[derive(Debug)]
pub(super) enum Authorizer {
    None,
    Basic { user: String, password: Watched<Secret> },
    Bearer(Watched<Secret>),
    OAuth2(Box<TokenSource>),
}

/// The header of one attempt.
#[derive(Clone, Debug)]
pub(super) struct Authorization {
    pub(super) value: HeaderValue,
    /// Which token it holds, so that a refused one is not asked for again.
    pub(super) generation: u64,
}

impl Auth {
    /// Reads the files and says what is wrong with them. `pool` is how a token is fetched.
    pub(super) fn authorizer(&self, pool: impl FnOnce() -> Pool) -> Result<Authorizer, SinkFault> {
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

fn open(key: &str, path: &Path) -> Result<Watched<Secret>, SinkFault> {
    Watched::open(path, SECRET_BYTES_MAX, one_line, Instant::now()).map_err(|error| {
        let problem = format!("`{key}` cannot be used: {error}");
        SinkFault::of(key, &path.display().to_string(), problem, "a readable file with the secret")
    })
}

fn one_line(text: &str) -> Result<Secret, String> {
    if text.chars().any(char::is_control) {
        return Err("it has a line end or another control character in it".to_owned());
    }
    Ok(Secret::from(text))
}

/// The present content of a file with a secret.
pub(super) fn current(file: &Watched<Secret>) -> std::sync::Arc<Secret> {
    file.get(SECRET_BYTES_MAX, Instant::now())
}

impl Authorizer {
    /// The header of an attempt; `refused` is the one that the receiver answered with 401.
    pub(super) async fn authorize(
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
    pub(super) fn secrets(&self) -> Option<Secret> {
        match self {
            Self::Basic { password: file, .. } | Self::Bearer(file) => Some((*current(file)).clone()),
            Self::None | Self::OAuth2(_) => None,
        }
    }

    /// Whether a 401 may only mean that a token has ended early.
    pub(super) fn can_refresh(&self) -> bool {
        matches!(self, Self::OAuth2(_))
    }
}
