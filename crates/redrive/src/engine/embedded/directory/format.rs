//! The file that records the format and the id of a directory.

use std::fs::{self, File};
use std::hash::{BuildHasher, RandomState};
use std::io::{ErrorKind, Write};
use std::path::Path;

use super::unusable::failed;
use crate::engine::seam::EngineError;
use crate::owner_only;

/// The format that this version writes. A directory with a higher number is refused.
pub const FORMAT: u32 = 5;
const FORMAT_FILE: &str = "FORMAT";

/// Reads the format file, or writes it for a new directory. Returns the format found and the id.
pub(crate) fn format(path: &Path) -> Result<(u32, [u8; 16]), EngineError> {
    let name = path.join(FORMAT_FILE);
    match fs::read_to_string(&name) {
        Ok(text) => {
            let (found, id) = read_format(&text, &name)?;
            if found < FORMAT {
                // An older version would not maintain the watermark, so it must refuse the directory from now on.
                write_format(path, &name, id)?;
            }
            Ok((found, id))
        }
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let id = new_id();
            write_format(path, &name, id)?;
            Ok((FORMAT, id))
        }
        Err(error) if error.kind() == ErrorKind::InvalidData => Err(damaged(&name, "it is not text")),
        Err(error) => Err(failed("reading", &name, &error)),
    }
}

fn write_format(path: &Path, name: &Path, id: [u8; 16]) -> Result<(), EngineError> {
    let text = format!("redrive store\nformat {FORMAT}\nid {:032x}\n", u128::from_be_bytes(id));
    write_durably(path, name, text.as_bytes()).map_err(|error| failed("writing", name, &error))
}

/// The format and the id of an existing directory; writes nothing.
pub(crate) fn format_of(path: &Path) -> Result<(u32, [u8; 16]), EngineError> {
    let name = path.join(FORMAT_FILE);
    let text = match fs::read_to_string(&name) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let what = "there is no store here: the file FORMAT is missing";
            return Err(EngineError::Damaged(format!("{}: {what}", path.display())));
        }
        Err(error) if error.kind() == ErrorKind::InvalidData => return Err(damaged(&name, "it is not text")),
        Err(error) => return Err(failed("reading", &name, &error)),
    };
    read_format(&text, &name)
}

fn damaged(name: &Path, what: &str) -> EngineError {
    EngineError::Damaged(format!(
        "{}: {what}; restore the file from a backup of the directory",
        name.display()
    ))
}

fn read_format(text: &str, name: &Path) -> Result<(u32, [u8; 16]), EngineError> {
    let field = |key: &str| text.lines().find_map(|line| line.strip_prefix(key)).map(str::trim);
    let found: u32 =
        field("format ").and_then(|n| n.parse().ok()).ok_or_else(|| damaged(name, "no format number"))?;
    if found > FORMAT {
        return Err(EngineError::Version(format!(
            "{} has format {found}, this program reads up to {FORMAT}; use the newer program",
            name.display()
        )));
    }
    let id = field("id ").filter(|hex| hex.len() == 32).and_then(|hex| u128::from_str_radix(hex, 16).ok());
    let id = id.map(u128::to_be_bytes);
    id.map(|id| (found, id)).ok_or_else(|| damaged(name, "no store id of 32 hexadecimal digits"))
}

/// Writes a file so that after a power failure it is either complete or absent.
pub(crate) fn write_durably(dir: &Path, name: &Path, content: &[u8]) -> std::io::Result<()> {
    let unfinished = name.with_extension("new");
    let mut file = owner_only::create_file(&unfinished)?;
    file.write_all(content)?;
    file.sync_all()?;
    fs::rename(&unfinished, name)?;
    File::open(dir)?.sync_all()
}

fn new_id() -> [u8; 16] {
    // RandomState is seeded by the operating system, which is random enough for an id.
    let half = || RandomState::new().hash_one(std::process::id()).to_le_bytes();
    let (a, b) = (half(), half());
    std::array::from_fn(|index| if index < 8 { a[index] } else { b[index - 8] })
}
