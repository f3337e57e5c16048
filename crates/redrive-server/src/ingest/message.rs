//! One message as sent: parses the JSON object into a message. Pure.

use std::fmt;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use redrive::internal::engine::ingest::DUE_MAX;
use redrive::{Message, NewMessage, Time};
use redrive_core::message::MessageError;
use redrive_core::{Pick, duration};
use schemars::JsonSchema;
use serde::de::{IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use crate::problem::{Code, Problem};
use crate::request::{instead_of_object, not_json};
use crate::{extract, fields};
use redrive::timestamp;

/// The pipeline's settings for incoming messages.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Intake {
    /// Where the id comes from if the object has none. If not set, one is generated.
    pub id: Option<Pick>,
    /// Where the tenant comes from if the object has none.
    pub tenant: Option<Pick>,
}

/// A message to deliver.
// Borrows what it can: this is the hot path. Its schema is derived from this type, not declared separately.
#[derive(Deserialize, JsonSchema)]
#[schemars(rename = "NewMessage")]
#[serde(deny_unknown_fields)]
pub(crate) struct GivenMessage<'a> {
    /// Stable; made if it is left out.
    #[schemars(length(max = 512))]
    id: Option<String>,
    key: Option<String>,
    /// Any JSON; kept byte for byte.
    // 64-bit numbers, the order of keys and white space stay as sent.
    #[schemars(with = "serde_json::Value")]
    #[serde(borrow, default, deserialize_with = "present")]
    payload: Option<&'a RawValue>,
    #[schemars(extend("contentEncoding" = "base64"))]
    payload_base64: Option<String>,
    #[schemars(with = "std::collections::BTreeMap<String, String>")]
    #[serde(default)]
    headers: Headers,
    tenant: Option<String>,
    /// A span such as 1h30m.
    ttl: Option<String>,
    /// RFC 3339, or milliseconds since 1970.
    #[schemars(with = "Option<String>", extend("type" = ["string", "integer", "null"]))]
    due: Option<When>,
    /// A span such as 5s.
    delay: Option<String>,
}

/// A time as text or as milliseconds since 1970.
enum When {
    Millis(u64),
    Text(String),
}

/// In the given order; a name may repeat.
#[derive(Default)]
struct Headers(Vec<(String, String)>);

/// Parses one message. `now` is the current time; `fresh_id` generates an id if there is none.
pub fn read(
    text: &[u8],
    intake: &Intake,
    now: Time,
    fresh_id: impl FnOnce() -> Result<String, Problem>,
) -> Result<NewMessage, Problem> {
    if let Some(found) = instead_of_object(text) {
        return Err(not_an_object(found));
    }
    let given: GivenMessage<'_> =
        serde_json::from_slice(text).map_err(|error| not_a_message(&error, text))?;
    let payload = payload(given.payload, given.payload_base64.as_deref())?;
    let headers = given.headers.0;
    let id = match (given.id, &intake.id) {
        (Some(id), _) => id,
        (None, Some(place)) => extract::find(place, payload.as_deref(), &headers).ok_or_else(|| {
            let message = format!("no id: there is neither `id` nor a text or whole number at {place}");
            Problem::bad_message(
                message,
                "every message of this pipeline needs one; `id` of the pipeline names the place",
            )
        })?,
        (None, None) => fresh_id()?,
    };
    let tenant =
        given.tenant.or_else(|| extract::find(intake.tenant.as_ref()?, payload.as_deref(), &headers));
    let mut message = Message::builder(id).created(now);
    if let Some(key) = given.key {
        message = message.key(key);
    }
    if let Some(payload) = payload {
        message = message.payload(payload);
    }
    if let Some(tenant) = tenant {
        message = message.tenant(tenant);
    }
    if let Some(ttl) = given.ttl {
        message = message.deadline(now.plus(span("ttl", &ttl)?));
    }
    for (name, value) in headers {
        message = message.header(name, value);
    }
    let message = message.build().map_err(|error| out_of_bounds(&error))?;
    let due = due(given.due, given.delay.as_deref(), now)?;
    if let (Some(due), Some(deadline)) = (due, message.deadline())
        && due >= deadline
    {
        return Err(Problem::bad_message(
            "`delay` or `due` is not before the end of `ttl`: it would expire before its first attempt",
            "give it a longer `ttl`, or an earlier time",
        ));
    }
    Ok(NewMessage { message, due })
}

