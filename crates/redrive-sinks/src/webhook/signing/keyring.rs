//! The secrets that sign together: the current one, and older ones for as long as receivers may still use them.

use std::collections::HashMap;
use std::fmt::Write as _;

use redrive::{Time, timestamp};

use super::key::{KeyFault, SigningKey};

/// The maximum number of secrets that sign one request. More would only make the header long.
pub const SECRETS_MAX: usize = 8;
/// The maximum number of endpoints in one file.
const ENDPOINTS_MAX: usize = 100_000;

/// The secrets of one receiver.
#[derive(Clone, Debug, Default)]
pub struct Keyring {
    keys: Vec<ActiveKey>,
}

#[derive(Clone, Debug)]
struct ActiveKey {
    key: SigningKey,
    /// The time until which it signs; `None` means for ever.
    until: Option<Time>,
}

/// A fault in a file of secrets, with its line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {problem}")]
pub struct KeyringFault {
    pub line: usize,
    pub problem: String,
}

impl Keyring {
    /// Parses one secret per line: `whsec_…`, or `whsec_… until 2026-12-01T00:00:00Z` for one that is being replaced.
    /// Empty lines and lines that begin with `#` are skipped.
    pub fn parse(text: &str) -> Result<Self, KeyringFault> {
        let mut ring = Self::default();
        for (line, words) in lines(text) {
            ring.add(&words, line)?;
        }
        if ring.keys.iter().all(|key| key.until.is_some()) {
            let problem = if ring.keys.is_empty() {
                "there is no secret in it"
            } else {
                "every secret has an `until`; the one that is to stay has none"
            };
            return Err(KeyringFault { line: 1, problem: problem.to_owned() });
        }
        Ok(ring)
    }

    fn add(&mut self, words: &[&str], line: usize) -> Result<(), KeyringFault> {
        let wrong = |problem: String| KeyringFault { line, problem };
        let (secret, until) = match words {
            [secret] => (secret, None),
            [secret, "until", until] => {
                let until = timestamp::parse(until)
                    .ok_or_else(|| wrong("`until` is not a time like 2026-12-01T00:00:00Z".to_owned()))?;
                (secret, Some(until))
            }
            _ => return Err(wrong("it is neither `SECRET` nor `SECRET until TIME`".to_owned())),
        };
        let key = SigningKey::parse(secret).map_err(|fault: KeyFault| wrong(fault.to_string()))?;
        if self.keys.len() == SECRETS_MAX {
            return Err(wrong(format!("there are more than {SECRETS_MAX} secrets")));
        }
        self.keys.push(ActiveKey { key, until });
        Ok(())
    }

    /// The value of `webhook-signature`: one signature per currently active secret, in the order of the file.
    pub fn sign(&self, content: &[u8], now: Time) -> String {
        let mut signatures = String::new();
        for active in self.keys.iter().filter(|active| active.until.is_none_or(|until| now < until)) {
            let space = if signatures.is_empty() { "" } else { " " };
            // Writing to a string does not fail.
            let _ = write!(signatures, "{space}{}", active.key.sign(content));
        }
        signatures
    }

    /// The public halves that receivers of `v1a` need.
    pub fn public(&self) -> impl Iterator<Item = String> {
        self.keys.iter().filter_map(|active| active.key.public())
    }
}

/// The secrets of many receivers, by their endpoint.
#[derive(Clone, Debug, Default)]
pub struct EndpointKeys {
    by_endpoint: HashMap<Box<str>, Keyring>,
}

impl EndpointKeys {
    /// Parses one secret per line: `https://example.com/hook whsec_…`, also with `until`; an endpoint may occur in
    /// several lines.
    pub fn parse(text: &str) -> Result<Self, KeyringFault> {
        let mut keys = Self::default();
        for (line, words) in lines(text) {
            let [endpoint, secret @ ..] = &words[..] else { continue };
            let wrong = |problem: &str| KeyringFault { line, problem: problem.to_owned() };
            if !(endpoint.starts_with("http://") || endpoint.starts_with("https://")) {
                return Err(wrong("it does not begin with the URL of an endpoint"));
            }
            if keys.by_endpoint.len() == ENDPOINTS_MAX && !keys.by_endpoint.contains_key(*endpoint) {
                return Err(wrong("there are more than 100000 endpoints"));
            }
            let endpoint: hyper::Uri = endpoint.parse().map_err(|_| wrong("the endpoint is not a URL"))?;
            keys.by_endpoint.entry(endpoint.to_string().into()).or_default().add(secret, line)?;
        }
        Ok(keys)
    }

