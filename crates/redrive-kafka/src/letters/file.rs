//! The local file with the letters' bytes: a cache of `T.DLQ` that is recreated at every start.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::{Bytes, BytesMut};

use super::content::Content;

/// Length and checksum before each letter.
const HEAD_BYTES: u64 = 8;
/// Longest letter; a larger length means damage.
const LETTER_BYTES_MAX: u32 = 64 << 20;
/// Read together with the length; most letters fit.
const GUESS_BYTES: usize = 4096;

/// The file to which letters are appended. There is one writer at a time; readers have their own handle.
#[derive(Debug)]
pub struct LetterFile {
    reader: LetterReader,
    end: u64,
    scratch: BytesMut,
}

/// Reads letters by their position in the file, from any thread.
#[derive(Clone, Debug)]
pub struct LetterReader {
    file: Arc<File>,
}

impl LetterFile {
    /// Returns the path of a pipeline's file. The name says that it is a cache and may be deleted.
    pub fn path(state_dir: &Path, pipeline: &str) -> PathBuf {
        state_dir.join(format!("{pipeline}.letters.cache"))
    }

    /// Removes the file of an earlier run and creates a new one. Another process that still uses the old file keeps it,
    /// because only the name is removed.
    pub fn create(state_dir: &Path, pipeline: &str) -> io::Result<Self> {
        fs::create_dir_all(state_dir)?;
        let path = Self::path(state_dir, pipeline);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let file = private(&path)?;
        Ok(Self { reader: LetterReader { file: Arc::new(file) }, end: 0, scratch: BytesMut::new() })
    }

    /// Appends a letter and returns its position.
    pub fn append(&mut self, content: &Content) -> io::Result<u64> {
        self.append_with(|scratch| content.write(scratch))
    }

    /// Appends the record of an edited letter and returns its position.
    pub fn append_bytes(&mut self, bytes: &[u8]) -> io::Result<u64> {
        self.append_with(|scratch| scratch.extend_from_slice(bytes))
    }

    fn append_with(&mut self, write: impl FnOnce(&mut BytesMut)) -> io::Result<u64> {
        self.scratch.clear();
        self.scratch.extend_from_slice(&[0; HEAD_BYTES as usize]);
        write(&mut self.scratch);
        let body = &self.scratch[HEAD_BYTES as usize..];
        let (len, crc) = ((body.len() as u32).to_le_bytes(), crc32fast::hash(body).to_le_bytes());
        self.scratch[..4].copy_from_slice(&len);
        self.scratch[4..8].copy_from_slice(&crc);
        self.reader.file.write_all_at(&self.scratch, self.end)?;
        let at = self.end;
        self.end += self.scratch.len() as u64;
        // Do not keep the memory of one large letter forever.
        if self.scratch.capacity() > 1 << 20 {
            self.scratch = BytesMut::new();
        }
        Ok(at)
    }

    /// Overwrites what was appended at this position, which reads as damaged from then on.
    pub fn wipe(&mut self, at: u64) -> io::Result<()> {
        let mut head = [0; HEAD_BYTES as usize];
        self.reader.file.read_exact_at(&mut head, at)?;
        let len = u64::from(u32_at(&head, 0)).min(self.end.saturating_sub(at + HEAD_BYTES));
        self.reader.file.write_all_at(&vec![0; len as usize], at + HEAD_BYTES)
    }

    pub fn reader(&self) -> LetterReader {
        self.reader.clone()
    }

    pub fn bytes(&self) -> u64 {
        self.end
    }
}

/// Creates the file so that only its owner may read the payloads.
fn private(path: &Path) -> io::Result<File> {
    use std::os::unix::fs::OpenOptionsExt;
    File::options().read(true).write(true).create_new(true).mode(0o600).open(path)
}

impl LetterReader {
    /// Reads the letter at this position; `None` if its bytes are damaged.
    pub fn read(&self, at: u64) -> io::Result<Option<Content>> {
        Ok(self.read_bytes(at)?.and_then(Content::read))
    }

