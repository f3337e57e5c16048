//! Checks a signed request by hand: what `redrive webhook verify` and a receiver in Rust use.

use std::time::Duration;

use redrive::Time;

use super::key::VerifyingKey;

/// How far the timestamp may lie from now, as in the reference libraries.
pub const TOLERANCE: Duration = Duration::from_mins(5);

/// The parts of a request that matter, as they were received.
#[derive(Clone, Copy, Debug)]
pub struct Received<'a> {
    /// `webhook-id`
    pub id: &'a str,
    /// `webhook-timestamp`
    pub timestamp: &'a str,
    /// `webhook-signature`
    pub signature: &'a str,
    pub body: &'a [u8],
}

/// Why a request is not to be trusted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotVerified {
    #[error("webhook-timestamp is not a number of seconds since 1970")]
    Timestamp,
    #[error("webhook-timestamp is {} s in the past; a replayed request looks like this", .0.as_secs())]
    TooOld(Duration),
    #[error("webhook-timestamp is {} s in the future; one of the clocks is wrong", .0.as_secs())]
    TooNew(Duration),
    #[error("there is no {0} signature in webhook-signature, which is what this key verifies")]
    OtherVersion(&'static str),
    #[error("no signature matches: the secret, the id, the timestamp or a byte of the body is another")]
    NoMatch,
}

impl Received<'_> {
    /// Whether one of the signatures is this key's. `now` is `None` to accept any timestamp.
    pub fn verify(&self, key: &VerifyingKey, now: Option<Time>) -> Result<(), NotVerified> {
        let seconds: u64 = self.timestamp.parse().map_err(|_| NotVerified::Timestamp)?;
        if let Some(now) = now {
            let signed = Time::from_millis(seconds.saturating_mul(1000));
            if now.since(signed) > TOLERANCE {
                return Err(NotVerified::TooOld(now.since(signed)));
            }
            if signed.since(now) > TOLERANCE {
                return Err(NotVerified::TooNew(signed.since(now)));
            }
        }
        let mut content = format!("{}.{}.", self.id, self.timestamp).into_bytes();
        content.extend_from_slice(self.body);
        let mut signatures = self.signature.split_ascii_whitespace();
        if signatures.any(|signature| key.verifies(signature, &content)) {
            return Ok(());
        }
        let own = format!("{},", key.version());
        let has_version = self.signature.split_ascii_whitespace().any(|one| one.starts_with(&own));
        Err(if has_version { NotVerified::NoMatch } else { NotVerified::OtherVersion(key.version()) })
    }
}

#[cfg(test)]
mod tests {
    use super::super::key::SigningKey;
    use super::*;

    const SECRET: &str = "whsec_b25lb25lb25lb25lb25lb25lb25lb25l";

    #[test]
    fn what_was_signed_is_verified_and_every_change_is_noticed() {
        let key = VerifyingKey::parse(SECRET).unwrap();
        let signature = SigningKey::parse(SECRET).unwrap().sign(b"a.1000.{}");
        let right = Received { id: "a", timestamp: "1000", signature: &signature, body: b"{}" };
        let now = Time::from_millis(1_000_000);
        assert_eq!(right.verify(&key, Some(now)), Ok(()));
        assert_eq!(Received { body: b"{ }", ..right }.verify(&key, Some(now)), Err(NotVerified::NoMatch));
        assert_eq!(Received { id: "b", ..right }.verify(&key, None), Err(NotVerified::NoMatch));
        let later = Time::from_millis(1_301_000);
        assert_eq!(right.verify(&key, Some(later)), Err(NotVerified::TooOld(Duration::from_secs(301))));
        assert_eq!(right.verify(&key, None), Ok(()));
        let earlier = Time::from_millis(1_000);
        assert!(matches!(right.verify(&key, Some(earlier)), Err(NotVerified::TooNew(_))));
        let soon = Received { timestamp: "soon", ..right };
        assert_eq!(soon.verify(&key, None), Err(NotVerified::Timestamp));
        let other = Received { signature: "v1a,AAAA", ..right };
        assert_eq!(other.verify(&key, None), Err(NotVerified::OtherVersion("v1")));
    }
}