fn payload(json: Option<&RawValue>, base64: Option<&str>) -> Result<Option<Bytes>, Problem> {
    match (json, base64) {
        (Some(_), Some(_)) => Err(Problem::bad_message(
            "both `payload` and `payload_base64` are given",
            "give `payload` for JSON, `payload_base64` for any other bytes",
        )),
        (Some(json), None) => Ok(Some(Bytes::copy_from_slice(json.get().as_bytes()))),
        (None, Some(text)) => match STANDARD.decode(text) {
            Ok(bytes) => Ok(Some(bytes.into())),
            Err(error) => {
                let hint = "use the standard alphabet (A-Z a-z 0-9 + /) with padding";
                Err(Problem::bad_message(format!("`payload_base64` is not base64: {error}"), hint))
            }
        },
        (None, None) => Ok(None),
    }
}

fn due(due: Option<When>, delay: Option<&str>, now: Time) -> Result<Option<Time>, Problem> {
    let field = if due.is_some() { "due" } else { "delay" };
    let due = when(due, delay, now)?;
    if due.is_some_and(|due| due > now.plus(DUE_MAX)) {
        let latest = timestamp::print(now.plus(DUE_MAX));
        let message =
            format!("`{field}` is more than 365 days ahead; a message may be due by {latest} at the latest");
        return Err(Problem::bad_message(message, "send it when its time is nearer"));
    }
    Ok(due)
}

fn when(due: Option<When>, delay: Option<&str>, now: Time) -> Result<Option<Time>, Problem> {
    match (due, delay) {
        (Some(_), Some(_)) => {
            Err(Problem::bad_message("both `due` and `delay` are given", "give one of the two"))
        }
        (Some(When::Millis(ms)), None) => Ok(Some(Time::from_millis(ms))),
        (Some(When::Text(text)), None) => timestamp::parse(&text).map(Some).ok_or_else(|| {
            let hint = "write it like \"2026-11-15T21:40:05Z\", or give milliseconds since 1970 as a number";
            Problem::bad_message(format!("`due` is {text:?}, which is not a time"), hint)
        }),
        (None, Some(delay)) => Ok(Some(now.plus(span("delay", delay)?))),
        (None, None) => Ok(None),
    }
}

fn span(field: &str, text: &str) -> Result<Duration, Problem> {
    duration::parse(text).map_err(|_| {
        let hint = format!("write a duration like {}", duration::EXAMPLES);
        Problem::bad_message(format!("`{field}`: `{text}` is not a duration"), hint)
    })
}

fn out_of_bounds(error: &MessageError) -> Problem {
    match error {
        MessageError::TooLarge { part, .. } => Problem::new(Code::TooLarge, error, hint_for_size(part)),
        MessageError::TooManyHeaders { .. } => {
            Problem::new(Code::TooLarge, error, "put what belongs to the content into `payload`")
        }
        MessageError::EmptyId | MessageError::Damaged(_) => {
            Problem::bad_message(error, "leave `id` out to have one made")
        }
        _ => Problem::bad_message(error, "nothing of this was accepted"),
    }
}

/// How to fix a part that is too large.
fn hint_for_size(part: &str) -> &'static str {
    match part {
        "id" => "choose a shorter `id`, for example a hash of this one, or leave `id` out to have one made",
        "key" => {
            "a `key` names whose messages wait for each other; use a shorter name, or a hash of this one"
        }
        "tenant" => "use a shorter name for the `tenant`",
        "header name" | "headers" => "send fewer or shorter `headers`; content goes into `payload`",
        _ => "store large content elsewhere and send its address as the `payload`",
    }
}

fn not_an_object(found: &str) -> Problem {
    let hint = match found {
        "an array" => format!("{EXAMPLE}; many go one per line, with `{NDJSON}`"),
        _ => EXAMPLE.to_owned(),
    };
    Problem::bad_message(format!("a message is a JSON object, and this is {found}"), hint)
}

const EXAMPLE: &str = "send one JSON object such as {\"id\":\"o-1\",\"payload\":{\"amount\":1999}}";
const NDJSON: &str = "Content-Type: application/x-ndjson";

