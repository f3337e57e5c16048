//! Builds the request of one attempt.

use hyper::header::{
    AUTHORIZATION, CONTENT_LENGTH, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, USER_AGENT,
};
use hyper::{Method, Request, Uri};
use redrive::internal::engine::SourcePosition;
use redrive::{Call, Time};
use redrive_core::text::connection_header::is_connection_header;

use super::cloud_event::{self, Format};
use super::endpoint::EndpointSource;
use super::header::{HeaderAllowance, is_plain, printable};
use super::payload::{Payload, Sent};
use super::signing::{Fetched, Signer, SigningError, Unsigned, id};

const WEBHOOK_ID: HeaderName = HeaderName::from_static("webhook-id");
const WEBHOOK_TIMESTAMP: HeaderName = HeaderName::from_static("webhook-timestamp");
const ATTEMPT: HeaderName = HeaderName::from_static("redrive-attempt");
const PIPELINE: HeaderName = HeaderName::from_static("redrive-pipeline");
const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
const TTL: HeaderName = HeaderName::from_static("redrive-ttl");
const REPLAY: HeaderName = HeaderName::from_static("redrive-replay");
const KEY: HeaderName = HeaderName::from_static("redrive-key");
const SOURCE_TOPIC: HeaderName = HeaderName::from_static("redrive-source-topic");
const SOURCE_PARTITION: HeaderName = HeaderName::from_static("redrive-source-partition");
const SOURCE_OFFSET: HeaderName = HeaderName::from_static("redrive-source-offset");
const SOURCE_TIMESTAMP: HeaderName = HeaderName::from_static("redrive-source-timestamp");
const TOMBSTONE: HeaderName = HeaderName::from_static("redrive-tombstone");
const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
const TRACESTATE: HeaderName = HeaderName::from_static("tracestate");
/// The prefix of the message's headers.
const PASSED_ON: &str = "redrive-header-";

/// A longer key is not sent.
const KEY_BYTES_MAX: usize = 1024;

const JSON: HeaderValue = HeaderValue::from_static("application/json");
const BYTES: HeaderValue = HeaderValue::from_static("application/octet-stream");
const US: HeaderValue = HeaderValue::from_static(concat!("redrive/", env!("CARGO_PKG_VERSION")));

/// The common parts of all requests of a sink.
#[derive(Debug)]
pub(super) struct Template {
    /// From the options; the values are marked as sensitive, so that no `Debug` shows them.
    pub(super) headers: Vec<(HeaderName, HeaderValue)>,
    pub(super) signer: Signer,
    pub(super) format: Format,
    /// The source of endpoints, so that they are not passed on.
    pub(super) source: Option<EndpointSource>,
}

