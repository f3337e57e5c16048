//! CloudEvents 1.0 in binary mode: attributes in headers, the payload as it is.

use hyper::header::{HeaderMap, HeaderName, HeaderValue};
use redrive::{Call, timestamp};

use super::header::{is_plain, printable};

const SPEC_VERSION: HeaderName = HeaderName::from_static("ce-specversion");
const ID: HeaderName = HeaderName::from_static("ce-id");
const SOURCE: HeaderName = HeaderName::from_static("ce-source");
const TYPE: HeaderName = HeaderName::from_static("ce-type");
const TIME: HeaderName = HeaderName::from_static("ce-time");
/// In front of attributes in the headers of a message, as in CloudEvents over Kafka.
const OF_MESSAGE: [&str; 2] = ["ce_", "ce-"];

/// What a request looks like.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// The payload with headers of Redrive.
    #[default]
    Plain,
    /// The same, and the headers of CloudEvents in binary mode.
    CloudEvents,
}

/// Adds the attributes. What the message brings goes over what is known of it here; its id stays the message's.
pub(super) fn describe(call: &Call, headers: &mut HeaderMap) {
    let message = &call.message;
    headers.insert(SPEC_VERSION, HeaderValue::from_static("1.0"));
    headers.insert(TYPE, HeaderValue::from_static("redrive.message"));
    let source = match &call.origin {
        Some(origin) => format!("/kafka/{}", origin.topic),
        None => format!("/redrive/{}", call.pipeline),
    };
    headers.extend(HeaderValue::try_from(source).ok().map(|source| (SOURCE, source)));
    let time = timestamp::print(message.created());
    headers.extend(HeaderValue::try_from(time).ok().map(|time| (TIME, time)));
    for (name, value) in message.headers() {
        let lower = name.to_ascii_lowercase();
        let Some(attribute) = OF_MESSAGE.iter().find_map(|prefix| lower.strip_prefix(prefix)) else {
            continue;
        };
        let is_name = !attribute.is_empty() && attribute.bytes().all(|b| b.is_ascii_alphanumeric());
        if let (true, Ok(name), Ok(value)) =
            (is_name, HeaderName::try_from(format!("ce-{attribute}")), HeaderValue::from_bytes(value))
        {
            headers.insert(name, value);
        }
    }
    headers.insert(ID, printable(message.wire(), message.id().as_bytes(), is_plain));
}

#[cfg(test)]
mod tests {
    use redrive::{Message, Time};

    use super::*;

    #[test]
    fn a_message_becomes_an_event_and_may_bring_attributes() {
        let message = Message::builder("o.1")
            .created(Time::from_millis(1_700_000_000_000))
            .header("ce_type", "order.paid");
        let message = message.header("ce_id", "other").header("ce_bad name", "x").build().unwrap();
        let call = Call { message, attempt: 1, replays: 0, pipeline: "orders".into(), origin: None };
        let mut headers = HeaderMap::new();
        describe(&call, &mut headers);
        assert_eq!(headers["ce-specversion"], "1.0");
        assert_eq!(
            (&headers["ce-id"], &headers["ce-type"]),
            (&"o.1".parse().unwrap(), &"order.paid".parse().unwrap())
        );
        assert_eq!(headers["ce-source"], "/redrive/orders");
        assert!(headers["ce-time"].to_str().unwrap().starts_with("2023-11-14T22:13:20"));
        assert_eq!(headers.len(), 5);
    }
}
