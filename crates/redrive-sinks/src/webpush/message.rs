//! Parses a message: the push and its subscription.
//!
//! Either the payload is an envelope, `{"subscription": {…}, "payload": …, "urgency": …, "topic": …}`, or the header
//! `push-subscription` holds the subscription and the payload is pushed unchanged. A subscription given as text is the
//! id of a stored one.

use std::borrow::Cow;

use bytes::Bytes;
use redrive_core::Message;
use serde_json::Value;

use super::encrypt::{self, EncryptFault};
use super::subscription::{Subscription, SubscriptionFault};
use crate::push::json::{self, Lookup, UnknownMember};
use crate::webhook::endpoint;

const SUBSCRIPTION_HEADER: &str = "push-subscription";
const KEY_HEADER: &str = "push-vapid-key";
const URGENCIES: [&str; 4] = ["very-low", "low", "normal", "high"];
const TOPIC_BYTES_MAX: usize = 32;

/// Why a message cannot be pushed. No retry helps.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MessageFault {
    #[error("the message's payload is not a JSON object, and it has no header `{SUBSCRIPTION_HEADER}`")]
    NotEnvelope,
    #[error(transparent)]
    Subscription(#[from] SubscriptionFault),
    #[error(transparent)]
    Encrypt(#[from] EncryptFault),
    #[error("`urgency` is none of very-low, low, normal, high")]
    Urgency,
    #[error("`topic` is not 1 to {TOPIC_BYTES_MAX} characters of the URL-safe base64 alphabet")]
    Topic,
    #[error("the content encoding is not aes128gcm")]
    ContentEncoding,
    #[error(transparent)]
    Member(#[from] UnknownMember),
}

/// The members of an envelope.
const MEMBERS: &[&str] = &["subscription", "payload", "urgency", "topic", "vapid_key"];

/// The content of the body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PushContent {
    /// A push without data.
    Nothing,
    /// A payload to encrypt.
    Plain(Bytes),
    /// A body encrypted by the producer.
    Encrypted(Bytes),
}

/// One push.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Push {
    pub subscription: Subscription,
    pub content: PushContent,
    pub urgency: Option<&'static str>,
    pub topic: Option<String>,
    /// The public key that the subscription was made with, if the message says so.
    pub vapid_key: Option<String>,
}

impl Push {
    /// Parses a message. `others` are further members that an envelope may have because the pipeline reads them.
    pub fn of(
        message: &Message,
        allow_http: bool,
        lookup: Lookup<'_>,
        others: &[String],
    ) -> Result<Self, MessageFault> {
        let header = |name: &str| json::header(message, name);
        match header(SUBSCRIPTION_HEADER) {
            Some(text) => Self::of_headers(message, &text, header, allow_http, lookup),
            None => Self::of_envelope(message, allow_http, lookup, others),
        }
    }

    fn of_headers(
        message: &Message,
        subscription: &str,
        header: impl Fn(&str) -> Option<String>,
        allow_http: bool,
        lookup: Lookup<'_>,
    ) -> Result<Self, MessageFault> {
        let given = in_header(subscription);
        let value = found(&given, lookup)?;
        let subscription = Subscription::of(&value, allow_http)?;
        let body = message.payload().map(|payload| message.wire().slice_ref(payload)).unwrap_or_default();
        let content = match header("content-encoding").as_deref() {
            Some("aes128gcm") => {
                encrypt::check(&body)?;
                PushContent::Encrypted(body)
            }
            Some(other) if !other.eq_ignore_ascii_case("identity") => {
                return Err(MessageFault::ContentEncoding);
            }
            _ => PushContent::plain(body),
        };
        Ok(Self {
            subscription,
            content,
            urgency: header("urgency").map(|urgency| checked_urgency(&urgency)).transpose()?,
            topic: header("topic").map(checked_topic).transpose()?,
            vapid_key: header(KEY_HEADER).or_else(|| vapid_key(&value)),
        })
    }

    fn of_envelope(
        message: &Message,
        allow_http: bool,
        lookup: Lookup<'_>,
        others: &[String],
    ) -> Result<Self, MessageFault> {
        let value: Value = serde_json::from_slice(message.payload().unwrap_or_default())
            .map_err(|_| MessageFault::NotEnvelope)?;
        let envelope = value.as_object().ok_or(MessageFault::NotEnvelope)?;
        json::only(envelope, MEMBERS, others)?;
        let given = found(envelope.get("subscription").ok_or(SubscriptionFault::Missing)?, lookup)?;
        let text = |name: &str| match envelope.get(name) {
            None | Some(Value::Null) => None,
            // A value that is not a text is invalid too, and is reported as such.
            Some(value) => Some(value.as_str().unwrap_or_default().to_owned()),
        };
        Ok(Self {
            subscription: Subscription::of(&given, allow_http)?,
            content: match envelope.get("payload") {
                None | Some(Value::Null) => PushContent::Nothing,
                Some(Value::String(text)) => PushContent::plain(Bytes::from(text.clone())),
                Some(other) => PushContent::plain(Bytes::from(other.to_string())),
            },
            urgency: text("urgency").map(|urgency| checked_urgency(&urgency)).transpose()?,
            topic: text("topic").map(checked_topic).transpose()?,
            vapid_key: text("vapid_key").or_else(|| vapid_key(&given)),
        })
    }

