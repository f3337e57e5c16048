//! A text that is never printed.

use std::fmt;
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};

use ring::rand::{SecureRandom as _, SystemRandom};

/// The longest secret file. A longer file was named by mistake.
const FILE_BYTES_MAX: u64 = 64 * 1024;

/// A text that must not appear in a log, an error or `Debug`.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Secret(String);

/// A secret file could not be used. Names the file, but never its content.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}: {problem}", path.display())]
pub struct SecretError {
    pub path: PathBuf,
    pub problem: String,
}

impl Secret {
    /// Reads a secret from a file, trimming white space: editors end a file with a newline.
    pub fn read(path: &Path) -> Result<Self, SecretError> {
        Self::read_up_to(path, FILE_BYTES_MAX)
    }

    /// The same with another limit of size.
    pub(crate) fn read_up_to(path: &Path, bytes_max: u64) -> Result<Self, SecretError> {
        let failed = |problem: String| SecretError { path: path.to_owned(), problem };
        let file = File::open(path).map_err(|error| failed(error.to_string()))?;
        let mut text = String::new();
        let read = file.take(bytes_max + 1).read_to_string(&mut text);
        read.map_err(|error| failed(error.to_string()))?;
        if text.len() as u64 > bytes_max {
            return Err(failed(format!("it has more than {bytes_max} bytes, too long for a secret")));
        }
        if text.trim().is_empty() {
            return Err(failed("the file is empty".to_owned()));
        }
        Ok(Self(text.trim().to_owned()))
    }

    /// Reads the secret from a file, or creates a random one that only this user can read, durable before it is used.
    pub fn read_or_make(path: &Path) -> Result<Self, SecretError> {
        use std::os::unix::fs::OpenOptionsExt as _;
        let failed = |problem: String| SecretError { path: path.to_owned(), problem };
        if path.exists() {
            return Self::read(path);
        }
        let mut bytes = [0_u8; 32];
        let filled = SystemRandom::new().fill(&mut bytes);
        filled.map_err(|_| failed("the system gives no random numbers".to_owned()))?;
        let text = bytes.iter().fold(String::new(), |mut text, byte| {
            // Writing to a string does not fail.
            let _ = fmt::Write::write_fmt(&mut text, format_args!("{byte:02x}"));
            text
        });
        let write = || {
            // Written under another name first: a crash must not leave an empty file that the next start refuses.
            let unfinished = path.with_extension("new");
            let mut file =
                File::options().write(true).create(true).truncate(true).mode(0o600).open(&unfinished)?;
            writeln!(file, "{text}")?;
            file.sync_all()?;
            std::fs::rename(&unfinished, path)?;
            path.parent().map_or(Ok(()), |dir| File::open(dir)?.sync_all())
        };
        write().map_err(|error: std::io::Error| failed(error.to_string()))?;
        Ok(Self(text))
    }

    /// A description if every user of the machine may read or change this file. `None` if not, or if that cannot be
    /// determined.
    pub fn exposure(path: &Path) -> Option<String> {
        use std::os::unix::fs::PermissionsExt as _;
        let mode = std::fs::metadata(path).ok()?.permissions().mode() & 0o777;
        let may = match (mode & 0o004 != 0, mode & 0o002 != 0) {
            (true, false) => "read",
            (false, true) => "change",
            (true, true) => "read and change",
            (false, false) => return None,
        };
        Some(format!("every user of this machine may {may} it (mode {mode:04o})"))
    }

    /// The text itself. The caller must not pass it on.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl<T: Into<String>> From<T> for Secret {
    fn from(text: T) -> Self {
        Self(text.into())
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[secret]")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_output_keeps_the_secret() {
        assert_eq!(format!("{:?}", Secret::from("hunter2")), "[secret]");
    }

    #[test]
    fn a_secret_that_is_missing_is_made_once_for_this_user_alone() {
        use std::os::unix::fs::PermissionsExt as _;
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("hash.key");
        let made = Secret::read_or_make(&path).unwrap();
        assert_eq!(made.expose().len(), 64);
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(Secret::read_or_make(&path).unwrap(), made);
        let error = Secret::read_or_make(&dir.path().join("no/such")).unwrap_err();
        assert!(error.to_string().contains("No such file"), "{error}");
    }

    #[test]
    fn a_file_is_read_without_its_last_newline() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("token");
        std::fs::write(&path, "Bearer abc\r\n").unwrap();
        assert_eq!(Secret::read(&path).unwrap().expose(), "Bearer abc");
    }

    #[test]
    fn a_file_that_everybody_may_read_or_change_is_noticed() {
        use std::os::unix::fs::PermissionsExt as _;
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("token");
        std::fs::write(&path, "secret").unwrap();
        let exposure = |mode| {
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            Secret::exposure(&path)
        };
        assert_eq!((exposure(0o600), exposure(0o640), exposure(0o400)), (None, None, None));
        assert_eq!(exposure(0o644).unwrap(), "every user of this machine may read it (mode 0644)");
        assert_eq!(exposure(0o666).unwrap(), "every user of this machine may read and change it (mode 0666)");
        assert_eq!(Secret::exposure(&dir.path().join("nowhere")), None);
    }

    #[test]
    fn a_file_that_is_missing_empty_or_large_is_named_with_what_is_wrong() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("token");
        let problem = || Secret::read(&path).unwrap_err().to_string();
        assert!(problem().contains("token: No such file"), "{}", problem());
        std::fs::write(&path, " \n").unwrap();
        assert!(problem().ends_with("token: the file is empty"), "{}", problem());
        std::fs::write(&path, "x".repeat(FILE_BYTES_MAX as usize + 1)).unwrap();
        assert!(problem().contains("more than 65536 bytes") && !problem().contains("xx"), "{}", problem());
    }
}
