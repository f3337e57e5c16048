//! Routing for a sink with an endpoint per message: an endpoint that fails, sends a Retry-After or is busy delays
//! only its own messages.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::Duration;

use redrive_core::endpoints::{
    Asking, Contact, Endpoint, EndpointCall, EndpointWait, Endpoints, LimitBy, Passage, Unit, WaitList,
    WaitReason, counts_as,
};
use redrive_core::failure_kind::Counted;
use redrive_core::time::millis;
use redrive_core::{BreakerSettings, FailureKind, Message, Random, Time};

use super::health::EndpointFigures;
use super::saved_endpoints::SavedEndpoints;
use crate::engine::Delivery;

/// Messages per permit that wait in memory for a full endpoint; beyond that they wait in the store.
const QUEUED_PER_PERMIT: usize = 4;
/// How long a message waits in the store at first …
const PUT_OFF_MIN: Duration = Duration::from_secs(1);
/// … and at most; the wait grows each time.
const PUT_OFF_MAX: Duration = Duration::from_mins(1);

/// Delay before a message that waits in place tries a full endpoint again.
const ASK_AGAIN: Duration = Duration::from_millis(50);

/// The number of waiting endpoints that are listed.
pub const SHOWN_MAX: usize = 32;

/// Interval at which waiting endpoints are counted.
const COUNT_EVERY: Duration = Duration::from_secs(1);

type Route = dyn Fn(&Message) -> Option<Endpoint> + Send + Sync;

/// Determines the endpoint of a message.
#[derive(Clone)]
pub struct Router {
    pub(crate) per_endpoint: u32,
    /// Calls per second that may begin at one endpoint.
    pub(crate) rate: Option<f64>,
    pub(crate) numbering: Option<u64>,
    pub(crate) limit_by: LimitBy,
    /// Whether an origin is one service that answers for all its endpoints.
    pub(crate) one_service: bool,
    pub(crate) of: Arc<Route>,
}

impl Router {
    /// A router that allows at most `per_endpoint` concurrent calls to one endpoint, and `rate` new ones per second.
    pub fn new(
        per_endpoint: u32,
        rate: Option<f64>,
        of: impl Fn(&Message) -> Option<Endpoint> + Send + Sync + 'static,
    ) -> Self {
        Self {
            per_endpoint,
            rate,
            numbering: None,
            limit_by: LimitBy::Endpoint,
            one_service: false,
            of: Arc::new(of),
        }
    }

    /// Identifies how endpoints are numbered. A process restores saved cooldowns only if they have the same
    /// numbering.
    #[must_use]
    pub fn numbered(self, numbering: Option<u64>) -> Self {
        Self { numbering, ..self }
    }

    /// Sets what an endpoint's number stands for.
    #[must_use]
    pub fn limiting_by(self, limit_by: LimitBy) -> Self {
        Self { limit_by, ..self }
    }

    /// Sets whether an origin is one service that answers for all its endpoints, as a push service does. Then its
    /// answers at one endpoint count for all, and both windows of the breaker watch it.
    #[must_use]
    pub fn one_service(self, one_service: bool) -> Self {
        Self { one_service, ..self }
    }
}

impl fmt::Debug for Router {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Router").field("per_endpoint", &self.per_endpoint).finish_non_exhaustive()
    }
}

#[derive(Debug)]
pub(super) struct Routes {
    router: Router,
    /// The failures that the slow window counts.
    slow_counts: Vec<Counted>,
    pub(super) endpoints: Endpoints,
    /// Messages whose endpoint is full; they hold no permit. `queued` is their total.
    queues: HashMap<u64, VecDeque<Delivery>>,
    queued: usize,
    queued_max: usize,
    /// Endpoints with queued messages at which a call has ended.
    freed: VecDeque<u64>,
    /// Whether the delivery being routed comes from a queue, so that it is its turn.
    pub(super) from_queue: bool,
    /// Numbers for tenants. The hash is keyed at random, so that an outsider cannot choose two tenants with the same
    /// number.
    tenants: RandomState,
    /// The last figures and their time, because counting many endpoints takes long.
    shown: (EndpointFigures, Time),
    saved: SavedEndpoints,
}

/// The result of routing a delivery.
pub(super) enum Routed {
    Start(Delivery, Option<Endpoint>),
    /// The delivery waits in its endpoint's queue.
    Queued,
    PutOff(Delivery, Time),
}

