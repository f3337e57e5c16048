//! The table on disk: a file of lines, each with a checksum, synced before it is acknowledged.
//!
//! A line torn at the end of the file was never acknowledged and is cut off. A damaged line before that is reported,
//! and its key is determined if possible, so that an older line of the same key is not taken for the latest.

use std::collections::VecDeque;
use std::fs::{self, File};
use std::io::{self, BufReader, BufWriter, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};

use super::entry::Entry;
use super::holes::{HoleFinder, Loss};
use super::lines::{self, DamagedLine, ECHO_DISTANCE, KeyDigest, LineHead, ScanEnd, ScannedLine, scan};
use super::store::{Loaded, SubscriptionStore};
use crate::engine::EngineError;
use crate::owner_only;

const FILE: &str = "subscriptions.log";
/// Damaged lines that are reported individually.
const FINDINGS_MAX: u64 = 20;

/// The file of one pipeline.
#[derive(Debug)]
pub struct SubscriptionFile {
    path: PathBuf,
    file: File,
    lines: u64,
    numbering: Numbering,
    /// The losses, each with the number of whole lines before it.
    losses: Vec<(u64, Loss)>,
    findings: Vec<String>,
    /// A write failed, so the end of the file is in an unknown state and nothing more is appended.
    failed: bool,
}

/// Numbers lines, and remembers the keys of the last ones for the lines that echo them.
#[derive(Debug, Default)]
struct Numbering {
    last: u32,
    keys: VecDeque<KeyDigest>,
}

impl Numbering {
    fn add(&mut self, key: KeyDigest) {
        self.last = self.last.saturating_add(1);
        if self.keys.len() == ECHO_DISTANCE as usize {
            self.keys.pop_front();
        }
        self.keys.push_back(key);
    }

    /// Continues after lost lines.
    fn skip_to(&mut self, number: u32) {
        if number != self.last {
            (self.last, self.keys) = (number, VecDeque::new());
        }
    }

    fn saw(&mut self, head: Option<LineHead>) {
        if let Some(head) = head {
            self.skip_to(head.number.saturating_sub(1));
        }
        self.add(head.map(|head| head.key).unwrap_or_default());
    }

    fn line(&mut self, entry: &Entry) -> String {
        let is_echoed = self.keys.len() == ECHO_DISTANCE as usize;
        let echo = self.keys.front().filter(|_| is_echoed).copied().unwrap_or_default();
        self.add(KeyDigest::of(&entry.key));
        lines::line(entry, self.last, echo)
    }
}

impl SubscriptionFile {
    /// Opens or creates `subscriptions.log` in `dir`, the directory of the pipeline's store, and looks for damage.
    pub fn open(dir: &Path) -> Result<Self, EngineError> {
        let path = path(dir);
        let open = || {
            let file = owner_only::options().create(true).read(true).append(true).open(&path)?;
            File::open(dir)?.sync_all()?;
            let mut opened = Self {
                path: path.clone(),
                file,
                lines: 0,
                numbering: Numbering::default(),
                losses: Vec::new(),
                findings: Vec::new(),
                failed: false,
            };
            opened.examine()?;
            Ok(opened)
        };
        open().map_err(|error| failed(&path, &error))
    }

