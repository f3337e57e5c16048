//! File names, key hashes, and errors of the tables.

use crate::engine::embedded::index::tables::{IndexError, Space};

pub(super) const CATALOG: &str = "catalog-";

pub(super) fn file_name(number: u64) -> String {
    format!("r-{number:016x}.run")
}

pub(super) fn catalog_name(number: u64) -> String {
    format!("{CATALOG}{number:016x}")
}

/// The hash used by filters and look-ups. In tables with two-part keys it covers only the first part.
pub(super) fn hash_of(space: Space, key: &[u8], seed: u64) -> u64 {
    let part = match space {
        Space::Lines | Space::Doors | Space::LetterIds | Space::GroupLetters | Space::GroupTimes => {
            key.get(..8).unwrap_or(key)
        }
        _ => key,
    };
    xxhash_rust::xxh3::xxh3_64_with_seed(part, seed)
}

pub(super) fn failed<'a>(
    what: &'static str,
    name: &'a str,
) -> impl FnOnce(std::io::Error) -> IndexError + 'a {
    move |error| {
        let text = format!("{what} {name}: {error}");
        if what == "opening" || what == "reading" {
            IndexError::Damaged(text)
        } else {
            IndexError::Failed(text)
        }
    }
}
