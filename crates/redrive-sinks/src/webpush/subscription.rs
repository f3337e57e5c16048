//! A subscription from a browser: an address at a push service and two keys.

use hyper::Uri;
use serde_json::Value;

use super::encrypt::Receiver;
use crate::push::json::{UnknownMember, no_near_miss};
use crate::push::keys::decode;
use crate::webhook::endpoint::{self, EndpointFault};

/// A fault in a subscription. Shows nothing of its content.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SubscriptionFault {
    #[error("the message carries no subscription")]
    Missing,
    #[error("there is no stored subscription of the id that the message names")]
    Unknown,
    #[error("the subscription is not a JSON object")]
    NotObject,
    #[error("the subscription has no `{0}`")]
    Lacks(&'static str),
    #[error(transparent)]
    Endpoint(#[from] EndpointFault),
    #[error("the subscription's endpoint is not https")]
    NotHttps,
    #[error("the subscription's p256dh is not 65 bytes in base64")]
    PublicKey,
    #[error("the subscription's auth is not 16 bytes in base64")]
    Auth,
    #[error(transparent)]
    Member(#[from] UnknownMember),
}

/// The members that a browser provides, and the key that the subscription was made with.
const MEMBERS: &[&str] = &["endpoint", "expirationTime", "keys", "vapid_key"];
const KEYS: &[&str] = &["p256dh", "auth"];

/// The destination of a push, and the keys to encrypt it for.
#[derive(Clone, PartialEq, Eq)]
pub struct Subscription {
    pub endpoint: Uri,
    public: Vec<u8>,
    auth: Vec<u8>,
}

impl Subscription {
    /// Reads `{"endpoint", "keys": {"p256dh", "auth"}}`. Plain http is for tests with a local server.
    pub fn of(value: &Value, allow_http: bool) -> Result<Self, SubscriptionFault> {
        let object = value.as_object().ok_or(SubscriptionFault::NotObject)?;
        no_near_miss(value, MEMBERS, "")?;
        object.get("keys").map_or(Ok(()), |keys| no_near_miss(keys, KEYS, "keys."))?;
        let text = |value: Option<&Value>, name| {
            let text = value.and_then(Value::as_str).map(str::to_owned);
            text.ok_or(SubscriptionFault::Lacks(name))
        };
        let endpoint = endpoint::judge(&text(object.get("endpoint"), "endpoint")?)?;
        if endpoint.scheme_str() != Some("https") && !allow_http {
            return Err(SubscriptionFault::NotHttps);
        }
        let keys = object.get("keys");
        let key = |name: &'static str, shown| text(keys.and_then(|keys| keys.get(name)), shown);
        let public = decode(&key("p256dh", "keys.p256dh")?);
        let public = public.filter(|key| key.len() == 65 && key[0] == 4);
        let auth = decode(&key("auth", "keys.auth")?).filter(|auth| auth.len() == 16);
        Ok(Self {
            endpoint,
            public: public.ok_or(SubscriptionFault::PublicKey)?,
            auth: auth.ok_or(SubscriptionFault::Auth)?,
        })
    }

    pub fn receiver(&self) -> Receiver<'_> {
        Receiver { public: &self.public, auth: &self.auth }
    }
}

impl std::fmt::Debug for Subscription {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Subscription(…)")
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const P256DH: &str =
        "BCVxsr7N_eNgVRqvHtD0zTZsEc6-VV-JvLexhqUzORcxaOzi6-AYWXvTBHm4bjyPjs7Vd8pZGH6SRpkNtoIAiw4";

    #[test]
    fn a_subscription_is_read_as_the_browser_gives_it() {
        let value = json!({
            "endpoint": "https://push.example/abc", "expirationTime": null,
            "keys": {"p256dh": P256DH, "auth": "BTBZMqHH6r4Tts7J_aSIgg=="}
        });
        let subscription = Subscription::of(&value, false).unwrap();
        assert_eq!(subscription.endpoint.host(), Some("push.example"));
        assert_eq!(subscription.receiver().auth.len(), 16);
        assert_eq!(format!("{subscription:?}"), "Subscription(…)");
    }

    #[test]
    fn what_is_wrong_is_named_without_showing_it() {
        let keys = json!({"p256dh": P256DH, "auth": "BTBZMqHH6r4Tts7J_aSIgg"});
        let fault = |value: Value| Subscription::of(&value, false).unwrap_err();
        assert_eq!(fault(json!("user-1")), SubscriptionFault::NotObject);
        assert_eq!(fault(json!({"keys": keys})), SubscriptionFault::Lacks("endpoint"));
        let http = json!({"endpoint": "http://push.example/a", "keys": keys});
        assert_eq!(fault(http), SubscriptionFault::NotHttps);
        let at = "https://push.example/a";
        assert_eq!(fault(json!({"endpoint": at})), SubscriptionFault::Lacks("keys.p256dh"));
        let short = json!({"endpoint": at, "keys": {"p256dh": "AAAA", "auth": "BTBZMqHH6r4Tts7J_aSIgg"}});
        assert_eq!(fault(short), SubscriptionFault::PublicKey);
        let short = json!({"endpoint": at, "keys": {"p256dh": P256DH, "auth": "AAAA"}});
        assert_eq!(fault(short), SubscriptionFault::Auth);
    }

    /// Once, `vapidKey` was ignored, and the push was signed with another key.
    #[test]
    fn a_member_that_is_nearly_one_is_refused_with_the_one_that_is_meant() {
        let keys = json!({"p256dh": P256DH, "auth": "BTBZMqHH6r4Tts7J_aSIgg"});
        let at = "https://push.example/a";
        for (value, meant) in [
            (json!({"endpoint": at, "keys": keys, "vapidKey": "B"}), "vapid_key"),
            (json!({"endpoint": at, "keys": keys, "vapid-key": "B"}), "vapid_key"),
            (json!({"endpoint": at, "key": keys}), "keys"),
            (json!({"endpoint": at, "keys": keys, "expirationtime": 7}), "expirationTime"),
            (json!({"endpoint": at, "keys": {"p256DH": P256DH, "auth": "x"}}), "keys.p256dh"),
            (json!({"endpoint": at, "keys": {"p256dh": P256DH, "auth": "x", "aut": "x"}}), "keys.auth"),
        ] {
            let said = Subscription::of(&value, false).unwrap_err().to_string();
            assert!(said.contains(&format!("did you mean `{meant}`?")), "{value}: {said}");
        }
        let more = json!({"endpoint": at, "keys": keys, "options": {"userVisibleOnly": true}, "user": 7});
        assert!(Subscription::of(&more, false).is_ok(), "what browsers and owners add is no mistake");
    }
}
