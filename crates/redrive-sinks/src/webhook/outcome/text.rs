//! Sanitizes receiver text for error messages: short, one line, without URLs and our own secrets.

use std::borrow::Cow;

use hyper::Uri;
use hyper::http::uri::PathAndQuery;
use redrive_core::text::redact::without_urls;
use redrive_core::text::secret_header::is_secret_header;

use crate::secret::Secret;

/// Shorter words are not treated as secrets; replacing them would only garble the text.
const HIDDEN_BYTES_MIN: usize = 6;
/// From this length on a path segment is treated as a token.
const TOKEN_BYTES_MIN: usize = 16;

/// Removes text that must not be repeated.
pub(crate) struct Redactor {
    hidden: Vec<String>,
}

impl Redactor {
    /// Hides the secrets and each word in them: of `Bearer abc…` a receiver may echo only the token.
    pub(crate) fn of<'a>(secrets: impl IntoIterator<Item = &'a Secret>) -> Self {
        let mut hidden: Vec<String> = Vec::new();
        for secret in secrets {
            let words = secret.expose().split_ascii_whitespace().chain([secret.expose()]);
            hidden.extend(words.filter(|word| word.len() >= HIDDEN_BYTES_MIN).map(str::to_owned));
        }
        // The longest first, so that no part of one remains.
        hidden.sort_by_key(|word| std::cmp::Reverse(word.len()));
        Self { hidden }
    }

    /// A redactor that also hides what was sent in this attempt.
    pub(crate) fn also(&self, sent: &str) -> Self {
        let mut both = Self::of([&Secret::from(sent)]);
        both.hidden.extend(self.hidden.iter().cloned());
        both.hidden.sort_by_key(|word| std::cmp::Reverse(word.len()));
        both
    }

    /// One clean line of at most `bytes_max` bytes. `endpoint` is hidden too: for many webhooks the path is the secret,
    /// and many servers repeat it in their error page.
    pub(crate) fn clean(&self, raw: &[u8], endpoint: &Uri, bytes_max: usize) -> String {
        let mut text = String::from_utf8_lossy(raw);
        for word in &self.hidden {
            hide(&mut text, word, "[secret]");
        }
        hide_endpoint(&mut text, endpoint);
        one_line(&without_urls(&text), bytes_max)
    }
}

fn hide(text: &mut Cow<'_, str>, word: &str, by: &str) {
    if text.contains(word) {
        *text = Cow::Owned(text.replace(word, by));
    }
}

fn hide_endpoint(text: &mut Cow<'_, str>, endpoint: &Uri) {
    if let Some(path_and_query) = endpoint.path_and_query().map(PathAndQuery::as_str)
        && path_and_query.len() >= HIDDEN_BYTES_MIN
    {
        hide(text, path_and_query, "[path]");
    }
    let path = endpoint.path();
    if path.len() >= HIDDEN_BYTES_MIN {
        hide(text, path, "[path]");
    }
    path.split('/').filter(|part| part.len() >= TOKEN_BYTES_MIN).for_each(|part| hide(text, part, "[path]"));
    let values = endpoint.query().unwrap_or_default().split('&').filter_map(secret_value);
    values.for_each(|value| hide(text, value, "[query]"));
}

/// The value of a query parameter, if it may be a secret. A word such as `no_lines` is not, unless the parameter's name
/// says so: hiding it would hide the reason that a receiver gives.
fn secret_value(pair: &str) -> Option<&str> {
    let (name, value) = pair.split_once('=').map_or((None, pair), |(name, value)| (Some(name), value));
    let is_word = value.len() < TOKEN_BYTES_MIN
        && value.bytes().all(|b| b.is_ascii_lowercase() || matches!(b, b'_' | b'-'));
    let is_secret = !is_word || name.is_none_or(is_secret_parameter);
    (is_secret && value.len() >= HIDDEN_BYTES_MIN).then_some(value)
}

fn is_secret_parameter(name: &str) -> bool {
    let lower = name.to_ascii_lowercase();
    is_secret_header(name) || ["key", "sig", "auth", "pass"].iter().any(|word| lower.contains(word))
}

