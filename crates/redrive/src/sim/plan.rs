//! All options of one run, derived from its seed and printed when it fails.

use std::sync::Arc;
use std::time::Duration;

use redrive_core::policy::{OnExhausted, PolicyBuilder};
use redrive_core::{BreakerSettings, Class, GuardSettings, Jitter, Policy, Ratio, Spread};

use crate::dispatch::ProtectionSettings;
use crate::engine::conformance::Rng;
use crate::engine::{AfterDead, DeliveryOrder, StoreOptions};

/// The parameters of one run.
#[derive(Clone, Debug)]
pub struct Plan {
    pub seed: u64,
    pub policy: Arc<Policy>,
    pub store: StoreOptions,
    pub concurrency: usize,
    pub protection: ProtectionSettings,
    /// Messages that are offered while faults are on.
    pub messages: u32,
    pub keys: u64,
    pub delayed_percent: u64,
    pub duplicate_percent: u64,
    pub fates: FateShares,
    pub calls: Calls,
    pub faults: Faults,
    /// Spans of true time in which every call fails.
    pub outages_ms: Vec<(u64, u64)>,
    /// Steps of the first phase.
    pub steps: u32,
}

/// The kinds of messages in percent; the rest is good.
#[derive(Clone, Copy, Debug)]
pub struct FateShares {
    pub flaky: u64,
    pub permanent: u64,
    pub gone: u64,
    /// Always fails, without being recognised as permanent.
    pub poison: u64,
    pub crashing: u64,
    /// Its connection is always stale.
    pub stale: u64,
    /// Our credential is always refused for it.
    pub locked: u64,
    /// Crashes the process whenever it is started.
    pub killer: u64,
    /// Crashes its receiver, which restarts at once: the connection breaks after the request was sent.
    pub deadly: u64,
}

/// Faults of calls while faults are on, in percent.
#[derive(Clone, Copy, Debug)]
pub struct Calls {
    pub latency_ms_max: u64,
    pub hang: u64,
    pub ambiguous: u64,
    pub rate_limited: u64,
    pub credential: u64,
    pub reconnect: u64,
    /// Whether connections are refused during an outage; otherwise every call is answered with 503.
    pub outage_refuses: bool,
}

/// How often a step is a fault, in per mille.
#[derive(Clone, Copy, Debug)]
pub struct Faults {
    pub crash: u64,
    pub restart: u64,
    pub clock: u64,
    pub pause: u64,
    pub operator: u64,
    pub late_answer: u64,
}

impl Plan {
    pub fn from_seed(seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let rng = &mut rng;
        let concurrency = rng.pick(&[1, 2, 3, 8]);
        let policy = policy(rng);
        let mut start = 0;
        let outages_ms = (0..rng.below(4))
            .map(|_| {
                start += rng.between(1_000, 60_000);
                let from = start;
                start += rng.pick(&[500, 5_000, 60_000, 600_000]);
                (from, start)
            })
            .collect();
        Self {
            seed,
            policy: Arc::new(policy),
            store: StoreOptions {
                ordering: if rng.chance(50) { DeliveryOrder::Key } else { DeliveryOrder::None },
                after_dead: if rng.chance(50) { AfterDead::BlockKey } else { AfterDead::Continue },
                dedup: rng.chance(50).then_some(Duration::from_mins(10)),
                ..StoreOptions::default()
            },
            concurrency,
            protection: ProtectionSettings { one_endpoint: seed % 2 == 1, ..protection(rng) },
            messages: rng.between(3, 40) as u32,
            keys: rng.pick(&[1, 3, 20]),
            delayed_percent: rng.pick(&[0, 20]),
            duplicate_percent: rng.pick(&[0, 10]),
            fates: FateShares {
                flaky: rng.pick(&[0, 20, 60]),
                permanent: rng.pick(&[0, 5]),
                gone: rng.pick(&[0, 5]),
                poison: rng.pick(&[0, 5, 30]),
                crashing: rng.pick(&[0, 5]),
                stale: rng.pick(&[0, 5]),
                locked: rng.pick(&[0, 5]),
                killer: rng.pick(&[0, 0, 5]),
                deadly: rng.pick(&[0, 5]),
            },
            calls: Calls {
                latency_ms_max: rng.pick(&[1, 100, 3_000]),
                hang: rng.pick(&[0, 5, 20]),
                ambiguous: rng.pick(&[0, 10]),
                rate_limited: rng.pick(&[0, 10]),
                credential: rng.pick(&[0, 5]),
                reconnect: rng.pick(&[0, 5]),
                outage_refuses: rng.chance(50),
            },
            faults: Faults {
                crash: rng.pick(&[0, 5, 30]),
                restart: rng.pick(&[0, 5]),
                clock: rng.pick(&[0, 5]),
                pause: rng.pick(&[0, 10]),
                operator: rng.pick(&[0, 20, 60]),
                late_answer: rng.pick(&[0, 20]),
            },
            outages_ms,
            steps: rng.between(100, 500) as u32,
        }
    }
}

