//! The endpoints of a sink that has one per message: which of them fails, asks for patience, has its hands full, or was
//! called as often as it may be.
//!
//! One customer's endpoint that is down must not stop everybody, so its messages are put off and nothing is closed. There
//! may be millions of endpoints: only those that have failed are remembered, and of these the latest.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use super::pace::Pace;
use super::window::Sum;
use crate::protection::breaker::{BreakerSettings, FastWindow};
use crate::retry::views::Gate;
use crate::time::millis;
use crate::{Health, Random, Time};

/// Endpoints that are remembered; beyond it the one that failed longest ago is forgotten.
pub const REMEMBERED_MAX: usize = 100_000;

/// What a sink says about where a message goes: numbers that mean something only to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Endpoint {
    /// Scheme, host and port.
    pub origin: u64,
    /// The whole address.
    pub endpoint: u64,
}

/// Whether a message may go to its endpoint now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Passage {
    Go,
    /// As many as may run there do.
    Full,
    /// Not before then: it is failing, has asked for patience, or was called as often as it may be.
    NotBefore(Time),
}

/// What matters of the message that wants to go.
#[derive(Clone, Copy, Debug)]
pub struct Asking {
    /// Whether it was put off before.
    pub waited: bool,
    /// It will not be sent after that.
    pub latest: Time,
    pub random: Random,
}

/// How a call to an endpoint ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EndpointCall {
    /// Whether it counts for the endpoint's breaker.
    pub counts: bool,
    /// `None` where it says nothing about the endpoint.
    pub is_good: Option<bool>,
    /// What it asked for.
    pub retry_after: Option<Duration>,
    /// On whose behalf it counts for the origin; see [`voice`]. `None`: it says nothing about the origin.
    pub voice: Option<u64>,
}

/// On whose behalf a call counts for its origin.
///
/// Several customers may have endpoints at one origin (an automation service, a shared gateway), and what one of them
/// does must not stop deliveries to the others. So failures are counted per tenant: a tenant has one voice, however many
/// of its endpoints fail. An origin that cannot be reached at all is nobody's doing, so there each endpoint has a voice.
/// An answered failure of a message without a tenant has none: it may come from the same customer as all the others.
pub fn voice(to: Endpoint, tenant: Option<u64>, how: Contact) -> Option<u64> {
    match how {
        Contact::Unreachable => Some(to.endpoint),
        Contact::Served => Some(tenant.unwrap_or(to.endpoint)),
        Contact::Failed => tenant,
    }
}

/// How far a call came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Contact {
    /// No connection was made: refused, no such name, a broken handshake.
    Unreachable,
    /// The request was sent, and failed.
    Failed,
    Served,
}

#[derive(Clone, Debug)]
pub struct Endpoints {
    settings: BreakerSettings,
    per_endpoint: u32,
    pace: Option<Pace>,
    origins: Troubled,
    own: Troubled,
    /// Bounded by the calls that run.
    running: HashMap<u64, u32>,
}

/// What the share of failures is a share of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Counted {
    /// For an endpoint: its calls.
    Calls,
    /// For an origin: those who were heard.
    Voices,
}

/// An origin that has served so many in the window is not down, whoever else fails.
const SERVED_MAX: usize = 64;

/// Who was heard about an origin, each once.
#[derive(Clone, Debug, Default)]
struct Voices {
    /// At most the number that is needed.
    failed: Vec<u64>,
    /// At most [`SERVED_MAX`].
    served: Vec<u64>,
}

impl Voices {
    /// One success is enough: whoever was served can reach the origin.
    fn hear(&mut self, voice: u64, is_good: bool, failed_max: u32) {
        if self.served.contains(&voice) {
            return;
        }
        if is_good {
            self.failed.retain(|failed| *failed != voice);
            if self.served.len() < SERVED_MAX {
                self.served.push(voice);
            }
        } else if !self.failed.contains(&voice) && self.failed.len() < failed_max as usize {
            self.failed.push(voice);
        }
    }

    /// Whether enough of them failed, and a large enough share.
    fn reach(&self, limit: &FastWindow) -> bool {
        let count = |all: &[u64]| u32::try_from(all.len()).unwrap_or(u32::MAX);
        let (failed, served) = (count(&self.failed), count(&self.served));
        let share = Sum { calls: failed + served, failed };
        self.served.len() < SERVED_MAX && failed >= limit.min && share.reaches(limit.failures)
    }
}

/// Those that have failed, by when they were touched last.
#[derive(Clone, Debug, Default)]
struct Troubled {
    known: HashMap<u64, Trouble>,
    touched: VecDeque<(u64, u64)>,
    touches: u64,
}

