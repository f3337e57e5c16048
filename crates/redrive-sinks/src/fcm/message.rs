//! Parses a message: a message of the v1 API, with or without `{"message": …}` around it. `"subscription"` in place of
//! the token is the id of a stored one.

use std::time::SystemTime;

use bytes::Bytes;
use redrive_core::Message;
use serde_json::{Map, Value, json};

use crate::push::json::{self, FieldFault, Lookup};

/// The maximum size of data and notification together in FCM.
const BODY_BYTES_MAX: usize = 4096;
/// Room for options that do not count towards that size.
const ENVELOPE_BYTES_MAX: usize = 8 * 1024;
/// The maximum time that FCM stores a message: four weeks.
const TTL_SECS_MAX: u64 = 28 * 24 * 3600;

/// The members of the envelope around a message of the API.
const MEMBERS: &[&str] = &["message"];
/// The current members of an API message. Others are passed on too, since Google adds some from time to time.
const API_MEMBERS: &[&str] = &[
    "name",
    "data",
    "notification",
    "android",
    "webpush",
    "apns",
    "fcm_options",
    "token",
    "topic",
    "condition",
];

/// One push.
#[derive(Clone, PartialEq, Eq)]
pub struct FcmPush {
    /// The registration token, topic or condition: a secret.
    pub target: String,
    /// When the app instance registered, if it is a stored one.
    pub registered_ms: Option<u64>,
    message: Map<String, Value>,
}

impl FcmPush {
    /// Parses a message. `others` are members that the pipeline reads; they are not sent to FCM.
    pub fn of(message: &Message, lookup: Lookup<'_>, others: &[String]) -> Result<Self, FieldFault> {
        let mut object = json::object(message)?;
        let mut inner = match object.remove("message") {
            Some(Value::Object(inner)) => {
                json::only(&object, MEMBERS, others)?;
                inner
            }
            Some(_) => return Err(FieldFault::Wrong("message", "an object")),
            None => {
                // Members of the API, such as a topic, are sent to FCM even if the pipeline reads them.
                object.retain(|name, _| API_MEMBERS.contains(&name.as_str()) || !others.contains(name));
                object
            }
        };
        let mut registered_ms = None;
        if inner.contains_key("subscription") {
            let (token, registered) = json::token(&inner, lookup)?;
            inner.remove("subscription");
            inner.insert("token".to_owned(), Value::String(token));
            registered_ms = registered;
        }
        let named: Vec<String> = ["token", "topic", "condition"]
            .into_iter()
            .filter_map(|name| json::text(&inner, name).transpose())
            .collect::<Result<_, _>>()?;
        let [target] = <[String; 1]>::try_from(named)
            .map_err(|_| FieldFault::Wrong("message", "for exactly one of token, topic and condition"))?;
        check_token(&target)?;
        let counted = ["data", "notification"].into_iter().filter_map(|name| inner.get(name));
        let counted: usize = counted.map(|part| part.to_string().len()).sum();
        if counted > BODY_BYTES_MAX {
            return Err(FieldFault::TooLarge(counted, BODY_BYTES_MAX));
        }
        Ok(Self { target, registered_ms, message: inner })
    }

    /// The body of a request. If the message has a deadline and sets no TTL of its own, the remaining time is sent.
    pub fn body(&self, deadline_ms: Option<u64>, now: SystemTime) -> Result<Bytes, FieldFault> {
        let mut message = self.message.clone();
        if let Some(deadline) = deadline_ms {
            let now = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_millis() as u64;
            let left = (deadline.saturating_sub(now) / 1000).min(TTL_SECS_MAX);
            let android = message.entry("android").or_insert_with(|| json!({}));
            if let Value::Object(android) = android {
                android.entry("ttl").or_insert_with(|| Value::String(format!("{left}s")));
            }
        }
        let body = json!({"message": message}).to_string();
        if body.len() > ENVELOPE_BYTES_MAX {
            return Err(FieldFault::TooLarge(body.len(), ENVELOPE_BYTES_MAX));
        }
        Ok(Bytes::from(body))
    }
}

