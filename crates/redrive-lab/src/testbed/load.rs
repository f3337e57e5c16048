//! What arrives and what the downstream answers: a function of the id, the number of the call and the time.

use std::time::Duration;

use redrive::{Failure, FailureKind, Message, Time};
use redrive_core::Ratio;

use crate::fate::{Fate, Rates};
use crate::seed;

/// Salts for independent draws about the same id.
const SALT_POISON: u64 = 1;
const SALT_TRANSIENT: u64 = 2;

/// Messages that arrive at a fixed rate regardless of their progress, and the behaviour of the downstream.
#[derive(Clone, Debug)]
pub struct Load {
    pub seed: u64,
    pub per_second: f64,
    pub arrive_for: Duration,
    pub burst: Option<Burst>,
    pub fates: Fates,
    pub classes: Classes,
    pub outage: Option<Outage>,
    /// Latency of a call.
    pub latency: Duration,
    /// Number of keys; messages are assigned in turn.
    pub keys: u64,
    /// Number of partitions, each with its own pipeline on the embedded engine; messages are assigned in turn.
    pub lanes: u32,
    /// Dead letters that people close per second.
    pub triage_per_second: Option<f64>,
    /// On Kafka, how long the producer batches messages. Longer where many runs share a machine and none measures
    /// milliseconds, because the cost of a broker is per request.
    pub gather: Duration,
    /// Keeps this many messages waiting for their first call, so that the engine is never idle; `per_second` is then
    /// an upper limit that should not be reached.
    pub waiting: Option<u64>,
    /// Number of messages, from the lowest number on, for which a failure announces a letter that the engine does not
    /// have. Breaks the audit on purpose.
    pub phantom_letters: u64,
    /// How long the run may continue after the last arrival. It ends earlier once every message has ended.
    pub follow: Duration,
}

/// Messages that arrive at one moment, in addition to the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Burst {
    pub at: Duration,
    pub messages: u64,
}

/// A period in which every call fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outage {
    pub at: Duration,
    pub lasts: Duration,
    /// A call that begins in the outage gets no response and fails when its caller gives up after this time. `None`:
    /// it fails after the normal latency.
    pub hangs: Option<Duration>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fates {
    Rates(Rates),
    /// Only this message is poison; all others succeed at once.
    OnePoison(u64),
    /// Messages of the burst are poison; those that arrive at the rate fail once.
    FailOnceBesidePoisonBurst,
}

/// How the downstream classifies its failures, correctly or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Classes {
    /// The share of the poison that is reported as permanent; the rest looks transient.
    pub poison_recognised: Ratio,
    /// The share of the transient messages whose failures are wrongly reported as permanent.
    pub transient_mistaken: Ratio,
}

