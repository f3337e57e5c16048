//! Parses a message: the push and its device.
//!
//! Either the payload is an envelope, `{"token": …, "payload": {"aps": …}, …}`, or the header `apns-device-token` holds
//! the token and the payload is pushed unchanged. `"subscription"` in place of the token is the id of a stored one.

use bytes::Bytes;
use redrive_core::Message;
use ring::digest::{SHA256, digest};
use serde_json::{Map, Value};

use crate::push::json::{self, FieldFault, Lookup};

const TOKEN_HEADER: &str = "apns-device-token";
/// The maximum length of a device token in hexadecimal digits. Apple gives no limit; 64 digits are usual.
const TOKEN_BYTES_MAX: usize = 400;
pub const PAYLOAD_BYTES_MAX: usize = 4096;
pub const VOIP_PAYLOAD_BYTES_MAX: usize = 5120;
const COLLAPSE_BYTES_MAX: usize = 64;
pub const PUSH_TYPES: [&str; 11] = [
    "alert",
    "background",
    "location",
    "voip",
    "complication",
    "fileprovider",
    "mdm",
    "liveactivity",
    "pushtotalk",
    "widgets",
    "controls",
];

/// The members of an envelope.
const MEMBERS: &[&str] =
    &["token", "subscription", "payload", "topic", "push_type", "priority", "collapse_id", "registered"];

/// One push.
#[derive(Clone, PartialEq, Eq)]
pub struct Push {
    /// The device token: a secret.
    pub token: String,
    pub topic: Option<String>,
    pub push_type: &'static str,
    pub priority: Option<&'static str>,
    pub collapse_id: Option<String>,
    /// When the device registered, if the message says so.
    pub registered_ms: Option<u64>,
    pub body: Bytes,
}

impl Push {
    /// Parses a message. `others` are further members that an envelope may have because the pipeline reads them.
    pub fn of(message: &Message, lookup: Lookup<'_>, others: &[String]) -> Result<Self, FieldFault> {
        let (push, token) = if let Some(token) = json::header(message, TOKEN_HEADER) {
            (Self::of_headers(message)?, token)
        } else {
            let envelope = json::object(message)?;
            json::only(&envelope, MEMBERS, others)?;
            Self::of_envelope(&envelope, lookup)?
        };
        check_token(&token)?;
        let max = if push.push_type == "voip" { VOIP_PAYLOAD_BYTES_MAX } else { PAYLOAD_BYTES_MAX };
        if push.body.len() > max {
            return Err(FieldFault::TooLarge(push.body.len(), max));
        }
        Ok(Self { token, ..push })
    }

    fn of_headers(message: &Message) -> Result<Self, FieldFault> {
        let header = |name| json::header(message, name);
        let registered = header("apns-registered").and_then(|text| text.parse().ok());
        let body = message.payload().map(|payload| message.wire().slice_ref(payload));
        Self::checked(
            header("apns-topic"),
            header("apns-push-type").as_deref(),
            header("apns-priority").as_deref(),
            header("apns-collapse-id"),
            registered,
            body.filter(|body| !body.is_empty()).ok_or(FieldFault::Missing("payload"))?,
        )
    }

    fn of_envelope(envelope: &Map<String, Value>, lookup: Lookup<'_>) -> Result<(Self, String), FieldFault> {
        let text = |name| json::text(envelope, name);
        let (token, registered_ms) = json::token(envelope, lookup)?;
        let priority = match envelope.get("priority") {
            Some(Value::Number(number)) => Some(number.to_string()),
            _ => text("priority")?,
        };
        let body = match envelope.get("payload") {
            Some(Value::Object(payload)) => serde_json::to_vec(payload).unwrap_or_default(),
            Some(_) => return Err(FieldFault::Wrong("payload", "an object with `aps`")),
            None => return Err(FieldFault::Missing("payload")),
        };
        let registered = envelope.get("registered").and_then(Value::as_u64).or(registered_ms);
        let push = Self::checked(
            text("topic")?,
            text("push_type")?.as_deref(),
            priority.as_deref(),
            text("collapse_id")?,
            registered,
            Bytes::from(body),
        )?;
        Ok((push, token))
    }

    fn checked(
        topic: Option<String>,
        push_type: Option<&str>,
        priority: Option<&str>,
        collapse_id: Option<String>,
        registered_ms: Option<u64>,
        body: Bytes,
    ) -> Result<Self, FieldFault> {
        let push_type = push_type.unwrap_or("alert");
        let push_type = PUSH_TYPES.into_iter().find(|known| *known == push_type);
        let priority = match priority {
            None => None,
            Some("10") => Some("10"),
            Some("5") => Some("5"),
            Some("1") => Some("1"),
            Some(_) => return Err(FieldFault::Wrong("priority", "10, 5 or 1")),
        };
        let is_visible = |text: &String, max: usize| {
            (1..=max).contains(&text.len()) && text.bytes().all(|byte| (b' '..=b'~').contains(&byte))
        };
        if collapse_id.as_ref().is_some_and(|id| !is_visible(id, COLLAPSE_BYTES_MAX)) {
            return Err(FieldFault::Wrong("collapse_id", "1 to 64 bytes of printable ASCII"));
        }
        if topic.as_ref().is_some_and(|topic| !is_visible(topic, 256)) {
            return Err(FieldFault::Wrong("topic", "the name of an app"));
        }
        let push_type = push_type.ok_or(FieldFault::Wrong("push_type", "a push type of APNs"))?;
        Ok(Self { token: String::new(), topic, push_type, priority, collapse_id, registered_ms, body })
    }
}

