//! Finds the strings, numbers and words of a JSON text. One pass, however deeply values are nested.

use std::ops::Range;

/// The positions of values that are neither object nor array, in order, without the names of fields. `text` must be
/// JSON.
pub(super) fn scalars(text: &str) -> Vec<Range<usize>> {
    parts(text).0
}

/// The positions of the names of fields, in order. `text` must be JSON.
pub(super) fn names(text: &str) -> Vec<Range<usize>> {
    parts(text).1
}

fn parts(text: &str) -> (Vec<Range<usize>>, Vec<Range<usize>>) {
    let bytes = text.as_bytes();
    let (mut found, mut names) = (Vec::new(), Vec::new());
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        let start = at;
        match byte {
            b'"' => {
                at = end_of_string(bytes, at);
                let next = bytes[at..].iter().find(|byte| !byte.is_ascii_whitespace());
                let list = if next == Some(&b':') { &mut names } else { &mut found };
                list.push(start..at);
            }
            byte if ends_word(*byte) => at += 1,
            _ => {
                at = end_of_word(bytes, at);
                found.push(start..at);
            }
        }
    }
    (found, names)
}

/// The position after a string that begins here.
pub(super) fn end_of_string(bytes: &[u8], start: usize) -> usize {
    let mut at = start + 1;
    while bytes[at] != b'"' {
        at += if bytes[at] == b'\\' { 2 } else { 1 };
    }
    at + 1
}

/// The position after a number, `true`, `false` or `null` that begins here.
pub(super) fn end_of_word(bytes: &[u8], start: usize) -> usize {
    start + bytes[start..].iter().take_while(|byte| !ends_word(**byte)).count()
}

fn ends_word(byte: u8) -> bool {
    b",:]}\"[{ \t\n\r".contains(&byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_found_and_names_are_not() {
        let text = r#" {"a" : "x\"y", "b":[1.50, true,{"c":null}, [] ], "a":-2e5} "#;
        let found: Vec<&str> = scalars(text).into_iter().map(|range| &text[range]).collect();
        assert_eq!(found, [r#""x\"y""#, "1.50", "true", "null", "-2e5"]);
        assert_eq!(scalars("7").first(), Some(&(0..1)));
        let named: Vec<&str> = names(text).into_iter().map(|range| &text[range]).collect();
        assert_eq!(named, [r#""a""#, r#""b""#, r#""c""#, r#""a""#]);
    }

    #[test]
    fn depth_costs_nothing() {
        let text = format!("{}7{}", "[".repeat(200_000), "]".repeat(200_000));
        assert_eq!(scalars(&text).first(), Some(&(200_000..200_001)));
    }
}
