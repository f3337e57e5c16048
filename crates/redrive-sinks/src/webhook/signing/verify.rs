//! Verifies a signed request: used by `redrive webhook verify` and by receivers in Rust.

use std::time::Duration;

use redrive::Time;

use super::key::VerifyingKey;

/// The maximum difference of the timestamp from now, as in the reference libraries.
pub const TOLERANCE: Duration = Duration::from_mins(5);

/// The relevant parts of a request, as received.
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

/// Why a request cannot be trusted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotVerified {
    #[error("webhook-timestamp is not a number of seconds since 1970")]
    Timestamp,
    #[error(
        "webhook-timestamp is {} s in the past, more than the {} s that are accepted; a replayed request looks like this",
        .age.as_secs(), .tolerance.as_secs()
    )]
    TooOld { age: Duration, tolerance: Duration },
    #[error(
        "webhook-timestamp is {} s in the future, more than the {} s that are accepted; one of the clocks is wrong",
        .ahead.as_secs(), .tolerance.as_secs()
    )]
    TooNew { ahead: Duration, tolerance: Duration },
    #[error("there is no {0} signature in webhook-signature, which is what this key verifies")]
    OtherVersion(&'static str),
    #[error("no signature matches: the secret, id, timestamp or body differs")]
    NoMatch,
}

impl Received<'_> {
    /// Checks that one of the signatures was made with this key. With `now` as `None` any timestamp is accepted;
    /// otherwise it may differ by [`TOLERANCE`].
    pub fn verify(&self, key: &VerifyingKey, now: Option<Time>) -> Result<(), NotVerified> {
        self.verify_within(key, now.map(|now| (now, TOLERANCE)))
    }

    /// The same with another tolerance.
    pub fn verify_within(
        &self,
        key: &VerifyingKey,
        now: Option<(Time, Duration)>,
    ) -> Result<(), NotVerified> {
        let seconds: u64 = self.timestamp.parse().map_err(|_| NotVerified::Timestamp)?;
        if let Some((now, tolerance)) = now {
            let signed = Time::from_millis(seconds.saturating_mul(1000));
            let (age, ahead) = (now.since(signed), signed.since(now));
            if age > tolerance {
                return Err(NotVerified::TooOld { age, tolerance });
            }
            if ahead > tolerance {
                return Err(NotVerified::TooNew { ahead, tolerance });
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
        let (age, tolerance) = (Duration::from_secs(301), TOLERANCE);
        assert_eq!(right.verify(&key, Some(later)), Err(NotVerified::TooOld { age, tolerance }));
        assert_eq!(right.verify_within(&key, Some((later, age))), Ok(()));
        assert_eq!(right.verify(&key, None), Ok(()));
        let earlier = Time::from_millis(1_000);
        assert!(matches!(right.verify(&key, Some(earlier)), Err(NotVerified::TooNew { .. })));
        let soon = Received { timestamp: "soon", ..right };
        assert_eq!(soon.verify(&key, None), Err(NotVerified::Timestamp));
        let other = Received { signature: "v1a,AAAA", ..right };
        assert_eq!(other.verify(&key, None), Err(NotVerified::OtherVersion("v1")));
    }
}