/// The device token of a message, even if the message is invalid otherwise.
pub fn readable_token(message: &Message, lookup: Lookup<'_>) -> Option<String> {
    let token = json::header(message, TOKEN_HEADER);
    let token = token.or_else(|| json::readable_token(&json::object(message).ok()?, lookup));
    token.filter(|token| check_token(token).is_ok())
}

/// Checks the form of a device token.
pub fn check_token(token: &str) -> Result<(), FieldFault> {
    let is_token =
        (1..=TOKEN_BYTES_MAX).contains(&token.len()) && token.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_token.then_some(()).ok_or(FieldFault::Wrong("token", "a device token in hexadecimal digits"))
}

impl std::fmt::Debug for Push {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Push(…)")
    }
}

/// The message's id as a UUID: itself if it is one, otherwise one derived from it.
pub fn apns_id(message_id: &str) -> String {
    if is_uuid(message_id) {
        return message_id.to_ascii_lowercase();
    }
    let hash = digest(&SHA256, message_id.as_bytes());
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&hash.as_ref()[..16]);
    // RFC 9562: version 8, a custom UUID.
    bytes[6] = bytes[6] & 0x0f | 0x80;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    let n = u128::from_be_bytes(bytes);
    let part = |shift: u32, digits: u32| (n >> shift) & ((1 << (4 * digits)) - 1);
    format!(
        "{:08x}-{:04x}-{:04x}-{:04x}-{:012x}",
        part(96, 8),
        part(80, 4),
        part(64, 4),
        part(48, 4),
        part(0, 12)
    )
}

fn is_uuid(text: &str) -> bool {
    text.len() == 36
        && text.bytes().enumerate().all(|(at, byte)| match at {
            8 | 13 | 18 | 23 => byte == b'-',
            _ => byte.is_ascii_hexdigit(),
        })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[expect(clippy::needless_pass_by_value, reason = "reads better with json!")]
    fn push(value: Value) -> Result<Push, FieldFault> {
        Push::of(&Message::builder("m").payload(value.to_string()).build().unwrap(), &|_| None, &[])
    }

    #[test]
    fn an_envelope_says_what_is_pushed_and_how() {
        let push = push(json!({
            "token": "00Ab", "topic": "com.example.app", "push_type": "background", "priority": 5,
            "collapse_id": "chat-7", "registered": 1000, "payload": {"aps": {"content-available": 1}}
        }))
        .unwrap();
        assert_eq!((push.token.as_str(), push.topic.as_deref()), ("00Ab", Some("com.example.app")));
        assert_eq!((push.push_type, push.priority), ("background", Some("5")));
        assert_eq!((push.collapse_id.as_deref(), push.registered_ms), (Some("chat-7"), Some(1000)));
        assert_eq!(&*push.body, br#"{"aps":{"content-available":1}}"#);
        assert_eq!(format!("{push:?}"), "Push(…)");
    }

    #[test]
    fn a_message_with_the_token_in_a_header_is_pushed_as_it_is() {
        let message = Message::builder("m")
            .header("apns-device-token", "00ab")
            .header("apns-priority", "1")
            .payload(r#"{"aps":{}}"#);
        let push = Push::of(&message.build().unwrap(), &|_| None, &[]).unwrap();
        assert_eq!((&*push.body, push.priority, push.push_type), (&br#"{"aps":{}}"#[..], Some("1"), "alert"));
    }

    #[test]
    fn what_apns_would_refuse_is_refused_before_a_call() {
        let with = |name: &str, value: Value| {
            let mut given = json!({"token": "00ab", "payload": {"aps": {}}});
            given[name] = value;
            push(given).is_err()
        };
        assert!(!with("priority", json!("10")));
        assert!(with("priority", json!(7)));
        assert!(with("token", json!("nothex!")));
        assert!(with("token", json!("")));
        assert!(with("token", json!("a/../b")));
        assert!(with("push_type", json!("loud")));
        assert!(
            with("colapse_id", json!("chat-7")),
            "a member that means nothing is no option that is ignored"
        );
        assert!(with("collapse_id", json!("x".repeat(65))));
        assert!(with("payload", json!("text")));
        assert!(with("payload", json!({"aps": "x".repeat(PAYLOAD_BYTES_MAX)})));
        assert!(push(json!({"payload": {}})).is_err());
        let call = json!({"token": "00ab", "push_type": "voip", "payload": {"x": "y".repeat(5000)}});
        assert!(push(call).is_ok(), "calls may be larger");
    }

    #[test]
    fn the_token_of_a_message_that_cannot_be_pushed_is_still_readable() {
        let token = |value: Value| {
            readable_token(&Message::builder("m").payload(value.to_string()).build().unwrap(), &|_| None)
        };
        assert_eq!(token(json!({"token": "00ab", "priority": 7})).as_deref(), Some("00ab"));
        assert_eq!(token(json!({"token": "nothex!"})), None);
        assert_eq!(token(json!("text")), None);
    }

    #[test]
    fn the_id_is_a_uuid_and_the_same_for_every_attempt() {
        let own = "123E4567-E89B-12D3-A456-426614174000";
        assert_eq!(apns_id(own), own.to_ascii_lowercase());
        let made = apns_id("order-7");
        assert!(is_uuid(&made) && made.as_bytes()[14] == b'8', "{made}");
        assert_eq!(made, apns_id("order-7"));
        assert_ne!(made, apns_id("order-8"));
    }
}
