//! Chooses the token to send. It goes to one address and is never shown.

use std::fmt;
use std::fs::File;
use std::io::Read;
use std::path::Path;

use hyper::http::HeaderValue;

use crate::exit::Failed;

/// A longer file is not a token.
const FILE_BYTES_MAX: u64 = 4_096;

/// A bearer token, stored as its header value.
#[derive(Clone)]
pub struct Bearer(HeaderValue);

impl Bearer {
    pub fn new(token: &str) -> Result<Self, Failed> {
        // The text is not repeated: it may be a mistyped secret.
        let fault = || Failed::usage("the token is not one line of visible characters");
        if token.is_empty() || !token.bytes().all(|b| b.is_ascii_graphic()) {
            return Err(fault());
        }
        let mut value = HeaderValue::from_str(&format!("Bearer {token}")).map_err(|_| fault())?;
        value.set_sensitive(true);
        Ok(Self(value))
    }

    /// The token that a processor without configured tokens generated, if this user may read it. The file was not named
    /// explicitly, so a missing or unreadable one is no error: reads need no token.
    pub fn of_engine(dir: &Path) -> Option<Self> {
        let mut text = String::new();
        File::open(dir.join("token")).ok()?.take(FILE_BYTES_MAX).read_to_string(&mut text).ok()?;
        Self::new(text.trim()).ok()
    }

    /// The value of the `Authorization` header.
    pub fn header(&self) -> HeaderValue {
        self.0.clone()
    }
}

impl fmt::Debug for Bearer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Bearer(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_never_shows() {
        let token = Bearer::new("s3cret").unwrap();
        assert!(!format!("{token:?} {:?}", token.header()).contains("s3cret"));
        let fault = Bearer::new("s3cret s3cret").unwrap_err();
        assert!(!format!("{fault:?}").contains("s3cret"));
    }

    #[test]
    fn the_engines_token_is_used_if_it_can_be_read() {
        let dir = tempfile::tempdir().unwrap();
        assert!(Bearer::of_engine(dir.path()).is_none());
        std::fs::write(dir.path().join("token"), "from-store\n").unwrap();
        assert_eq!(Bearer::of_engine(dir.path()).unwrap().header(), "Bearer from-store");
    }
}
