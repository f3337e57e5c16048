//! Makes text by others (errors, payloads, headers) safe for our user's terminal.

use std::borrow::Cow;

use redrive_core::printable;

use super::style::Paint;

/// The text on one line, with control characters escaped: a dead letter must not move the cursor, change colours or set
/// the title of the terminal it is viewed in.
pub fn line(text: &str) -> String {
    printable::line(text).into_owned()
}

/// A last filter on output, in case a command forgot to make a text safe: anything unsafe is only shown. Line ends and
/// our own colours pass.
pub(super) fn screen(text: &str, paint: Paint) -> Cow<'_, str> {
    let passes = |c: char| c == '\n' || !printable::is_unsafe(c);
    if text.chars().all(passes) {
        return Cow::Borrowed(text);
    }
    let mut safe = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(|c| !passes(c)) {
        let (before, after) = rest.split_at(at);
        safe.push_str(before);
        if let Some(code) = paint.code_at_start(after) {
            safe.push_str(code);
            rest = &after[code.len()..];
            continue;
        }
        let len = after.chars().next().map_or(1, char::len_utf8);
        safe.push_str(&printable::line(&after[..len]));
        rest = &after[len..];
    }
    safe.push_str(rest);
    Cow::Owned(safe)
}

/// Like [`line()`], but at most `chars` long; a cut is marked with `…`.
pub fn short(text: &str, chars: usize) -> String {
    let safe = line(text);
    if safe.chars().nth(chars).is_none() {
        return safe;
    }
    let kept: String = safe.chars().take(chars.saturating_sub(1)).collect();
    format!("{}…", kept.trim_end())
}

#[cfg(test)]
mod tests {
    use super::super::style::Style;
    use super::*;

    #[test]
    fn what_a_command_forgot_is_made_safe_at_the_end() {
        let painted = Paint::ON.paint(Style::Error, "a\u{1b}[2Jb\u{9b}c");
        assert_eq!(screen(&painted, Paint::ON), "\u{1b}[1;31ma\\u{1b}[2Jb\\u{9b}c\u{1b}[0m");
        assert_eq!(screen("\u{1b}[1;31mred\nline", Paint::OFF), "\\u{1b}[1;31mred\nline");
        assert_eq!(screen("plain ✓\n", Paint::ON), "plain ✓\n");
    }

    #[test]
    fn a_long_text_is_cut_with_a_sign() {
        assert_eq!(short("12345", 5), "12345");
        assert_eq!(short("123456", 5), "1234…");
        assert_eq!(short("ääääää", 3), "ää…");
    }
}
