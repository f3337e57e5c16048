//! Removes the receiver of a push from the texts of a push service: services repeat a token in their answers, however
//! short it is, and in several spellings.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};
use hyper::Uri;

const CONCEALED: &str = "[token]";
/// A shorter secret is matched only as a whole word: inside another word it is a coincidence, and hiding it would only
/// garble the text.
const INNER_BYTES_MIN: usize = 6;

/// A text without these secrets: verbatim, percent-encoded, in base64, with escaped slashes, in any case.
pub fn conceal(text: &str, secrets: &[&str]) -> String {
    let mut spellings: Vec<String> = secrets.iter().flat_map(|secret| spellings(secret)).collect();
    // The longest first, so that no part of one remains.
    spellings.sort_by_key(|spelling| std::cmp::Reverse(spelling.len()));
    spellings.dedup();
    spellings.iter().fold(text.to_owned(), |text, spelling| without(&text, spelling))
}

/// The parts of an endpoint that identify a subscription: the endpoint, its path, the last part of the path, and each
/// value of the query.
pub fn secrets_of(endpoint: &Uri) -> Vec<String> {
    let path = endpoint.path();
    let last = path.rsplit('/').find(|part| !part.is_empty()).unwrap_or_default();
    let query = endpoint.query().unwrap_or_default();
    let values = query.split('&').map(|pair| pair.split_once('=').map_or(pair, |(_, value)| value));
    let whole = [endpoint.to_string(), path.trim_matches('/').to_owned(), last.to_owned(), query.to_owned()];
    whole.into_iter().chain(values.map(str::to_owned)).filter(|secret| !secret.is_empty()).collect()
}

fn spellings(secret: &str) -> Vec<String> {
    let percent = |keep: &str| {
        let is_kept = |byte: u8| byte.is_ascii_alphanumeric() || keep.as_bytes().contains(&byte);
        let spelled =
            |byte: u8| if is_kept(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") };
        secret.bytes().map(spelled).collect::<String>()
    };
    let mut all = vec![
        secret.to_owned(),
        secret.replace('/', r"\/"),
        percent("-._~"),
        percent("-._~/"),
        STANDARD_NO_PAD.encode(secret),
        URL_SAFE_NO_PAD.encode(secret),
    ];
    // A registration token has parts, and a service may repeat one of them.
    all.extend(secret.split(':').filter(|part| part.len() >= INNER_BYTES_MIN).map(str::to_owned));
    all.retain(|spelling| !spelling.is_empty());
    all
}

/// Ignores case: `%3a` equals `%3A`, and the digits of a token may be upper case.
fn without(text: &str, secret: &str) -> String {
    let (mut clean, mut rest) = (String::with_capacity(text.len()), text);
    let is_inner = |c: Option<char>| c.is_some_and(char::is_alphanumeric);
    while let Some(at) = find(rest, secret) {
        let (before, behind) = (&rest[..at], &rest[at + secret.len()..]);
        let ahead = before.chars().next_back().or_else(|| clean.chars().next_back());
        let is_within = is_inner(ahead) || is_inner(behind.chars().next());
        clean.push_str(before);
        let is_secret = secret.len() >= INNER_BYTES_MIN || !is_within;
        clean.push_str(if is_secret { CONCEALED } else { &rest[at..at + secret.len()] });
        rest = behind;
    }
    clean.push_str(rest);
    clean
}

fn find(text: &str, secret: &str) -> Option<usize> {
    let fits = |window: &[u8]| window.eq_ignore_ascii_case(secret.as_bytes());
    let found = text.as_bytes().windows(secret.len()).enumerate().filter(|(_, window)| fits(window));
    let is_whole = |at: &usize| text.is_char_boundary(*at) && text.is_char_boundary(*at + secret.len());
    found.map(|(at, _)| at).find(is_whole)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_concealed_in_every_spelling_however_short_it_is() {
        for (secret, text, clean) in [
            ("0f3a", "token 0f3a is unknown", "token [token] is unknown"),
            ("0f3a", r#"{"token":"0F3A"}"#, r#"{"token":"[token]"}"#),
            ("a", "no device a, sorry", "no device [token], sorry"),
            ("a", "bad", "bad"),
            ("0f3a77", "x0f3a77y", "x[token]y"),
            ("a/b:c", "see a%2Fb%3Ac or a%2fb%3ac or a/b%3Ac", "see [token] or [token] or [token]"),
            ("a/b:c", r"see a\/b:c", "see [token]"),
            ("odd:APA91bG", "unknown apa91bg", "unknown [token]"),
            ("0f3a77", "0f3a77 0f3a77", "[token] [token]"),
            ("ü", "grüße ü", "grüße [token]"),
        ] {
            assert_eq!(conceal(text, &[secret]), clean, "{secret}");
        }
        let coded =
            format!("{} and {}", URL_SAFE_NO_PAD.encode("a?b~c>d"), STANDARD_NO_PAD.encode("a?b~c>d"));
        assert_eq!(conceal(&coded, &["a?b~c>d"]), "[token] and [token]");
    }

    #[test]
    fn of_an_endpoint_the_last_part_of_its_path_and_the_values_of_its_query_are_secret() {
        let endpoint: Uri = "https://push.example/wp/v2/0f3a?token=9c".parse().unwrap();
        let secrets = secrets_of(&endpoint);
        let secrets: Vec<&str> = secrets.iter().map(String::as_str).collect();
        for (text, clean) in [
            ("unknown subscription 0f3a", "unknown subscription [token]"),
            ("token 9c is over", "token [token] is over"),
            ("Cannot POST /wp/v2/0f3a", "Cannot POST /[token]"),
            ("push v2 is not supported", "push v2 is not supported"),
        ] {
            assert_eq!(conceal(text, &secrets), clean);
        }
    }
}