    /// The body to send.
    pub fn body(&self) -> Result<Bytes, EncryptFault> {
        match &self.content {
            PushContent::Nothing => Ok(Bytes::new()),
            PushContent::Plain(plain) => {
                encrypt::encrypt(plain, self.subscription.receiver()).map(Bytes::from)
            }
            PushContent::Encrypted(body) => Ok(body.clone()),
        }
    }
}

impl PushContent {
    fn plain(bytes: Bytes) -> Self {
        if bytes.is_empty() { Self::Nothing } else { Self::Plain(bytes) }
    }
}

/// The endpoint of a message, even if the message is invalid otherwise.
pub fn readable_endpoint(message: &Message, lookup: Lookup<'_>) -> Option<String> {
    let given = match json::header(message, SUBSCRIPTION_HEADER) {
        Some(text) => in_header(&text),
        None => json::object(message).ok()?.remove("subscription")?,
    };
    let found = found(&given, lookup).ok()?;
    let endpoint = endpoint::judge(found.get("endpoint")?.as_str()?).ok()?;
    Some(endpoint.to_string())
}

/// A subscription, or the id of a stored one.
fn in_header(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|_| Value::String(text.to_owned()))
}

/// The subscription itself, if a message only names a stored one.
fn found<'a>(given: &'a Value, lookup: Lookup<'_>) -> Result<Cow<'a, Value>, SubscriptionFault> {
    let Value::String(id) = given else { return Ok(Cow::Borrowed(given)) };
    let stored = lookup(id).ok_or(SubscriptionFault::Unknown)?;
    let mut value = stored.subscription();
    if let (Some(key), Value::Object(value)) = (&stored.key, &mut value) {
        value.insert("vapid_key".to_owned(), key.as_str().into());
    }
    Ok(Cow::Owned(value))
}

/// The public key that a subscription says it was made with.
pub fn vapid_key(subscription: &Value) -> Option<String> {
    subscription.get("vapid_key").and_then(Value::as_str).map(str::to_owned)
}

fn checked_urgency(given: &str) -> Result<&'static str, MessageFault> {
    URGENCIES.into_iter().find(|known| *known == given).ok_or(MessageFault::Urgency)
}