impl Template {
    pub(super) fn request(
        &self,
        call: &Call,
        endpoint: Uri,
        fetched: &Fetched,
        authorization: Option<&HeaderValue>,
        now_secs: u64,
    ) -> Result<(Request<Payload>, Sent), SigningError> {
        let message = &call.message;
        let (payload, sent) = Payload::of(message);
        let mut headers = HeaderMap::with_capacity(16);
        headers.insert(USER_AGENT, US);
        headers.insert(CONTENT_TYPE, if looks_like_json(payload.bytes()) { JSON } else { BYTES });
        // Set explicitly, because an empty body would be sent without it.
        headers.insert(CONTENT_LENGTH, HeaderValue::from(payload.bytes().len()));
        // A header from the options replaces ours, and may then repeat.
        for (at, (name, value)) in self.headers.iter().enumerate() {
            if self.headers[..at].iter().any(|(earlier, _)| earlier == name) {
                headers.append(name, value.clone());
            } else {
                headers.insert(name, value.clone());
            }
        }
        headers.extend(authorization.map(|value| (AUTHORIZATION, value.clone())));
        let id = printable(message.wire(), message.id().as_bytes(), id::is_plain);
        headers.insert(WEBHOOK_ID, id.clone());
        headers.insert(IDEMPOTENCY_KEY, id.clone());
        if let Some(deadline) = message.deadline() {
            let left = deadline.since(Time::from_millis(now_secs * 1000)).as_secs();
            headers.insert(TTL, HeaderValue::from(left));
        }
        if call.replays > 0 {
            headers.insert(REPLAY, HeaderValue::from(call.replays));
        }
        headers.insert(WEBHOOK_TIMESTAMP, HeaderValue::from(now_secs));
        headers.insert(ATTEMPT, HeaderValue::from(call.attempt));
        if let Ok(pipeline) = HeaderValue::from_str(&call.pipeline) {
            headers.insert(PIPELINE, pipeline);
        }
        if let Some(key) = message.key().filter(|key| key.len() <= KEY_BYTES_MAX) {
            headers.insert(KEY, printable(message.wire(), key, is_plain));
        }
        if let Some(SourcePosition { topic, partition, offset }) = &call.origin {
            // Topic names consist of letters, digits, dots, dashes and underscores.
            headers.extend(HeaderValue::from_str(topic).ok().map(|topic| (SOURCE_TOPIC, topic)));
            headers.insert(SOURCE_PARTITION, HeaderValue::from(*partition));
            headers.insert(SOURCE_OFFSET, HeaderValue::from(*offset));
            headers.insert(SOURCE_TIMESTAMP, HeaderValue::from(message.created().as_millis()));
        }
        // A null payload differs from an empty one: it deletes the key's value.
        if message.payload().is_none() {
            headers.insert(TOMBSTONE, HeaderValue::from_static("true"));
        }
        let mut room = HeaderAllowance::default();
        if self.format == Format::CloudEvents {
            cloud_event::describe(call, &mut headers, &mut room);
        }
        self.pass_on(call, &mut headers, &mut room);
        let unsigned = Unsigned { id: id.as_bytes(), timestamp_secs: now_secs, payload: payload.bytes() };
        self.signer.sign(message, &endpoint, fetched, unsigned, &mut headers)?;

        let mut request = Request::new(payload);
        *request.method_mut() = Method::POST;
        *request.uri_mut() = endpoint;
        *request.headers_mut() = headers;
        Ok((request, sent))
    }

    /// Adds the message's own headers. Headers that HTTP cannot carry are dropped: they must not prevent the delivery.
    fn pass_on(&self, call: &Call, headers: &mut HeaderMap, room: &mut HeaderAllowance) {
        for (name, value) in call.message.headers() {
            if name.is_empty()
                || is_connection_header(name)
                || self.source.as_ref().is_some_and(|source| source.is_header(name))
                || self.signer.is_secret_header(name)
                || (self.format == Format::CloudEvents && cloud_event::attribute(name, value).is_some())
            {
                continue;
            }
            if !room.takes(name, value) {
                return;
            }
            let Ok(value) = HeaderValue::from_bytes(value) else { continue };
            let own = [CONTENT_TYPE, TRACEPARENT, TRACESTATE].into_iter();
            if let Some(own) = own.into_iter().find(|own| name.eq_ignore_ascii_case(own.as_str())) {
                headers.insert(own, value);
            } else if let Ok(name) = HeaderName::try_from(format!("{PASSED_ON}{name}")) {
                headers.append(name, value);
            }
        }
    }
}

/// A guess by the first and the last character. Parsing each payload would cost more than it is worth.
fn looks_like_json(payload: &[u8]) -> bool {
    let payload = payload.trim_ascii();
    let (Some(first), Some(last)) = (payload.first(), payload.last()) else { return false };
    matches!((first, last), (b'{', b'}') | (b'[', b']'))
        || (matches!((first, last), (b'"', b'"')) && payload.len() > 1)
}

#[cfg(test)]
mod tests {
    use redrive_core::Message;

    use super::super::header::{PASSED_ON_BYTES_MAX, PASSED_ON_MAX};
    use super::*;

    fn sent(message: redrive_core::MessageBuilder, template: &Template) -> HeaderMap {
        let message = message.build().unwrap();
        let origin = Some(SourcePosition { topic: "shop.orders".into(), partition: 7, offset: 1182 });
        let call = Call { message, attempt: 3, replays: 1, pipeline: "orders".into(), origin };
        let endpoint = "http://a.example/x".parse().unwrap();
        let (request, _) =
            template.request(&call, endpoint, &Fetched::default(), None, 1_700_000_000).unwrap();
        request.into_parts().0.headers
    }

