//! Makes untrusted text safe to show: on a terminal, in a log line, in a table cell, and in JSON.
//!
//! Ids, keys, headers, errors and payloads are written by producers and receivers. Printed raw, they could move the
//! cursor, set the title of the terminal, forge a line of the log or reverse the order of what follows. Every output
//! goes through here; [`is_unsafe`] is the one definition of what must not be printed.

use std::borrow::Cow;
use std::fmt::Write as _;

/// Whether a character does more than show itself: control characters (C0, DEL, C1), characters that change the text
/// direction, line separators, and invisible characters.
pub fn is_unsafe(c: char) -> bool {
    c.is_control()
        || matches!(
            c,
            '\u{61c}'
                | '\u{180e}'
                | '\u{200b}'
                | '\u{200e}'
                | '\u{200f}'
                | '\u{2028}'..='\u{202e}'
                | '\u{2060}'..='\u{206f}'
                | '\u{feff}'
                | '\u{fff9}'..='\u{fffb}'
                | '\u{e0000}'..='\u{e007f}'
        )
}

/// The text on one line, with unsafe characters escaped: `\n`, `\u{1b}`. A tab becomes a space.
pub fn line(text: &str) -> Cow<'_, str> {
    if !text.chars().any(is_unsafe) {
        return Cow::Borrowed(text);
    }
    let mut safe = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        match c {
            '\n' => safe.push_str("\\n"),
            '\r' => safe.push_str("\\r"),
            '\t' => safe.push(' '),
            c if is_unsafe(c) => safe.extend(c.escape_unicode()),
            c => safe.push(c),
        }
    }
    Cow::Owned(safe)
}

/// A JSON text with unsafe characters as `\uXXXX`, which every parser reads as the same text. Line ends stay: outside
/// strings they are white space, and inside strings a serializer always escapes them.
pub fn json(text: &str) -> Cow<'_, str> {
    // Most texts are plain ASCII, which a serializer has escaped already.
    let is_odd = |c: char| is_unsafe(c) && c != '\n';
    if text.bytes().all(|byte| (b' '..0x7f).contains(&byte) || byte == b'\n') || !text.chars().any(is_odd) {
        return Cow::Borrowed(text);
    }
    let mut safe = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if is_odd(c) {
            for unit in c.encode_utf16(&mut [0; 2]) {
                // Writing to a String cannot fail.
                let _ = write!(safe, "\\u{unit:04x}");
            }
        } else {
            safe.push(c);
        }
    }
    Cow::Owned(safe)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_cannot_drive_the_terminal() {
        assert_eq!(line("a\x1b[2Jb\u{7}\u{9b}31m\u{7f}"), "a\\u{1b}[2Jb\\u{7}\\u{9b}31m\\u{7f}");
        assert_eq!(line("one\ntwo\r\tthree\u{2028}"), "one\\ntwo\\r three\\u{2028}");
        assert_eq!(line("abc\u{202e}cba\u{2066}\u{61c}"), "abc\\u{202e}cba\\u{2066}\\u{61c}");
        assert_eq!(line("hidden\u{e0041}\u{200b}\u{feff}"), "hidden\\u{e0041}\\u{200b}\\u{feff}");
    }

    #[test]
    fn text_of_any_script_stays_as_it_is() {
        for text in ["", "o-1", "Grüße, 漢字", "שלום", "می‌خواهم", "👩‍💻"] {
            assert!(matches!(line(text), Cow::Borrowed(same) if same == text), "{text}");
            assert!(matches!(json(text), Cow::Borrowed(same) if same == text), "{text}");
        }
    }

    #[test]
    fn json_means_the_same_with_less_in_it() {
        let given = "{\"a\u{9b}\":\"\u{7f}\u{202e}x\u{e0041}\",\n \"b\":\"\\n\"}";
        assert_eq!(json(given), "{\"a\\u009b\":\"\\u007f\\u202ex\\udb40\\udc41\",\n \"b\":\"\\n\"}");
    }

    /// No unsafe character is left, whatever the input.
    #[test]
    fn no_character_gets_through() {
        for c in ('\0'..=char::MAX).filter(|c| is_unsafe(*c)) {
            let text = format!("a{c}b");
            assert!(!line(&text).chars().any(is_unsafe), "{}", c.escape_unicode());
            if c != '\n' {
                assert!(!json(&text).chars().any(is_unsafe), "{}", c.escape_unicode());
            }
        }
    }
}
