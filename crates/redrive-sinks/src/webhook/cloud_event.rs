//! CloudEvents 1.0 in binary mode: attributes in headers, the payload unchanged.

use hyper::header::{HeaderMap, HeaderName, HeaderValue};
use redrive::{Call, timestamp};

use super::header::{HeaderAllowance, encoded, is_plain, printable};

const SPEC_VERSION: HeaderName = HeaderName::from_static("ce-specversion");
const ID: HeaderName = HeaderName::from_static("ce-id");
const SOURCE: HeaderName = HeaderName::from_static("ce-source");
const TYPE: HeaderName = HeaderName::from_static("ce-type");
const TIME: HeaderName = HeaderName::from_static("ce-time");
/// The prefixes of attributes in message headers, as in CloudEvents over Kafka.
const OF_MESSAGE: [&str; 2] = ["ce_", "ce-"];

/// The form of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// The payload with Redrive's headers.
    #[default]
    Plain,
    /// The same with CloudEvents headers in binary mode.
    CloudEvents,
}

/// Adds the attributes. Attributes from the message override ours, except for the id.
pub(super) fn describe(call: &Call, headers: &mut HeaderMap, room: &mut HeaderAllowance) {
    let message = &call.message;
    headers.insert(SPEC_VERSION, HeaderValue::from_static("1.0"));
    headers.insert(ID, printable(message.wire(), message.id().as_bytes(), is_plain_here));
    headers.insert(TYPE, HeaderValue::from_static("redrive.message"));
    let source = match &call.origin {
        Some(origin) => format!("/kafka/{}", origin.topic),
        None => format!("/redrive/{}", call.pipeline),
    };
    headers.insert(SOURCE, encoded(source.as_bytes(), is_plain_here));
    headers.insert(TIME, encoded(timestamp::print(message.created()).as_bytes(), is_plain_here));
    for (name, value) in message.headers() {
        let Some((attribute, encoded)) = attribute(name, value) else { continue };
        if !room.takes(name, value) {
            return;
        }
        headers.insert(attribute, encoded);
    }
}

/// The attribute in a message header, if events may have it.
pub(super) fn attribute(name: &str, value: &[u8]) -> Option<(HeaderName, HeaderValue)> {
    let (prefix, name) = name.split_at_checked(OF_MESSAGE[0].len())?;
    OF_MESSAGE.iter().find(|one| prefix.eq_ignore_ascii_case(one))?;
    let name = name.to_ascii_lowercase();
    let is_name = !name.is_empty() && name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
    let value = str::from_utf8(value).ok()?;
    let is_text = !value.is_empty() && !value.chars().any(char::is_control);
    let fits = match name.as_str() {
        // The id is the message's, the content type has its own header, and the data is the body.
        "id" | "datacontenttype" | "data" => false,
        "specversion" => value == "1.0",
        "time" => timestamp::parse(value).is_some(),
        _ => true,
    };
    if !(is_name && is_text && fits) {
        return None;
    }
    let name = HeaderName::try_from(format!("ce-{name}")).ok()?;
    Some((name, encoded(value.as_bytes(), is_plain_here)))
}

/// Whether a byte is not encoded: visible ASCII except space, double quote and percent sign.
fn is_plain_here(byte: u8) -> bool {
    is_plain(byte) && byte != b'"'
}

#[cfg(test)]
mod tests {
    use redrive::{Message, Time};

    use super::*;

    fn described(message: redrive_core::MessageBuilder) -> HeaderMap {
        let message = message.created(Time::from_millis(1_700_000_000_000)).build().unwrap();
        let call = Call { message, attempt: 1, replays: 0, pipeline: "orders".into(), origin: None };
        let mut headers = HeaderMap::new();
        describe(&call, &mut headers, &mut HeaderAllowance::default());
        headers
    }

    #[test]
    fn a_message_becomes_an_event_and_may_bring_attributes() {
        let message = Message::builder("o.1").header("ce_type", "order.paid").header("ce_id", "other");
        let headers = described(message);
        assert_eq!(headers["ce-specversion"], "1.0");
        assert_eq!(
            (&headers["ce-id"], &headers["ce-type"]),
            (&"o.1".parse().unwrap(), &"order.paid".parse().unwrap())
        );
        assert_eq!(headers["ce-source"], "/redrive/orders");
        assert!(headers["ce-time"].to_str().unwrap().starts_with("2023-11-14T22:13:20"));
        assert_eq!(headers.len(), 5);
    }

    /// Section 3.1.3.2 of the HTTP protocol binding, with its example.
    #[test]
    fn values_are_percent_encoded_as_the_http_binding_says() {
        let headers = described(Message::builder("a \"b\"").header("ce_subject", "Euro € 😀"));
        assert_eq!(headers["ce-subject"], "Euro%20%E2%82%AC%20%F0%9F%98%80");
        assert_eq!(headers["ce-id"], "a%20%22b%22");
        let headers = described(Message::builder("o").header("ce_source", "/a?b=100%&c=~"));
        assert_eq!(headers["ce-source"], "/a?b=100%25&c=~");
    }

    #[test]
    fn what_an_event_cannot_have_is_left_out() {
        let message = Message::builder("o")
            .header("ce_bad name", "x")
            .header("ce_with-hyphen", "x")
            .header("ce_", "x")
            .header("ce_naïve", "x")
            .header("ce_datacontenttype", "text/plain")
            .header("ce_data", "x")
            .header("ce_specversion", "0.3")
            .header("ce_time", "yesterday")
            .header("ce_type", "")
            .header("ce_source", &b"\xff"[..])
            .header("ce_subject", "two\nlines");
        let headers = described(message);
        assert_eq!(
            (&headers["ce-specversion"], &headers["ce-type"]),
            (&"1.0".parse().unwrap(), &"redrive.message".parse().unwrap())
        );
        assert_eq!(headers["ce-source"], "/redrive/orders");
        assert_eq!(headers.len(), 5, "{headers:?}");
        let timed = described(Message::builder("o").header("Ce_Time", "2018-04-05T17:31:00Z"));
        assert_eq!(timed["ce-time"], "2018-04-05T17:31:00Z");
    }
}
