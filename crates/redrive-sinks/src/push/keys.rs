//! Signing keys and the tokens (JWT) made with them: ES256 for VAPID and APNs, RS256 for Google.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64URL;
use base64::engine::general_purpose::{STANDARD, URL_SAFE};
use ring::rand::SystemRandom;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _, RSA_PKCS1_SHA256, RsaKeyPair,
};
use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::PemObject;

/// Why a key file cannot be used. Never shows its content.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyProblem {
    #[error("it is neither a PEM file nor the JSON of a key pair")]
    Form,
    #[error(
        "it is in the older SEC1 form; convert it with `openssl pkcs8 -topk8 -nocrypt -in KEY -out KEY.p8`"
    )]
    Sec1,
    #[error("it is not an unencrypted P-256 private key with its public key")]
    NotP256,
    #[error("it is not an unencrypted RSA private key of 2048 bits or more")]
    NotRsa,
    #[error("signing failed")]
    Signing,
}

/// A P-256 key.
pub struct Es256 {
    pair: EcdsaKeyPair,
}

impl Es256 {
    /// Reads PKCS #8 in PEM, as `openssl genpkey` and Apple write it, or `{"publicKey", "privateKey"}` from
    /// `web-push generate-vapid-keys --json`.
    pub fn read(text: &str) -> Result<Self, KeyProblem> {
        let pair = if text.trim_start().starts_with('{') { from_json(text)? } else { from_pem(text)? };
        Ok(Self { pair })
    }

    /// The public key as an uncompressed point, 65 bytes.
    pub fn public(&self) -> &[u8] {
        self.pair.public_key().as_ref()
    }

    /// A signed token with this header and these claims.
    pub fn token(
        &self,
        header: &serde_json::Value,
        claims: &serde_json::Value,
    ) -> Result<String, KeyProblem> {
        let input = signing_input(header, claims);
        let signature = self.pair.sign(&SystemRandom::new(), input.as_bytes());
        Ok(joined(&input, signature.map_err(|_| KeyProblem::Signing)?.as_ref()))
    }
}

fn from_pem(text: &str) -> Result<EcdsaKeyPair, KeyProblem> {
    let key = PrivateKeyDer::from_pem_slice(text.as_bytes()).map_err(|_| KeyProblem::Form)?;
    let der = match &key {
        PrivateKeyDer::Pkcs8(der) => der.secret_pkcs8_der(),
        PrivateKeyDer::Sec1(_) => return Err(KeyProblem::Sec1),
        _ => return Err(KeyProblem::NotP256),
    };
    EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, der, &SystemRandom::new())
        .map_err(|_| KeyProblem::NotP256)
}

fn from_json(text: &str) -> Result<EcdsaKeyPair, KeyProblem> {
    let pair: serde_json::Value = serde_json::from_str(text).map_err(|_| KeyProblem::Form)?;
    let part = |name: &str| {
        let text = pair.get(name).and_then(serde_json::Value::as_str);
        text.and_then(decode).ok_or(KeyProblem::Form)
    };
    let (private, public) = (part("privateKey")?, part("publicKey")?);
    let algorithm = &ECDSA_P256_SHA256_FIXED_SIGNING;
    EcdsaKeyPair::from_private_key_and_public_key(algorithm, &private, &public, &SystemRandom::new())
        .map_err(|_| KeyProblem::NotP256)
}

/// An RSA key of a service account.
pub struct Rs256 {
    pair: RsaKeyPair,
}

impl Rs256 {
    /// Reads PKCS #8 in PEM.
    pub fn read(text: &str) -> Result<Self, KeyProblem> {
        let key = PrivateKeyDer::from_pem_slice(text.as_bytes()).map_err(|_| KeyProblem::Form)?;
        let PrivateKeyDer::Pkcs8(der) = &key else { return Err(KeyProblem::NotRsa) };
        let pair = RsaKeyPair::from_pkcs8(der.secret_pkcs8_der()).map_err(|_| KeyProblem::NotRsa)?;
        Ok(Self { pair })
    }

