//! The produced ids: `--ids o-0..o-9999`, `--ids a,b,c` or `--ids-file FILE`, one id per line.

use std::io::{BufRead, Read};

use super::produced_ids::{LISTED_MAX, ProducedIds, RANGE_MAX, number};

/// A message id has at most 512 bytes; a file with a longer line is not a list of ids.
const LINE_BYTES_MAX: u64 = 4_096;

#[derive(Debug, thiserror::Error)]
pub enum IdsFault {
    #[error(
        "`{0}` is not a range of ids; write it like o-0..o-9999: the same word on both sides, numbers that grow, at most {RANGE_MAX} ids"
    )]
    Range(String),
    #[error("no ids: --ids names none")]
    None,
    #[error("{name}: {error}")]
    Unreadable { name: String, error: std::io::Error },
    #[error(
        "{name}, line {line}: this is not an id (one id per line, at most {LINE_BYTES_MAX} bytes of text)"
    )]
    Line { name: String, line: u64 },
    #[error("{name} holds no ids")]
    Empty { name: String },
    #[error("{name} holds more than {LISTED_MAX} ids, which do not fit in memory; audit it in parts")]
    TooMany { name: String },
}

/// Parses `--ids`.
pub fn parse(text: &str) -> Result<ProducedIds, IdsFault> {
    if let Some((first, last)) = text.split_once("..") {
        let wrong = || IdsFault::Range(text.to_owned());
        let (prefix, first) = split(first).ok_or_else(wrong)?;
        let (other, last) = split(last).ok_or_else(wrong)?;
        return Some(())
            .filter(|()| prefix == other)
            .and_then(|()| ProducedIds::range(prefix, first, last))
            .ok_or_else(wrong);
    }
    let mut produced = ProducedIds::listed();
    text.split(',').map(str::trim).filter(|id| !id.is_empty()).for_each(|id| _ = produced.add(id));
    if produced.is_empty() { Err(IdsFault::None) } else { Ok(produced) }
}

/// Splits `o-17` into `o-` and 17.
fn split(id: &str) -> Option<(&str, u64)> {
    let digits = id.bytes().rev().take_while(u8::is_ascii_digit).count();
    let (prefix, digits) = id.split_at(id.len() - digits);
    Some((prefix, number(digits).filter(|_| !digits.is_empty())?))
}

/// Reads one id per line; empty lines are skipped.
pub fn read(name: &str, mut lines: impl BufRead) -> Result<ProducedIds, IdsFault> {
    let mut produced = ProducedIds::listed();
    let mut buffer = Vec::new();
    for line in 1.. {
        buffer.clear();
        let read = lines.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut buffer);
        match read {
            Err(error) => return Err(IdsFault::Unreadable { name: name.to_owned(), error }),
            Ok(0) => break,
            Ok(_) => {}
        }
        let too_long = buffer.len() as u64 == LINE_BYTES_MAX && !buffer.ends_with(b"\n");
        let id = std::str::from_utf8(&buffer).ok().filter(|_| !too_long);
        let id = id.ok_or_else(|| IdsFault::Line { name: name.to_owned(), line })?.trim();
        if !id.is_empty() && !produced.add(id) {
            return Err(IdsFault::TooMany { name: name.to_owned() });
        }
    }
    if produced.is_empty() { Err(IdsFault::Empty { name: name.to_owned() }) } else { Ok(produced) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_and_lists_are_read() {
        assert_eq!(parse("o-0..o-9999").unwrap().len(), 10_000);
        assert_eq!(parse("7..7").unwrap().len(), 1);
        assert_eq!(parse("a, b,,a").unwrap().len(), 2);
    }

    #[test]
    fn a_range_that_is_none_is_refused_with_the_form() {
        for text in
            ["o-0..c-9", "o-9..o-0", "o-..o-9", "o-0..", "..", "o-00..o-09", "0..18446744073709551615"]
        {
            let fault = parse(text).unwrap_err().to_string();
            assert!(fault.contains("o-0..o-9999") && fault.contains(text), "{fault}");
        }
        assert!(matches!(parse(" ,"), Err(IdsFault::None)));
    }

    #[test]
    fn a_file_has_one_id_per_line() {
        let produced = read("ids.txt", "o-1\r\n\no-2\no-1".as_bytes()).unwrap();
        assert_eq!(produced.len(), 2);
    }

    #[test]
    fn a_bad_line_is_named() {
        let long = format!("o-1\n{}\n", "x".repeat(5_000));
        assert_eq!(
            read("ids.txt", long.as_bytes()).unwrap_err().to_string(),
            "ids.txt, line 2: this is not an id (one id per line, at most 4096 bytes of text)"
        );
        assert!(matches!(read("x", &b"\xff\n"[..]), Err(IdsFault::Line { line: 1, .. })));
        assert_eq!(read("x", &b"\n"[..]).unwrap_err().to_string(), "x holds no ids");
    }
}