impl Default for Classes {
    /// All failures look transient.
    fn default() -> Self {
        Self { poison_recognised: Ratio::ZERO, transient_mistaken: Ratio::ZERO }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HandlerAnswer {
    Success,
    Transient,
    Permanent,
}

impl HandlerAnswer {
    pub fn to_result(self) -> Result<(), Failure> {
        match self {
            Self::Success => Ok(()),
            Self::Transient => {
                Err(Failure::transient("503 service unavailable").of_kind(FailureKind::Status(503)))
            }
            Self::Permanent => {
                Err(Failure::permanent("422 unprocessable order").of_kind(FailureKind::Status(422)))
            }
        }
    }
}

impl Outage {
    /// An outage in which calls fail without hanging.
    pub const fn refusing(at: Duration, lasts: Duration) -> Self {
        Self { at, lasts, hangs: None }
    }

    pub fn contains(&self, at: Duration) -> bool {
        (self.at..self.end()).contains(&at)
    }

    pub fn end(&self) -> Duration {
        self.at + self.lasts
    }
}

impl Load {
    /// Good messages at a fixed rate to a downstream that answers at once.
    pub fn steady(seed: u64, per_second: f64, arrive_for: Duration) -> Self {
        Self {
            seed,
            per_second,
            arrive_for,
            burst: None,
            fates: Fates::Rates(Rates::NONE),
            classes: Classes::default(),
            outage: None,
            latency: Duration::ZERO,
            keys: crate::order::CUSTOMERS,
            lanes: 1,
            triage_per_second: None,
            gather: Duration::from_millis(5),
            waiting: None,
            phantom_letters: 0,
            follow: Duration::ZERO,
        }
    }

    /// The number of messages that arrive at the rate; the numbers of the burst follow.
    pub fn paced(&self) -> u64 {
        (self.per_second * self.arrive_for.as_secs_f64()).round() as u64
    }

    pub fn messages(&self) -> u64 {
        self.paced() + self.burst.map_or(0, |burst| burst.messages)
    }

    /// How many of the paced messages have arrived by `at`.
    pub fn arrived_by(&self, at: Duration) -> u64 {
        ((at.as_secs_f64() * self.per_second).floor() as u64 + 1).min(self.paced())
    }

    /// How many of the paced messages should have been offered by `at`, given that `offered` were offered and
    /// `started` had a call.
    pub fn due(&self, at: Duration, offered: u64, started: u64) -> u64 {
        let due = match self.waiting {
            None => self.arrived_by(at),
            Some(waiting) => (started + waiting).min(self.arrived_by(at)),
        };
        due.max(offered)
    }

    /// Whether no more messages arrive.
    pub fn is_offered(&self, at: Duration, offered: u64) -> bool {
        offered >= self.paced() || (self.waiting.is_some() && at >= self.arrive_for)
    }

    /// The interval between offers: the time of five arrivals, but 2 to 10 ms, so that a sync is shared by several
    /// messages.
    pub fn tick(&self) -> Duration {
        Duration::from_secs_f64(5.0 / self.per_second.max(1.0))
            .clamp(Duration::from_millis(2), Duration::from_millis(10))
    }

    /// When the paced message with this number arrives, in whole milliseconds.
    pub fn arrives_ms(&self, number: u64) -> u64 {
        (number as f64 * 1000.0 / self.per_second).ceil() as u64
    }

    /// The latest end of the run.
    pub fn ends(&self) -> Duration {
        self.arrive_for + self.follow
    }

    pub fn id(&self, number: u64) -> String {
        seed::id(self.seed, number)
    }

    pub fn key(&self, number: u64) -> u64 {
        number % self.keys.max(1)
    }

    pub fn lane(&self, number: u64) -> u32 {
        (number % u64::from(self.lanes.max(1))) as u32
    }

    pub fn fate(&self, number: u64) -> Fate {
        match self.fates {
            Fates::Rates(rates) => rates.fate(&self.id(number)),
            Fates::OnePoison(poison) if poison == number => Fate::Poison,
            Fates::OnePoison(_) => Fate::Success,
            Fates::FailOnceBesidePoisonBurst if number < self.paced() => Fate::Transient { failures: 1 },
            Fates::FailOnceBesidePoisonBurst => Fate::Poison,
        }
    }

    pub fn message(&self, number: u64, payload: impl Into<bytes::Bytes>, created: Time) -> Message {
        let key = format!("c-{}", self.key(number));
        let built = Message::builder(self.id(number)).key(key).payload(payload).created(created).build();
        built.expect("an order is within every bound")
    }

    /// The duration of a call that begins at `begins`, and whether it hangs until its caller gives up.
    pub fn takes(&self, begins: Duration) -> (Duration, bool) {
        let outage = self.outage.filter(|outage| outage.contains(begins));
        let hangs = outage.and_then(|outage| outage.hangs);
        (hangs.unwrap_or(self.latency), hangs.is_some())
    }

    /// The downstream's answer to call number `call` of a message at time `at`.
    pub fn answer(&self, number: u64, call: u16, at: Duration) -> HandlerAnswer {
        if self.outage.is_some_and(|outage| outage.contains(at)) {
            return HandlerAnswer::Transient;
        }
        let fate = self.fate(number);
        if !fate.fails(u8::try_from(call).unwrap_or(u8::MAX)) {
            return HandlerAnswer::Success;
        }
        let (share, salt) = match fate {
            Fate::Poison => (self.classes.poison_recognised, SALT_POISON),
            _ => (self.classes.transient_mistaken, SALT_TRANSIENT),
        };
        let drawn = seed::draw(self.seed, &self.id(number), salt) % 10_000;
        if drawn < share.basis_points() { HandlerAnswer::Permanent } else { HandlerAnswer::Transient }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load() -> Load {
        let fates = Fates::Rates(Rates::WORKLOAD);
        Load { fates, ..Load::steady(42, 100.0, Duration::from_secs(10)) }
    }

    #[test]
    fn arrivals_are_even_and_complete() {
        let load = load();
        assert_eq!(load.messages(), 1_000);
        assert_eq!(load.arrived_by(Duration::ZERO), 1);
        assert_eq!(load.arrived_by(Duration::from_millis(999)), 100);
        assert_eq!(load.arrived_by(Duration::from_mins(1)), 1_000);
        assert_eq!(load.arrives_ms(100), 1_000);
    }

    #[test]
    fn a_saturated_load_keeps_so_many_waiting_and_ends_with_its_time() {
        let load = Load { waiting: Some(50), ..load() };
        let at = Duration::from_secs(5);
        assert_eq!((load.due(at, 0, 0), load.due(at, 50, 0), load.due(at, 50, 20)), (50, 50, 70));
        assert_eq!(load.due(at, 0, 900), load.arrived_by(at), "no faster than its rate");
        assert!(!load.is_offered(at, 70) && load.is_offered(Duration::from_secs(10), 70));
        let paced = self::load();
        assert_eq!(paced.due(at, 0, 0), paced.arrived_by(at));
        assert!(!paced.is_offered(Duration::from_secs(11), 70), "all of it arrives, however late");
    }

    #[test]
    fn the_same_seed_gives_the_same_poison() {
        let poison = |seed: u64| {
            let load = Load { seed, ..load() };
            (0..1_000).filter(|n| load.fate(*n) == Fate::Poison).collect::<Vec<_>>()
        };
        assert_eq!(poison(7), poison(7));
        assert_ne!(poison(7), poison(8));
    }

    #[test]
    fn an_outage_fails_every_call_and_ends() {
        let outage = Outage::refusing(Duration::from_secs(5), Duration::from_secs(2));
        let load = Load { fates: Fates::Rates(Rates::NONE), outage: Some(outage), ..load() };
        let at = |ms| load.answer(1, 1, Duration::from_millis(ms));
        assert_eq!(
            [at(4_999), at(5_000), at(6_999)],
            [HandlerAnswer::Success, HandlerAnswer::Transient, HandlerAnswer::Transient]
        );
        assert_eq!(at(7_000), HandlerAnswer::Success);
        assert_eq!(load.takes(Duration::from_secs(6)), (Duration::ZERO, false));
        let hangs = Some(Duration::from_secs(10));
        let load = Load { outage: Some(Outage { hangs, ..outage }), ..load };
        assert_eq!(load.takes(Duration::from_secs(6)), (Duration::from_secs(10), true));
        assert_eq!(load.takes(Duration::from_secs(7)), (Duration::ZERO, false));
    }

    #[test]
    fn classes_choose_by_id_which_failures_are_mistaken() {
        let classes = Classes { poison_recognised: Ratio::WHOLE, transient_mistaken: Ratio::percent(50) };
        let load = Load { classes, ..load() };
        let first = |n| load.answer(n, 1, Duration::ZERO);
        let of =
            |wanted: fn(Fate) -> bool| (0..100_000).filter(|n| wanted(load.fate(*n))).collect::<Vec<_>>();
        let poison = of(|fate| fate == Fate::Poison);
        assert!(poison.iter().all(|n| first(*n) == HandlerAnswer::Permanent));
        let transient = of(|fate| matches!(fate, Fate::Transient { .. }));
        let mistaken = transient.iter().filter(|n| first(**n) == HandlerAnswer::Permanent).count();
        let share = mistaken as f64 / transient.len() as f64;
        assert!((0.48..0.52).contains(&share), "{share}");
    }
}
