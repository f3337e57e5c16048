//! Secrets: kept out of messages, out of `Debug`, and better out of the file too.

use std::fmt;
use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use super::keys;

/// Longer than any token or header value; a larger file was named by mistake.
const SECRET_BYTES_MAX: u64 = 64 * 1024;

/// A text that is never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    pub fn reveal(&self) -> &str {
        &self.0
    }

    /// Reads a secret from a file; the line end that editors leave behind is not part of it.
    pub fn read(path: &Path) -> Result<Self, SecretError> {
        let failed = |problem: String| SecretError { path: path.to_owned(), problem };
        let file = fs::File::open(path).map_err(|error| failed(error.to_string()))?;
        let mut text = String::new();
        let read = file.take(SECRET_BYTES_MAX + 1).read_to_string(&mut text);
        read.map_err(|error| failed(error.to_string()))?;
        if text.len() as u64 > SECRET_BYTES_MAX {
            return Err(failed(format!("larger than {SECRET_BYTES_MAX} bytes, which is no secret")));
        }
        let text = text.trim_end_matches(['\n', '\r']);
        if text.trim().is_empty() {
            return Err(failed("the file is empty".to_owned()));
        }
        Ok(Self(text.to_owned()))
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// A file with a secret could not be used. Names the file, never what is in it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}: {problem}", path.display())]
pub struct SecretError {
    pub path: PathBuf,
    pub problem: String,
}

/// Headers whose value is a secret more often than not.
pub(super) fn is_secret_header(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    ["authorization", "proxy-authorization", "cookie"].contains(&name.as_str())
        || ["token", "secret", "api-key", "apikey", "password", "signature"]
            .iter()
            .any(|part| name.contains(part))
}

/// Whether a line of the file may appear in a message. Only a line that sets a single plain key of ours may: a line in
/// the middle of a text of several lines, a table of headers or an unknown key can hold anything.
pub(super) fn may_be_shown(whole: &str, line: &str) -> bool {
    let Some((key, value)) = line.split_once('=') else {
        return line.trim_start().starts_with('[');
    };
    let key = key.trim();
    let several_lines = whole.contains("\"\"\"") || whole.contains("'''");
    let credentials = value.contains('@');
    keys::is_plain(key) && !several_lines && !credentials && !value.contains('{')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_comes_from_its_file_and_is_never_printed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("secret");
        fs::write(&path, "hunter2\r\n").unwrap();
        let secret = Secret::read(&path).unwrap();
        assert_eq!(secret.reveal(), "hunter2");
        assert_eq!(format!("{secret:?}"), "Secret(…)");

        fs::write(&path, "\n").unwrap();
        assert!(Secret::read(&path).unwrap_err().to_string().ends_with("secret: the file is empty"));
        fs::write(&path, vec![b'x'; 65 * 1024]).unwrap();
        let error = Secret::read(&path).unwrap_err();
        assert!(error.problem.contains("larger than"), "{error}");
    }

    #[test]
    fn only_lines_with_a_plain_key_of_ours_are_shown() {
        let shown = |line: &str| may_be_shown(line, line);
        assert!(shown("tiers = [\"30s\", \"5s\"]"));
        assert!(shown("  timeout = 5"));
        assert!(shown("[engine"));
        assert!(!shown("secret = \"hunter2\""));
        assert!(!shown("headers = { authorization = \"Bearer hunter2\" }"));
        assert!(!shown("authorization = \"Bearer hunter2\""));
        assert!(!shown("url = \"https://user:hunter2@example.com\""));
        assert!(!shown("hunter2"));
        assert!(!may_be_shown("x = \"\"\"\nmode = hunter2\n\"\"\"", "mode = hunter2"));
    }
}