/// The token, topic or condition of a message, even if the message is invalid otherwise.
pub fn readable_target(message: &Message, lookup: Lookup<'_>) -> Option<String> {
    let mut object = json::object(message).ok()?;
    let inner = match object.remove("message") {
        Some(Value::Object(inner)) => inner,
        _ => object,
    };
    let named = |name| json::text(&inner, name).ok().flatten().filter(|target| !target.is_empty());
    json::readable_token(&inner, lookup).or_else(|| named("topic")).or_else(|| named("condition"))
}

/// Checks the form of a registration token: anything that is not empty.
pub fn check_token(token: &str) -> Result<(), FieldFault> {
    if token.is_empty() { Err(FieldFault::Missing("token")) } else { Ok(()) }
}

impl std::fmt::Debug for FcmPush {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Push(…)")
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn push(value: &Value) -> Result<FcmPush, FieldFault> {
        FcmPush::of(&Message::builder("m").payload(value.to_string()).build().unwrap(), &|_| None, &[])
    }

    #[test]
    fn a_message_of_the_api_is_taken_with_and_without_its_envelope() {
        let bare = json!({"token": "abc", "notification": {"title": "hi"}});
        let push = [bare.clone(), json!({"message": bare})].map(|value| push(&value).unwrap());
        assert_eq!((push[0].target.as_str(), &push[0]), ("abc", &push[1]));
        let body: Value = serde_json::from_slice(&push[0].body(None, SystemTime::now()).unwrap()).unwrap();
        assert_eq!(body, json!({"message": bare}));
    }

    #[test]
    fn what_the_pipeline_reads_is_not_sent_and_what_means_nothing_is_refused() {
        let of = |value: Value| {
            let message = Message::builder("m").payload(value.to_string()).build().unwrap();
            FcmPush::of(&message, &|_| None, &["id".to_owned(), "topic".to_owned()])
        };
        let plain = of(json!({"id": "m-1", "token": "abc"})).unwrap();
        assert_eq!(plain, of(json!({"id": "m-1", "message": {"token": "abc"}})).unwrap());
        assert_eq!(plain, push(&json!({"token": "abc"})).unwrap());
        assert_eq!(of(json!({"topic": "news"})).unwrap().target, "news");
        let said = of(json!({"validate_only": true, "message": {"token": "abc"}})).unwrap_err().to_string();
        assert!(said.contains("`validate_only`"), "{said}");
    }

    #[test]
    fn the_target_of_a_message_that_cannot_be_pushed_is_still_readable() {
        let target = |value: Value| {
            readable_target(&Message::builder("m").payload(value.to_string()).build().unwrap(), &|_| None)
        };
        let large = json!({"message": {"token": "abc", "data": {"x": "y".repeat(5000)}}});
        assert_eq!(target(large).as_deref(), Some("abc"));
        assert_eq!(target(json!({"topic": "news", "data": 7})).as_deref(), Some("news"));
        assert_eq!((target(json!({"token": ""})), target(json!([]))), (None, None));
    }

    #[test]
    fn what_is_left_of_the_time_is_sent_unless_the_message_says_otherwise() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(100);
        let ttl = |value: Value| {
            let body = push(&value).unwrap().body(Some(160_500), now).unwrap();
            let body: Value = serde_json::from_slice(&body).unwrap();
            body.pointer("/message/android/ttl").unwrap().clone()
        };
        assert_eq!(ttl(json!({"token": "abc"})), "60s");
        assert_eq!(ttl(json!({"token": "abc", "android": {"ttl": "5s"}})), "5s");
    }

    #[test]
    fn what_fcm_would_refuse_is_refused_before_it_costs_quota() {
        for wrong in [
            json!({}),
            json!([]),
            json!({"token": ""}),
            json!({"token": 7}),
            json!({"token": "a", "topic": "b"}),
            json!({"message": "text"}),
            json!({"token": "a", "data": {"x": "y".repeat(4096)}}),
        ] {
            assert!(push(&wrong).is_err(), "{wrong}");
        }
        let large = push(&json!({"token": "a", "apns": {"x": "y".repeat(9000)}})).unwrap();
        assert!(large.body(None, SystemTime::now()).is_err());
    }
}