    fn scan(&self, each: &mut dyn FnMut(ScannedLine<'_>)) -> io::Result<ScanEnd> {
        let mut file = &self.file;
        file.seek(SeekFrom::Start(0))?;
        scan(&mut BufReader::with_capacity(1 << 16, file), each)
    }

    /// Finds the damage, and repairs the end of the file for appending.
    fn examine(&mut self) -> io::Result<()> {
        let (mut holes, mut numbering) = (HoleFinder::default(), Numbering::default());
        let (mut findings, mut damaged) = (Vec::new(), 0);
        let path = self.path.display();
        let end = self.scan(&mut |scanned| {
            holes.see(&scanned);
            let place = match &scanned {
                ScannedLine::Whole(head, _) => {
                    numbering.saw(*head);
                    return;
                }
                ScannedLine::Joined(place, both) => {
                    both.iter().for_each(|(head, _)| numbering.saw(Some(*head)));
                    *place
                }
                ScannedLine::Damaged(place, _) => *place,
            };
            let DamagedLine { line, offset, .. } = place;
            damaged += 1;
            if damaged <= FINDINGS_MAX {
                findings.push(format!("{path}: line {line} is damaged, at offset {offset}"));
            }
        })?;
        if damaged > FINDINGS_MAX {
            findings.push(format!("{path}: {} more lines are damaged", damaged - FINDINGS_MAX));
        }
        if end.unfinished_bytes > 0 {
            let torn = end.unfinished_bytes;
            findings.push(format!("{path}: {torn} bytes torn by a crash are cut off"));
            self.file.set_len(end.end)?;
            self.file.sync_all()?;
        }
        if end.is_end_damaged {
            self.file.set_len(end.end - 1)?;
            self.file.write_all(b"\n")?;
            self.file.sync_all()?;
        }
        let (losses, last_number) = holes.finish();
        numbering.skip_to(last_number);
        self.lines = end.lines;
        (self.losses, self.numbering, self.findings) = (losses, numbering, findings);
        Ok(())
    }

    fn read(&mut self, each: &mut dyn FnMut(Loaded)) -> io::Result<Vec<String>> {
        let mut losses = self.losses.iter().peekable();
        let (mut whole, mut foreign) = (0, 0_u64);
        self.scan(&mut |scanned| {
            let both = match scanned {
                ScannedLine::Whole(head, line) => [Some((head, line)), None],
                ScannedLine::Joined(_, both) => both.map(|(head, line)| Some((Some(head), line))),
                ScannedLine::Damaged(..) => [None, None],
            };
            for (head, line) in both.into_iter().flatten() {
                while let Some((_, loss)) = losses.next_if(|(at, _)| *at <= whole) {
                    each(Loaded::Lost(loss.clone()));
                }
                match lines::entry(line, head) {
                    Some(entry) => each(Loaded::Entry(entry)),
                    None => foreign += 1,
                }
                whole += 1;
            }
        })?;
        losses.for_each(|(_, loss)| each(Loaded::Lost(loss.clone())));
        let mut findings = self.findings.clone();
        if foreign > 0 {
            findings.push(format!("{}: {foreign} lines are whole and hold no entry", self.path.display()));
        }
        Ok(findings)
    }

    fn write(&mut self, entries: &[Entry]) -> io::Result<()> {
        if self.failed {
            return Err(io::Error::other("an earlier write failed; start again after a repair"));
        }
        let lines: String = entries.iter().map(|entry| self.numbering.line(entry)).collect();
        self.failed = true;
        self.file.write_all(lines.as_bytes())?;
        self.file.sync_data()?;
        self.failed = false;
        self.lines += entries.len() as u64;
        Ok(())
    }

    /// Writes a new file, syncs and renames it, so that the file is either the old one or the new one.
    fn rewrite(&mut self, entries: &mut dyn Iterator<Item = Entry>) -> io::Result<()> {
        let unfinished = self.path.with_extension("new");
        let mut out = BufWriter::new(owner_only::create_file(&unfinished)?);
        let mut numbering = Numbering::default();
        for entry in entries {
            out.write_all(numbering.line(&entry).as_bytes())?;
        }
        out.into_inner().map_err(io::IntoInnerError::into_error)?.sync_all()?;
        // Nothing may be appended between the rename and reopening, because it would go into the old file.
        self.failed = true;
        fs::rename(&unfinished, &self.path)?;
        if let Some(dir) = self.path.parent() {
            File::open(dir)?.sync_all()?;
        }
        self.file = owner_only::options().read(true).append(true).open(&self.path)?;
        (self.lines, self.failed) = (u64::from(numbering.last), false);
        (self.numbering, self.losses, self.findings) = (numbering, Vec::new(), Vec::new());
        Ok(())
    }
}

impl SubscriptionStore for SubscriptionFile {
    fn load(&mut self, each: &mut dyn FnMut(Loaded)) -> Result<Vec<String>, EngineError> {
        self.read(each).map_err(|error| failed(&self.path, &error))
    }