    #[test]
    fn the_source_record_is_named_and_a_tombstone_is_told_from_an_empty_body() {
        let created = redrive_core::Time::from_millis(1_700_000_000_123);
        let headers = sent(Message::builder("m").payload("").created(created), &bare());
        for (name, value) in [
            ("redrive-source-topic", "shop.orders"),
            ("redrive-source-partition", "7"),
            ("redrive-source-offset", "1182"),
            ("redrive-source-timestamp", "1700000000123"),
        ] {
            assert_eq!(headers[name], value, "{name}");
        }
        assert!(!headers.contains_key("redrive-tombstone"), "an empty body is one");
        let headers = sent(Message::builder("m").key("k"), &bare());
        assert_eq!(headers["redrive-tombstone"], "true");
        assert_eq!(headers["content-length"], "0");
    }

    fn bare() -> Template {
        Template { headers: Vec::new(), signer: Signer::default(), format: Format::Plain, source: None }
    }

    #[test]
    fn an_attempt_says_who_it_is() {
        let headers = sent(Message::builder("o-1").key("c-7").payload("{}"), &bare());
        for (name, value) in [
            ("webhook-id", "o-1"),
            ("idempotency-key", "o-1"),
            ("redrive-replay", "1"),
            ("webhook-timestamp", "1700000000"),
            ("redrive-attempt", "3"),
            ("redrive-pipeline", "orders"),
            ("redrive-key", "c-7"),
            ("content-type", "application/json"),
            ("content-length", "2"),
        ] {
            assert_eq!(headers[name], value, "{name}");
        }
        assert!(headers["user-agent"].to_str().unwrap().starts_with("redrive/"));
    }

    #[test]
    fn headers_of_the_message_are_passed_on_with_a_prefix() {
        let trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        let message = Message::builder("o-1")
            .header("X-Src", "web")
            .header("x-src", "twice")
            .header("traceparent", trace)
            .header("Content-Type", "text/csv");
        let headers = sent(message, &bare());
        let src: Vec<_> = headers.get_all("redrive-header-x-src").iter().collect();
        assert_eq!(src, ["web", "twice"]);
        assert_eq!(headers["traceparent"], trace);
        assert_eq!(headers["content-type"], "text/csv");
        assert!(!headers.contains_key("redrive-header-traceparent"));
        assert!(!headers.contains_key("redrive-header-content-type"));
    }

    #[test]
    fn what_is_no_header_is_left_out_and_the_rest_arrives() {
        let message = Message::builder("o-1")
            .header("bad name", "x")
            .header("näme", "x")
            .header("", "x")
            .header("x-split", "a\r\nx-evil: 1")
            .header("x-null", &b"a\0"[..])
            .header("Transfer-Encoding", "chunked")
            .header("content-length", "0")
            .header("Host", "evil.example")
            .header("Connection", "x-good")
            .header("x-good", "yes");
        let headers = sent(message, &bare());
        let passed: Vec<_> = headers.keys().filter(|name| name.as_str().starts_with(PASSED_ON)).collect();
        assert_eq!(passed, ["redrive-header-x-good"]);
        assert!(!headers.contains_key("host"), "the client sets it from the endpoint");
    }

    #[test]
    fn too_many_headers_do_not_make_a_request_that_nobody_accepts() {
        let message = (0..200).fold(Message::builder("o-1"), |m, n| m.header(format!("h-{n}"), "x"));
        assert!(sent(message, &bare()).len() <= PASSED_ON_MAX + 15);
        let large = Message::builder("o-1").header("a", vec![b'x'; PASSED_ON_BYTES_MAX]).header("b", "x");
        assert!(!sent(large, &bare()).contains_key("redrive-header-a"));
        let key = Message::builder("o-1").key(vec![b'k'; KEY_BYTES_MAX + 1]);
        assert!(!sent(key, &bare()).contains_key("redrive-key"));
    }

