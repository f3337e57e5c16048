//! One secret of Standard Webhooks: `whsec_` signs by HMAC (`v1`), `whsk_` by ed25519 (`v1a`), `whpk_` only verifies.

use std::fmt;
use std::sync::Arc;

use base64::Engine as _;
use base64::alphabet;
use base64::engine::general_purpose::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use ring::hmac;
use ring::signature::{ED25519, Ed25519KeyPair, KeyPair as _, UnparsedPublicKey};

/// The length of a symmetric secret that the specification allows, in bytes.
const HMAC_BYTES: std::ops::RangeInclusive<usize> = 24..=64;
const SEED_BYTES: usize = 32;

/// With or without padding, like the reference libraries.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// A signing key. Never printed.
#[derive(Clone)]
pub enum SigningKey {
    /// `v1`: HMAC-SHA256.
    Symmetric(hmac::Key),
    /// `v1a`: ed25519.
    Asymmetric(Arc<Ed25519KeyPair>),
}

/// A verifying key: the same secret, or the public half of an ed25519 key.
#[derive(Clone)]
pub enum VerifyingKey {
    Symmetric(hmac::Key),
    /// The 32 bytes of `whpk_`.
    Asymmetric(Vec<u8>),
}

/// Why a text is not a key. Never repeats the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyFault {
    #[error("it begins with neither whsec_ nor whsk_")]
    Prefix,
    #[error("what follows the prefix is not base64")]
    NotBase64,
    #[error("a whsec_ secret has 24 to 64 bytes, and this one has {0}")]
    HmacLength(usize),
    #[error("a whsk_ key has 32 bytes, or 64 with its public half, and this one has {0}")]
    PrivateLength(usize),
    #[error("the public half of the whsk_ key does not belong to its private half")]
    Mismatch,
    #[error("a whpk_ key has 32 bytes, and this one has {0}")]
    PublicLength(usize),
    #[error("a whpk_ key verifies and cannot sign; its private half begins with whsk_")]
    Public,
}

impl SigningKey {
    pub fn parse(text: &str) -> Result<Self, KeyFault> {
        if let Some(secret) = text.strip_prefix("whsec_") {
            return symmetric(secret).map(Self::Symmetric);
        }
        if let Some(private) = text.strip_prefix("whsk_") {
            return pair(private).map(|pair| Self::Asymmetric(Arc::new(pair)));
        }
        Err(if text.starts_with("whpk_") { KeyFault::Public } else { KeyFault::Prefix })
    }

    /// Signs the content: `v1,…` or `v1a,…`.
    pub fn sign(&self, content: &[u8]) -> String {
        match self {
            Self::Symmetric(key) => format!("v1,{}", STANDARD.encode(hmac::sign(key, content))),
            Self::Asymmetric(pair) => format!("v1a,{}", STANDARD.encode(pair.sign(content))),
        }
    }

    /// The key that receivers need to verify signatures, unless it is the secret itself: `whpk_…`.
    pub fn public(&self) -> Option<String> {
        match self {
            Self::Symmetric(_) => None,
            Self::Asymmetric(pair) => Some(format!("whpk_{}", STANDARD.encode(pair.public_key()))),
        }
    }
}

impl VerifyingKey {
    pub fn parse(text: &str) -> Result<Self, KeyFault> {
        let Some(public) = text.strip_prefix("whpk_") else {
            return Ok(match SigningKey::parse(text)? {
                SigningKey::Symmetric(key) => Self::Symmetric(key),
                SigningKey::Asymmetric(pair) => Self::Asymmetric(pair.public_key().as_ref().to_vec()),
            });
        };
        let bytes = BASE64.decode(public).map_err(|_| KeyFault::NotBase64)?;
        match bytes.len() {
            SEED_BYTES => Ok(Self::Asymmetric(bytes)),
            other => Err(KeyFault::PublicLength(other)),
        }
    }

    /// The version of signatures it verifies.
    pub fn version(&self) -> &'static str {
        match self {
            Self::Symmetric(_) => "v1",
            Self::Asymmetric(_) => "v1a",
        }
    }

    /// Whether a signature of a `webhook-signature` header was made with this key over the content.
    pub fn verifies(&self, signature: &str, content: &[u8]) -> bool {
        let Some((version, encoded)) = signature.split_once(',') else { return false };
        let Ok(bytes) = BASE64.decode(encoded) else { return false };
        version == self.version()
            && match self {
                Self::Symmetric(key) => hmac::verify(key, content, &bytes).is_ok(),
                Self::Asymmetric(public) => {
                    UnparsedPublicKey::new(&ED25519, public).verify(content, &bytes).is_ok()
                }
            }
    }
}

