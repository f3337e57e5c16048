//! The lines of `subscriptions.log`: an entry each, with its checksum. Finds those that are damaged.

use std::io::{self, BufRead, Read as _};

use serde_json::{Value, json};

use super::entry::Entry;

/// A line longer than this is not one of ours.
const LINE_BYTES_MAX: u64 = 1 << 20;
const CRC_DIGITS: usize = 8;

/// A line that was durable and cannot be read any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DamagedLine {
    /// Counted from 1.
    pub line: u64,
    /// Where in the file it begins.
    pub offset: u64,
    pub bytes: u64,
}

/// What a scan finds, one after the other.
#[derive(Debug)]
pub(super) enum ScannedLine {
    Whole(Entry),
    Damaged(DamagedLine),
}

/// Where a scan ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ScanEnd {
    pub lines: u64,
    /// Behind the last line that is ended.
    pub end: u64,
    /// Behind that: torn by a crash, or being written now. Nobody was told that it is durable.
    pub unfinished_bytes: u64,
}

/// Reads all lines. One that is too long is damaged up to its end, and does not hide those behind it.
pub(super) fn scan(reader: &mut impl BufRead, each: &mut dyn FnMut(ScannedLine)) -> io::Result<ScanEnd> {
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
        if !is_ended {
            return Ok(ScanEnd { unfinished_bytes: bytes, ..found });
        }
        found.lines += 1;
        let entry = if is_too_long { None } else { parse(&text[..text.len() - 1]) };
        each(entry.map_or_else(
            || ScannedLine::Damaged(DamagedLine { line: found.lines, offset: found.end, bytes }),
            ScannedLine::Whole,
        ));
        found.end += bytes;
    }
}

/// `1a2b3c4d ["key","value"]`.
pub(super) fn line(entry: &Entry) -> String {
    let text = json!([entry.key, entry.value]).to_string();
    format!("{:08x} {text}\n", crc32fast::hash(text.as_bytes()))
}

fn parse(line: &[u8]) -> Option<Entry> {
    let (crc, text) = line.split_at_checked(CRC_DIGITS)?;
    let crc = u32::from_str_radix(std::str::from_utf8(crc).ok()?, 16).ok()?;
    let text = text.strip_prefix(b" ").filter(|text| crc32fast::hash(text) == crc)?;
    let value: Value = serde_json::from_slice(text).ok()?;
    let [key, value] = value.as_array()?.as_slice() else { return None };
    Some(Entry { key: key.as_str()?.to_owned(), value: value.as_str().map(str::to_owned) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scanned(text: &[u8]) -> (Vec<String>, Vec<DamagedLine>, ScanEnd) {
        let (mut keys, mut damage) = (Vec::new(), Vec::new());
        let end = scan(&mut &*text, &mut |scanned| match scanned {
            ScannedLine::Whole(entry) => keys.push(entry.key),
            ScannedLine::Damaged(damaged) => damage.push(damaged),
        });
        (keys, damage, end.unwrap())
    }

    fn entry(key: &str) -> String {
        line(&Entry { key: key.into(), value: Some("1".into()) })
    }

    #[test]
    fn a_damaged_line_is_named_with_its_place_and_costs_only_itself() {
        let (a, b) = (entry("a"), entry("b"));
        let text = format!("{a}garbage\n{b}torn");
        let (keys, damage, end) = scanned(text.as_bytes());
        assert_eq!(keys, ["a", "b"]);
        assert_eq!(damage, [DamagedLine { line: 2, offset: a.len() as u64, bytes: 8 }]);
        let until = (a.len() + b.len() + 8) as u64;
        assert_eq!(end, ScanEnd { lines: 3, end: until, unfinished_bytes: 4 });
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
}