impl Routes {
    pub(super) fn new(router: Router, breaker: &BreakerSettings, permits: usize) -> Self {
        Self {
            endpoints: Endpoints::new(breaker.clone(), router.per_endpoint, router.rate, permits),
            saved: SavedEndpoints::new(router.numbering),
            slow_counts: breaker.slow.counts.clone(),
            router,
            queues: HashMap::new(),
            queued: 0,
            queued_max: permits.saturating_mul(QUEUED_PER_PERMIT),
            freed: VecDeque::new(),
            from_queue: false,
            tenants: RandomState::new(),
            shown: (EndpointFigures::default(), Time::ZERO),
        }
    }

    /// The endpoints that keep messages waiting, counted at most once a second. `reserved` are those reserved for one
    /// message.
    pub(super) fn figures(&mut self, reserved: impl Iterator<Item = u64>, now: Time) -> EndpointFigures {
        let (shown, counted) = &self.shown;
        if now.since(*counted) < COUNT_EVERY && now >= *counted {
            return shown.clone();
        }
        let (endpoints, origins) = self.endpoints.in_cooldown(now);
        let (waiting, waits) = self.waits(reserved, now).finish();
        let (endpoints, origins) = (endpoints as u64, origins as u64);
        let limit_by = self.router.limit_by;
        let figures = EndpointFigures { limit_by, endpoints, origins, waiting, waits: waits.into() };
        self.shown = (figures.clone(), now);
        figures
    }

    /// Lists the waits. Those for a breaker, Retry-After or rate come from the endpoints; full and reserved ones
    /// follow from the queues here.
    fn waits(&self, reserved: impl Iterator<Item = u64>, now: Time) -> WaitList {
        let mut list = WaitList::new(SHOWN_MAX);
        let queued = |endpoint: u64| self.queues.get(&endpoint).map_or(0, |waiting| waiting.len() as u64);
        for wait in self.endpoints.waits(now) {
            let queued = if wait.unit == Unit::Endpoint { queued(wait.number) } else { 0 };
            list.push(EndpointWait { queued, ..wait });
        }
        let wait = |number: u64, why: WaitReason| EndpointWait {
            unit: Unit::Endpoint,
            number,
            why,
            until: None,
            rounds: 0,
            queued: queued(number),
        };
        let reserved: Vec<u64> = reserved.collect();
        reserved.iter().for_each(|endpoint| list.push(wait(*endpoint, WaitReason::Isolation)));
        for endpoint in self.queues.keys().filter(|endpoint| !reserved.contains(endpoint)) {
            let is_full = self.endpoints.running(*endpoint) >= self.endpoints.per_endpoint() as usize;
            if is_full && !self.endpoints.is_cooling(*endpoint, now) {
                list.push(wait(*endpoint, WaitReason::Concurrency));
            }
        }
        list
    }

    /// Restores the state that an earlier process left.
    pub(super) fn remember(&mut self, reminder: &[u8]) {
        self.endpoints.resume(&self.saved.read(reminder));
    }

    /// Whether the state for the next process has changed since it was written.
    pub(super) fn is_reminder_due(&mut self, now: Time) -> bool {
        self.saved.is_due(self.endpoints.changes(), now)
    }

    /// The state for the next process.
    pub(super) fn reminder(&self, now: Time) -> Vec<u8> {
        self.saved.write(&self.endpoints.cooldowns(now))
    }

    /// Routes a delivery that will not be sent after `latest`. `is_reserved` says which endpoints are reserved for
    /// another message.
    pub(super) fn route(
        &mut self,
        delivery: Delivery,
        latest: Time,
        is_reserved: impl Fn(u64) -> bool,
        now: Time,
    ) -> Routed {
        let Some(to) = (self.router.of)(&delivery.message) else { return Routed::Start(delivery, None) };
        // First come, first served.
        let waits = (!self.from_queue && self.queues.contains_key(&to.endpoint)) || is_reserved(to.endpoint);
        let asking = Asking { waited: delivery.meta.held_ms > 0, latest, random: spread(&delivery) };
        match self.endpoints.ask(to, asking, now) {
            Passage::Go if !waits => {
                self.endpoints.started(to, now);
                Routed::Start(delivery, Some(to))
            }
            Passage::NotBefore(due) => Routed::PutOff(delivery, due),
            Passage::Go | Passage::Full if self.has_place_for(to) => {
                self.queues.entry(to.endpoint).or_default().push_back(delivery);
                self.queued += 1;
                Routed::Queued
            }
            Passage::Go | Passage::Full => {
                let wait = Duration::from_millis(delivery.meta.held_ms / 2).clamp(PUT_OFF_MIN, PUT_OFF_MAX);
                let jitter = spread(&delivery).below_ms(millis(wait) / 2);
                Routed::PutOff(delivery, now.plus(wait + Duration::from_millis(jitter)))
            }
        }
    }