/// One line: white space and control characters become single spaces. Cut at a character boundary, with a mark.
fn one_line(text: &str, bytes_max: usize) -> String {
    let mut line = String::new();
    for c in text.chars() {
        // Characters that change the text direction can make a log line lie.
        let blank = c.is_whitespace()
            || c.is_control()
            || matches!(c, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}');
        let c = if blank { ' ' } else { c };
        if c == ' ' && (line.is_empty() || line.ends_with(' ')) {
            continue;
        }
        if line.len() + c.len_utf8() > bytes_max {
            line.truncate(line.trim_end().len());
            line.push('…');
            return line;
        }
        line.push(c);
    }
    line.truncate(line.trim_end().len());
    line
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn clean(raw: &str) -> String {
        let secrets = [Secret::from("Bearer s3cr3t-token"), Secret::from("ab")];
        let endpoint = "https://hooks.example/services/T0/B0?key=abcdef123".parse().unwrap();
        Redactor::of(&secrets).clean(raw.as_bytes(), &endpoint, 60)
    }

    #[test]
    fn a_text_becomes_one_short_line() {
        assert_eq!(clean("a\r\n\tb\0c\u{1b}[31m  d \u{202e}e"), "a b c [31m d e");
        assert_eq!(clean(&"x".repeat(100)), format!("{}…", "x".repeat(60)));
        assert_eq!(clean("  \n "), "");
        let accents = clean(&"é".repeat(100));
        assert_eq!(accents.trim_end_matches('…').len(), 60);
    }

    #[test]
    fn urls_are_left_out() {
        assert_eq!(clean("see https://a.example/b?c=d, or (ftp://x) now"), "see [url], or ([url]) now");
        assert_eq!(clean(r#"{"docs":"https:\/\/a.example\/b"}"#), r#"{"docs":"[url]"}"#);
        assert_eq!(clean("://"), "[url]");
        assert_eq!(clean("a://b://c d"), "[url] d");
    }

    #[test]
    fn our_own_secrets_are_not_repeated_even_if_the_receiver_echoes_them() {
        assert_eq!(clean("bad header Bearer s3cr3t-token"), "bad header [secret]");
        assert_eq!(clean("token s3cr3t-token is old"), "token [secret] is old");
        assert_eq!(clean("Cannot POST /services/T0/B0"), "Cannot POST [path]");
        assert_eq!(clean("Cannot POST /services/T0/B0?key=abcdef123"), "Cannot POST [path]");
        assert_eq!(clean("unknown key abcdef123"), "unknown key [query]");
        assert_eq!(clean("abc"), "abc", "short words are no secrets");
    }

    /// A receiver whose URL determines its answer, and one whose reason is a word of the URL.
    #[test]
    fn a_reason_is_not_swallowed_because_the_query_has_the_same_word() {
        let clean = |endpoint: &str, raw: &str| {
            Redactor::of([]).clean(raw.as_bytes(), &endpoint.parse().unwrap(), 60)
        };
        assert_eq!(clean("http://a.example/?status=422&reason=no_lines", "no_lines"), "no_lines");
        assert_eq!(clean("http://a.example/?from=orders", "orders_closed"), "orders_closed");
        for secret in ["token=correcthorse", "api_key=correcthorse", "sig=correcthorse", "correcthorse"] {
            let endpoint = format!("http://a.example/?{secret}");
            assert_eq!(clean(&endpoint, "unknown correcthorse"), "unknown [query]", "{secret}");
        }
        assert_eq!(clean("http://a.example/?k=hunter2", "unknown hunter2"), "unknown [query]");
    }

    #[test]
    fn what_follows_a_url_is_still_there() {
        assert_eq!(clean("POST https://a.example/b?c=d: no_lines"), "POST [url]: no_lines");
        assert_eq!(clean("see https://a.example/b?c=d."), "see [url].");
        assert_eq!(clean("https://a.example/b?c=d; code E42"), "[url]; code E42");
    }

    proptest! {
        #[test]
        fn whatever_comes_is_bounded_and_has_no_control_characters(raw in proptest::collection::vec(any::<u8>(), 0..300)) {
            let endpoint = "http://a.example/some/path".parse().unwrap();
            let text = Redactor::of([]).clean(&raw, &endpoint, 100);
            prop_assert!(text.len() <= 100 + '…'.len_utf8());
            prop_assert!(!text.chars().any(char::is_control));
            prop_assert!(!text.contains("://"));
        }
    }
}
