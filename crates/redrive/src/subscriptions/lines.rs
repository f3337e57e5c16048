//! The lines of `subscriptions.log`: one entry each, with a checksum; and the search for damaged ones.
//!
//! A line is `1a2b3c4d 00000047 0badcafe 9e8f7a6b ["key","value"] 5d3c2b1a`: the checksum of the rest, the number of
//! the line, the digest of the key of the line [`ECHO_DISTANCE`] before it, the digest of its own key, the entry, and
//! a seal of key and number. They identify the key of a damaged line, so that an older line of the same key is not
//! taken for the latest. Earlier versions wrote only the checksum and the entry.

use std::io::{self, BufRead, Read as _};

use serde_json::{Value, json};

use super::entry::Entry;

/// A longer line was not written by Redrive.
const LINE_BYTES_MAX: u64 = 1 << 20;
const DIGITS: usize = 8;
/// Checksum, number, echo and digest, each followed by a space.
const HEAD_BYTES: usize = 4 * (DIGITS + 1);
/// The distance at which a later line repeats the key of a line: longer than a lost disk page.
pub(super) const ECHO_DISTANCE: u32 = 64;

/// A line that was durable and has become unreadable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DamagedLine {
    /// The line number, from 1.
    pub line: u64,
    /// The offset in the file.
    pub offset: u64,
    pub bytes: u64,
}

/// Identifies a key that may itself be damaged. Zero means none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct KeyDigest(u32);

impl KeyDigest {
    pub(super) fn of(key: &str) -> Self {
        Self(crc32fast::hash(key.as_bytes()))
    }

    /// The seal at the end of the line with this number.
    fn seal(self, number: u32) -> String {
        let mut both = [0; 8];
        both[..4].copy_from_slice(&self.0.to_be_bytes());
        both[4..].copy_from_slice(&number.to_be_bytes());
        format!("{:08x}", crc32fast::hash(&both))
    }

    pub(super) fn is_known(self) -> bool {
        self.0 != 0
    }
}

/// The header of a whole line. Earlier versions wrote none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LineHead {
    pub number: u32,
    pub echo: KeyDigest,
    pub key: KeyDigest,
}