    /// Reads the bytes appended at this position; `None` if they are damaged.
    pub fn read_bytes(&self, at: u64) -> io::Result<Option<Bytes>> {
        let mut bytes = BytesMut::zeroed(GUESS_BYTES);
        let got = read_up_to(&self.file, &mut bytes, at)?;
        bytes.truncate(got);
        let Some((head, _)) = bytes.split_at_checked(HEAD_BYTES as usize) else { return Ok(None) };
        let (len, crc) = (u32_at(head, 0), u32_at(head, 4));
        if len > LETTER_BYTES_MAX {
            return Ok(None);
        }
        let whole = HEAD_BYTES as usize + len as usize;
        if whole > got {
            bytes.resize(whole, 0);
            let more = read_up_to(&self.file, &mut bytes[got..], at + got as u64)?;
            if got + more < whole {
                return Ok(None);
            }
        }
        let body: Bytes = bytes.freeze().slice(HEAD_BYTES as usize..whole);
        Ok((crc32fast::hash(&body) == crc).then_some(body))
    }
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

/// Fills as much of `into` as the file has.
fn read_up_to(file: &File, into: &mut [u8], at: u64) -> io::Result<usize> {
    struct From<'a>(&'a File, u64);
    impl Read for From<'_> {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            let got = self.0.read_at(into, self.1)?;
            self.1 += got as u64;
            Ok(got)
        }
    }
    let mut from = From(file, at);
    let mut got = 0;
    while got < into.len() {
        match from.read(&mut into[got..]) {
            Ok(0) => break,
            Ok(more) => got += more,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(got)
}

#[cfg(test)]
mod tests {
    use redrive::internal::engine::History;
    use redrive_core::{Message, Meta};

    use super::*;

    fn content(id: &str, bytes: usize) -> Content {
        let message = Message::builder(id).payload(vec![7; bytes]).build().unwrap();
        let group = redrive::internal::engine::Grouping::default().of(redrive_core::Reason::Gone, None);
        let topic = Arc::from("orders");
        Content { message, meta: Meta::default(), history: History::default(), topic, group, options: None }
    }

    #[test]
    fn letters_of_any_size_come_back() {
        let dir = tempfile::tempdir().unwrap();
        let mut file = LetterFile::create(dir.path(), "orders").unwrap();
        let letters: Vec<Content> =
            [0, 10, 3_900, 4_000, 4_096, 2_000_000, 1].map(|bytes| content("o", bytes)).into();
        let places: Vec<u64> = letters.iter().map(|letter| file.append(letter).unwrap()).collect();
        for (at, letter) in places.iter().zip(&letters) {
            assert_eq!(file.reader().read(*at).unwrap().as_ref(), Some(letter));
        }
        assert_eq!(file.reader().read(file.bytes()).unwrap(), None);
    }

    #[test]
    fn what_is_overwritten_is_gone_and_its_neighbours_stay() {
        let dir = tempfile::tempdir().unwrap();
        let mut file = LetterFile::create(dir.path(), "orders").unwrap();
        let places: Vec<u64> =
            ["o-1", "o-2", "o-3"].iter().map(|id| file.append(&content(id, 100)).unwrap()).collect();
        file.wipe(places[1]).unwrap();
        let found: Vec<bool> = places.iter().map(|at| file.reader().read(*at).unwrap().is_some()).collect();
        assert_eq!(found, [true, false, true]);
        let raw = fs::read(LetterFile::path(dir.path(), "orders")).unwrap();
        assert!(!raw.windows(3).any(|part| part == b"o-2"));
    }

    #[test]
    fn a_flipped_bit_is_noticed() {
        let dir = tempfile::tempdir().unwrap();
        let mut file = LetterFile::create(dir.path(), "orders").unwrap();
        let at = file.append(&content("o-1", 100)).unwrap();
        let raw = File::options().write(true).open(LetterFile::path(dir.path(), "orders")).unwrap();
        for damaged in [0, 5, 20, file.bytes() - 1] {
            let mut byte = [0];
            file.reader.file.read_exact_at(&mut byte, damaged).unwrap();
            raw.write_all_at(&[byte[0] ^ 4], damaged).unwrap();
            assert_eq!(file.reader().read(at).unwrap(), None, "byte {damaged}");
            raw.write_all_at(&byte, damaged).unwrap();
        }
        assert!(file.reader().read(at).unwrap().is_some());
    }

    #[test]
    fn what_an_earlier_run_left_is_gone_and_its_reader_keeps_its_letters() {
        let dir = tempfile::tempdir().unwrap();
        let mut before = LetterFile::create(dir.path(), "orders").unwrap();
        let at = before.append(&content("o-1", 100)).unwrap();
        let after = LetterFile::create(dir.path(), "orders").unwrap();
        assert_eq!((after.bytes(), after.reader().read(at).unwrap()), (0, None));
        assert!(before.reader().read(at).unwrap().is_some());
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }
}
