//! Drives an engine by hand: take, settle, and wait for the effect.

use std::collections::BTreeSet;

use redrive::internal::engine::{Deliver, Delivery, Settlement, StoreOptions, Verdict};
use redrive_core::Time;
use redrive_kafka::KafkaEngine;

use super::{message, wait, wait_durable};

pub fn at(ms: u64) -> Time {
    Time::from_millis(1_000_000 + ms)
}

/// Takes until there are `count` deliveries.
pub fn take(engine: &mut KafkaEngine, now: Time, count: usize) -> Vec<Delivery> {
    let mut out = Vec::new();
    let mut events = Vec::new();
    wait("deliveries come", || {
        engine.poll(&mut events).expect("polling works");
        let room = count - out.len();
        engine.take(now, room, &mut out).expect("taking works");
        out.len() == count
    });
    out
}

pub fn settle(engine: &mut KafkaEngine, deliveries: Vec<Delivery>, verdict: impl Fn(&Delivery) -> Verdict) {
    let batch = deliveries
        .into_iter()
        .map(|delivery| Settlement { verdict: verdict(&delivery), delivery, attempt: None })
        .collect();
    let ticket = engine.settle(batch).expect("settling works");
    wait_durable(engine, ticket);
}

pub fn ids(deliveries: &[Delivery]) -> BTreeSet<String> {
    deliveries.iter().map(|delivery| delivery.message.id().to_owned()).collect()
}

pub fn messages(ids: std::ops::Range<u32>) -> Vec<redrive_core::Message> {
    ids.map(|n| message(&format!("m{n}")).created(at(0)).payload("{}").build().unwrap()).collect()
}

/// Takes from two members until there are `count` deliveries, and settles each as done.
pub fn finish_all(engines: &mut [&mut KafkaEngine], now: Time, count: usize) -> Vec<String> {
    let mut done = Vec::new();
    let mut events = Vec::new();
    wait("everything is delivered", || {
        for engine in engines.iter_mut() {
            engine.poll(&mut events).expect("polling works");
            let mut out = Vec::new();
            engine.take(now, 16, &mut out).expect("taking works");
            done.extend(out.iter().map(|delivery| delivery.message.id().to_owned()));
            let batch = out
                .into_iter()
                .map(|delivery| Settlement { delivery, verdict: Verdict::Done, attempt: None })
                .collect();
            engine.settle(batch).expect("settling works");
        }
        done.len() >= count
    });
    done
}

pub fn ordered() -> StoreOptions {
    StoreOptions { ordering: redrive::internal::engine::DeliveryOrder::Key, ..StoreOptions::default() }
}

pub fn of_key(ids: std::ops::Range<u32>, key: &'static str) -> Vec<redrive_core::Message> {
    ids.map(|n| message(&format!("{key}{n}")).key(key).created(at(0)).payload("{}").build().unwrap())
        .collect()
}