fn symmetric(secret: &str) -> Result<hmac::Key, KeyFault> {
    let bytes = BASE64.decode(secret).map_err(|_| KeyFault::NotBase64)?;
    if !HMAC_BYTES.contains(&bytes.len()) {
        return Err(KeyFault::HmacLength(bytes.len()));
    }
    Ok(hmac::Key::new(hmac::HMAC_SHA256, &bytes))
}

fn pair(private: &str) -> Result<Ed25519KeyPair, KeyFault> {
    let bytes = BASE64.decode(private).map_err(|_| KeyFault::NotBase64)?;
    let (seed, public) = match bytes.len() {
        SEED_BYTES => (&bytes[..], None),
        64 => (&bytes[..SEED_BYTES], Some(&bytes[SEED_BYTES..])),
        other => return Err(KeyFault::PrivateLength(other)),
    };
    let pair = Ed25519KeyPair::from_seed_unchecked(seed).map_err(|_| KeyFault::PrivateLength(bytes.len()))?;
    match public {
        Some(public) if pair.public_key().as_ref() != public => Err(KeyFault::Mismatch),
        _ => Ok(pair),
    }
}

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Symmetric(_) => "[whsec]",
            Self::Asymmetric(_) => "[whsk]",
        })
    }
}

impl fmt::Debug for VerifyingKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.version())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// From the tests of the reference libraries.
    const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

    #[test]
    fn signs_as_the_reference_libraries_do() {
        let key = SigningKey::parse(SECRET).unwrap();
        let content = b"msg_p5jXN8AQM9LWM0D4loKWxJek.1614265330.{\"test\": 2432232314}";
        assert_eq!(key.sign(content), "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
        assert!(VerifyingKey::parse(SECRET).unwrap().verifies(&key.sign(content), content));
    }

    #[test]
    fn an_asymmetric_key_is_verified_by_its_public_half() {
        let private = format!("whsk_{}", STANDARD.encode([7; 32]));
        let key = SigningKey::parse(&private).unwrap();
        let public = VerifyingKey::parse(&key.public().unwrap()).unwrap();
        let signature = key.sign(b"content");
        assert!(signature.starts_with("v1a,"));
        assert!(public.verifies(&signature, b"content"));
        assert!(!public.verifies(&signature, b"other"));
        assert!(!public.verifies(&signature.replace("v1a", "v1"), b"content"));
        // In libsodium's format: the private half followed by the public one.
        let SigningKey::Asymmetric(pair) = &key else { panic!("asymmetric") };
        let whole = [&[7; 32][..], pair.public_key().as_ref()].concat();
        assert_eq!(
            SigningKey::parse(&format!("whsk_{}", STANDARD.encode(&whole))).unwrap().public(),
            key.public()
        );
        let wrong = format!("whsk_{}", STANDARD.encode([7; 64]));
        assert_eq!(SigningKey::parse(&wrong).unwrap_err(), KeyFault::Mismatch);
    }

    #[test]
    fn what_is_no_key_is_refused_with_a_reason_and_never_repeated() {
        let short = format!("whsec_{}", STANDARD.encode([1; 23]));
        let long = format!("whsec_{}", STANDARD.encode([1; 65]));
        for (text, fault) in [
            ("hunter2", KeyFault::Prefix),
            ("whsec_!!!", KeyFault::NotBase64),
            (&short, KeyFault::HmacLength(23)),
            (&long, KeyFault::HmacLength(65)),
            ("whsk_AAAA", KeyFault::PrivateLength(3)),
            ("whpk_AAAA", KeyFault::Public),
        ] {
            assert_eq!(SigningKey::parse(text).unwrap_err(), fault);
        }
        let unpadded = format!("whsec_{}", STANDARD.encode([1; 25]).trim_end_matches('='));
        assert!(SigningKey::parse(&unpadded).is_ok());
        assert!(!format!("{:?}", SigningKey::parse(SECRET)).contains("MfKQ"));
    }
}
