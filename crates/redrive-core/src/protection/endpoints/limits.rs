//! The limits of all endpoints: whether a message may go to its endpoint now.

use std::collections::HashMap;
use std::time::Duration;

use super::call::{Asking, Endpoint, EndpointCall, Passage};
use super::saved_cooldown::{Cooldown, KEPT_MAX};
use super::troubled::Troubled;
use super::waits::{EndpointWait, Unit, WaitReason};
use crate::protection::breaker::BreakerSettings;
use crate::protection::pace::Pace;
use crate::retry::views::Gate;
use crate::time::millis;
use crate::{Health, Time};

/// The state and limits of a pipeline's endpoints.
#[derive(Clone, Debug)]
pub struct Endpoints {
    settings: BreakerSettings,
    per_endpoint: u32,
    pace: Option<Pace>,
    origins: Troubled,
    own: Troubled,
    /// Running calls per endpoint. Bounded by the calls that run.
    running: HashMap<u64, u32>,
}

impl Endpoints {
    /// Allows `per_endpoint` concurrent calls to one endpoint, but never more than a quarter of `permits`. `rate` is
    /// the limit on call starts per second, if there is one.
    pub fn new(settings: BreakerSettings, per_endpoint: u32, rate: Option<f64>, permits: usize) -> Self {
        let quarter = u32::try_from(permits / 4).unwrap_or(u32::MAX).max(1);
        Self {
            settings,
            per_endpoint: per_endpoint.clamp(1, quarter),
            pace: rate.map(Pace::new),
            origins: Troubled::new(Unit::Origin),
            own: Troubled::new(Unit::Endpoint),
            running: HashMap::new(),
        }
    }

    /// How many calls may run at one endpoint concurrently.
    pub fn per_endpoint(&self) -> u32 {
        self.per_endpoint
    }

    /// How many endpoints are remembered, and how many of them are in cooldown now.
    pub fn troubled(&self, now: Time) -> (usize, usize) {
        (self.own.len(), self.own.waiting(now))
    }

    /// How many endpoints and how many origins are in cooldown now. Scans all remembered ones.
    pub fn in_cooldown(&self, now: Time) -> (usize, usize) {
        (self.own.waiting(now), self.origins.waiting(now))
    }

    /// The endpoints and origins whose messages wait for a breaker, a Retry-After or a rate. Scans all remembered ones.
    pub fn waits(&self, now: Time) -> impl Iterator<Item = EndpointWait> {
        let paced = self.pace.iter().flat_map(move |pace| pace.waits(now));
        let paced = paced.filter(move |(number, _)| !self.is_cooling(*number, now));
        let paced = paced.map(|(number, until)| EndpointWait {
            unit: Unit::Endpoint,
            number,
            why: WaitReason::Rate,
            until: Some(until),
            rounds: 0,
            queued: 0,
        });
        self.own.waits(now).chain(self.origins.waits(now)).chain(paced)
    }

    /// Whether an endpoint itself is in cooldown.
    pub fn is_cooling(&self, endpoint: u64, now: Time) -> bool {
        self.own.not_before(endpoint, now).is_some()
    }

    /// A counter that changes whenever [`Self::cooldowns`] changes for a reason other than time.
    pub fn changes(&self) -> u64 {
        self.own.changes().wrapping_add(self.origins.changes())
    }

    /// The cooldowns that the next process needs, at most [`KEPT_MAX`]; origins first, since each covers many
    /// endpoints, then the latest.
    pub fn cooldowns(&self, now: Time) -> Vec<Cooldown> {
        self.origins.cooldowns(now).chain(self.own.cooldowns(now)).take(KEPT_MAX).collect()
    }

    /// Restores the cooldowns of an earlier process, given latest first.
    pub fn resume(&mut self, left: &[Cooldown]) {
        for cooldown in left.iter().take(KEPT_MAX).rev() {
            let open_until = cooldown.open_until.filter(|_| self.settings.enabled);
            let cooldown = Cooldown { open_until, ..*cooldown };
            match cooldown.unit {
                Unit::Endpoint => self.own.resume(&cooldown),
                Unit::Origin => self.origins.resume(&cooldown),
            }
        }
    }