#[derive(Clone, Debug, Default)]
struct Trouble {
    began: Time,
    calls: u32,
    failed: u32,
    /// For an origin, instead of calls: who was heard in the window.
    voices: Voices,
    open_until: Option<Time>,
    probing: bool,
    rounds: u32,
    not_before: Time,
    /// Last answer since it first failed.
    answered: Option<Time>,
    touch: u64,
}

impl Endpoints {
    /// `per_endpoint` calls may run at once against one of them, and never more than a quarter of `permits`.
    /// `rate` is how many may begin in a second, if there is a limit.
    pub fn new(settings: BreakerSettings, per_endpoint: u32, rate: Option<f64>, permits: usize) -> Self {
        let quarter = u32::try_from(permits / 4).unwrap_or(u32::MAX).max(1);
        Self {
            settings,
            per_endpoint: per_endpoint.clamp(1, quarter),
            pace: rate.map(Pace::new),
            origins: Troubled::default(),
            own: Troubled::default(),
            running: HashMap::new(),
        }
    }

    pub fn per_endpoint(&self) -> u32 {
        self.per_endpoint
    }

    /// How many endpoints are remembered, and how many of them are left alone now.
    pub fn troubled(&self, now: Time) -> (usize, usize) {
        let open = self.own.known.values().filter(|trouble| trouble.not_before(now).is_some());
        (self.own.known.len(), open.count())
    }

    /// How many endpoints and how many origins are left alone now. Looks at all that are remembered.
    pub fn left_alone(&self, now: Time) -> (usize, usize) {
        let closed = |all: &Troubled| all.known.values().filter(|one| one.not_before(now).is_some()).count();
        (closed(&self.own), closed(&self.origins))
    }

    /// Somebody wants to know now: every endpoint and origin in cooldown may be asked at once. How many that are.
    pub fn probe_now(&mut self, now: Time) -> usize {
        let mut asked = 0;
        for trouble in self.own.known.values_mut().chain(self.origins.known.values_mut()) {
            if trouble.not_before(now).is_some() {
                trouble.open_until = trouble.open_until.map(|until| until.min(now));
                trouble.not_before = trouble.not_before.min(now);
                asked += 1;
            }
        }
        asked
    }

    /// Somebody knows that they are back: what was known against them is forgotten. How many were in cooldown.
    pub fn close_all(&mut self, now: Time) -> usize {
        let (endpoints, origins) = self.left_alone(now);
        (self.own, self.origins) = (Troubled::default(), Troubled::default());
        endpoints + origins
    }

    /// Whether a message may go. One that may is a probe if its endpoint was closed.
    pub fn ask(&mut self, to: Endpoint, asking: Asking, now: Time) -> Passage {
        let Asking { waited, latest, random } = asking;
        let closed = [self.origins.not_before(to.origin, now), self.own.not_before(to.endpoint, now)];
        if let Some(until) = closed.into_iter().flatten().max() {
            // Those that wait must not come back at one instant: they are spread over half the wait once more.
            let spread = millis(until.since(now)) / 2 + 1_000;
            return Passage::NotBefore(until.plus(Duration::from_millis(random.below_ms(spread))));
        }
        if self.is_full(to) {
            return Passage::Full;
        }
        let wait = self.pace.as_mut().and_then(|pace| pace.ask(to.endpoint, waited, now, latest));
        wait.map_or(Passage::Go, Passage::NotBefore)
    }

    /// Calls in flight at an endpoint.
    pub fn running(&self, endpoint: u64) -> usize {
        self.running.get(&endpoint).map_or(0, |running| *running as usize)
    }

    /// When an endpoint that failed before answered last, as far as that is known.
    pub fn answered(&self, to: Endpoint) -> Option<Time> {
        self.own.known.get(&to.endpoint)?.answered
    }

    /// Ends all waits for a Retry-After. Open breakers stay open.
    pub fn lift_waits(&mut self) {
        self.own.known.values_mut().for_each(|trouble| trouble.not_before = Time::ZERO);
    }

    /// Whether as many run as may.
    pub fn is_full(&self, to: Endpoint) -> bool {
        self.running.get(&to.endpoint).is_some_and(|running| *running >= self.per_endpoint)
    }

    /// What a decision is told of an endpoint that is not well; `None` if it is.
    pub fn health(&self, to: Endpoint, now: Time) -> Option<Health> {
        let open = |trouble: &Trouble| trouble.open_until.map(|until| until.since(now));
        let origin = self.origins.known.get(&to.origin).and_then(open);
        let endpoint = self.own.known.get(&to.endpoint).and_then(open);
        let retry_in = origin.into_iter().chain(endpoint).max()?;
        Some(Health::Gated { by: Gate::Breaker, retry_in })
    }