fn not_a_message(error: &serde_json::Error, body: &[u8]) -> Problem {
    if error.is_eof() {
        return Problem::bad_message(
            "the JSON object ends in the middle",
            "send the whole object; where a line is a message, all of it stands on one line",
        );
    }
    let mut objects = serde_json::Deserializer::from_slice(body).into_iter::<IgnoredAny>();
    if let (true, Some(Ok(_))) = (error.is_syntax(), objects.next()) {
        let rest = &body[objects.byte_offset()..];
        return if rest.trim_ascii_start().starts_with(b"{") {
            let hint = format!("send many messages with `{NDJSON}`, one object per line");
            Problem::bad_message("there is more than one JSON object in the body", hint)
        } else {
            Problem::bad_message("unexpected data after the JSON object", EXAMPLE)
        };
    }
    let Some(fault) = fields::find::<GivenMessage<'_>>(body) else {
        return Problem::bad_message(format!("this is not a message: {}", not_json(error)), EXAMPLE);
    };
    let hint = match fault.hint {
        Some(hint) if fault.is_unknown => format!("{hint} Everything of your own goes into `payload`"),
        _ if ["`ttl`", "`delay`"].iter().any(|span| fault.message.starts_with(span)) => {
            format!("write a duration in quotes, like {}", duration::EXAMPLES)
        }
        hint => hint.unwrap_or_else(|| EXAMPLE.to_owned()),
    };
    Problem::bad_message(fault.message, hint)
}

/// A payload of `null` counts as present.
fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<&'de RawValue>, D::Error> {
    <&RawValue>::deserialize(deserializer).map(Some)
}

impl<'de> Deserialize<'de> for Headers {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct InOrder;
        impl<'de> Visitor<'de> for InOrder {
            type Value = Headers;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object whose values are strings")
            }

            fn visit_unit<E>(self) -> Result<Headers, E> {
                Ok(Headers::default())
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Headers, A::Error> {
                let mut headers = Vec::new();
                while let Some(header) = map.next_entry()? {
                    headers.push(header);
                }
                Ok(Headers(headers))
            }
        }
        deserializer.deserialize_any(InOrder)
    }
}

