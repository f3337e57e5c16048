//! Messages: accepted, listed, shown by id, and their failed attempts.

use std::borrow::Cow;
use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Instant;

/// Bytes: as text if they are UTF-8, otherwise as base64.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Payload {
    Utf8(String),
    Base64(#[schemars(extend("contentEncoding" = "base64"))] String),
}

/// The accepted messages: one, or many that were sent as lines.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum Accepted {
    One(AcceptedMessage),
    Many(AcceptedMessages),
}

/// A message that was accepted.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct AcceptedMessage {
    pub id: String,
    /// Its state now.
    pub state: Cow<'static, str>,
    /// Whether it had been accepted before.
    pub duplicate: bool,
    /// Present, and false, if a restart would lose it: with the memory engine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub durable: Option<bool>,
}

/// Many messages that were accepted at once.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct AcceptedMessages {
    /// How many were new.
    pub accepted: u64,
    /// How many had been accepted before.
    pub duplicates: u64,
    /// The ids in the order of the lines, with `ids=true`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ids: Option<Vec<String>>,
    /// Present, and false, if a restart would lose them: with the memory engine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub durable: Option<bool>,
}

/// A failed attempt.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Attempt")]
#[serde(default)]
pub struct AttemptView {
    pub attempt: u32,
    pub at: Instant,
    pub took_ms: u32,
    pub class: String,
    /// How it failed.
    #[schemars(extend("enum" = ["status", "timeout", "refused", "dns", "tls", "proxy", "reset", "other"]))]
    pub kind: String,
    /// The HTTP status of the answer, if there was one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// The receiver's own code for the failure, such as `BadDeviceToken`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    pub error: String,
    /// The decision that followed; only in the history of a message.
    #[schemars(extend("enum" = ["retry_at", "dead_letter"]))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decision: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delay_ms: Option<u64>,
    /// Whether it used up one of the attempts.
    pub counted: bool,
    /// Whether the receiver may have acted on the message.
    pub ambiguous: bool,
}

/// One message as it is now, with the outcome of each attempt.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Message")]
#[serde(default)]
pub struct MessageView {
    pub id: String,
    /// Its new id since an edit, if the request named the id it was accepted under.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub continued_as: Option<String>,
    /// The id under which its message was accepted, if an edit has given it a different one since.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub accepted_as: Option<String>,
    #[schemars(extend("enum" = ["ready", "delayed", "held", "in_flight", "key_wait", "dead", "replaying", "discarded", "erased", "succeeded", "unknown"]))]
    pub state: String,
    /// Failed attempts that count; null for a message that was delivered without ever having been a dead letter,
    /// since the number is not stored then.
    pub attempts: Option<u32>,
    pub due: Option<Instant>,
    pub deadline: Option<Instant>,
    pub history: Vec<AttemptView>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub letter: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// A message that is not terminal.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[allow(clippy::option_option)] // absent where it was not asked for, null where there is none
#[serde(default)]
pub struct ListedMessage {
    pub id: String,
    /// The same as in the log.
    pub correlation_id: String,
    /// Its name if ids repeat: orders/17, on Kafka orders/7/1182.
    pub number: String,
    #[schemars(extend("enum" = ["ready", "held", "delayed", "key_wait", "in_flight"]))]
    pub state: String,
    pub key: Option<String>,
    pub tenant: Option<String>,
    pub attempts: u32,
    pub replays: u32,
    pub created: Instant,
    pub due: Option<Instant>,
    pub deadline: Option<Instant>,
    /// How long it was deferred or held without using up attempts.
    pub held_ms: u64,
    pub class: Option<String>,
    pub error: Option<String>,
    pub headers: BTreeMap<String, String>,
    /// What the pipeline's `redact` has replaced; left out if nothing was.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub redacted: Vec<String>,
    /// Absent if it was not requested, null if there is none.
    #[schemars(with = "Option<Payload>")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub payload: Option<Option<Payload>>,
}

/// A page of messages that are not terminal. Clients that pass them on unread take `MessagePage<serde_json::Value>`.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Messages", bound = "M: JsonSchema + Default")]
#[serde(default)]
pub struct MessagePage<M = ListedMessage> {
    pub messages: Vec<M>,
    /// The cursor of the next page.
    pub next: Option<String>,
    pub scanned: u64,
    /// Messages that are pending but were not read by this process yet.
    pub unlisted: u64,
}

/// The result of making a message due or cancelling it.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Steered {
    /// The id or number by which it was named.
    pub id: String,
    #[schemars(extend("enum" = ["retry_now", "cancel"]))]
    pub action: String,
    /// The dead letter of a cancelled message.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub letter: Option<String>,
    pub at: Instant,
}

/// A key of a pipeline with key order.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Key")]
#[serde(default)]
pub struct KeyView {
    pub key: String,
    /// The message that runs or waits for its time, or the open letter that blocks the key.
    pub blocked_by: Option<MessageView>,
    /// Messages behind it; 10,000 means at least that many.
    pub waiting: u64,
}