    /// Lets every endpoint and origin in cooldown be probed at once, at an operator's request. Returns how many there
    /// are.
    pub fn probe_now(&mut self, now: Time) -> usize {
        self.own.probe_now(now) + self.origins.probe_now(now)
    }

    /// Forgets all failures, because an operator knows that the endpoints are back. Returns how many were in cooldown.
    pub fn close_all(&mut self, now: Time) -> usize {
        let (endpoints, origins) = self.in_cooldown(now);
        self.own.clear();
        self.origins.clear();
        endpoints + origins
    }

    /// Whether a message may go. If its endpoint was in cooldown, the message is a probe.
    pub fn ask(&mut self, to: Endpoint, asking: Asking, now: Time) -> Passage {
        let Asking { waited, latest, random } = asking;
        let cooldowns = [self.origins.not_before(to.origin, now), self.own.not_before(to.endpoint, now)];
        if let Some(until) = cooldowns.into_iter().flatten().max() {
            // Waiting messages must not come back all at once: spread them over another half of the wait.
            let spread = millis(until.since(now)) / 2 + 1_000;
            return Passage::NotBefore(until.plus(Duration::from_millis(random.below_ms(spread))));
        }
        if self.is_full(to) {
            return Passage::Full;
        }
        let wait = self.pace.as_mut().and_then(|pace| pace.ask(to.endpoint, waited, now, latest));
        wait.map_or(Passage::Go, Passage::NotBefore)
    }

    /// The number of calls in flight at an endpoint.
    pub fn running(&self, endpoint: u64) -> usize {
        self.running.get(&endpoint).map_or(0, |running| *running as usize)
    }

    /// When an endpoint that has failed last answered, if known.
    pub fn answered(&self, to: Endpoint) -> Option<Time> {
        self.own.answered(to.endpoint)
    }

    /// Ends all waits for a Retry-After. Open breakers stay open.
    pub fn lift_waits(&mut self) {
        self.own.lift_waits();
    }

    /// Whether the endpoint has as many running calls as allowed.
    pub fn is_full(&self, to: Endpoint) -> bool {
        self.running(to.endpoint) >= self.per_endpoint as usize
    }

    /// The health that a decision sees; `None` unless the breaker of the endpoint or its origin is open.
    pub fn health(&self, to: Endpoint, now: Time) -> Option<Health> {
        let open = [self.origins.open_for(to.origin, now), self.own.open_for(to.endpoint, now)];
        let retry_in = open.into_iter().flatten().max()?;
        Some(Health::Gated { by: Gate::Breaker, retry_in })
    }

    /// Records the start of a call.
    pub fn started(&mut self, to: Endpoint, now: Time) {
        if let Some(pace) = &mut self.pace {
            pace.started(to.endpoint, now);
        }
        *self.running.entry(to.endpoint).or_default() += 1;
        self.origins.started(to.origin);
        self.own.started(to.endpoint);
    }

    /// Records the end of a call.
    pub fn ended(&mut self, to: Endpoint, call: EndpointCall, now: Time) {
        if let Some(running) = self.running.get_mut(&to.endpoint) {
            *running -= 1;
            if *running == 0 {
                self.running.remove(&to.endpoint);
            }
        }
        if let Some(wait) = call.retry_after.filter(|wait| !wait.is_zero()) {
            self.own.asked_to_wait(to.endpoint, wait, now);
        }
        self.own.ended(to.endpoint, call, &self.settings, now);
        self.origins.ended(to.origin, call, &self.settings, now);
    }
}

#[cfg(test)]
mod tests {
    use super::super::call::{Contact, counts_as};
    use super::super::tenant_outcomes::SERVED_MAX;
    use super::super::troubled::REMEMBERED_MAX;
    use super::*;
    use crate::Random;

