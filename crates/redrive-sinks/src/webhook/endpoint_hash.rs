//! Endpoints as logs, `status` and limits know them: by the first eight bytes of a keyed hash.

use hyper::Uri;
use redrive::Endpoint;
use ring::hmac;
use ring::rand::SystemRandom;

use crate::fault::SinkFault;
use crate::secret::Secret;

/// Computes keyed hashes: the same endpoint has the same hash, which cannot be brute-forced without the key.
pub(crate) struct EndpointHash {
    key: hmac::Key,
}

impl EndpointHash {
    /// With a given key, so that the hashes of several processes can be compared.
    pub(crate) fn keyed(key: &[u8]) -> Self {
        Self { key: hmac::Key::new(hmac::HMAC_SHA256, key) }
    }

    /// With a random key for this process. `None` if the system provides no random numbers.
    pub(crate) fn random() -> Option<Self> {
        hmac::Key::generate(hmac::HMAC_SHA256, &SystemRandom::new()).map(|key| Self { key }).ok()
    }

    /// With the key from a setting, else a random one.
    pub(crate) fn of_key(key: Option<&Secret>) -> Result<Self, SinkFault> {
        check_hash_key(key)?;
        let hash = match key {
            Some(key) => Some(Self::keyed(key.expose().as_bytes())),
            None => Self::random(),
        };
        hash.ok_or_else(|| {
            let problem = "the system gives no random numbers for the key of endpoint hashes";
            SinkFault::of("hash_key", "", problem, "set hash_key")
        })
    }

    /// `hmac-sha256:` and the sixteen hexadecimal digits of [`Self::number`].
    pub(crate) fn of(&self, endpoint: &str) -> String {
        format!("hmac-sha256:{:016x}", self.number(endpoint))
    }

    /// The first eight bytes of the hash.
    pub(crate) fn number(&self, endpoint: impl AsRef<[u8]>) -> u64 {
        let tag = hmac::sign(&self.key, endpoint.as_ref());
        tag.as_ref().iter().take(8).fold(0, |number, byte| number << 8 | u64::from(*byte))
    }

    /// The numbers of an endpoint, for the limits of a sink.
    pub(crate) fn endpoint(&self, endpoint: &Uri) -> Endpoint {
        Endpoint { origin: self.origin(endpoint), endpoint: self.number(endpoint.to_string()) }
    }

    pub(crate) fn origin(&self, endpoint: &Uri) -> u64 {
        let scheme = endpoint.scheme_str().unwrap_or_default();
        // Without a path, so that it never equals the number of an endpoint.
        self.number(format!("{scheme}://{}", endpoint.authority().map_or("", |authority| authority.as_str())))
    }

    /// Identifies the key.
    pub(crate) fn numbering(&self) -> u64 {
        self.number("")
    }
}

/// With a shorter key the hashes could be brute-forced.
const KEY_BYTES_MIN: usize = 16;

/// Checks that a key is long enough to hide what it hashes.
pub fn check_hash_key(key: Option<&Secret>) -> Result<(), SinkFault> {
    let Some(bytes) = key.map(|key| key.expose().len()).filter(|bytes| *bytes < KEY_BYTES_MIN) else {
        return Ok(());
    };
    let problem =
        format!("the key of endpoint hashes has {bytes} bytes; at least {KEY_BYTES_MIN} are needed");
    let fix = "a file made by `openssl rand -hex 32 > hash.key`";
    Err(SinkFault::of("hash_key_file", "", problem, fix))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_that_could_be_guessed_is_refused() {
        let key = |text: &str| EndpointHash::of_key(Some(&Secret::from(text)));
        assert!(key("0123456789abcdef").is_ok());
        let fault = key("abc").err().unwrap();
        assert!(fault.problem.contains("has 3 bytes; at least 16"), "{}", fault.problem);
    }

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