    #[test]
    fn attributes_of_an_event_are_sent_once_and_within_the_same_bounds() {
        let template = Template { format: Format::CloudEvents, ..bare() };
        let message = Message::builder("o-1")
            .header("ce_type", "order.paid")
            .header("ce_id", "e-1")
            .header("ce_no-name", "x")
            .header("ce_time", "yesterday")
            .header("x-src", "web");
        let headers = sent(message, &template);
        assert_eq!(headers["ce-type"], "order.paid");
        let mut passed: Vec<_> =
            headers.keys().map(HeaderName::as_str).filter(|name| name.starts_with(PASSED_ON)).collect();
        passed.sort_unstable();
        // Headers that cannot be attributes are still passed on.
        let expected = ["ce_id", "ce_no-name", "ce_time", "x-src"].map(|name| format!("{PASSED_ON}{name}"));
        assert_eq!(passed, expected);
        let plain = sent(Message::builder("o-1").header("ce_type", "order.paid"), &bare());
        assert_eq!(plain["redrive-header-ce_type"], "order.paid");
        assert!(!plain.contains_key("ce-type"));

        let many = (0..200).fold(Message::builder("o-1"), |m, n| m.header(format!("ce_a{n}"), "x"));
        assert!(sent(many.header("x-src", "web"), &template).len() <= PASSED_ON_MAX + 20);
    }

    #[test]
    fn ids_and_keys_that_no_header_can_hold_are_percent_encoded() {
        let headers = sent(Message::builder("a b%é\n").key(&b"\0k"[..]), &bare());
        assert_eq!(headers["webhook-id"], "a%20b%25%C3%A9%0A");
        assert_eq!(headers["redrive-key"], "%00k");
    }

    #[test]
    fn the_id_has_no_dot_and_the_rest_of_its_life_is_told() {
        let deadline = Time::from_millis(1_700_000_060_999);
        let headers = sent(Message::builder("shop.orders/7/1182").deadline(deadline), &bare());
        assert_eq!(headers["webhook-id"], "shop%2Eorders/7/1182");
        assert_eq!(headers["webhook-id"], headers["idempotency-key"]);
        assert_eq!(headers["redrive-ttl"], "60");
        let late = sent(Message::builder("o").deadline(Time::from_millis(5)), &bare());
        assert_eq!(late["redrive-ttl"], "0");
        assert!(!sent(Message::builder("o"), &bare()).contains_key("redrive-ttl"));
    }

    /// A receiver that identifies messages by this header would drop the second one as a repeat of the first.
    #[test]
    fn two_ids_never_look_the_same() {
        let sent_as = |id: &str| sent(Message::builder(id), &bare())["webhook-id"].clone();
        assert_ne!(sent_as("order 7"), sent_as("order%207"));
        assert_eq!(sent_as("order%207"), "order%25207");
    }

    #[test]
    fn headers_of_the_options_are_over_the_guess_and_under_the_message() {
        let of_options = |name: &'static str, value: &'static str| {
            (HeaderName::from_static(name), HeaderValue::from_static(value))
        };
        let headers =
            vec![of_options("content-type", "text/plain"), of_options("x-a", "1"), of_options("x-a", "2")];
        let template = Template { headers, ..bare() };
        let plain = sent(Message::builder("o").payload("{}"), &template);
        assert_eq!(plain["content-type"], "text/plain");
        assert_eq!(plain.get_all("x-a").iter().count(), 2);
        let own = sent(Message::builder("o").header("content-type", "text/csv"), &template);
        assert_eq!(own["content-type"], "text/csv");
    }

    #[test]
    fn the_header_that_names_the_endpoint_is_not_sent_along() {
        let source = Some(EndpointSource::of(&redrive_core::Pick::Header("x-endpoint".into())));
        let template = Template { source, ..bare() };
        let headers = sent(Message::builder("o").header("X-Endpoint", "http://a.example/token"), &template);
        assert!(headers.iter().all(|(_, value)| !value.to_str().unwrap().contains("token")));
    }

    #[test]
    fn json_is_guessed_by_its_ends() {
        for json in ["{}", " [1]\n", "\"text\""] {
            assert!(looks_like_json(json.as_bytes()), "{json}");
        }
        for other in ["", "\"", "abc", "{", "5", "<a/>"] {
            assert!(!looks_like_json(other.as_bytes()), "{other}");
        }
    }
}
