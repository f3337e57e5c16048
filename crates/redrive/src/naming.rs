//! Names of replay jobs and discards: `r-1` and `d-1` if one process makes them, `r-k3x9q-1` and `d-k3x9q-1` if
//! several processes share the letters, so that a name is unique among them.

use std::fs;
use std::hash::{BuildHasher, RandomState};
use std::io::{self, ErrorKind, Write as _};
use std::path::Path;
use std::sync::Arc;

use crate::owner_only;

/// The file with the tag of a process.
const FILE: &str = "instance";
/// Letters and digits that are not easily confused.
const ALPHABET: &[u8; 32] = b"abcdefghijkmnpqrstuvwxyz23456789";
/// Gives 33 million tags.
const TAG_LEN: usize = 5;

/// How a process names its jobs and actions.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Naming {
    tag: Option<Arc<str>>,
}

impl Naming {
    /// Uses a tag that is drawn once and kept in `dir`. A new directory gets a new tag, so that names from a lost one
    /// are unknown rather than reused.
    pub fn kept_in(dir: &Path) -> io::Result<Self> {
        let path = dir.join(FILE);
        match fs::read_to_string(&path) {
            Ok(text) if is_tag(text.trim()) => return Ok(Self { tag: Some(text.trim().into()) }),
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        let tag = draw(RandomState::new().hash_one(FILE));
        let unfinished = dir.join(format!("{FILE}.new"));
        let mut file = owner_only::create_file(&unfinished)?;
        writeln!(file, "{tag}")?;
        file.sync_all()?;
        fs::rename(&unfinished, &path)?;
        fs::File::open(dir)?.sync_all()?;
        Ok(Self { tag: Some(tag.into()) })
    }

    /// The name of the `number`th object of a kind, such as `r` for jobs and `d` for discards.
    pub(crate) fn name(&self, kind: char, number: u64) -> String {
        format!("{}{number}", self.prefix(kind))
    }

    /// The prefix of its names.
    pub(crate) fn prefix(&self, kind: char) -> String {
        self.tag.as_ref().map_or_else(|| format!("{kind}-"), |tag| format!("{kind}-{tag}-"))
    }

    /// Distinguishes ids that different processes make at the same moment.
    pub(crate) fn salt(&self) -> u64 {
        self.tag.as_ref().map_or(0, |tag| u64::from(crc32fast::hash(tag.as_bytes())))
    }
}

/// The number in a name of this kind, from any process.
pub(crate) fn number(kind: char, name: &str) -> Option<u64> {
    let rest = name.strip_prefix(kind)?.strip_prefix('-')?;
    let digits = match rest.split_once('-') {
        Some((tag, digits)) if is_tag(tag) => digits,
        Some(_) => return None,
        None => rest,
    };
    digits.parse().ok().filter(|_| digits.bytes().all(|byte| byte.is_ascii_digit()))
}

fn is_tag(text: &str) -> bool {
    text.len() == TAG_LEN && text.bytes().all(|byte| ALPHABET.contains(&byte))
}

fn draw(mut random: u64) -> String {
    let letter = |_| {
        let letter = ALPHABET[(random % 32) as usize];
        random /= 32;
        char::from(letter)
    };
    (0..TAG_LEN).map(letter).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_keeps_its_tag_and_another_has_another() {
        let (here, there) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let ours = Naming::kept_in(here.path()).unwrap();
        assert_eq!(Naming::kept_in(here.path()).unwrap(), ours);
        let others = Naming::kept_in(there.path()).unwrap();
        assert_ne!(ours.name('d', 1), others.name('d', 1));
        assert_ne!(ours.salt(), others.salt());
        fs::write(here.path().join(FILE), "nonsense-that-is-no-tag").unwrap();
        assert!(Naming::kept_in(here.path()).is_ok(), "damaged: another one is drawn");
    }

    #[test]
    fn numbers_are_read_back_whatever_the_tag() {
        assert_eq!(Naming::default().name('r', 31), "r-31");
        let tagged = Naming { tag: Some("k3x9q".into()) };
        assert_eq!((tagged.name('d', 7), number('d', "d-k3x9q-7")), ("d-k3x9q-7".to_owned(), Some(7)));
        assert_eq!(number('r', "r-31"), Some(31));
        for text in ["", "r-", "r-x", "d-1", "r-+1", "r--1", "31", "r-k3x9q-", "r-k3x-1", "r-k3x9q-1-2"] {
            assert_eq!(number('r', text), None, "{text}");
        }
    }
}
