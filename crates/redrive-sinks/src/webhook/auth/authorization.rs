//! The header `authorization` of one attempt, and the files with its secrets.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use hyper::header::HeaderValue;

use super::super::signing::watched::Watched;
use crate::fault::SinkFault;
use crate::secret::Secret;

const SECRET_BYTES_MAX: u64 = 64 * 1024;

/// The header of one attempt.
#[derive(Clone, Debug)]
pub(in super::super) struct Authorization {
    pub(in super::super) value: HeaderValue,
    /// Identifies the token, so that a refused one is not used again.
    pub(super) generation: u64,
}

/// Opens a file with a one-line secret.
pub(super) fn open(key: &str, path: &Path) -> Result<Watched<Secret>, SinkFault> {
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

/// The current content of a secret file.
pub(super) fn current(file: &Watched<Secret>) -> Arc<Secret> {
    file.get(SECRET_BYTES_MAX, Instant::now())
}