    fn append(&mut self, entries: &[Entry]) -> Result<(), EngineError> {
        self.write(entries).map_err(|error| failed(&self.path, &error))
    }

    fn len(&self) -> u64 {
        self.lines
    }

    fn replace(&mut self, entries: &mut dyn Iterator<Item = Entry>) -> Result<(), EngineError> {
        self.rewrite(entries).map_err(|error| failed(&self.path, &error))
    }
}

/// The log in the directory of a pipeline's store.
pub(super) fn path(dir: &Path) -> PathBuf {
    dir.join(FILE)
}

pub(super) fn failed(path: &Path, error: &io::Error) -> EngineError {
    EngineError::Storage(format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(key: &str, value: &str) -> Entry {
        Entry { key: key.into(), value: Some(value.into()) }
    }

    fn read(dir: &Path) -> (Vec<Entry>, Vec<String>) {
        let mut found = Vec::new();
        let mut file = SubscriptionFile::open(dir).unwrap();
        let findings = file
            .load(&mut |loaded| match loaded {
                Loaded::Entry(entry) => found.push(entry),
                Loaded::Lost(_) => {}
            })
            .unwrap();
        assert_eq!(
            file.len() as usize,
            found.len() + findings.iter().filter(|it| it.contains("line")).count()
        );
        (found, findings)
    }

    #[test]
    fn what_was_appended_is_there_in_its_order_and_private() {
        use std::os::unix::fs::PermissionsExt as _;
        let dir = tempfile::tempdir().unwrap();
        let entries = [entry("a", "1"), Entry { key: "a".into(), value: None }, entry("b", "line\nbreak")];
        let mut file = SubscriptionFile::open(dir.path()).unwrap();
        file.append(&entries[..1]).unwrap();
        file.append(&entries[1..]).unwrap();
        assert_eq!(read(dir.path()), (entries.to_vec(), vec![]));
        let mode = fs::metadata(dir.path().join(FILE)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn every_torn_end_keeps_all_whole_lines_and_can_be_appended_to() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(FILE);
        SubscriptionFile::open(dir.path()).unwrap().append(&[entry("a", "1"), entry("b", "2")]).unwrap();
        let whole = fs::read(&path).unwrap();
        let first = whole.iter().position(|byte| *byte == b'\n').unwrap() + 1;
        for cut in first..whole.len() {
            fs::write(&path, &whole[..cut]).unwrap();
            let (found, findings) = read(dir.path());
            assert_eq!((found.len(), findings.len()), (1, usize::from(cut > first)), "{cut}");
            SubscriptionFile::open(dir.path()).unwrap().append(&[entry("c", "3")]).unwrap();
            assert_eq!(read(dir.path()).0, [entry("a", "1"), entry("c", "3")]);
        }
    }

    #[test]
    fn a_flipped_bit_costs_its_line_and_is_reported() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(FILE);
        SubscriptionFile::open(dir.path()).unwrap().append(&[entry("a", "1"), entry("b", "2")]).unwrap();
        let whole = fs::read(&path).unwrap();
        let first = whole.iter().position(|byte| *byte == b'\n').unwrap();
        for at in 0..first {
            let mut flipped = whole.clone();
            flipped[at] ^= 1;
            fs::write(&path, &flipped).unwrap();
            let (found, findings) = read(dir.path());
            assert_eq!((found, findings.len()), (vec![entry("b", "2")], 1), "{at}");
        }
    }

    #[test]
    fn a_replaced_file_holds_only_what_it_was_replaced_by() {
        let dir = tempfile::tempdir().unwrap();
        let mut file = SubscriptionFile::open(dir.path()).unwrap();
        (0..100).for_each(|n| file.append(&[entry("a", &n.to_string())]).unwrap());
        assert_eq!(file.len(), 100);
        file.replace(&mut [entry("a", "99")].into_iter()).unwrap();
        assert_eq!(file.len(), 1);
        file.append(&[entry("b", "1")]).unwrap();
        assert_eq!(read(dir.path()).0, [entry("a", "99"), entry("b", "1")]);
    }
}
