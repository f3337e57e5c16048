//! What people see and change of deliveries that the machine holds, and of the breaker.

use redrive_core::breaker::BreakerState;
use redrive_core::{Meta, Reason, Time};

use super::machine::Machine;
use super::protection::BreakerOrder;
use super::routes::Routes;
use crate::engine::Delivery;
use crate::settle;

/// What the machine knows of a delivery that somebody names.
#[derive(Debug)]
pub enum Withdrawn {
    /// It was not running and is the caller's now.
    Taken(Box<Delivery>),
    Running,
    /// The machine does not have it.
    NotHere,
}

/// What there was to be changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BreakerAnswer {
    /// The breaker of the pipeline as it was.
    pub was: BreakerState,
    /// Endpoints and origins that were in cooldown, for a sink with an endpoint per message.
    pub endpoints: usize,
}

impl Machine {
    /// Deliveries that hold a permit: their handler runs, or they wait in place.
    pub fn started(&self) -> impl Iterator<Item = &Delivery> {
        self.calls.iter().map(|(_, call)| &call.delivery)
    }

    /// Whether the handler of this message runs now.
    pub fn runs(&self, number: u64) -> bool {
        let mut calls = self.calls.iter().filter(|(_, call)| call.delivery.receipt.number() == number);
        calls.any(|(id, _)| !self.waiting.holds(id))
    }

    /// Deliveries that were taken and hold no permit: they wait for their endpoint, or for their turn as suspects.
    pub fn unstarted(&self) -> impl Iterator<Item = &Delivery> {
        self.suspects.waiting().chain(self.routes.iter().flat_map(Routes::waiting))
    }

    /// Takes the delivery with this number out, unless its handler runs.
    pub fn withdraw(&mut self, number: u64) -> Withdrawn {
        let is_it = |delivery: &Delivery| delivery.receipt.number() == number;
        let found = self.calls.iter().find(|(_, call)| is_it(&call.delivery)).map(|(id, _)| id);
        if let Some(id) = found {
            if !self.waiting.remove(id) {
                return Withdrawn::Running;
            }
            let call = self.calls.remove(id);
            return call.map_or(Withdrawn::NotHere, |call| Withdrawn::Taken(Box::new(call.delivery)));
        }
        let from_lot = self.routes.as_mut().and_then(|routes| routes.withdraw(number));
        let taken = from_lot.or_else(|| self.suspects.take_if(is_it));
        taken.map_or(Withdrawn::NotHere, |delivery| Withdrawn::Taken(Box::new(delivery)))
    }

    /// Somebody cancelled it.
    pub fn cancel(&mut self, delivery: Delivery, now: Time) {
        self.settle(settle::dead(delivery, Reason::Cancelled, now), None);
    }

    /// Somebody wants its next attempt now.
    pub fn make_due(&mut self, delivery: Delivery, now: Time) {
        let meta = Meta { deferred: false, ..delivery.meta };
        self.settle(settle::put_off(Delivery { meta, ..delivery }, now), None);
    }

    /// It goes back to where it was.
    pub fn let_go(&mut self, delivery: Delivery) {
        self.settle(settle::released(delivery), None);
    }

    /// Carries out what somebody wants of the breaker, and of those of all endpoints.
    pub fn order_breaker(&mut self, order: BreakerOrder, now: Time) -> BreakerAnswer {
        let was = self.protection.order_breaker(order, now);
        let endpoints = self.routes.as_mut().map_or(0, |routes| match order {
            BreakerOrder::Probe => routes.endpoints.probe_now(now),
            BreakerOrder::Close => routes.endpoints.close_all(now),
        });
        BreakerAnswer { was, endpoints }
    }
}