    /// Returns the endpoint if a call that waited in place may continue now, otherwise when to ask again.
    pub(super) fn go_on(
        &mut self,
        delivery: &Delivery,
        is_reserved: impl Fn(u64) -> bool,
        now: Time,
    ) -> Result<Option<Endpoint>, Time> {
        let Some(to) = (self.router.of)(&delivery.message) else { return Ok(None) };
        if is_reserved(to.endpoint) {
            return Err(now.plus(ASK_AGAIN));
        }
        let asking = Asking { waited: true, latest: Time::MAX, random: spread(delivery) };
        match self.endpoints.ask(to, asking, now) {
            Passage::Go => {
                self.endpoints.started(to, now);
                Ok(Some(to))
            }
            Passage::NotBefore(due) => Err(due),
            Passage::Full => Err(now.plus(ASK_AGAIN)),
        }
    }

    /// Whether a message may be queued. No endpoint may fill more than a quarter of the queues, to leave room for
    /// others.
    fn has_place_for(&self, to: Endpoint) -> bool {
        let own = self.queues.get(&to.endpoint).map_or(0, VecDeque::len);
        self.queued < self.queued_max && own < (self.queued_max / 4).max(1)
    }

    /// The party for which a call counts at its origin. `is_answer`: whether the call says if the receiver is
    /// healthy.
    pub(super) fn counts_as(
        &self,
        to: Endpoint,
        tenant: Option<&str>,
        contact: Contact,
        is_answer: bool,
    ) -> Option<u64> {
        if self.router.one_service && contact == Contact::Failed {
            return is_answer.then_some(to.endpoint);
        }
        counts_as(to, tenant.map(|tenant| self.tenants.hash_one(tenant)), contact)
    }

    /// How a first attempt counts in the slow window of its origin, if there is one.
    pub(super) fn slow(&self, failed: Option<FailureKind>) -> Option<bool> {
        let counts = |kind: FailureKind| self.slow_counts.iter().any(|counted| counted.matches(kind));
        self.router.one_service.then(|| failed.is_some_and(counts))
    }

    pub(super) fn ended(&mut self, to: Endpoint, call: EndpointCall, now: Time) {
        self.endpoints.ended(to, call, now);
        if self.queues.contains_key(&to.endpoint) {
            self.freed.push_back(to.endpoint);
        }
    }

    /// The next queued message whose endpoint has room again.
    pub(super) fn next_freed(&mut self, is_reserved: impl Fn(u64) -> bool) -> Option<(Delivery, u64)> {
        loop {
            let endpoint = self.freed.pop_front()?;
            let Some(waiting) = self.queues.get_mut(&endpoint) else { continue };
            let to = waiting.front().and_then(|next| (self.router.of)(&next.message));
            // Full again: the end of a call there will free it.
            if to.is_some_and(|to| self.endpoints.is_full(to)) || is_reserved(endpoint) {
                continue;
            }
            let delivery = waiting.pop_front();
            if waiting.is_empty() {
                self.queues.remove(&endpoint);
            }
            if let Some(delivery) = delivery {
                self.queued -= 1;
                return Some((delivery, endpoint));
            }
        }
    }

    /// The message that had its turn did not start, so no end of a call would free the next one.
    pub(super) fn free_again(&mut self, endpoint: u64) {
        if self.queues.contains_key(&endpoint) {
            self.freed.push_front(endpoint);
        }
    }

    /// Messages that wait here for their endpoint.
    pub(super) fn waiting(&self) -> impl Iterator<Item = &Delivery> {
        self.queues.values().flatten()
    }

    /// Withdraws a waiting message.
    pub(super) fn withdraw(&mut self, number: u64) -> Option<Delivery> {
        let is_it = |delivery: &Delivery| delivery.receipt.number() == number;
        let (endpoint, at) =
            self.queues.iter().find_map(|(to, waiting)| Some((*to, waiting.iter().position(is_it)?)))?;
        let waiting = self.queues.get_mut(&endpoint)?;
        let delivery = waiting.remove(at)?;
        if waiting.is_empty() {
            self.queues.remove(&endpoint);
        }
        self.queued -= 1;
        Some(delivery)
    }

    pub(super) fn take_queued(&mut self) -> Vec<Delivery> {
        self.queued = 0;
        self.freed.clear();
        std::mem::take(&mut self.queues).into_values().flatten().collect()
    }
}

