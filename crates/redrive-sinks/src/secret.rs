//! A text that is never printed.

use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// The longest secret that is read from a file. A longer file is not a secret but a mistake.
const FILE_BYTES_MAX: u64 = 16 * 1024;

/// A text that nobody may see in a log, an error or `Debug`.
#[derive(Clone, Default)]
pub struct Secret(String);

impl Secret {
    /// Reads a secret from a file, without the white space around it: editors end a file with a newline.
    pub fn read(path: &Path) -> io::Result<Self> {
        let mut text = String::new();
        File::open(path)?.take(FILE_BYTES_MAX + 1).read_to_string(&mut text)?;
        if text.len() as u64 > FILE_BYTES_MAX {
            return Err(io::Error::other(format!("it has more than {FILE_BYTES_MAX} bytes")));
        }
        Ok(Self(text.trim().to_owned()))
    }

    /// The text itself. Whoever asks for it sees to it that it goes nowhere else.
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
    fn a_file_is_read_without_its_last_newline_and_a_large_one_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("token");
        std::fs::write(&path, "Bearer abc\n").unwrap();
        assert_eq!(Secret::read(&path).unwrap().expose(), "Bearer abc");
        std::fs::write(&path, "x".repeat(FILE_BYTES_MAX as usize + 1)).unwrap();
        assert!(Secret::read(&path).unwrap_err().to_string().contains("more than"));
    }
}
