//! How the machine uses the routes: who may start as far as its endpoint is concerned, and what becomes of the others.

use std::time::Duration;

use redrive_core::endpoints::{Contact, Endpoint, EndpointCall};
use redrive_core::time::millis;
use redrive_core::{Meta, Reason, Time, outlasts_hold};

use super::calls::Call;
use super::machine::{Machine, Start};
use super::routes::{Routed, Routes};
use crate::engine::{Delivery, Settlement};
use crate::settle;

impl Machine {
    /// Whether a delivery may start as far as its endpoint is concerned; otherwise it has been seen to.
    pub(super) fn route(
        &mut self,
        delivery: Delivery,
        turn: Option<u64>,
        now: Time,
    ) -> Option<(Delivery, Option<Endpoint>)> {
        let Some(routes) = &mut self.routes else { return Some((delivery, None)) };
        let hold_left = self.policy.hold_max().saturating_sub(Duration::from_millis(delivery.meta.held_ms));
        let latest = now.plus(hold_left).min(delivery.meta.deadline.unwrap_or(Time::MAX));
        let is_reserved = |place| turn != Some(place) && self.resets.is_reserved(place);
        match routes.route(delivery, latest, is_reserved, now) {
            Routed::Start(delivery, to) => Some((delivery, to)),
            Routed::Kept => None,
            Routed::PutOff(delivery, due) => {
                let settlement = self.defer_unsent(delivery, due, now);
                self.settle(settlement, None);
                None
            }
        }
    }

    /// Puts a message off that was not sent. It burns nothing, but its time is bounded all the same.
    pub(super) fn defer_unsent(&mut self, delivery: Delivery, due: Time, now: Time) -> Settlement {
        let meta = delivery.meta;
        // Whoever would not be sent any more ends when its time is up, and not when its endpoint might be back.
        let due = meta.deadline.map_or(due, |deadline| due.min(deadline));
        let held_ms = meta.held_ms.saturating_add(millis(due.since(now)));
        if outlasts_hold(&self.policy, held_ms) {
            return settle::dead(delivery, Reason::HoldExpired, now);
        }
        self.figures.deferred += 1;
        settle::put_off(Delivery { meta: Meta { held_ms, deferred: true, ..meta }, ..delivery }, due)
    }

    /// One that waited in place starts again, or waits on for its endpoint.
    pub(super) fn go_on(&mut self, call: Call, now: Time, starts: &mut Vec<Start>) {
        let is_reserved = |place| self.resets.is_reserved(place);
        let routes = self.routes.as_mut();
        match routes.map_or(Ok(None), |routes| routes.go_on(&call.delivery, is_reserved, now)) {
            Ok(to) => self.begin(Call { started: now, to, ..call }, starts),
            Err(due) => {
                let call = self.calls.insert(call);
                self.waiting.insert(due, call);
            }
        }
    }

    /// Starts what waited for its endpoint, as far as there are permits.
    pub(super) fn start_freed(&mut self, now: Time, starts: &mut Vec<Start>) {
        while self.room_for_due() > 0
            && let Some(routes) = &mut self.routes
            && let Some((delivery, endpoint)) = routes.next_freed(|place| self.resets.is_reserved(place))
        {
            let (mut one, before) = (vec![delivery], starts.len());
            self.look_at_lot(true);
            self.taken_again(&mut one, now, starts);
            self.look_at_lot(false);
            if starts.len() == before
                && let Some(routes) = &mut self.routes
            {
                routes.free_again(endpoint);
            }
        }
    }

    fn look_at_lot(&mut self, from_lot: bool) {
        if let Some(routes) = &mut self.routes {
            routes.from_lot = from_lot;
        }
    }

    /// What waits in memory goes back to where it was.
    pub(super) fn release_lot(&mut self) {
        let waiting = self.routes.as_mut().map(Routes::take_lot).unwrap_or_default();
        for delivery in waiting {
            self.settle(settle::released(delivery), None);
        }
    }

    /// Tells the endpoint of a call how it ended.
    pub(super) fn tell_endpoint(&mut self, call: &Call, ended: EndpointCall, contact: Contact, now: Time) {
        if let (Some(routes), Some(to)) = (&mut self.routes, call.to) {
            let voice = routes.voice(to, call.delivery.message.tenant(), contact);
            routes.ended(to, EndpointCall { voice, ..ended }, now);
        }
    }
}
