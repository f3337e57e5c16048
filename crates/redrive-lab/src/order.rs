//! Message `i` of the workload: an order as JSON of exactly 512 bytes.

use std::fmt::Write;

use redrive::{Message, Time};

pub const ORDER_BYTES: usize = 512;
/// Number of customers, who take turns; the customer is the message's key.
pub const CUSTOMERS: u64 = 1000;
const FILLER: &str = const {
    match std::str::from_utf8(&[b'x'; ORDER_BYTES]) {
        Ok(filler) => filler,
        Err(_) => panic!("an x is UTF-8"),
    }
};

/// The id of order `i`.
pub fn id(i: u64) -> String {
    format!("o-{i}")
}

/// The number in an id; `None` if it is not one of ours.
pub fn number(id: &str) -> Option<u64> {
    id.strip_prefix("o-")?.parse().ok()
}

/// The JSON of order `i`.
pub fn payload(i: u64) -> String {
    let mut json = String::with_capacity(ORDER_BYTES);
    let customer = i % CUSTOMERS;
    // Writing to a String cannot fail.
    let _ =
        write!(json, r#"{{"order_id":"o-{i}","customer_id":"c-{customer}","amount":{i},"ts":0,"payload":""#);
    let filler = ORDER_BYTES - json.len() - 2;
    json.push_str(&FILLER[..filler]);
    json.push_str("\"}");
    json
}

/// Order `i` as a message created at `created`.
pub fn message(i: u64, created: Time) -> Message {
    let customer = format!("c-{}", i % CUSTOMERS);
    let built = Message::builder(id(i)).key(customer).payload(payload(i)).created(created).build();
    built.expect("an order is within every bound")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_order_has_exactly_512_bytes() {
        for i in [0, 9, 10, 999, 1_000, 12_345_678, u64::MAX] {
            assert_eq!(payload(i).len(), ORDER_BYTES, "order {i}");
        }
    }

    #[test]
    fn an_order_looks_as_the_workload_says() {
        let json = payload(1_234);
        let begin = r#"{"order_id":"o-1234","customer_id":"c-234","amount":1234,"ts":0,"payload":"xxx"#;
        assert!(json.starts_with(begin), "{json}");
        assert!(json.ends_with("x\"}"), "{json}");
    }

    #[test]
    fn the_number_can_be_read_back_from_the_id() {
        assert_eq!(number(&id(42)), Some(42));
        assert_eq!(number("c-42"), None);
        assert_eq!(message(7, Time::from_millis(5)).id(), "o-7");
    }
}
