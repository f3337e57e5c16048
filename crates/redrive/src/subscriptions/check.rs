//! Checks the log of subscriptions without opening it, and drops its damaged lines.

use std::fs::File;
use std::io::{self, BufReader};
use std::path::{Path, PathBuf};

use super::decide::Purge;
use super::file::{self, SubscriptionFile};
use super::lines::{DamagedLine, ScannedLine, scan};
use super::store::SubscriptionStore as _;
use super::table::Table;
use crate::engine::EngineError;

/// Damaged lines that are listed; all are counted.
const LISTED_MAX: usize = 100;

/// The result of checking the log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SubscriptionLogCheck {
    pub path: PathBuf,
    pub bytes: u64,
    pub lines: u64,
    /// How many lines are damaged.
    pub damaged: u64,
    /// The first of them.
    pub damage: Vec<DamagedLine>,
    /// Bytes at the end that were torn by a crash, or are being written.
    pub unfinished_bytes: u64,
}

/// Reads the log in the directory of a pipeline's store; `None` if there is none. The store may be in use.
pub fn check(dir: &Path) -> io::Result<Option<SubscriptionLogCheck>> {
    let path = file::path(dir);
    let log = match File::open(&path) {
        Ok(log) => log,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let mut found = SubscriptionLogCheck { path, ..SubscriptionLogCheck::default() };
    let end = scan(&mut BufReader::with_capacity(1 << 16, log), &mut |scanned| {
        if let ScannedLine::Damaged(line, _) | ScannedLine::Joined(line, _) = scanned {
            found.damaged += 1;
            if found.damage.len() < LISTED_MAX {
                found.damage.push(line);
            }
        }
    })?;
    (found.lines, found.unfinished_bytes) = (end.lines, end.unfinished_bytes);
    found.bytes = end.end + end.unfinished_bytes;
    Ok(Some(found))
}

/// Rewrites the log without its damaged lines, keeping what is known. Returns how many lines were damaged. The log
/// must not be in use.
pub fn drop_damaged(dir: &Path) -> Result<u64, EngineError> {
    let found = check(dir).map_err(|error| file::failed(&file::path(dir), &error))?;
    let damaged = found.map_or(0, |found| found.damaged);
    if damaged > 0 {
        let (mut log, mut table) = (SubscriptionFile::open(dir)?, Table::new(Purge::default()));
        log.load(&mut |loaded| table.load(loaded))?;
        log.replace(&mut table.snapshot().into_iter())?;
    }
    Ok(damaged)
}

#[cfg(test)]
mod tests {
    use redrive_core::Time;

    use super::super::entry::Fact;
    use super::super::record::{Cause, EndpointId, Record, SubscriptionState};
    use super::*;

    #[test]
    fn damage_is_found_with_its_offset_and_given_up_on_request() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(check(dir.path()).unwrap(), None);
        let at = Time::from_millis(5);
        let entry = |number| {
            let record = Record::new(SubscriptionState::Purged, Cause::Gone, "Gone", at);
            Fact::Endpoint(EndpointId::from_number(number), Some(record)).entry()
        };
        SubscriptionFile::open(dir.path()).unwrap().append(&[entry(1), entry(2), entry(3)]).unwrap();
        let whole = check(dir.path()).unwrap().unwrap();
        assert_eq!((whole.lines, whole.damaged, whole.unfinished_bytes), (3, 0, 0));
        assert_eq!(drop_damaged(dir.path()).unwrap(), 0);
        let mut bytes = std::fs::read(&whole.path).unwrap();
        let second = bytes.len() / 3;
        bytes[second + 12] ^= 1;
        std::fs::write(&whole.path, bytes).unwrap();
        let found = check(dir.path()).unwrap().unwrap();
        assert_eq!((found.lines, found.damaged, found.damage[0].offset), (3, 1, second as u64));
        assert_eq!(drop_damaged(dir.path()).unwrap(), 1);
        let after = check(dir.path()).unwrap().unwrap();
        assert_eq!((after.lines, after.damaged), (2, 0));
    }
}