/// A pseudo-random number that differs for each message and each of its waits, but is reproducible.
fn spread(delivery: &Delivery) -> Random {
    let number = delivery.receipt.number() ^ delivery.meta.held_ms.rotate_left(32);
    Random(number.wrapping_mul(0x9E37_79B9_7F4A_7C15))
}

#[cfg(test)]
mod tests {
    use redrive_core::Meta;

    use super::*;
    use crate::engine::{History, Receipt};

    const PERMITS: usize = 8;
    const NOW: Time = Time::from_millis(1_000_000);

    /// Allows two concurrent calls per endpoint, which is the first letter of the message's id.
    fn routes() -> Routes {
        let of = |message: &Message| {
            message.id().bytes().next().map(|letter| Endpoint { origin: 1, endpoint: letter.into() })
        };
        Routes::new(Router::new(2, None, of), &BreakerSettings::default(), PERMITS)
    }

    fn delivery(id: &str) -> Delivery {
        let seq = id.bytes().fold(0, |seq, byte| seq * 256 + u64::from(byte));
        Delivery {
            receipt: Receipt { lane: 0, epoch: 0, seq, at: 0 },
            message: Message::builder(id).build().unwrap(),
            meta: Meta::default(),
            history: History::default(),
            due: None,
            arrived: None,
            origin: None,
            doomed: None,
            suspect: None,
        }
    }

    fn route(routes: &mut Routes, id: &str) -> Routed {
        routes.route(delivery(id), Time::MAX, |_| false, NOW)
    }

    fn started(routed: &Routed) -> Endpoint {
        let Routed::Start(_, Some(to)) = routed else { panic!("it did not start") };
        *to
    }

    fn end(routes: &mut Routes, to: Endpoint) {
        let good = EndpointCall {
            counts: true,
            is_good: Some(true),
            retry_after: None,
            counts_as: Some(to.endpoint),
            slow: None,
        };
        routes.ended(to, good, NOW);
    }

    #[test]
    fn a_full_endpoint_queues_its_own_messages_and_delays_no_other() {
        let mut routes = routes();
        let to = started(&route(&mut routes, "a1"));
        started(&route(&mut routes, "a2"));
        assert!(matches!(route(&mut routes, "a3"), Routed::Queued));
        started(&route(&mut routes, "b1"));
        assert!(routes.next_freed(|_| false).is_none(), "both calls still run");

        end(&mut routes, to);
        assert!(matches!(route(&mut routes, "a4"), Routed::Queued), "it came after a3");
        let (next, endpoint) = routes.next_freed(|_| false).unwrap();
        assert_eq!((next.message.id(), endpoint), ("a3", to.endpoint));
        routes.from_queue = true;
        started(&routes.route(next, Time::MAX, |_| false, NOW));
        assert_eq!(routes.waiting().map(|delivery| delivery.message.id()).collect::<Vec<_>>(), ["a4"]);
    }

    #[test]
    fn an_endpoint_fills_at_most_a_quarter_of_the_queues() {
        let mut routes = routes();
        let quarter = PERMITS * QUEUED_PER_PERMIT / 4;
        for endpoint in ["a", "b", "c", "d"] {
            for number in 0..2 + quarter {
                assert!(!matches!(route(&mut routes, &format!("{endpoint}{number}")), Routed::PutOff(..)));
            }
            let Routed::PutOff(_, due) = route(&mut routes, &format!("{endpoint}!")) else {
                panic!("no room")
            };
            assert!((1_000..=1_500).contains(&millis(due.since(NOW))), "{endpoint} {due:?}");
        }
        started(&route(&mut routes, "e1"));
        started(&route(&mut routes, "e2"));
        assert!(matches!(route(&mut routes, "e3"), Routed::PutOff(..)), "the queues are full");

        let first = delivery("a2").receipt.number();
        assert!(routes.withdraw(first).is_some() && routes.withdraw(first).is_none());
        assert!(matches!(route(&mut routes, "e3"), Routed::Queued), "one place is free again");
        assert_eq!(routes.take_queued().len(), 4 * quarter);
        assert_eq!(routes.waiting().count(), 0);
    }

    #[test]
    fn a_reserved_endpoint_starts_nothing_else() {
        let mut routes = routes();
        let is_reserved = |endpoint| endpoint == u64::from(b'a');
        assert!(matches!(routes.route(delivery("a1"), Time::MAX, is_reserved, NOW), Routed::Queued));
        started(&routes.route(delivery("b1"), Time::MAX, is_reserved, NOW));
        routes.free_again(b'a'.into());
        assert!(routes.next_freed(is_reserved).is_none());
        routes.free_again(b'a'.into());
        assert!(routes.next_freed(|_| false).is_some(), "the reservation is over");
    }
}