/// The parts that a scan finds, in order.
#[derive(Debug)]
pub(super) enum ScannedLine<'a> {
    Whole(Option<LineHead>, &'a [u8]),
    /// Two readable lines that look like one, because the line end between them is damaged.
    Joined(DamagedLine, [(LineHead, &'a [u8]); 2]),
    Damaged(DamagedLine, &'a [u8]),
}

/// Where a scan ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ScanEnd {
    pub lines: u64,
    /// The offset after the last complete line.
    pub end: u64,
    /// Bytes after that, torn by a crash or still being written. They were not acknowledged.
    pub unfinished_bytes: u64,
    /// Whether the last line is whole except for its line end, which is another byte. It counts as complete.
    pub is_end_damaged: bool,
}

/// Reads all lines. One that is too long is damaged up to its end, but does not hide the following ones.
pub(super) fn scan(reader: &mut impl BufRead, each: &mut dyn FnMut(ScannedLine<'_>)) -> io::Result<ScanEnd> {
    let (mut found, mut text) = (ScanEnd::default(), Vec::new());
    loop {
        let (mut bytes, mut is_too_long) = (0, false);
        let is_ended = loop {
            text.clear();
            let read = reader.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut text)? as u64;
            bytes += read;
            if text.last() == Some(&b'\n') {
                break true;
            }
            if read < LINE_BYTES_MAX {
                break false;
            }
            is_too_long = true;
        };
        let Some(line) = text.split_last().map(|(_, line)| line).filter(|_| !is_too_long) else {
            if !is_ended {
                return Ok(ScanEnd { unfinished_bytes: bytes, ..found });
            }
            found.lines += 1;
            each(ScannedLine::Damaged(DamagedLine { line: found.lines, offset: found.end, bytes }, &[]));
            found.end += bytes;
            continue;
        };
        let damaged = DamagedLine { line: found.lines + 1, offset: found.end, bytes };
        let scanned = match (whole(line), is_ended) {
            (Some(LineForm::Numbered(head)), true) => ScannedLine::Whole(Some(head), line),
            (Some(LineForm::Bare), true) => ScannedLine::Whole(None, line),
            // Whole, but with another byte instead of the line end. A line of an earlier version could just as well
            // be torn.
            (Some(LineForm::Numbered(head)), false) => {
                each(ScannedLine::Damaged(
                    DamagedLine { bytes: 1, offset: damaged.offset + bytes - 1, ..damaged },
                    &[],
                ));
                found.is_end_damaged = true;
                ScannedLine::Whole(Some(head), line)
            }
            (_, false) => return Ok(ScanEnd { unfinished_bytes: bytes, ..found }),
            (None, true) => match joined(line) {
                Some(both) => ScannedLine::Joined(damaged, both),
                None => ScannedLine::Damaged(damaged, line),
            },
        };
        each(scanned);
        found.lines += 1;
        found.end += bytes;
    }
}

/// Formats an entry as a line. `echo` is the digest of the key of the line [`ECHO_DISTANCE`] before it.
pub(super) fn line(entry: &Entry, number: u32, echo: KeyDigest) -> String {
    let (text, key) = (json!([entry.key, entry.value]).to_string(), KeyDigest::of(&entry.key));
    let text = format!("{number:08x} {:08x} {:08x} {text} {}", echo.0, key.0, key.seal(number));
    format!("{:08x} {text}\n", crc32fast::hash(text.as_bytes()))
}

/// The entry of a whole line; `None` if it is not a valid entry.
pub(super) fn entry(line: &[u8], head: Option<LineHead>) -> Option<Entry> {
    let text = match head {
        Some(_) => line.get(HEAD_BYTES..line.len().checked_sub(DIGITS + 1)?)?,
        None => line.get(DIGITS + 1..)?,
    };
    let value: Value = serde_json::from_slice(text).ok()?;
    let [key, value] = value.as_array()?.as_slice() else { return None };
    Some(Entry { key: key.as_str()?.to_owned(), value: value.as_str().map(str::to_owned) })
}

/// What a damaged text reveals about the line it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LineTrace {
    /// It was exactly one line, with this key.
    Line(KeyDigest),
    /// It began with a line of this key; other lines may have followed.
    Begins(KeyDigest),
    Nothing,
}

/// Recognises a damaged line that had this number. If one byte is wrong, two of these three are intact: the digest,
/// the key, the seal.
pub(super) fn line_trace(text: &[u8], number: u32) -> LineTrace {
    let digest = text.get(HEAD_BYTES - DIGITS - 1..HEAD_BYTES - 1).and_then(hex).map(KeyDigest);
    let key = text.windows(2).position(|two| two == b"[\"").and_then(|at| {
        let mut texts = serde_json::Deserializer::from_slice(&text[at + 1..]).into_iter::<String>();
        texts.next()?.ok().map(|key| KeyDigest::of(&key))
    });
    let seal = text.len().checked_sub(DIGITS).map(|at| &text[at..]).unwrap_or_default();
    let known = || [digest, key].into_iter().flatten().filter(|digest| digest.is_known());
    if let Some(sealed) = known().find(|digest| digest.seal(number).as_bytes() == seal) {
        return LineTrace::Line(sealed);
    }
    match (digest, key) {
        (Some(digest), Some(key)) if digest == key && digest.is_known() => {
            let right = digest.seal(number);
            let wrong = right.bytes().zip(seal).filter(|(right, given)| right != *given).count();
            if wrong <= 1 && seal.len() == DIGITS {
                LineTrace::Line(digest)
            } else {
                LineTrace::Begins(digest)
            }
        }
        _ => LineTrace::Nothing,
    }
}

/// The format of a whole line.
#[derive(Clone, Copy)]
enum LineForm {
    Numbered(LineHead),
    /// The format of an earlier version.
    Bare,
}

/// The format and header of a line, if its checksum is right.
fn whole(line: &[u8]) -> Option<LineForm> {
    let (crc, text) = line.split_at_checked(DIGITS)?;
    let text = text.strip_prefix(b" ").filter(|text| hex(crc) == Some(crc32fast::hash(text)))?;
    if text.first() == Some(&b'[') {
        return Some(LineForm::Bare);
    }
    let field = |index: usize| hex(line.get(index * (DIGITS + 1)..)?.get(..DIGITS)?);
    let (number, echo, key) = (field(1)?, KeyDigest(field(2)?), KeyDigest(field(3)?));
    Some(LineForm::Numbered(LineHead { number, echo, key }))
}

/// Two whole lines with one wrong byte between them.
fn joined(text: &[u8]) -> Option<[(LineHead, &[u8]); 2]> {
    let ends = text.windows(2).enumerate().filter(|(_, two)| *two == b"] ").map(|(at, _)| at + 2 + DIGITS);
    ends.filter(|end| *end < text.len()).find_map(|end| {
        let numbered = |line| match whole(line)? {
            LineForm::Numbered(head) => Some((head, line)),
            LineForm::Bare => None,
        };
        Some([numbered(&text[..end])?, numbered(&text[end + 1..])?])
    })
}

/// Parses eight digits as written by [`line`].
fn hex(text: &[u8]) -> Option<u32> {
    let is_digit = |byte: &u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(byte);
    if text.len() != DIGITS || !text.iter().all(is_digit) {
        return None;
    }
    u32::from_str_radix(std::str::from_utf8(text).ok()?, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scanned(text: &[u8]) -> (Vec<String>, Vec<DamagedLine>, ScanEnd) {
        let (mut keys, mut damage) = (Vec::new(), Vec::new());
        let end = scan(&mut &*text, &mut |scanned| match scanned {
            ScannedLine::Whole(head, line) => keys.push(super::entry(line, head).unwrap().key),
            ScannedLine::Joined(damaged, both) => {
                damage.push(damaged);
                keys.extend(both.map(|(head, line)| super::entry(line, Some(head)).unwrap().key));
            }
            ScannedLine::Damaged(damaged, _) => damage.push(damaged),
        });
        (keys, damage, end.unwrap())
    }

    fn entry(key: &str) -> String {
        line(&Entry { key: key.into(), value: Some("1".into()) }, 7, KeyDigest::default())
    }

    #[test]
    fn a_damaged_line_is_named_with_its_place_and_costs_only_itself() {
        let (a, b) = (entry("a"), entry("b"));
        let text = format!("{a}garbage\n{b}torn");
        let (keys, damage, end) = scanned(text.as_bytes());
        assert_eq!(keys, ["a", "b"]);
        assert_eq!(damage, [DamagedLine { line: 2, offset: a.len() as u64, bytes: 8 }]);
        let until = (a.len() + b.len() + 8) as u64;
        assert_eq!(end, ScanEnd { lines: 3, end: until, unfinished_bytes: 4, is_end_damaged: false });
    }

    #[test]
    fn lines_of_an_earlier_version_are_read() {
        let text = r#"["a","1"]"#;
        let old = format!("{:08x} {text}\n", crc32fast::hash(text.as_bytes()));
        let (keys, damage, _) = scanned(format!("{old}{}", entry("b")).as_bytes());
        assert_eq!((keys, damage.len()), (vec!["a".to_owned(), "b".to_owned()], 0));
    }

    /// Regression: such a stretch was taken for a torn end, and everything after it was cut off.
    #[test]
    fn a_stretch_without_line_ends_does_not_hide_what_is_behind_it() {
        for len in [LINE_BYTES_MAX - 1, LINE_BYTES_MAX, LINE_BYTES_MAX + 1, 3 * LINE_BYTES_MAX] {
            let text = [vec![0; len as usize], b"\n".to_vec(), entry("b").into_bytes()].concat();
            let (keys, damage, end) = scanned(&text);
            assert_eq!((keys, damage.len(), end.unfinished_bytes), (vec!["b".to_owned()], 1, 0), "{len}");
            assert_eq!(damage[0].bytes, len + 1);
        }
        assert_eq!(scanned(&vec![0; LINE_BYTES_MAX as usize]).2.unfinished_bytes, LINE_BYTES_MAX);
    }

    #[test]
    fn a_line_end_that_became_another_byte_costs_nothing_and_is_reported() {
        let (a, b) = (entry("a"), entry("b"));
        let mut text = format!("{a}{b}").into_bytes();
        text[a.len() - 1] = b'x';
        assert_eq!((scanned(&text).0, scanned(&text).1.len()), (vec!["a".to_owned(), "b".to_owned()], 1));
        let mut text = format!("{a}{b}").into_bytes();
        *text.last_mut().unwrap() = b'x';
        let (keys, damage, end) = scanned(&text);
        assert_eq!((keys, damage.len()), (vec!["a".to_owned(), "b".to_owned()], 1));
        assert_eq!((end.is_end_damaged, end.unfinished_bytes, end.end), (true, 0, text.len() as u64));
    }

    #[test]
    fn a_line_with_one_wrong_byte_still_says_what_it_was_about() {
        let whole = entry("endpoint/00000000000000a7");
        let whole = whole.trim_end().as_bytes();
        let key = KeyDigest::of("endpoint/00000000000000a7");
        for (at, bit) in (0..whole.len()).flat_map(|at| (0..8).map(move |bit| (at, bit))) {
            let mut flipped = whole.to_vec();
            flipped[at] ^= 1 << bit;
            assert_eq!(line_trace(&flipped, 7), LineTrace::Line(key), "byte {at}, bit {bit}");
        }
        // Two lines with the same key, and a lost one in between.
        let mut two = [whole, b"\n", entry("b").as_bytes(), whole].concat();
        two[60..100].fill(0);
        assert_ne!(line_trace(&two, 6), LineTrace::Line(key), "the seal is of another number");
    }
}