impl<'de> Deserialize<'de> for When {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TextOrMillis;
        impl Visitor<'_> for TextOrMillis {
            type Value = When;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a time like \"2026-11-15T21:40:05Z\", or milliseconds since 1970")
            }

            fn visit_u64<E>(self, ms: u64) -> Result<When, E> {
                Ok(When::Millis(ms))
            }

            fn visit_str<E>(self, text: &str) -> Result<When, E> {
                Ok(When::Text(text.to_owned()))
            }
        }
        deserializer.deserialize_any(TextOrMillis)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Time = Time::from_millis(1_700_000_000_000);

    fn read_with(text: &str, intake: &Intake) -> Result<NewMessage, Problem> {
        read(text.as_bytes(), intake, NOW, || Ok("made".to_owned()))
    }

    fn read_plain(text: &str) -> Result<NewMessage, Problem> {
        read_with(text, &Intake::default())
    }

    #[test]
    fn every_field_arrives() {
        let text = r#"{"id":"inv-1","key":"acme","ttl":"1h","delay":"5s","tenant":"t-1",
            "headers":{"x-src":"web","x-src":"twice"},"payload":{"amount":100}}"#;
        let NewMessage { message, due } = read_plain(text).unwrap();
        assert_eq!(message.id(), "inv-1");
        assert_eq!(message.key(), Some(&b"acme"[..]));
        assert_eq!(message.tenant(), Some("t-1"));
        assert_eq!(message.payload(), Some(&br#"{"amount":100}"#[..]));
        assert_eq!(message.deadline(), Some(NOW.plus(Duration::from_hours(1))));
        assert_eq!(message.headers().collect::<Vec<_>>(), [("x-src", &b"web"[..]), ("x-src", &b"twice"[..])]);
        assert_eq!(due, Some(NOW.plus(Duration::from_secs(5))));
    }

    #[test]
    fn a_payload_is_kept_byte_for_byte() {
        for payload in [
            r#"{"z":1,"a":18446744073709551615,"f":1.10, "s":"\u00e9"}"#,
            "null",
            "12345678901234567890123",
            r#""text""#,
            "[ 1,2 ]",
        ] {
            let new = read_plain(&format!(r#"{{"id":"a","payload": {payload} }}"#)).unwrap();
            assert_eq!(new.message.payload(), Some(payload.as_bytes()), "{payload}");
        }
        assert_eq!(read_plain(r#"{"id":"a"}"#).unwrap().message.payload(), None);
        let binary = read_plain(r#"{"id":"a","payload_base64":"AP8="}"#).unwrap();
        assert_eq!(binary.message.payload(), Some(&[0, 255][..]));
    }

    #[test]
    fn due_is_a_time_or_milliseconds() {
        let due = |due: &str| read_plain(&format!(r#"{{"due":{due}}}"#)).unwrap().due;
        assert_eq!(due("1700000005000"), Some(Time::from_millis(1_700_000_005_000)));
        assert_eq!(due(r#""2023-11-14T22:13:25Z""#), Some(Time::from_millis(1_700_000_005_000)));
    }

    #[test]
    fn an_id_is_given_found_or_made() {
        let from_json = Intake { id: Some(Pick::Json("/n".into())), tenant: Some(Pick::Header("t".into())) };
        assert_eq!(read_plain("{}").unwrap().message.id(), "made");
        assert_eq!(read_with(r#"{"payload":{"n":7}}"#, &from_json).unwrap().message.id(), "7");
        assert_eq!(read_with(r#"{"id":"own","payload":{"n":7}}"#, &from_json).unwrap().message.id(), "own");
        let missing = read_with(r#"{"payload":{}}"#, &from_json).unwrap_err();
        assert!(missing.message.contains("json:/n"), "{}", missing.message);
        let tenant = read_with(r#"{"id":"a","headers":{"T":"acme"}}"#, &from_json).unwrap();
        assert_eq!(tenant.message.tenant(), Some("acme"));
    }

    #[test]
    fn faults_name_the_field_and_the_way_out() {
        for (text, in_message, in_hint) in [
            (r#"{"paylod":1}"#, "`paylod`", "did you mean `payload`"),
            (r#"{"customer_id":1}"#, "`customer_id`", "id, key, payload"),
            (r#"{"id":"a","id":"b"}"#, "the field `id` is given twice", "once"),
            (r#"{"id":7}"#, "`id` is 7, which is not a string", "\"id\": \"…\""),
            (
                r#"{"headers":{"a":1}}"#,
                "`headers` is {\"a\":1}, which is not an object whose values are strings",
                "",
            ),
            (r#"{"headers":7}"#, "`headers` is 7, which is not an object", ""),
            (r#"{"ttl":30}"#, "`ttl` is 30, which is not a string", "a duration in quotes, like"),
            (r#"{"id":"a" "key":1}"#, "not valid JSON at line 1 column 11", "one JSON object"),
            (r#"{"due":true}"#, "`due` is true, which is not a time like", ""),
            (r#"{"due":"soon"}"#, "`due` is \"soon\"", "2026"),
            (r#"{"due":"9999-12-31T23:59:59Z"}"#, "`due` is more than 365 days ahead", "nearer"),
            (r#"{"due":1731536000001}"#, "by 2024-11-13T22:13:20.000Z at the latest", "nearer"),
            (r#"{"delay":"8761h"}"#, "`delay` is more than 365 days ahead", "nearer"),
            (r#"{"due":1,"delay":"1s"}"#, "both `due` and `delay`", "one of the two"),
            (r#"{"delay":"2h","ttl":"1h"}"#, "not before the end of `ttl`", "a longer `ttl`"),
            (r#"{"payload":1,"payload_base64":"AA=="}"#, "both", "any other bytes"),
            (r#"{"payload_base64":"*"}"#, "`payload_base64` is not base64", "alphabet"),
            (r#"{"ttl":"5 minutes"}"#, "`ttl`: `5 minutes`", "5m"),
            (r#"{"id":""}"#, "id is empty", "leave `id` out"),
            ("[1]", "a message is a JSON object, and this is an array", "application/x-ndjson"),
            ("", "a message is a JSON object, and this is empty", "one JSON object"),
            ("truth", "a message is a JSON object, and this is not JSON", "one JSON object"),
            ("{}{}", "more than one JSON object", "application/x-ndjson"),
            ("{} x", "unexpected data after the JSON object", "one JSON object"),
            (r#"{"id":"a""#, "ends in the middle", "the whole object"),
        ] {
            let problem = read_plain(text).unwrap_err();
            assert_eq!(problem.code, Code::BadMessage, "{text}");
            assert!(problem.message.contains(in_message), "{text}: {}", problem.message);
            assert!(problem.hint.contains(in_hint), "{text}: {}", problem.hint);
        }
        let long = format!(r#"{{"id":"{}"}}"#, "x".repeat(600));
        assert_eq!(read_plain(&long).unwrap_err().code, Code::TooLarge);
    }
}
