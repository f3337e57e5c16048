//! The mark of an order's fate in its payload, so that the downstream needs neither the producer's seed nor its
//! rates: **poison has a negative `amount`**; a transient order states at the beginning of its `payload` field how
//! often it fails (`"payload":"fails 2 xxx…"`). Either way the order has 512 bytes.

use std::borrow::Cow;
use std::fmt::Write;

use serde::Deserialize;

use crate::fate::Fate;
use crate::order::ORDER_BYTES;

/// The word before the number of failures.
const FAILS: &str = "fails ";

/// The JSON of an order, marked with its fate; exactly [`ORDER_BYTES`] long as long as id and customer are ours.
pub fn order(id: &str, customer: u64, amount: u64, ts_ms: u64, fate: Fate) -> String {
    let mut json = String::with_capacity(ORDER_BYTES);
    // Half of the range is reserved for the mark; the amount is only for display.
    let amount = (amount % (1 << 62)).cast_signed();
    let amount = if fate == Fate::Poison { -1 - amount } else { amount };
    // Writing to a String cannot fail.
    let _ = write!(
        json,
        r#"{{"order_id":"{id}","customer_id":"c-{customer}","amount":{amount},"ts":{ts_ms},"payload":""#
    );
    if let Fate::Transient { failures } = fate {
        let _ = write!(json, "{FAILS}{failures} ");
    }
    let filler = ORDER_BYTES.saturating_sub(json.len() + 2);
    json.extend(std::iter::repeat_n('x', filler));
    json.push_str("\"}");
    json
}

/// The fields of a payload that the stub reads. Other fields, and payloads that are not JSON, carry no mark.
#[derive(Debug, Default, Deserialize)]
pub struct Marked<'a> {
    #[serde(borrow)]
    pub order_id: Option<Cow<'a, str>>,
    amount: Option<f64>,
    #[serde(borrow)]
    payload: Option<Cow<'a, str>>,
}

impl<'a> Marked<'a> {
    pub fn read(payload: &'a [u8]) -> Self {
        serde_json::from_slice(payload).unwrap_or_default()
    }

    pub fn fate(&self) -> Fate {
        if self.amount.is_some_and(|amount| amount < 0.0) {
            return Fate::Poison;
        }
        let failures =
            self.payload.as_deref().and_then(|text| text.strip_prefix(FAILS)).and_then(first_number);
        failures.map_or(Fate::Success, |failures| Fate::Transient { failures })
    }
}

fn first_number(text: &str) -> Option<u8> {
    text.split(' ').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::seed;

    fn any_fate() -> impl Strategy<Value = Fate> {
        prop_oneof![
            Just(Fate::Success),
            Just(Fate::Poison),
            (1..=u8::MAX).prop_map(|failures| Fate::Transient { failures })
        ]
    }

    proptest! {
        #[test]
        fn an_order_has_512_bytes_and_its_fate_can_be_read_from_it(
            seed: u64, number: u64, customer: u64, amount: u64, ts_ms: u64, fate in any_fate()
        ) {
            let id = seed::id(seed, number);
            let json = order(&id, customer, amount, ts_ms, fate);
            prop_assert_eq!(json.len(), ORDER_BYTES);
            let marked = Marked::read(json.as_bytes());
            prop_assert_eq!(marked.order_id.as_deref(), Some(id.as_str()));
            prop_assert_eq!(marked.fate(), fate);
        }

        #[test]
        fn bytes_of_any_kind_are_read_without_a_panic(payload: Vec<u8>) {
            let _ = Marked::read(&payload).fate();
        }
    }

    #[test]
    fn an_order_has_the_fields_of_the_workload() {
        let json = order("o-7-17", 17, 1_999, 5, Fate::Transient { failures: 2 });
        let begin =
            r#"{"order_id":"o-7-17","customer_id":"c-17","amount":1999,"ts":5,"payload":"fails 2 xxx"#;
        assert!(json.starts_with(begin), "{json}");
        let order: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert_eq!(order.as_object().unwrap().len(), 5);
    }

    #[test]
    fn what_other_people_send_carries_no_mark_unless_the_amount_is_negative() {
        for (payload, fate) in [
            ("", Fate::Success),
            ("not json", Fate::Success),
            (r#"{"amount":100}"#, Fate::Success),
            (r#"{"amount":"-1"}"#, Fate::Success),
            (r#"{"amount":-0.5,"currency":"EUR"}"#, Fate::Poison),
            (r#"{"payload":"fails often"}"#, Fate::Success),
            (r#"{"payload":"fails 3"}"#, Fate::Transient { failures: 3 }),
            (r#"{"payload":{"nested":true}}"#, Fate::Success),
        ] {
            assert_eq!(Marked::read(payload.as_bytes()).fate(), fate, "{payload}");
        }
    }
}
