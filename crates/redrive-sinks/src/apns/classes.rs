//! The class table of APNs answers.

use redrive_core::Class;
use serde_json::Value;

use crate::push::{Rows, Verdict};

pub const ROWS: Rows = Rows {
    reasons: &[
        ("BadDeviceToken", Verdict::Flagged),
        ("DeviceTokenNotForTopic", Verdict::Flagged),
        ("ExpiredToken", Verdict::GONE),
        ("Unregistered", Verdict::GONE),
        ("ExpiredProviderToken", Verdict::Renew),
        ("InvalidProviderToken", Verdict::CREDENTIAL),
        ("MissingProviderToken", Verdict::CREDENTIAL),
        ("BadEnvironmentKeyIdInToken", Verdict::CREDENTIAL),
        ("BadCertificate*", Verdict::CREDENTIAL),
        ("TooManyProviderTokenUpdates", Verdict::CREDENTIAL),
        ("TooManyRequests", Verdict::LIMITED),
        ("IdleTimeout", Verdict::RECONNECT),
        ("UnrelatedKeyIdInToken", Verdict::RECONNECT),
        ("Forbidden", Verdict::PERMANENT),
        ("BadPath", Verdict::PERMANENT),
        ("MethodNotAllowed", Verdict::PERMANENT),
        ("PayloadTooLarge", Verdict::PERMANENT),
        ("PayloadEmpty", Verdict::PERMANENT),
        ("BadCollapseId", Verdict::PERMANENT),
        ("BadExpirationDate", Verdict::PERMANENT),
        ("BadMessageId", Verdict::PERMANENT),
        ("BadPriority", Verdict::PERMANENT),
        ("BadTopic", Verdict::PERMANENT),
        ("DuplicateHeaders", Verdict::PERMANENT),
        ("InvalidPushType", Verdict::PERMANENT),
        ("MissingDeviceToken", Verdict::PERMANENT),
        ("MissingTopic", Verdict::PERMANENT),
        ("TopicDisallowed", Verdict::PERMANENT),
        ("InternalServerError", Verdict::TRANSIENT),
        ("ServiceUnavailable", Verdict::TRANSIENT),
        ("Shutdown", Verdict::TRANSIENT),
    ],
    statuses: &[(410, Verdict::GONE), (429, Verdict::LIMITED)],
    otherwise: Verdict::PERMANENT,
    tls: Class::Transient,
};

/// The content of an answer's body: the reason, and for a token that is gone, since when.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Explained {
    pub reason: String,
    pub gone_since_ms: Option<u64>,
}

const REASON_BYTES_MAX: usize = 64;

impl Explained {
    pub fn read(body: &[u8]) -> Self {
        let Ok(Value::Object(said)) = serde_json::from_slice(body) else { return Self::default() };
        // Reasons are single words; anything else is not shown.
        let is_word =
            |text: &&str| text.len() <= REASON_BYTES_MAX && text.bytes().all(|b| b.is_ascii_alphanumeric());
        Self {
            reason: said.get("reason").and_then(Value::as_str).filter(is_word).unwrap_or_default().to_owned(),
            gone_since_ms: said.get("timestamp").and_then(Value::as_u64),
        }
    }
}

/// If a token was registered again after APNs saw it gone, the message is dead but the token stays.
pub fn gone_unless_registered_since(
    verdict: Verdict,
    explained: &Explained,
    registered_ms: Option<u64>,
) -> Verdict {
    match (verdict, explained.gone_since_ms, registered_ms) {
        (Verdict::GONE, Some(gone), Some(registered)) if gone <= registered => Verdict::PERMANENT,
        _ => verdict,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_one_word_and_anything_else_is_not_repeated() {
        let read = |body: &str| Explained::read(body.as_bytes());
        let gone = read(r#"{"reason":"Unregistered","timestamp":1700000000000}"#);
        assert_eq!((gone.reason.as_str(), gone.gone_since_ms), ("Unregistered", Some(1_700_000_000_000)));
        for body in ["", "nonsense", "[]", r#"{"reason":7}"#, r#"{"reason":"a b https://x.example/t"}"#] {
            assert_eq!(read(body), Explained::default(), "{body}");
        }
    }

    #[test]
    fn a_token_that_was_registered_since_is_not_gone() {
        let explained = Explained { reason: "Unregistered".into(), gone_since_ms: Some(1000) };
        let verdict = |registered| gone_unless_registered_since(Verdict::GONE, &explained, registered);
        assert_eq!(verdict(None), Verdict::GONE);
        assert_eq!(verdict(Some(999)), Verdict::GONE);
        assert_eq!(verdict(Some(1000)), Verdict::PERMANENT);
        assert_eq!(verdict(Some(2000)), Verdict::PERMANENT);
    }
}