/// Limits small enough for the few messages of a run to open the breaker.
fn protection(rng: &mut Rng) -> ProtectionSettings {
    let mut breaker = BreakerSettings { enabled: rng.chance(70), ..BreakerSettings::default() };
    breaker.fast.min = rng.pick(&[3, 8, 20]);
    breaker.fast.window = Duration::from_secs(rng.pick(&[1, 10, 600]));
    breaker.slow.window = Duration::from_secs(rng.pick(&[5, 300]));
    breaker.cooldown = Duration::from_secs(rng.pick(&[1, 30]));
    breaker.probes = rng.pick(&[1, 5]);
    ProtectionSettings {
        breaker,
        guard: GuardSettings::default(),
        one_endpoint: false,
        many_endpoints: false,
    }
}

fn policy(rng: &mut Rng) -> Policy {
    let seconds = Duration::from_secs;
    let tiers = [seconds(1), seconds(5), seconds(30), seconds(300)];
    let spread = if rng.chance(50) {
        Spread::Ratio(Ratio::of_one(0.25).unwrap_or(Ratio::WHOLE))
    } else {
        Spread::Time(Duration::from_millis(700))
    };
    let plain = [Jitter::None, Jitter::Full, Jitter::Equal, Jitter::Plus(spread), Jitter::Around(spread)];
    let retries = rng.between(0, 6) as u32;
    let builder: PolicyBuilder = match rng.below(3) {
        0 => {
            let tiers = tiers[..rng.between(1, 4) as usize].to_vec();
            let most = tiers.len() as u64;
            Policy::tiers(tiers).jitter(rng.pick(&plain)).retries(rng.between(0, most) as u32)
        }
        1 => {
            let jitter = if rng.chance(30) { Jitter::Decorrelated } else { rng.pick(&plain) };
            let base = seconds(rng.pick(&[1, 5]));
            Policy::exponential(base, 2.0, seconds(rng.pick(&[10, 60]))).jitter(jitter).retries(retries)
        }
        _ => Policy::fixed(seconds(rng.pick(&[1, 20]))).jitter(rng.pick(&plain)).retries(retries),
    };
    let mut builder = builder
        .hold_max(seconds(rng.pick(&[60, 600, 7_200])))
        .timeout(seconds(rng.pick(&[1, 10, 30])))
        .retry_after_max(seconds(rng.pick(&[10, 600])))
        .outage_gate(rng.chance(70))
        .classify(rng.chance(80));
    if rng.chance(40) {
        builder = builder.ttl(seconds(rng.pick(&[20, 120, 1_200])));
    }
    if rng.chance(30) {
        let answer = if rng.chance(50) { OnExhausted::Defer } else { OnExhausted::DeadLetter };
        builder = builder.retries_per_minute(rng.pick(&[1, 10])).on_exhausted(answer);
    }
    if rng.chance(30) {
        builder = builder.attempts_for(Class::RateLimited, rng.between(1, 9) as u32);
    }
    if rng.chance(30) {
        builder = builder.replay_attempts(rng.between(1, 3) as u32);
    }
    builder.build().unwrap_or_else(|faults| panic!("the plan has a policy that cannot be: {faults}"))
}
