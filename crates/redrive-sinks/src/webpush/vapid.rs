//! Our identification, signed for each push service (RFC 8292).

use std::collections::HashMap;
use std::fmt;
use std::sync::{Mutex, PoisonError};

use hyper::Uri;

use crate::push::keys::{Es256, KeyProblem, encode};

/// How long a token is valid. The RFC allows 24 hours; half of that leaves room for clock differences.
const VALID_SECS: u64 = 12 * 3600;
/// How long a token is used before a new one is signed.
const USED_SECS: u64 = 6 * 3600;
/// The maximum number of push services with cached tokens. Only a handful exist; tokens for others are signed each
/// time.
const CACHED_MAX: usize = 256;

/// One application server key.
pub struct Vapid {
    key: Es256,
    /// The public key in base64url, as given to browsers in `applicationServerKey`.
    public: String,
    subject: String,
    cached: Mutex<HashMap<String, Cached>>,
}

struct Cached {
    authorization: String,
    signed_secs: u64,
}

impl Vapid {
    pub fn new(key: Es256, subject: String) -> Self {
        let public = encode(key.public());
        Self { key, public, subject, cached: Mutex::default() }
    }

    pub fn public(&self) -> &str {
        &self.public
    }

    /// The value of `Authorization` for the push service of this endpoint.
    pub fn authorization(&self, endpoint: &Uri, now_secs: u64) -> Result<String, KeyProblem> {
        let audience = audience(endpoint);
        let mut cached = self.cached.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = cached.get(&audience)
            && (found.signed_secs..found.signed_secs + USED_SECS).contains(&now_secs)
        {
            return Ok(found.authorization.clone());
        }
        let header = serde_json::json!({"typ": "JWT", "alg": "ES256"});
        let claims = serde_json::json!({"aud": audience, "exp": now_secs + VALID_SECS, "sub": self.subject});
        let token = self.key.token(&header, &claims)?;
        let authorization = format!("vapid t={token}, k={}", self.public);
        if cached.len() < CACHED_MAX || cached.contains_key(&audience) {
            let kept = Cached { authorization: authorization.clone(), signed_secs: now_secs };
            cached.insert(audience, kept);
        }
        Ok(authorization)
    }

    /// Drops the token of a push service that refused it, so that the next attempt uses a new one.
    pub fn forget(&self, endpoint: &Uri) {
        self.cached.lock().unwrap_or_else(PoisonError::into_inner).remove(&audience(endpoint));
    }
}

/// The origin, with the port unless it is the scheme's default.
fn audience(endpoint: &Uri) -> String {
    let scheme = endpoint.scheme_str().unwrap_or("https");
    let host = endpoint.host().unwrap_or_default().to_ascii_lowercase();
    let own = if scheme == "http" { 80 } else { 443 };
    match endpoint.port_u16().filter(|port| *port != own) {
        Some(port) => format!("{scheme}://{host}:{port}"),
        None => format!("{scheme}://{host}"),
    }
}

impl fmt::Debug for Vapid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Vapid([secret])")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::push::keys::decode;

    fn vapid() -> Vapid {
        let pair = rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).unwrap();
        Vapid::new(Es256::read(&pair.serialize_pem()).unwrap(), "mailto:ops@example.com".into())
    }

    fn claims(authorization: &str) -> serde_json::Value {
        let token = authorization.strip_prefix("vapid t=").unwrap().split(',').next().unwrap();
        serde_json::from_slice(&decode(token.split('.').nth(1).unwrap()).unwrap()).unwrap()
    }

    #[test]
    fn the_audience_is_the_origin_with_its_port() {
        let audience = |uri: &'static str| audience(&Uri::from_static(uri));
        assert_eq!(audience("https://Push.example/wp/abc"), "https://push.example");
        assert_eq!(audience("https://push.example:443/wp"), "https://push.example");
        assert_eq!(audience("https://push.example:8443/wp"), "https://push.example:8443");
        assert_eq!(audience("http://[::1]:8080/x"), "http://[::1]:8080");
    }

    #[test]
    fn a_token_is_reused_and_renewed_before_it_ends() {
        let (vapid, at) = (vapid(), Uri::from_static("https://push.example/a"));
        let first = vapid.authorization(&at, 1_000_000).unwrap();
        assert!(first.ends_with(&format!(", k={}", vapid.public())));
        assert_eq!(claims(&first)["exp"], 1_000_000 + VALID_SECS);
        assert_eq!(claims(&first)["sub"], "mailto:ops@example.com");
        const { assert!(VALID_SECS <= 24 * 3600 && USED_SECS < VALID_SECS) };
        let other = Uri::from_static("https://push.example/b");
        assert_eq!(vapid.authorization(&other, 1_000_000 + USED_SECS - 1).unwrap(), first);
        let renewed = vapid.authorization(&at, 1_000_000 + USED_SECS).unwrap();
        assert_eq!(claims(&renewed)["exp"], 1_000_000 + USED_SECS + VALID_SECS);
        // After the clock was set back, a cached token that expires too late must not be used.
        let back = vapid.authorization(&at, 900_000).unwrap();
        assert_eq!(claims(&back)["exp"], 900_000 + VALID_SECS);
    }

    #[test]
    fn a_refused_token_is_not_sent_again_and_strangers_do_not_fill_the_memory() {
        let (vapid, at) = (vapid(), Uri::from_static("https://push.example/a"));
        let first = vapid.authorization(&at, 1_000_000).unwrap();
        vapid.forget(&at);
        assert_ne!(vapid.authorization(&at, 1_000_001).unwrap(), first);
        for port in 1..1000 {
            let at: Uri = format!("https://push.example:{port}/").parse().unwrap();
            vapid.authorization(&at, 1_000_000).unwrap();
        }
        assert_eq!(vapid.cached.lock().unwrap().len(), CACHED_MAX);
    }
}