    pub fn started(&mut self, to: Endpoint, now: Time) {
        if let Some(pace) = &mut self.pace {
            pace.started(to.endpoint, now);
        }
        *self.running.entry(to.endpoint).or_default() += 1;
        self.origins.started(to.origin);
        self.own.started(to.endpoint);
    }

    pub fn ended(&mut self, to: Endpoint, call: EndpointCall, now: Time) {
        if let Some(running) = self.running.get_mut(&to.endpoint) {
            *running -= 1;
            if *running == 0 {
                self.running.remove(&to.endpoint);
            }
        }
        if let Some(wait) = call.retry_after.filter(|wait| !wait.is_zero()) {
            let trouble = self.own.touch(to.endpoint, now);
            trouble.not_before = trouble.not_before.max(now.plus(wait));
        }
        self.own.ended(to.endpoint, Counted::Calls, call, &self.settings, now);
        self.origins.ended(to.origin, Counted::Voices, call, &self.settings, now);
    }
}

impl Trouble {
    fn not_before(&self, now: Time) -> Option<Time> {
        let closed = match self.open_until {
            // One is on its way to see whether it is back.
            Some(_) if self.probing => Some(now.plus(PROBE_WAIT)),
            Some(until) if now < until => Some(until),
            _ => None,
        };
        closed.into_iter().chain((now < self.not_before).then_some(self.not_before)).max()
    }
}

/// How long others wait while a probe is on its way.
const PROBE_WAIT: Duration = Duration::from_secs(1);

impl Troubled {
    fn not_before(&self, key: u64, now: Time) -> Option<Time> {
        self.known.get(&key)?.not_before(now)
    }

    fn started(&mut self, key: u64) {
        if let Some(trouble) = self.known.get_mut(&key) {
            trouble.probing = trouble.open_until.is_some();
        }
    }

    fn ended(
        &mut self,
        key: u64,
        counted: Counted,
        call: EndpointCall,
        settings: &BreakerSettings,
        now: Time,
    ) {
        let is_known = self.known.contains_key(&key);
        if !settings.enabled || (!is_known && call.is_good != Some(false)) {
            return;
        }
        let trouble = self.touch(key, now);
        if call.is_good == Some(true) {
            trouble.answered = Some(now);
        }
        if trouble.open_until.is_some() {
            // An origin that answers is back, whatever the answer is worth to one customer.
            let answers = counted == Counted::Voices && call.voice.is_none();
            let is_good = call.is_good.map(|is_good| is_good || answers);
            trouble.probe_ended(is_good, settings, now);
            if trouble.open_until.is_none() && trouble.not_before <= now {
                self.known.remove(&key);
            }
            return;
        }
        let Some(is_good) = call.is_good.filter(|_| call.counts) else { return };
        if now.since(trouble.began) >= settings.fast.window || now < trouble.began {
            (trouble.began, trouble.calls, trouble.failed) = (now, 0, 0);
            trouble.voices = Voices::default();
        }
        let limit = &settings.fast;
        let reached = match counted {
            Counted::Calls => {
                trouble.calls = trouble.calls.saturating_add(1);
                trouble.failed = trouble.failed.saturating_add(u32::from(!is_good));
                let sum = Sum { calls: trouble.calls, failed: trouble.failed };
                sum.calls >= limit.min && sum.reaches(limit.failures)
            }
            Counted::Voices => {
                let Some(voice) = call.voice else { return };
                trouble.voices.hear(voice, is_good, limit.min);
                trouble.voices.reach(limit)
            }
        };
        if reached && !is_good {
            trouble.open_until = Some(now.plus(settings.cooldown_of(0)));
            trouble.rounds = 0;
        }
    }

    /// What is known of one that is in trouble, which it is from now on.
    fn touch(&mut self, key: u64, now: Time) -> &mut Trouble {
        self.touches += 1;
        let touch = self.touches;
        self.touched.push_back((key, touch));
        if self.touched.len() > 2 * REMEMBERED_MAX {
            let known = &self.known;
            self.touched.retain(|(key, touch)| known.get(key).is_some_and(|trouble| trouble.touch == *touch));
        }
        while self.known.len() >= REMEMBERED_MAX && !self.known.contains_key(&key) {
            let Some((oldest, touch)) = self.touched.pop_front() else { break };
            if self.known.get(&oldest).is_some_and(|trouble| trouble.touch == touch) {
                self.known.remove(&oldest);
            }
        }
        let trouble = self.known.entry(key).or_insert_with(|| Trouble { began: now, ..Trouble::default() });
        trouble.touch = touch;
        trouble
    }
}