    const TO: Endpoint = Endpoint { origin: 1, endpoint: 2 };
    const OTHER: Endpoint = Endpoint { origin: 1, endpoint: 3 };
    const BAD: EndpointCall =
        EndpointCall { counts: true, is_good: Some(false), retry_after: None, counts_as: None, slow: None };
    const GOOD: EndpointCall = EndpointCall { is_good: Some(true), ..BAD };

    const ANY: Asking = Asking { waited: false, latest: Time::MAX, random: Random(0) };

    fn at(ms: u64) -> Time {
        Time::from_millis(1_800_000_000_000 + ms)
    }

    fn endpoints() -> Endpoints {
        Endpoints::new(BreakerSettings::default(), 5, None, 64)
    }

    fn call(endpoints: &mut Endpoints, to: Endpoint, call: EndpointCall, now: Time) {
        endpoints.started(to, now);
        endpoints.ended(to, call, now);
    }

    fn goes(endpoints: &mut Endpoints, to: Endpoint, now: Time) -> bool {
        endpoints.ask(to, ANY, now) == Passage::Go
    }

    #[test]
    fn one_endpoint_that_is_down_is_not_called_and_its_neighbours_are() {
        let mut all = endpoints();
        (0..20).for_each(|_| call(&mut all, TO, BAD, at(0)));
        assert_eq!(all.ask(TO, ANY, at(0)), Passage::NotBefore(at(30_000)));
        assert!(goes(&mut all, OTHER, at(0)), "one endpoint says nothing about its origin");
        assert!(goes(&mut all, TO, at(30_000)));
        all.started(TO, at(30_000));
        assert!(!goes(&mut all, TO, at(30_000)), "one probe at a time");
        all.ended(TO, BAD, at(30_100));
        assert_eq!(all.ask(TO, ANY, at(30_100)), Passage::NotBefore(at(90_100)), "twice as long");
        call(&mut all, TO, GOOD, at(90_100));
        assert!(goes(&mut all, TO, at(90_100)));
        assert_eq!(all.troubled(at(90_100)), (0, 0), "and forgotten");
    }

    /// Makes a call of `tenant` to an endpoint of origin 1, and counts it for the origin.
    fn heard(all: &mut Endpoints, endpoint: u64, tenant: Option<u64>, how: Contact, now: Time) {
        let to = Endpoint { origin: 1, endpoint };
        let said = EndpointCall {
            is_good: Some(how == Contact::Served),
            counts_as: counts_as(to, tenant, how),
            ..BAD
        };
        call(all, to, said, now);
    }

    /// An endpoint of origin 1 that no other call in these tests uses.
    const NEIGHBOUR: Endpoint = Endpoint { origin: 1, endpoint: 9_999 };

    #[test]
    fn an_origin_that_cannot_be_reached_is_in_cooldown_whoever_asks() {
        for tenant in [None, Some(7)] {
            let mut all = endpoints();
            (0..20).for_each(|n| heard(&mut all, n, tenant, Contact::Unreachable, at(0)));
            assert!(!goes(&mut all, NEIGHBOUR, at(0)));
            assert_eq!((all.in_cooldown(at(0)), all.in_cooldown(at(30_000))), ((0, 1), (0, 0)));
            assert!(goes(&mut all, Endpoint { origin: 2, endpoint: 99 }, at(0)));
            // The probe is answered, even if with an error: the origin is reachable again.
            heard(&mut all, 3, None, Contact::Failed, at(30_000));
            assert!(goes(&mut all, NEIGHBOUR, at(30_000)));
        }
    }

    /// One customer of a shared origin must not stop deliveries to the others, however many endpoints it makes fail.
    #[test]
    fn one_tenant_with_many_failing_endpoints_does_not_close_the_origin_for_its_neighbours() {
        for tenant in [None, Some(7)] {
            let mut all = endpoints();
            for n in 0..5_000 {
                heard(&mut all, n, tenant, Contact::Failed, at(n));
                assert!(goes(&mut all, NEIGHBOUR, at(n)), "{tenant:?}: in cooldown after {n}");
            }
        }
    }