    pub fn token(
        &self,
        header: &serde_json::Value,
        claims: &serde_json::Value,
    ) -> Result<String, KeyProblem> {
        let input = signing_input(header, claims);
        let mut signature = vec![0; self.pair.public().modulus_len()];
        let random = SystemRandom::new();
        let signed = self.pair.sign(&RSA_PKCS1_SHA256, &random, input.as_bytes(), &mut signature);
        signed.map_err(|_| KeyProblem::Signing)?;
        Ok(joined(&input, &signature))
    }
}

fn signing_input(header: &serde_json::Value, claims: &serde_json::Value) -> String {
    format!("{}.{}", encode(header.to_string()), encode(claims.to_string()))
}

fn joined(input: &str, signature: &[u8]) -> String {
    format!("{input}.{}", encode(signature))
}

/// Base64 for URLs, without padding.
pub fn encode(bytes: impl AsRef<[u8]>) -> String {
    BASE64URL.encode(bytes)
}

/// Decodes base64 as browsers and libraries write it: either alphabet, with or without padding.
pub fn decode(text: &str) -> Option<Vec<u8>> {
    let text = text.trim();
    let bare = text.trim_end_matches('=');
    let bare = BASE64URL.decode(bare).or_else(|_| STANDARD.decode(text)).or_else(|_| URL_SAFE.decode(text));
    bare.ok().or_else(|| base64::engine::general_purpose::STANDARD_NO_PAD.decode(text).ok())
}

impl fmt::Debug for Es256 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Es256([secret])")
    }
}

impl fmt::Debug for Rs256 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Rs256([secret])")
    }
}

#[cfg(test)]
mod tests {
    use ring::signature::{ECDSA_P256_SHA256_FIXED, UnparsedPublicKey};

    use super::*;

    fn pem() -> String {
        let pair = rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).unwrap();
        pair.serialize_pem()
    }

    #[test]
    fn a_token_is_verified_by_the_public_key() {
        let key = Es256::read(&pem()).unwrap();
        assert_eq!((key.public().len(), key.public()[0]), (65, 4));
        let token = key
            .token(&serde_json::json!({"alg": "ES256"}), &serde_json::json!({"aud": "https://a.example"}))
            .unwrap();
        let (input, signature) = token.rsplit_once('.').unwrap();
        let public = UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, key.public());
        assert!(public.verify(input.as_bytes(), &decode(signature).unwrap()).is_ok());
        let claims = decode(input.split_once('.').unwrap().1).unwrap();
        assert_eq!(claims, br#"{"aud":"https://a.example"}"#);
    }

    #[test]
    fn the_json_of_a_key_pair_is_the_same_key_as_its_pem() {
        // The receiver's keys from RFC 8291, section 5.
        let pair = concat!(
            r#"{"publicKey":"BCVxsr7N_eNgVRqvHtD0zTZsEc6-VV-JvLexhqUzORcxaOzi6-AYWXvTBHm4bjyPjs7Vd8pZGH6SRpkNtoIAiw4","#,
            r#""privateKey":"q1dXpw3UpT5VOmu_cf_v6ih07Aems3njxI-JWgLcM94"}"#
        );
        assert_eq!(Es256::read(pair).unwrap().public()[1..3], [0x25, 0x71]);
    }

    #[test]
    fn what_is_no_usable_key_says_why_and_shows_nothing() {
        let problem = |text: &str| Es256::read(text).unwrap_err();
        assert_eq!(problem("hello"), KeyProblem::Form);
        assert_eq!(problem("{}"), KeyProblem::Form);
        let sec1 = "-----BEGIN EC PRIVATE KEY-----\nMHc=\n-----END EC PRIVATE KEY-----\n";
        assert_eq!(problem(sec1), KeyProblem::Sec1);
        let wrong = "-----BEGIN PRIVATE KEY-----\nMHc=\n-----END PRIVATE KEY-----\n";
        assert_eq!(problem(wrong), KeyProblem::NotP256);
        assert_eq!(Rs256::read(&pem()).unwrap_err(), KeyProblem::NotRsa);
    }

    #[test]
    fn every_usual_form_of_base64_is_read() {
        for text in ["-_8", "-_8=", "+/8=", "+/8"] {
            assert_eq!(decode(text), Some(vec![0xfb, 0xff]), "{text}");
        }
        assert_eq!(decode("a*"), None);
    }
}