impl Trouble {
    /// A call ended while it was closed: the probe, or one that was on its way before.
    fn probe_ended(&mut self, is_good: Option<bool>, settings: &BreakerSettings, now: Time) {
        if !self.probing {
            return;
        }
        self.probing = false;
        match is_good {
            None => {}
            // One good answer is enough: the limit per endpoint keeps the rest from running it over.
            Some(true) => self.open_until = None,
            Some(false) => {
                self.rounds = self.rounds.saturating_add(1);
                self.open_until = Some(now.plus(settings.cooldown_of(self.rounds)));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TO: Endpoint = Endpoint { origin: 1, endpoint: 2 };
    const OTHER: Endpoint = Endpoint { origin: 1, endpoint: 3 };
    const BAD: EndpointCall =
        EndpointCall { counts: true, is_good: Some(false), retry_after: None, voice: None };
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
    fn one_endpoint_that_is_down_is_left_alone_and_its_neighbours_are_not() {
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

    /// A call of `tenant` to an endpoint of origin 1, and what it says about the origin.
    fn heard(all: &mut Endpoints, endpoint: u64, tenant: Option<u64>, how: Contact, now: Time) {
        let to = Endpoint { origin: 1, endpoint };
        let said =
            EndpointCall { is_good: Some(how == Contact::Served), voice: voice(to, tenant, how), ..BAD };
        call(all, to, said, now);
    }

    /// An endpoint of origin 1 that nobody else in these tests has.
    const NEIGHBOUR: Endpoint = Endpoint { origin: 1, endpoint: 9_999 };

    #[test]
    fn an_origin_that_cannot_be_reached_is_closed_whoever_asks() {
        for tenant in [None, Some(7)] {
            let mut all = endpoints();
            (0..20).for_each(|n| heard(&mut all, n, tenant, Contact::Unreachable, at(0)));
            assert!(!goes(&mut all, NEIGHBOUR, at(0)));
            assert_eq!((all.left_alone(at(0)), all.left_alone(at(30_000))), ((0, 1), (0, 0)));
            assert!(goes(&mut all, Endpoint { origin: 2, endpoint: 99 }, at(0)));
            // The probe is answered, if only with an error: the origin is there again.
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
                assert!(goes(&mut all, NEIGHBOUR, at(n)), "{tenant:?}: closed after {n}");
            }
        }
    }

    #[test]
    fn an_origin_that_fails_most_of_its_tenants_is_closed() {
        let mut all = endpoints();
        for tenant in 0..20 {
            heard(&mut all, tenant, Some(tenant), Contact::Failed, at(0));
        }
        assert!(!goes(&mut all, NEIGHBOUR, at(0)));
        // Served tenants outweigh those that fail, and one success speaks for all endpoints of a tenant.
        let mut all = endpoints();
        heard(&mut all, 0, Some(100), Contact::Failed, at(0));
        (0..21).for_each(|tenant| heard(&mut all, tenant, Some(tenant), Contact::Served, at(0)));
        for tenant in 0..41 {
            heard(&mut all, tenant, Some(tenant), Contact::Failed, at(1));
        }
        assert!(goes(&mut all, NEIGHBOUR, at(1)), "20 of 41 failed");
    }

    #[test]
    fn an_origin_that_serves_many_is_not_closed_however_many_others_fail() {
        let mut all = endpoints();
        heard(&mut all, 0, Some(5_000), Contact::Failed, at(0));
        (0..SERVED_MAX as u64)
            .for_each(|tenant| heard(&mut all, tenant, Some(tenant), Contact::Served, at(0)));
        (1_000..2_000).for_each(|tenant| heard(&mut all, tenant, Some(tenant), Contact::Failed, at(0)));
        assert!(goes(&mut all, NEIGHBOUR, at(0)));
        let known = &all.origins.known[&1].voices;
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
            let bad = EndpointCall { voice: Some(endpoint), ..BAD };
            call(&mut all, Endpoint { origin: endpoint, endpoint }, bad, at(endpoint));
        }
        assert_eq!(all.troubled(at(250_000)).0, REMEMBERED_MAX);
        assert!(all.own.touched.len() <= 2 * REMEMBERED_MAX + 1);
        assert!(all.running.is_empty());
    }

    #[test]
    fn what_succeeds_is_not_remembered() {
        let mut all = endpoints();
        (0..1_000).for_each(|endpoint| call(&mut all, Endpoint { origin: 1, endpoint }, GOOD, at(0)));
        assert_eq!(all.troubled(at(0)), (0, 0));
    }
}
