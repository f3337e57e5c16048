//! The lines of `subscriptions.log`: an entry each, with its checksum. Finds those that are damaged.
//!
//! `1a2b3c4d 00000047 0badcafe 9e8f7a6b ["key","value"] 5d3c2b1a`: the checksum of all that follows it, the number of the
//! line, the digest of the key of the line [`ECHO_DISTANCE`] before it, the digest of its own key, the entry, and a seal of
//! key and number. What a damaged line was about can be told by these, so that an older line of the same key is not taken
//! for the latest. Earlier versions wrote only the checksum and the entry.

use std::io::{self, BufRead, Read as _};

use serde_json::{Value, json};

use super::entry::Entry;

/// A line longer than this is not one of ours.
const LINE_BYTES_MAX: u64 = 1 << 20;
const DIGITS: usize = 8;
/// Checksum, number, echo and digest, each with the space behind it.
const HEAD_BYTES: usize = 4 * (DIGITS + 1);
/// How far behind a line its key is repeated: farther than a lost page of the disk reaches.
pub(super) const ECHO_DISTANCE: u32 = 64;

/// A line that was durable and cannot be read any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DamagedLine {
    /// Counted from 1.
    pub line: u64,
    /// Where in the file it begins.
    pub offset: u64,
    pub bytes: u64,
}

/// Stands for a key where the key itself may be damaged. Zero stands for none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct KeyDigest(u32);

impl KeyDigest {
    pub(super) fn of(key: &str) -> Self {
        Self(crc32fast::hash(key.as_bytes()))
    }

    /// What stands at the end of a line of this number.
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

/// What a whole line says beside its entry. An earlier version wrote none of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LineHead {
    pub number: u32,
    pub echo: KeyDigest,
    pub key: KeyDigest,
}

/// What a scan finds, one after the other.
#[derive(Debug)]
pub(super) enum ScannedLine<'a> {
    Whole(Option<LineHead>, &'a [u8]),
    /// Only the end of the line is damaged: two lines look like one, and both can be read.
    Joined(DamagedLine, [(LineHead, &'a [u8]); 2]),
    Damaged(DamagedLine, &'a [u8]),
}

/// Where a scan ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ScanEnd {
    pub lines: u64,
    /// Behind the last line that is ended.
    pub end: u64,
    /// Behind that: torn by a crash, or being written now. It was not acknowledged.
    pub unfinished_bytes: u64,
    /// The last line is whole except for its end, which is another byte. It counts as ended.
    pub is_end_damaged: bool,
}

/// Reads all lines. One that is too long is damaged up to its end, and does not hide those behind it.
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
            // With another byte in place of its end. One that an earlier version wrote may as well be torn.
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

/// An entry as a line with its number. `echo`: the digest of the key of the line [`ECHO_DISTANCE`] before it.
pub(super) fn line(entry: &Entry, number: u32, echo: KeyDigest) -> String {
    let (text, key) = (json!([entry.key, entry.value]).to_string(), KeyDigest::of(&entry.key));
    let text = format!("{number:08x} {:08x} {:08x} {text} {}", echo.0, key.0, key.seal(number));
    format!("{:08x} {text}\n", crc32fast::hash(text.as_bytes()))
}

/// The entry of a whole line. `None` if it is none of ours all the same.
pub(super) fn entry(line: &[u8], head: Option<LineHead>) -> Option<Entry> {
    let text = match head {
        Some(_) => line.get(HEAD_BYTES..line.len().checked_sub(DIGITS + 1)?)?,
        None => line.get(DIGITS + 1..)?,
    };
    let value: Value = serde_json::from_slice(text).ok()?;
    let [key, value] = value.as_array()?.as_slice() else { return None };
    Some(Entry { key: key.as_str()?.to_owned(), value: value.as_str().map(str::to_owned) })
}

/// What a damaged text says of the line that it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LineTrace {
    /// It was this line, and no other.
    Line(KeyDigest),
    /// It was a line about this key, and there may have been others behind it.
    Begins(KeyDigest),
    Nothing,
}

/// What is left of a line that had this number. Of one wrong byte, two of three are right: the digest, the key, the seal.
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

/// How a whole line is written.
#[derive(Clone, Copy)]
enum LineForm {
    Numbered(LineHead),
    /// By an earlier version.
    Bare,
}

/// Whether a line is whole, with what it says beside its entry.
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

/// Eight digits as [`line`] writes them.
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

    /// Such a stretch was taken for a torn end, and everything behind it was cut off.
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
        // Two lines about the same key, with something else between them that is lost.
        let mut two = [whole, b"\n", entry("b").as_bytes(), whole].concat();
        two[60..100].fill(0);
        assert_ne!(line_trace(&two, 6), LineTrace::Line(key), "the seal is of another number");
    }
}
