//! The orders of one request.

use std::ops::Range;

use redrive::{Message, Time};

use crate::fate::{Fate, Rates};
use crate::order::CUSTOMERS;
use crate::{mark, seed};

/// One order, ready to be sent; identical on every offer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadyOrder {
    pub id: String,
    /// The customer, used as the message key.
    pub key: String,
    pub fate: Fate,
    /// JSON of exactly 512 bytes.
    pub payload: String,
}

/// Orders that are sent and acknowledged together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OrderBatch {
    /// The orders' numbers in the run.
    pub numbers: Range<u64>,
    pub created: Time,
    pub orders: Vec<ReadyOrder>,
}

impl OrderBatch {
    pub fn new(seed: u64, rates: Rates, numbers: Range<u64>, created: Time) -> Self {
        let orders = numbers.clone().map(|number| order(seed, rates, number, created)).collect();
        Self { numbers, created, orders }
    }

    pub fn len(&self) -> u64 {
        self.orders.len() as u64
    }

    pub fn is_empty(&self) -> bool {
        self.orders.is_empty()
    }

    /// The number of orders with a matching fate.
    pub fn count(&self, is: impl Fn(Fate) -> bool) -> u64 {
        self.orders.iter().filter(|order| is(order.fate)).count() as u64
    }

    /// The orders as messages of the library.
    pub fn messages(&self) -> Vec<Message> {
        let message = |order: &ReadyOrder| {
            let builder = Message::builder(order.id.clone()).key(order.key.clone());
            builder.payload(order.payload.clone()).created(self.created).build()
        };
        // An order is well within all limits of a message.
        self.orders.iter().filter_map(|order| message(order).ok()).collect()
    }

    /// The orders as the HTTP API accepts them: one object per line, or a single object. Ids and keys need no
    /// escaping.
    pub fn ndjson(&self) -> String {
        let lines = self.orders.iter().map(|order| {
            format!(r#"{{"id":"{}","key":"{}","payload":{}}}"#, order.id, order.key, order.payload)
        });
        let mut text = lines.collect::<Vec<_>>().join("\n");
        if self.orders.len() > 1 {
            text.push('\n');
        }
        text
    }
}

fn order(seed: u64, rates: Rates, number: u64, created: Time) -> ReadyOrder {
    let id = seed::id(seed, number);
    let fate = rates.fate(&id);
    let customer = number % CUSTOMERS;
    let payload = mark::order(&id, customer, number, created.as_millis(), fate);
    ReadyOrder { id, key: format!("c-{customer}"), fate, payload }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::order::ORDER_BYTES;
    use crate::seed::DEFAULT_SEED;

    fn poison(seed: u64, rates: Rates) -> Vec<String> {
        let batch = OrderBatch::new(seed, rates, 0..5_000, Time::from_millis(1));
        batch.orders.into_iter().filter(|order| order.fate == Fate::Poison).map(|order| order.id).collect()
    }

    #[test]
    fn the_same_seed_makes_the_same_orders_poison_and_another_seed_others() {
        assert_eq!(poison(7, Rates::WORKLOAD), poison(7, Rates::WORKLOAD));
        let numbers = |seed| -> Vec<_> {
            poison(seed, Rates::WORKLOAD)
                .iter()
                .filter_map(|id| crate::seed::parse(id))
                .map(|(_, n)| n)
                .collect()
        };
        assert_ne!(numbers(7), numbers(8));
        assert!((30..70).contains(&numbers(7).len()), "{}", numbers(7).len());
        assert!(poison(7, Rates::NONE).is_empty());
    }

    #[test]
    fn with_the_default_seed_the_fates_are_those_of_the_workload() {
        for order in OrderBatch::new(DEFAULT_SEED, Rates::WORKLOAD, 0..2_000, Time::ZERO).orders {
            assert_eq!(order.fate, Fate::of(&order.id), "{}", order.id);
        }
    }

    #[test]
    fn the_library_and_the_api_get_the_same_512_bytes() {
        let batch = OrderBatch::new(7, Rates::WORKLOAD, 10..13, Time::from_millis(99));
        let lines: Vec<serde_json::Value> =
            batch.ndjson().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(lines.len(), 3);
        for (message, line) in batch.messages().iter().zip(&lines) {
            assert_eq!(line["id"], message.id());
            assert_eq!(line["key"].as_str().unwrap().as_bytes(), message.key().unwrap());
            let payload: serde_json::Value = serde_json::from_slice(message.payload().unwrap()).unwrap();
            assert_eq!(line["payload"], payload);
            assert_eq!(message.payload().unwrap().len(), ORDER_BYTES);
            assert_eq!(payload["ts"], 99);
        }
        let one = OrderBatch::new(7, Rates::WORKLOAD, 10..11, Time::ZERO).ndjson();
        assert!(!one.contains('\n'), "one message alone is one JSON object");
    }
}
