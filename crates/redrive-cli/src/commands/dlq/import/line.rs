//! Formats a parsed record as a letter of the API: one line of JSON.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use redrive::internal::adopt::{ForeignRecord, Understood};
use redrive::{Time, timestamp};
use serde_json::{Map, Value, json};

/// Builds the line. `found` is the message that a pointer record refers to.
pub fn of(record: &ForeignRecord<'_>, understood: &Understood, found: Option<&ForeignRecord<'_>>) -> Value {
    let body = found.unwrap_or(record);
    let time = |time: Option<Time>| json!(time.map(timestamp::print));
    let mut line = Map::new();
    let mut put = |name: &str, value: Value| {
        if !value.is_null() {
            line.insert(name.to_owned(), value);
        }
    };
    put("message", json!(understood.message_id));
    put("dialect", json!(understood.dialect.name()));
    put("place", json!(record.place()));
    put("origin", json!(understood.origin.as_ref().map(ToString::to_string)));
    put("exception", json!(understood.exception));
    put("error", json!(understood.error));
    put("attempts", json!(understood.attempts));
    put("created", time(understood.created.or(body.written)));
    put("failed_at", time(understood.failed_at));
    put("key", body.key.map_or(Value::Null, bytes));
    // The pointer's headers about the failure go after the headers of its message.
    let pointer = found.map(|_| &record.headers).into_iter().flatten();
    let headers = body.headers.iter().chain(pointer);
    put("headers", headers.map(|(name, value)| json!([name, value.map_or(Value::Null, bytes)])).collect());
    // Always present, even if there is no payload.
    line.insert("payload".to_owned(), body.value.map_or(Value::Null, bytes));
    Value::Object(line)
}

fn bytes(value: &[u8]) -> Value {
    match std::str::from_utf8(value) {
        Ok(text) => json!({ "utf8": text }),
        Err(_) => json!({ "base64": STANDARD.encode(value) }),
    }
}

#[cfg(test)]
mod tests {
    use redrive::internal::adopt::Dialect;

    use super::*;

    #[test]
    fn a_record_is_sent_byte_for_byte() {
        let record = ForeignRecord {
            topic: "orders-dlt",
            partition: 0,
            offset: 17,
            written: Some(Time::from_millis(1_700_000_000_000)),
            key: Some(&[0, 255]),
            value: None,
            headers: vec![
                ("kafka_dlt-original-topic", Some(b"orders")),
                ("kafka_dlt-original-partition", Some(&[0, 0, 0, 7])),
                ("kafka_dlt-original-offset", Some(&[0, 0, 0, 0, 0, 0, 0, 255])),
                ("none", None),
            ],
        };
        let understood = Dialect::Spring.understand(&record, false).unwrap();
        let line = of(&record, &understood, None);
        assert_eq!(line["origin"], "orders/7/255");
        assert_eq!(line["place"], "orders-dlt/0/17");
        assert_eq!(line["key"], json!({ "base64": "AP8=" }));
        assert_eq!(line["payload"], Value::Null);
        assert_eq!(line["headers"][2][1], json!({ "base64": "AAAAAAAAAP8=" }));
        assert_eq!(line["headers"][3], json!(["none", null]));
        assert_eq!(line["failed_at"], "2023-11-14T22:13:20.000Z");
    }

    #[test]
    fn a_pointer_sends_the_message_it_points_at() {
        let headers: Vec<(&str, Option<&[u8]>)> = vec![
            ("__dlq.errors.topic", Some(b"orders")),
            ("__dlq.errors.partition", Some(b"2")),
            ("__dlq.errors.offset", Some(b"41")),
        ];
        let pointer = ForeignRecord {
            topic: "dlq.orders",
            partition: 0,
            offset: 3,
            written: None,
            key: None,
            value: None,
            headers,
        };
        let message = ForeignRecord {
            topic: "orders",
            partition: 2,
            offset: 41,
            key: Some(b"c-7"),
            value: Some(b"{}"),
            headers: vec![("x-src", Some(b"web"))],
            ..pointer.clone()
        };
        let understood = Dialect::Kip1191.understand(&pointer, false).unwrap();
        assert!(understood.is_pointer);
        let line = of(&pointer, &understood, Some(&message));
        assert_eq!((&line["key"], &line["payload"]), (&json!({ "utf8": "c-7" }), &json!({ "utf8": "{}" })));
        assert_eq!(line["headers"].as_array().map(Vec::len), Some(4));
        assert_eq!(line["place"], "dlq.orders/0/3");
    }
}