    pub fn of(&self, endpoint: &str) -> Option<&Keyring> {
        self.by_endpoint.get(endpoint)
    }
}

/// The non-empty lines without comments, numbered from 1, split into words.
fn lines(text: &str) -> impl Iterator<Item = (usize, Vec<&str>)> {
    let lines = text.lines().enumerate().map(|(at, line)| (at + 1, line.trim()));
    let said = lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
    said.map(|(at, line)| (at, line.split_ascii_whitespace().collect()))
}

#[cfg(test)]
mod tests {
    use super::super::key::VerifyingKey;
    use super::*;

    const OLD: &str = "whsec_b2xkb2xkb2xkb2xkb2xkb2xkb2xkb2xk";
    const NEW: &str = "whsec_bmV3bmV3bmV3bmV3bmV3bmV3bmV3bmV3";
    const UNTIL: &str = "2026-12-01T00:00:00Z";

    fn verified_by(secret: &str, signatures: &str) -> bool {
        let key = VerifyingKey::parse(secret).unwrap();
        signatures.split(' ').any(|signature| key.verifies(signature, b"x"))
    }

    #[test]
    fn during_a_rotation_both_secrets_sign_and_afterwards_only_the_new_one() {
        let until = timestamp::parse(UNTIL).unwrap();
        let before = until.as_millis() - 1;
        let ring = Keyring::parse(&format!("# rotated in November\n{NEW}\n\n{OLD} until {UNTIL}\n")).unwrap();
        let during = ring.sign(b"x", Time::from_millis(before));
        assert!(during.starts_with("v1,") && verified_by(NEW, &during) && verified_by(OLD, &during));
        let after = ring.sign(b"x", until);
        assert!(verified_by(NEW, &after) && !verified_by(OLD, &after));
    }

    #[test]
    fn a_file_that_cannot_be_used_is_named_by_its_line() {
        let problem = |text: &str| Keyring::parse(text).unwrap_err().to_string();
        assert_eq!(problem("\n"), "line 1: there is no secret in it");
        assert_eq!(problem("\nhunter2"), "line 2: it begins with neither whsec_ nor whsk_");
        assert!(problem(&format!("{OLD} until soon")).starts_with("line 1: `until` is not a time"));
        assert!(problem(&format!("{OLD} until {UNTIL}")).contains("every secret has an `until`"));
        assert!(problem(&format!("{OLD} {NEW}")).contains("neither `SECRET` nor"));
        assert!(problem(&format!("{OLD}\n").repeat(SECRETS_MAX + 1)).contains("more than 8 secrets"));
        let endpoints = |text: &str| EndpointKeys::parse(text).unwrap_err().to_string();
        assert!(endpoints(OLD).contains("does not begin with the URL"));
        assert!(endpoints("https://a.example/").contains("neither `SECRET` nor"));
    }

    #[test]
    fn each_endpoint_has_its_own_secrets() {
        let text =
            format!("https://a.example/hook {OLD}\nhttps://b.example {NEW}\nhttps://a.example/hook {NEW}\n");
        let keys = EndpointKeys::parse(&text).unwrap();
        let signed = |endpoint: &str| keys.of(endpoint).map(|ring| ring.sign(b"x", Time::from_millis(0)));
        let a = signed("https://a.example/hook").unwrap();
        assert!(verified_by(OLD, &a) && verified_by(NEW, &a));
        let b = signed("https://b.example/").unwrap();
        assert!(verified_by(NEW, &b) && !verified_by(OLD, &b));
        assert!(signed("https://c.example/").is_none());
    }
}