/// RFC 8030, section 5.4.
fn checked_topic(given: String) -> Result<String, MessageFault> {
    let is_letter = |b: u8| b.is_ascii_alphanumeric() || b == b'-' || b == b'_';
    let is_sound = (1..=TOPIC_BYTES_MAX).contains(&given.len()) && given.bytes().all(is_letter);
    is_sound.then_some(given).ok_or(MessageFault::Topic)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn subscription() -> Value {
        json!({
            "endpoint": "https://push.example/abc",
            "keys": {
                "p256dh": "BCVxsr7N_eNgVRqvHtD0zTZsEc6-VV-JvLexhqUzORcxaOzi6-AYWXvTBHm4bjyPjs7Vd8pZGH6SRpkNtoIAiw4",
                "auth": "BTBZMqHH6r4Tts7J_aSIgg"
            }
        })
    }

    #[expect(clippy::needless_pass_by_value, reason = "reads better with json!")]
    fn envelope(more: Value) -> Result<Push, MessageFault> {
        let mut value = json!({"subscription": subscription()});
        value.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let message = Message::builder("m").payload(value.to_string()).build().unwrap();
        Push::of(&message, false, &|_| None, &[])
    }

    #[test]
    fn an_envelope_says_what_is_pushed_and_how() {
        let push =
            envelope(json!({"payload": {"title": "hi"}, "urgency": "high", "topic": "chat-7"})).unwrap();
        assert_eq!(push.content, PushContent::Plain(Bytes::from_static(br#"{"title":"hi"}"#)));
        assert_eq!((push.urgency, push.topic.as_deref()), (Some("high"), Some("chat-7")));
        let text = envelope(json!({"payload": "hi", "vapid_key": "BAbc"})).unwrap();
        assert_eq!(text.content, PushContent::Plain(Bytes::from_static(b"hi")));
        assert_eq!(text.vapid_key.as_deref(), Some("BAbc"));
        assert_eq!(envelope(json!({})).unwrap().content, PushContent::Nothing);
    }

    #[test]
    fn a_message_with_the_subscription_in_a_header_is_pushed_as_it_is() {
        let message = Message::builder("m")
            .header("Push-Subscription", subscription().to_string())
            .header("urgency", "low")
            .payload("hello");
        let push = Push::of(&message.build().unwrap(), false, &|_| None, &[]).unwrap();
        assert_eq!(
            (push.content, push.urgency),
            (PushContent::Plain(Bytes::from_static(b"hello")), Some("low"))
        );
    }

    #[test]
    fn a_text_is_the_id_of_a_stored_subscription_with_the_key_it_was_made_with() {
        use std::sync::Arc;

        use redrive::internal::subscriptions::{EndpointId, Registered, Stored};
        use redrive_core::Time;

        let registered = Registered { endpoint: EndpointId::from_number(1), key: Some("BOld".to_owned()) };
        let stored = Arc::new(Stored::new(registered, Time::ZERO, &subscription()));
        let lookup = |id: &str| (id == "user-1/phone").then(|| Arc::clone(&stored));
        let named = |id: &str| {
            let value = json!({"subscription": id, "payload": "hi"}).to_string();
            Push::of(&Message::builder("m").payload(value).build().unwrap(), false, &lookup, &[])
        };
        let push = named("user-1/phone").unwrap();
        assert_eq!(push.subscription.endpoint.path(), "/abc");
        assert_eq!(push.vapid_key.as_deref(), Some("BOld"));
        assert_eq!(named("nobody"), Err(MessageFault::Subscription(SubscriptionFault::Unknown)));
        let message = Message::builder("m").header("push-subscription", "user-1/phone").payload("hi");
        assert!(Push::of(&message.build().unwrap(), false, &lookup, &[]).is_ok());
    }

    #[test]
    fn an_encrypted_body_passes_if_its_header_is_sound() {
        let plain = envelope(json!({"payload": "hi"})).unwrap();
        let body = plain.body().unwrap();
        let encrypted = |body: &[u8], encoding: &str| {
            let message = Message::builder("m")
                .header("push-subscription", subscription().to_string())
                .header("content-encoding", encoding.to_owned())
                .payload(body.to_vec());
            Push::of(&message.build().unwrap(), false, &|_| None, &[])
        };
        assert_eq!(encrypted(&body, "aes128gcm").unwrap().body().unwrap(), body);
        assert!(matches!(encrypted(b"{}", "aes128gcm"), Err(MessageFault::Encrypt(_))));
        assert_eq!(encrypted(&body, "aesgcm"), Err(MessageFault::ContentEncoding));
    }

    #[test]
    fn members_that_the_pipeline_reads_may_be_there_too() {
        let value = json!({"subscription": subscription(), "payload": "hi", "order": {"id": 7}}).to_string();
        let message = Message::builder("m").payload(value).build().unwrap();
        assert!(Push::of(&message, false, &|_| None, &["order".to_owned()]).is_ok());
        assert!(matches!(Push::of(&message, false, &|_| None, &[]), Err(MessageFault::Member(_))));
    }

    #[test]
    fn the_endpoint_of_a_message_that_cannot_be_pushed_is_still_readable() {
        let endpoint = |value: Value| {
            let message = Message::builder("m").payload(value.to_string()).build().unwrap();
            readable_endpoint(&message, &|_| None)
        };
        let at = Some("https://push.example/abc".to_owned());
        assert_eq!(endpoint(json!({"subscription": {"endpoint": at, "keys": {}}})), at);
        assert_eq!(endpoint(json!({"subscription": subscription(), "urgency": "asap"})), at);
        assert_eq!(endpoint(json!({"subscription": {"endpoint": "no address"}})), None);
        assert_eq!(endpoint(json!({"subscription": "nobody"})), None);
        assert_eq!(endpoint(json!([])), None);
    }

    #[test]
    fn what_no_push_service_would_take_is_refused_before_a_call() {
        let fault = |more: Value| envelope(more).unwrap_err();
        assert_eq!(fault(json!({"urgency": "asap"})), MessageFault::Urgency);
        assert!(fault(json!({"urgancy": "high"})).to_string().contains("did you mean `urgency`?"));
        assert_eq!(fault(json!({"urgency": 7})), MessageFault::Urgency);
        assert_eq!(fault(json!({"topic": "a b"})), MessageFault::Topic);
        assert_eq!(fault(json!({"topic": "x".repeat(33)})), MessageFault::Topic);
        let large = envelope(json!({"payload": "x".repeat(4000)})).unwrap();
        assert_eq!(large.body(), Err(EncryptFault::TooLarge(4000)));
        for payload in ["", "text", "[]"] {
            let message = Message::builder("m").payload(payload).build().unwrap();
            assert_eq!(
                Push::of(&message, false, &|_| None, &[]),
                Err(MessageFault::NotEnvelope),
                "{payload}"
            );
        }
    }
}