    #[test]
    fn an_origin_that_fails_most_of_its_tenants_is_in_cooldown() {
        let mut all = endpoints();
        for tenant in 0..20 {
            heard(&mut all, tenant, Some(tenant), Contact::Failed, at(0));
        }
        assert!(!goes(&mut all, NEIGHBOUR, at(0)));
        // Served tenants outweigh failing ones, and one success counts for all endpoints of a tenant.
        let mut all = endpoints();
        heard(&mut all, 0, Some(100), Contact::Failed, at(0));
        (0..21).for_each(|tenant| heard(&mut all, tenant, Some(tenant), Contact::Served, at(0)));
        for tenant in 0..41 {
            heard(&mut all, tenant, Some(tenant), Contact::Failed, at(1));
        }
        assert!(goes(&mut all, NEIGHBOUR, at(1)), "20 of 41 failed");
    }

    #[test]
    fn an_origin_that_serves_many_is_not_in_cooldown_however_many_others_fail() {
        let mut all = endpoints();
        heard(&mut all, 0, Some(5_000), Contact::Failed, at(0));
        (0..SERVED_MAX as u64)
            .for_each(|tenant| heard(&mut all, tenant, Some(tenant), Contact::Served, at(0)));
        (1_000..2_000).for_each(|tenant| heard(&mut all, tenant, Some(tenant), Contact::Failed, at(0)));
        assert!(goes(&mut all, NEIGHBOUR, at(0)));
        let known = all.origins.tenants_of(1);
        assert!(known.failed.len() <= 20 && known.served.len() <= SERVED_MAX, "bounded: {known:?}");
    }

    #[test]
    fn five_run_at_once_and_never_more_than_a_quarter() {
        let mut all = endpoints(); // S3-43
        (0..5).for_each(|_| all.started(TO, at(0)));
        assert_eq!(all.ask(TO, ANY, at(0)), Passage::Full);
        assert!(goes(&mut all, OTHER, at(0)));
        all.ended(TO, GOOD, at(1));
        assert!(goes(&mut all, TO, at(1)));
        assert_eq!(Endpoints::new(BreakerSettings::default(), 50, None, 64).per_endpoint(), 16);
        assert_eq!(Endpoints::new(BreakerSettings::default(), 5, None, 1).per_endpoint(), 1);
    }

    #[test]
    fn a_rate_holds_for_each_endpoint() {
        let mut all = Endpoints::new(BreakerSettings::default(), 16, Some(10.0), 64);
        (0..2).for_each(|_| call(&mut all, TO, GOOD, at(0)));
        assert_eq!(all.ask(TO, ANY, at(0)), Passage::NotBefore(at(200)));
        assert!(goes(&mut all, OTHER, at(0)));
    }

    #[test]
    fn what_one_message_was_told_holds_for_all_of_its_endpoint() {
        let mut all = endpoints();
        let wait = EndpointCall { is_good: None, retry_after: Some(Duration::from_secs(7)), ..BAD };
        call(&mut all, TO, wait, at(0));
        assert_eq!(all.ask(TO, ANY, at(0)), Passage::NotBefore(at(7_000)));
        assert!(goes(&mut all, OTHER, at(0)) && goes(&mut all, TO, at(7_000)));
    }

    #[test]
    fn a_million_endpoints_take_no_more_room_than_a_hundred_thousand() {
        let mut all = endpoints();
        for endpoint in 0..250_000 {
            let bad = EndpointCall { counts_as: Some(endpoint), ..BAD };
            call(&mut all, Endpoint { origin: endpoint, endpoint }, bad, at(endpoint));
        }
        assert_eq!(all.troubled(at(250_000)).0, REMEMBERED_MAX);
        assert!(all.own.touched_len() <= 2 * REMEMBERED_MAX + 1);
        assert!(all.running.is_empty());
    }

