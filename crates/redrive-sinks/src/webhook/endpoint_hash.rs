//! An endpoint as a log may show it.

use std::fmt::Write;

use ring::hmac;
use ring::rand::SystemRandom;

use crate::fault::SinkFault;
use crate::secret::Secret;

/// Makes keyed hashes: the same endpoint has the same hash, and nobody without the key can try out which it is.
pub(crate) struct EndpointHash {
    key: hmac::Key,
}

/// Shown bytes of a hash: enough to tell endpoints apart.
const SHOWN_BYTES: usize = 8;

impl EndpointHash {
    /// With a key of one's own, so that hashes of several processes can be compared.
    pub(crate) fn keyed(key: &[u8]) -> Self {
        Self { key: hmac::Key::new(hmac::HMAC_SHA256, key) }
    }

    /// With a key that nobody knows and that ends with the process. `None` if the system gives no random numbers.
    pub(crate) fn random() -> Option<Self> {
        hmac::Key::generate(hmac::HMAC_SHA256, &SystemRandom::new()).map(|key| Self { key }).ok()
    }

    /// With the key of a setting, else with a random one.
    pub(crate) fn of_key(key: Option<&Secret>) -> Result<Self, SinkFault> {
        let hash = match key {
            Some(key) => Some(Self::keyed(key.expose().as_bytes())),
            None => Self::random(),
        };
        hash.ok_or_else(|| {
            let problem = "the system gives no random numbers for the key of endpoint hashes";
            SinkFault::of("hash_key", "", problem, "set hash_key")
        })
    }

    /// `hmac-sha256:` and sixteen hexadecimal digits.
    pub(crate) fn of(&self, endpoint: &str) -> String {
        let tag = hmac::sign(&self.key, endpoint.as_bytes());
        let mut text = String::from("hmac-sha256:");
        for byte in tag.as_ref().iter().take(SHOWN_BYTES) {
            // Writing to a string does not fail.
            let _ = write!(text, "{byte:02x}");
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_given_key_gives_the_standard_hmac_and_another_key_another_hash() {
        // RFC 4231, test case 2.
        let hash = EndpointHash::keyed(b"Jefe").of("what do ya want for nothing?");
        assert_eq!(hash, "hmac-sha256:5bdcc146bf60754e");
        let (one, two) = (EndpointHash::random().unwrap(), EndpointHash::random().unwrap());
        assert_eq!(one.of("http://a/"), one.of("http://a/"));
        assert_ne!(one.of("http://a/"), two.of("http://a/"));
    }
}
