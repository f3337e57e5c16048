//! Removes what must not be repeated from a text: URLs and words that look like tokens.

/// Shorter words are not tokens.
const TOKEN_BYTES_MIN: usize = 16;
/// Endpoint hashes look like tokens but are meant to be shown.
const HASH_PREFIX: &str = "hmac-sha256:";

/// Text that a person wrote, without URLs and tokens that may have been pasted into it.
pub fn without_secrets(text: &str) -> String {
    let text = without_urls(text);
    text.split_inclusive(char::is_whitespace).map(without_token).collect()
}

/// A word with its delimiter, unless it looks like a device token or a key: one run of letters and digits. Words joined
/// by dashes or slashes, such as a UUID or `user-5512/phone`, are not tokens.
fn without_token(word: &str) -> String {
    let bare = word.trim_end_matches(|c: char| c.is_whitespace() || ",.;:!?)".contains(c));
    let is_inner = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '+' | '=' | '~');
    let is_token = |piece: &str| {
        piece.len() >= TOKEN_BYTES_MIN
            && piece.bytes().any(|byte| byte.is_ascii_digit())
            && piece.bytes().any(|byte| byte.is_ascii_alphabetic())
    };
    if bare.contains(HASH_PREFIX) || !bare.split(|c| !is_inner(c)).any(is_token) {
        return word.to_owned();
    }
    format!("[token]{}", &word[bare.len()..])
}

/// Removes every word around a `://`, also in the escaped form that some JSON writers use.
pub fn without_urls(text: &str) -> String {
    let mut clean = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((at, mark)) = next_url(rest) {
        let scheme = |c: char| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.');
        let start = rest[..at].trim_end_matches(scheme).len();
        let behind = &rest[at + mark..];
        let end = behind.find(|c: char| c.is_whitespace() || c.is_control() || "\"'<>()[]{}|`,".contains(c));
        // Punctuation after a URL does not belong to it: `…?a=b: no_lines`.
        let url = behind[..end.unwrap_or(behind.len())].trim_end_matches(['.', ':', ';', '!', '?']);
        clean.push_str(&rest[..start]);
        clean.push_str("[url]");
        rest = &behind[url.len()..];
    }
    clean.push_str(rest);
    clean
}

/// The position and length of the next URL separator.
fn next_url(text: &str) -> Option<(usize, usize)> {
    let marks = ["://", r":\/\/"];
    marks.into_iter().filter_map(|mark| text.find(mark).map(|at| (at, mark.len()))).min()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_and_tokens_are_left_out_and_what_people_write_is_not() {
        let auth = "BTBZMqHH6r4Tts7J_aSIgg";
        let device = "8f14e45fceea167a5a36dedd4bea2543".repeat(2);
        assert_eq!(without_secrets(&format!("bounces, auth {auth}, gone")), "bounces, auth [token], gone");
        assert_eq!(without_secrets(&format!("device={device} is gone")), "[token] is gone");
        assert_eq!(without_secrets("see https://push.example/wp/0f3a77."), "see [url].");
        assert_eq!(without_secrets("dxY:APA91bGx7Q2kfJ0aMn"), "[token]");
        for harmless in [
            "account closed, ticket OPS-20261117",
            "same as hmac-sha256:09ff3c51a7d2e840",
            "user-5512/phone asked for it",
            "order 123e4567-e89b-12d3-a456-426614174000",
            "card 4111111111111111 is no token",
            "unbelievablylongword",
            "",
        ] {
            assert_eq!(without_secrets(harmless), harmless);
        }
    }
}
