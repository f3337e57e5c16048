//! The provider token: signed once, shared by all calls, and renewed within Apple's limits.

use std::sync::{Mutex, PoisonError};

use crate::push::keys::{Es256, KeyProblem};

/// How long a token is used: Apple refuses tokens older than an hour.
const USED_SECS: u64 = 45 * 60;
/// The minimum time between new tokens: Apple refuses more than one in 20 minutes.
const RENEWED_SECS_MIN: u64 = 20 * 60;

/// Why no token can be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoToken {
    #[error("the provider token could not be signed")]
    Unsigned,
    #[error(
        "APNs calls a provider token expired that is less than 20 minutes old: check the clock of this machine"
    )]
    TooSoon,
}

impl From<KeyProblem> for NoToken {
    fn from(_: KeyProblem) -> Self {
        Self::Unsigned
    }
}

/// Signs provider tokens.
#[derive(Debug)]
pub struct ProviderToken {
    key: Es256,
    key_id: String,
    team_id: String,
    current: Mutex<Option<Signed>>,
}

struct Signed {
    bearer: String,
    at_secs: u64,
}

impl std::fmt::Debug for Signed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("[secret]")
    }
}

impl ProviderToken {
    pub fn new(key: Es256, key_id: String, team_id: String) -> Self {
        Self { key, key_id, team_id, current: Mutex::default() }
    }

    /// The value of `authorization`.
    pub fn bearer(&self, now_secs: u64) -> Result<String, NoToken> {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        match &*current {
            Some(signed) if (signed.at_secs..signed.at_secs + USED_SECS).contains(&now_secs) => {
                Ok(signed.bearer.clone())
            }
            _ => self.sign(&mut current, now_secs),
        }
    }

    /// A new token in place of one that APNs reported expired. If another call has already renewed it, that one.
    pub fn renewed(&self, expired: &str, now_secs: u64) -> Result<String, NoToken> {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        match &*current {
            Some(signed) if signed.bearer != expired => Ok(signed.bearer.clone()),
            Some(signed) if now_secs < signed.at_secs + RENEWED_SECS_MIN => Err(NoToken::TooSoon),
            _ => self.sign(&mut current, now_secs),
        }
    }

    fn sign(&self, current: &mut Option<Signed>, now_secs: u64) -> Result<String, NoToken> {
        let header = serde_json::json!({"alg": "ES256", "kid": self.key_id});
        let claims = serde_json::json!({"iss": self.team_id, "iat": now_secs});
        let bearer = format!("bearer {}", self.key.token(&header, &claims)?);
        *current = Some(Signed { bearer: bearer.clone(), at_secs: now_secs });
        Ok(bearer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token() -> ProviderToken {
        let pair = rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).unwrap();
        ProviderToken::new(Es256::read(&pair.serialize_pem()).unwrap(), "KEY".into(), "TEAM".into())
    }

    #[test]
    fn one_token_serves_everybody_until_it_is_renewed_in_time() {
        let token = token();
        let first = token.bearer(1_000_000).unwrap();
        assert!(first.starts_with("bearer ey"));
        assert_eq!(token.bearer(1_000_000 + USED_SECS - 1).unwrap(), first);
        assert_ne!(token.bearer(1_000_000 + USED_SECS).unwrap(), first);
        const { assert!(USED_SECS > RENEWED_SECS_MIN && USED_SECS < 3600) };
    }

    #[test]
    fn an_expired_token_is_renewed_once_for_all_and_not_more_often_than_apple_allows() {
        let token = token();
        let first = token.bearer(1_000_000).unwrap();
        assert_eq!(token.renewed(&first, 1_000_000 + RENEWED_SECS_MIN - 1), Err(NoToken::TooSoon));
        let second = token.renewed(&first, 1_000_000 + RENEWED_SECS_MIN).unwrap();
        assert_ne!(second, first);
        assert_eq!(token.renewed(&first, 1_000_000 + RENEWED_SECS_MIN).unwrap(), second);
    }
}
