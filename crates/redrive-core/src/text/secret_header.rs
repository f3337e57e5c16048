//! Recognises headers that hold secrets by their names.

const WORDS: [&str; 8] =
    ["authorization", "cookie", "token", "secret", "password", "api-key", "apikey", "credential"];

/// Whether a header's value is secret, judged by its name; such values are neither shown nor exported.
pub fn is_secret_header(name: &str) -> bool {
    let name = name.to_ascii_lowercase().replace('_', "-");
    WORDS.iter().any(|word| name.contains(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_known_by_the_words_in_their_names() {
        for name in [
            "Authorization",
            "proxy-authorization",
            "set-cookie",
            "X-Api-Key",
            "x_auth_token",
            "x-webhook-secret",
        ] {
            assert!(is_secret_header(name), "{name}");
        }
        for name in ["x-src", "content-type", "traceparent", "x-orig-topic"] {
            assert!(!is_secret_header(name), "{name}");
        }
    }
}
