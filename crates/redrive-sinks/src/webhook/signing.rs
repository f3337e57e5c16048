//! How a request is signed. The seam is here; there is no signature yet.

use hyper::HeaderMap;

/// What a signature covers. The timestamp is fresh for each attempt, so a signature is too.
#[derive(Clone, Copy, Debug)]
pub struct Unsigned<'a> {
    pub id: &'a str,
    pub timestamp_secs: u64,
    pub payload: &'a [u8],
}

/// The way requests are signed.
#[derive(Clone, Debug, Default)]
pub enum Signing {
    #[default]
    None,
}

impl Signing {
    /// Adds the headers that carry the signature.
    pub(super) fn sign(&self, _content: Unsigned<'_>, _headers: &mut HeaderMap) {
        match self {
            Self::None => {}
        }
    }
}
