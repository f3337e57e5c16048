//! A handler for orders that keeps no state in memory: its trace survives its process.

use std::time::Duration;

use redrive::{Call, Delivery, Failure, Sink};

use super::orders;
use super::trace::Trace;
use crate::fate::{Fate, fnv1a64};
use crate::order;

/// Decides the fate of an order and records it.
#[derive(Debug)]
pub struct Applier {
    pub trace: Trace,
    /// The number of the only order that fails, on every attempt; `None` uses the fates of the workload.
    pub poison: Option<u64>,
    /// An attempt takes up to this long, so that some are running at any moment.
    pub takes_max: Duration,
}

impl Sink for Applier {
    fn deliver(&self, call: Call) -> Delivery<'_> {
        Box::pin(async move {
            let number = call.message.payload().and_then(orders::number);
            let number = number.ok_or_else(|| Failure::permanent("no order of the workload"))?;
            if !self.takes_max.is_zero() {
                let takes_us = fnv1a64(&number.to_le_bytes()) % self.takes_max.as_micros() as u64;
                tokio::time::sleep(Duration::from_micros(takes_us)).await;
            }
            let attempt = u8::try_from(call.attempt).unwrap_or(u8::MAX);
            let fails = match self.poison {
                Some(poison) => poison == number,
                None => Fate::of(&order::id(number)).fails(attempt),
            };
            self.trace.record(number, attempt, !fails).map_err(Failure::transient)?;
            if fails { Err(Failure::transient("503 service unavailable")) } else { Ok(()) }
        })
    }
}
