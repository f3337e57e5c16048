//! Bearer tokens: who may do what, and under which name it is written down.

use std::fmt;
use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use subtle::ConstantTimeEq;

/// The shortest secret that is accepted; shorter ones can be guessed.
pub const SECRET_BYTES_MIN: usize = 16;

/// What a token may be used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Scope {
    /// Everything that can be read, metrics included.
    Read,
    /// `/metrics` and nothing else.
    Metrics,
    Ingest,
    Replay,
    Edit,
    Discard,
    /// Pause and resume.
    Admin,
}

impl Scope {
    pub const ALL: [Self; 7] =
        [Self::Read, Self::Metrics, Self::Ingest, Self::Replay, Self::Edit, Self::Discard, Self::Admin];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Metrics => "metrics",
            Self::Ingest => "ingest",
            Self::Replay => "replay",
            Self::Edit => "edit",
            Self::Discard => "discard",
            Self::Admin => "admin",
        }
    }

    /// Whether it changes nothing.
    pub const fn is_read(self) -> bool {
        matches!(self, Self::Read | Self::Metrics)
    }

    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|scope| scope.name() == name)
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A token with the name of its holder. The secret is in no output of any kind.
#[derive(Clone)]
pub struct Token {
    name: String,
    scopes: Vec<Scope>,
    secret: String,
    /// Made by this program for the people of this machine, so it opens nothing beyond loopback.
    generated: bool,
}

#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    #[error(
        "the secret of token `{name}` has {bytes} bytes, which can be guessed; give it at least {SECRET_BYTES_MIN}, for \
         example with `openssl rand -hex 20`"
    )]
    Short { name: String, bytes: usize },
    #[error(
        "the secret of token `{name}` has characters that cannot stand in a header; use letters and digits"
    )]
    Unprintable { name: String },
    #[error(
        "token `{name}` has no scopes; give it some of read, metrics, ingest, replay, edit, discard, admin"
    )]
    NoScopes { name: String },
    #[error("the token file {path}: {source}")]
    File { path: String, source: io::Error },
    #[error("no random numbers for a new token: {0}")]
    Random(String),
}

impl Token {
    /// A configured token. White space around the secret is not part of it: files end with a line break.
    pub fn new(
        name: impl Into<String>,
        secret: &str,
        scopes: impl Into<Vec<Scope>>,
    ) -> Result<Self, TokenError> {
        let (name, secret, scopes) = (name.into(), secret.trim(), scopes.into());
        if secret.len() < SECRET_BYTES_MIN {
            return Err(TokenError::Short { name, bytes: secret.len() });
        }
        if !secret.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(TokenError::Unprintable { name });
        }
        if scopes.is_empty() {
            return Err(TokenError::NoScopes { name });
        }
        Ok(Self { name, scopes, secret: secret.to_owned(), generated: false })
    }

    /// The token in this file, or a new one with every scope that is written there, readable by its owner only.
    pub fn in_file(path: &Path) -> Result<Self, TokenError> {
        let fault = |source| TokenError::File { path: path.display().to_string(), source };
        let secret = match fs::read_to_string(path) {
            Ok(secret) => secret,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let secret = random_text()?;
                write_private(path, &secret).map_err(fault)?;
                secret
            }
            Err(error) => return Err(fault(error)),
        };
        Ok(Self { generated: true, ..Self::new("local", &secret, Scope::ALL)? })
    }

    /// A token with every scope that lives as long as this process.
    pub fn ephemeral() -> Result<Self, TokenError> {
        Ok(Self { generated: true, ..Self::new("local", &random_text()?, Scope::ALL)? })
    }

    /// The holder's name, written down with what they do.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The secret, for the program that made it and has to tell its user.
    pub fn reveal(&self) -> &str {
        &self.secret
    }

    pub fn allows(&self, scope: Scope) -> bool {
        self.scopes.contains(&scope) || (scope == Scope::Metrics && self.scopes.contains(&Scope::Read))
    }

    pub(crate) fn is_generated(&self) -> bool {
        self.generated
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Token")
            .field("name", &self.name)
            .field("scopes", &self.scopes)
            .finish_non_exhaustive()
    }
}

/// The token with this secret. Every token is compared to its end, so that the time taken tells nothing but a length.
pub(crate) fn find<'a>(tokens: &'a [Token], secret: &str) -> Option<&'a Token> {
    let mut found = None;
    for token in tokens {
        if bool::from(token.secret.as_bytes().ct_eq(secret.as_bytes())) {
            found = Some(token);
        }
    }
    found
}

fn write_private(path: &Path, secret: &str) -> io::Result<()> {
    let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    writeln!(file, "{secret}")?;
    file.sync_all()
}

fn random_text() -> Result<String, TokenError> {
    let mut bytes = [0; 20];
    getrandom::fill(&mut bytes).map_err(|error| TokenError::Random(error.to_string()))?;
    Ok(hex(&bytes))
}

/// Lower-case hexadecimal.
pub(crate) fn hex(bytes: &[u8]) -> String {
    let digit = |nibble: u8| char::from_digit(u32::from(nibble), 16).unwrap_or('0');
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn secrets_are_in_no_debug_output_and_no_error() {
        let token = Token::new("ops", "correct-horse-battery", [Scope::Read]).unwrap();
        assert!(!format!("{token:?}").contains("correct"));
        let error = Token::new("ops", "s3cret!-15bytes", [Scope::Read]).unwrap_err();
        assert!(!format!("{error} {error:?}").contains("s3cret!"));
        assert!(error.to_string().contains("openssl rand"), "{error}");
    }

    #[test]
    fn a_token_is_found_by_its_whole_secret_only() {
        let tokens = ["aaaaaaaaaaaaaaaa", "bbbbbbbbbbbbbbbb"]
            .map(|secret| Token::new(&secret[..1], secret, [Scope::Read]).unwrap());
        assert_eq!(find(&tokens, "bbbbbbbbbbbbbbbb").map(Token::name), Some("b"));
        for wrong in ["", "b", "bbbbbbbbbbbbbbb", "bbbbbbbbbbbbbbbbb", "bbbbbbbbbbbbbbbc"] {
            assert!(find(&tokens, wrong).is_none(), "{wrong}");
        }
    }

    #[test]
    fn a_generated_token_is_kept_for_its_owner_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("token");
        let made = Token::in_file(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let read = Token::in_file(&path).unwrap();
        assert_eq!(made.reveal(), read.reveal());
        assert!(Scope::ALL.into_iter().all(|scope| read.allows(scope)));
    }
}