    #[test]
    fn what_succeeds_is_not_remembered() {
        let mut all = endpoints();
        (0..1_000).for_each(|endpoint| call(&mut all, Endpoint { origin: 1, endpoint }, GOOD, at(0)));
        assert_eq!(all.troubled(at(0)), (0, 0));
    }

    #[test]
    fn cooldowns_go_on_in_the_next_process_with_their_rounds() {
        let mut all = endpoints();
        (0..20).for_each(|_| call(&mut all, TO, BAD, at(0)));
        call(&mut all, TO, BAD, at(30_000));
        (0..20).for_each(|n| heard(&mut all, 100 + n, None, Contact::Unreachable, at(30_000)));
        let asks = EndpointCall { is_good: None, retry_after: Some(Duration::from_secs(7)), ..BAD };
        call(&mut all, Endpoint { origin: 5, endpoint: 6 }, asks, at(30_000));
        let left = all.cooldowns(at(30_000));
        assert_eq!(left.len(), 3, "{left:?}");
        let mut next = endpoints();
        next.resume(&left);
        assert_eq!(next.cooldowns(at(30_000)), left, "also if it is restarted again at once");
        assert!(!goes(&mut next, NEIGHBOUR, at(59_999)), "the origin is in cooldown");
        assert!(!goes(&mut next, Endpoint { origin: 5, endpoint: 6 }, at(36_999)));
        assert!(goes(&mut next, Endpoint { origin: 5, endpoint: 6 }, at(37_000)));
        let own = Endpoint { origin: 77, ..TO };
        assert!(!goes(&mut next, own, at(89_999)), "the second round");
        assert!(goes(&mut next, own, at(90_000)));
        next.started(own, at(90_000));
        assert!(!goes(&mut next, own, at(90_000)), "the first call is the probe");
        next.ended(own, BAD, at(90_000));
        assert!(!goes(&mut next, own, at(209_999)) && goes(&mut next, own, at(210_000)), "the third round");
        let mut off = Endpoints::new(BreakerSettings::off(), 5, None, 64);
        off.resume(&left);
        assert!(goes(&mut off, TO, at(30_000)), "without breakers no breaker is taken up");
    }

    #[test]
    fn what_is_handed_on_is_bounded_and_the_latest() {
        let mut all = endpoints();
        for endpoint in 0..2_000 {
            let asks = EndpointCall { is_good: None, retry_after: Some(Duration::from_hours(1)), ..BAD };
            call(&mut all, Endpoint { origin: endpoint, endpoint }, asks, at(endpoint));
        }
        let left = all.cooldowns(at(2_000));
        assert_eq!(left.len(), KEPT_MAX);
        assert!(left.iter().all(|cooldown| cooldown.number >= 1_000), "the latest");
        assert_eq!(all.cooldowns(at(4_000_000)), [], "a wait that is over is not handed on");
    }

    #[test]
    fn every_wait_has_its_reason() {
        let mut all = Endpoints::new(BreakerSettings::default(), 16, Some(10.0), 64);
        (0..20).for_each(|_| call(&mut all, TO, BAD, at(0)));
        let asks = EndpointCall { is_good: None, retry_after: Some(Duration::from_secs(7)), ..BAD };
        call(&mut all, OTHER, asks, at(0));
        (0..2).for_each(|_| call(&mut all, NEIGHBOUR, GOOD, at(0)));
        all.ask(NEIGHBOUR, ANY, at(0));
        let mut waits: Vec<_> = all.waits(at(0)).map(|wait| (wait.number, wait.why, wait.until)).collect();
        waits.sort_unstable();
        let [breaker, asked, rate] = [WaitReason::Breaker, WaitReason::RetryAfter, WaitReason::Rate];
        let expected = [
            (TO.endpoint, breaker, Some(at(30_000))),
            (OTHER.endpoint, asked, Some(at(7_000))),
            (NEIGHBOUR.endpoint, rate, Some(at(200))),
        ];
        assert_eq!(waits, expected);
        assert_eq!(all.waits(at(31_000)).count(), 0, "a probe may go, the wait is over, and no message came");
    }
}
