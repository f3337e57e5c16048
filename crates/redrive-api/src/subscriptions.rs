//! The subscriptions of a push pipeline.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::Instant;

/// The state of one endpoint.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Subscription")]
#[serde(default)]
pub struct SubscriptionView {
    /// `hmac-sha256:` and sixteen hexadecimal digits.
    pub endpoint_hash: String,
    /// The stored subscriptions of this endpoint.
    pub ids: Vec<String>,
    #[schemars(extend("enum" = ["active", "flagged", "purged"]))]
    pub state: String,
    #[schemars(extend("enum" = ["gone", "refused", "operator", "damage", null]))]
    pub cause: Option<String>,
    pub reason: Option<String>,
    pub status: Option<u16>,
    /// When it was flagged or purged.
    pub at: Option<Instant>,
    pub actor: Option<String>,
    /// The VAPID key that it was made with.
    pub key: Option<String>,
    pub registered: Option<Instant>,
}

/// A page of subscriptions, with how many there are of each kind. Clients that pass them on unread take
/// `SubscriptionPage<serde_json::Value>`.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Subscriptions", bound = "S: JsonSchema + Default")]
#[serde(default)]
pub struct SubscriptionPage<S = SubscriptionView> {
    #[schemars(extend("enum" = ["off", "verify", "at_once"]))]
    pub purge: String,
    /// An estimate, within about 2 %, without purged ones.
    pub active: u64,
    pub flagged: u64,
    pub purged: u64,
    pub stored: u64,
    /// Why purging is stopped; null if it is not.
    pub stopped: Option<PurgingStopped>,
    pub full: bool,
    pub unwritten: u64,
    /// Purges that `on_purged` has not accepted yet.
    pub unannounced: u64,
    pub unannounced_since: Option<Instant>,
    /// Stored subscriptions whose VAPID key is not configured.
    pub without_key: u64,
    /// Damaged lines of subscriptions.log.
    pub damaged: u64,
    pub subscriptions: Vec<S>,
    /// The cursor of the next page.
    pub next: Option<String>,
}

/// Why the guard stopped purging.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct PurgingStopped {
    pub at: Instant,
    pub purged: u64,
    pub active: u64,
    pub percent: f64,
}

/// Stored subscriptions by the VAPID key that they were made with.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct SubscriptionKeys {
    pub keys: Vec<SubscriptionKey>,
}

/// The number of stored subscriptions made with a key.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct SubscriptionKey {
    pub key: Option<String>,
    pub subscriptions: u64,
    /// Whether the sink has this key.
    #[schemars(with = "bool")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub configured: Option<bool>,
}

/// A subscription to store.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NewSubscription {
    /// For example user-5512/phone.
    #[schemars(length(max = 200))]
    pub id: String,
    /// The subscription as returned by the browser, with `vapid_key` if it was made with an earlier one; {"token": …}
    /// for APNs and FCM.
    #[schemars(with = "Map<String, Value>")]
    pub subscription: Value,
}

/// An endpoint, and the reason for the change.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NamedSubscription {
    /// An endpoint hash, or the id of a stored subscription.
    pub id: String,
    /// Required for flagging and purging.
    #[schemars(length(max = 120))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// A stored subscription that was removed.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct RemovedSubscription {
    /// Its id.
    pub removed: String,
}

/// A flag or purge to undo, or all purges since a time.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct UndoSubscription {
    /// An endpoint hash, or the id of a stored subscription.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// All purges since then: a time, or a span such as 1h.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<String>,
}

/// The number of flags and purges that were undone.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct UndoneSubscriptions {
    pub undone: u64,
}

/// Whether endpoints are purged.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Purging {
    pub purging: bool,
}
