//! A subscription that messages name by an id instead of carrying it.

use std::fmt;

use redrive_core::Time;
use serde_json::{Value, json};

use super::record::EndpointId;

/// What a sink extracts from a subscription to store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Registered {
    pub endpoint: EndpointId,
    /// The public VAPID key that it was made with, if any.
    pub key: Option<String>,
}

/// A stored subscription. Its content is a secret, because it suffices to push.
#[derive(Clone, PartialEq, Eq)]
pub struct Stored {
    pub endpoint: EndpointId,
    pub key: Option<String>,
    pub registered: Time,
    /// The subscription as registered, in the form that a message would carry.
    subscription: String,
}

impl Stored {
    pub fn new(registered: Registered, at: Time, subscription: &Value) -> Self {
        let Registered { endpoint, key } = registered;
        Self { endpoint, key, registered: at, subscription: subscription.to_string() }
    }

    /// The subscription in the form that a message would carry.
    pub fn subscription(&self) -> Value {
        serde_json::from_str(&self.subscription).unwrap_or_default()
    }

    pub(super) fn to_json(&self) -> Value {
        let mut value = json!({
            "endpoint": self.endpoint.digits(), "registered_ms": self.registered.as_millis(),
            "subscription": self.subscription(),
        });
        if let Some(key) = &self.key {
            value["key"] = key.as_str().into();
        }
        value
    }

    pub(super) fn from_json(value: &Value) -> Option<Self> {
        let endpoint = value.get("endpoint").and_then(Value::as_str)?.parse().ok()?;
        let key = value.get("key").and_then(Value::as_str).map(str::to_owned);
        let at = Time::from_millis(value.get("registered_ms").and_then(Value::as_u64)?);
        Some(Self::new(Registered { endpoint, key }, at, value.get("subscription")?))
    }
}

impl fmt::Debug for Stored {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stored").field("endpoint", &self.endpoint).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stored_subscription_reads_back_and_debug_shows_no_secret() {
        let subscription = json!({"endpoint": "https://push.example/secret", "keys": {"auth": "a"}});
        let registered = Registered { endpoint: EndpointId::from_number(7), key: Some("BKey".into()) };
        let stored = Stored::new(registered, Time::from_millis(5), &subscription);
        assert_eq!(Stored::from_json(&stored.to_json()), Some(stored.clone()));
        assert_eq!(stored.subscription(), subscription);
        assert!(!format!("{stored:?}").contains("secret"));
    }
}
