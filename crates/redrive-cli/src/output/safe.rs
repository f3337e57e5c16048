//! Text that others wrote (errors, payloads, headers) on our user's terminal.

/// The text on one line, with control characters written out: a dead letter must not be able to move the cursor,
/// change the colours or set the title of the terminal it is looked at in.
pub fn line(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\n' => safe.push_str("\\n"),
            '\r' => safe.push_str("\\r"),
            '\t' => safe.push(' '),
            c if c.is_control() || turns_direction(c) => safe.extend(c.escape_unicode()),
            c => safe.push(c),
        }
    }
    safe
}

/// As [`line`], and at most `chars` long; what was cut off shows as `…`.
pub fn short(text: &str, chars: usize) -> String {
    let safe = line(text);
    if safe.chars().nth(chars).is_none() {
        return safe;
    }
    let kept: String = safe.chars().take(chars.saturating_sub(1)).collect();
    format!("{}…", kept.trim_end())
}

/// Characters that make the rest of a line read in another order than it is written.
fn turns_direction(c: char) -> bool {
    matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{200e}' | '\u{200f}')
}

/// Whether a header's value is a secret by its name; such values are neither shown nor exported.
pub fn is_secret_header(name: &str) -> bool {
    const WORDS: [&str; 8] =
        ["authorization", "cookie", "token", "secret", "password", "api-key", "apikey", "credential"];
    let name = name.to_ascii_lowercase().replace('_', "-");
    WORDS.iter().any(|word| name.contains(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_text_cannot_drive_the_terminal() {
        assert_eq!(line("a\x1b[2Jb\u{7}\u{9b}31m"), "a\\u{1b}[2Jb\\u{7}\\u{9b}31m");
        assert_eq!(line("one\ntwo\r\tthree"), "one\\ntwo\\r three");
        assert_eq!(line("abc\u{202e}cba"), "abc\\u{202e}cba");
        assert_eq!(line("Grüße, 漢字"), "Grüße, 漢字");
    }

    #[test]
    fn a_long_text_is_cut_with_a_sign() {
        assert_eq!(short("12345", 5), "12345");
        assert_eq!(short("123456", 5), "1234…");
        assert_eq!(short("ääääää", 3), "ää…");
    }

    #[test]
    fn headers_that_carry_secrets_are_known_by_name() {
        for name in
            ["Authorization", "proxy-authorization", "Cookie", "set-cookie", "X-Api-Key", "x_auth_token"]
        {
            assert!(is_secret_header(name), "{name}");
        }
        for name in ["x-src", "content-type", "traceparent", "x-orig-topic"] {
            assert!(!is_secret_header(name), "{name}");
        }
    }
}
