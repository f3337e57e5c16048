//! What an outage does to messages under a policy: runs `decide` over many messages with random numbers.
//!
//! The sink fails every attempt at once while the outage lasts and none afterwards; messages arrive evenly. Nothing
//! gates the sink: this forecasts what happens without a breaker. The random numbers come from a fixed seed, so that
//! the same policy gives the same figures.

use std::time::Duration;

use crate::time::millis;
use crate::{
    Budget, Class, Decision, Health, Meta, Outcome, Policy, Random, SplitMix64, Time, after, decide, expired,
};

/// How many messages are simulated. Shares are then accurate to about a thousandth.
pub const MESSAGES: u32 = 100_000;
/// The maximum number of points of a curve.
const POINTS_MAX: u64 = 20_000;
/// Points per outage length, so that short outages get a fine curve and long ones a coarse one.
const POINTS_PER_OUTAGE: u64 = 60;
/// Load above this multiple of the usual one counts as raised.
const RAISED: f64 = 1.1;
/// Calls, counted or not, after which a message is no longer followed.
const CALLS_MAX: u32 = 10_000;

/// The fate of the messages that arrived during an outage.
#[derive(Clone, Debug, PartialEq)]
pub struct OutageForecast {
    /// How long the sink is down.
    pub outage: Duration,
    /// Share of the messages that arrived in the outage and were dead before it ended.
    pub dead: f64,
    /// Attempts made during the outage per message that arrived in it; all of them failed.
    pub wasted: f64,
    /// Time from the end of the outage to the success of each message, sorted; without the dead ones.
    recoveries_ms: Vec<u64>,
    /// Load on the sink after the outage.
    pub reload: Reload,
}

/// The load that comes back after an outage, as a multiple of the usual load.
#[derive(Clone, Debug, PartialEq)]
pub struct Reload {
    /// The highest load after the end, fresh messages included.
    pub peak: f64,
    /// How long the load stays near the peak, counted from the end of the outage.
    pub peak_for: Duration,
    /// How long the load is raised at all, counted from the end of the outage.
    pub raised_for: Duration,
    /// A later wave, after the load was back to normal.
    pub echo: Option<Echo>,
}

/// A second wave: the messages whose long wait began during the outage.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Echo {
    /// The highest load of the wave, as a multiple of the usual load.
    pub peak: f64,
    /// When it begins, counted from the end of the outage.
    pub begins: Duration,
    /// How long it raises the load.
    pub lasts: Duration,
}

impl Policy {
    /// Simulates an outage of this length.
    pub fn outage(&self, outage: Duration) -> OutageForecast {
        OutageForecast::of(self, outage, MESSAGES)
    }
}

impl OutageForecast {
    /// Simulates with this many messages, which determines precision and running time.
    pub fn of(policy: &Policy, outage: Duration, messages: u32) -> Self {
        let outage_ms = millis(outage).max(1);
        let messages = messages.max(1);
        let mut followed = Followed { dead: 0, wasted: 0, recoveries_ms: Vec::new() };
        let mut dice = SplitMix64::new(0x5eed_0f0f_7a6e_0001);
        for i in 0..messages {
            // Spread arrivals evenly over the outage, with jitter inside each slot.
            let share = (f64::from(i) + Random(dice.draw()).unit()) / f64::from(messages);
            followed.follow(policy, outage_ms, (share * outage_ms as f64) as u64, &mut dice);
        }
        followed.recoveries_ms.sort_unstable();
        let all = f64::from(messages);
        let curve = Curve::of(&followed.recoveries_ms, outage_ms, messages);
        Self {
            outage,
            dead: followed.dead as f64 / all,
            wasted: followed.wasted as f64 / all,
            recoveries_ms: followed.recoveries_ms,
            reload: curve.reload(),
        }
    }

    /// Time from the end of the outage until this share of the messages that arrived in it is delivered; `None` if too
    /// many of them are dead.
    pub fn recovery(&self, share: f64) -> Option<Duration> {
        let alive = self.recoveries_ms.len() as f64;
        let all = alive / (1.0 - self.dead).max(f64::MIN_POSITIVE);
        let needed = (all * share.clamp(0.0, 1.0)).ceil() as usize;
        let index = needed.saturating_sub(1);
        self.recoveries_ms.get(index).map(|ms| Duration::from_millis(*ms))
    }
}

struct Followed {
    dead: u64,
    wasted: u64,
    recoveries_ms: Vec<u64>,
}

impl Followed {
    /// Simulates one message from its arrival to its end.
    fn follow(&mut self, policy: &Policy, outage_ms: u64, arrival_ms: u64, dice: &mut SplitMix64) {
        let failed = Outcome::failed(Class::Transient);
        let mut now = Time::from_millis(arrival_ms);
        let mut meta = Meta { created: now, deadline: policy.deadline(now), ..Meta::default() };
        for _ in 0..CALLS_MAX {
            if expired(&meta, now) {
                self.dead += u64::from(now.as_millis() < outage_ms);
                return;
            }
            if now.as_millis() >= outage_ms {
                self.recoveries_ms.push(now.as_millis() - outage_ms);
                return;
            }
            self.wasted += 1;
            let random = Random(dice.draw());
            let decision = decide(policy, &meta, &failed, &Health::Healthy, &Budget::Unlimited, now, random);
            meta = after(policy, &meta, &failed, &decision, now);
            match decision {
                Decision::RetryAt(retry) => now = retry.due,
                Decision::DeadLetter(_) | Decision::Complete => break,
            }
        }
        self.dead += 1;
    }
}

/// Attempts after the end of the outage, per equal time step.
struct Curve {
    step_ms: u64,
    /// The load as a multiple of the usual one, fresh messages included.
    load: Vec<f64>,
}

impl Curve {
    fn of(recoveries_ms: &[u64], outage_ms: u64, messages: u32) -> Self {
        let longest_ms = recoveries_ms.last().copied().unwrap_or(0);
        let step_ms = (outage_ms / POINTS_PER_OUTAGE).max(longest_ms / POINTS_MAX).max(1);
        let mut counts = vec![0_u32; (longest_ms / step_ms) as usize + 1];
        for ms in recoveries_ms {
            counts[(ms / step_ms) as usize] += 1;
        }
        let usual = f64::from(messages) * step_ms as f64 / outage_ms as f64;
        let load = counts.into_iter().map(|count| 1.0 + f64::from(count) / usual).collect();
        Self { step_ms, load }
    }

    fn span(&self, points: usize) -> Duration {
        Duration::from_millis(self.step_ms.saturating_mul(points as u64))
    }

    fn reload(&self) -> Reload {
        let highest = |load: &[f64]| load.iter().copied().fold(1.0, f64::max);
        let run = |load: &[f64], above: f64| load.iter().take_while(|at| **at >= above).count();
        let raised = run(&self.load, RAISED);
        // Random numbers make single points a little too high or too low, so smooth over the neighbours.
        let peak = highest(&smooth(&self.load[..raised]));
        let peak_for = run(&self.load[..raised], 1.0 + (peak - 1.0) * 0.8);
        let later = &self.load[raised..];
        let echo = later.iter().position(|at| *at >= RAISED).map(|begins| {
            let ends = later.iter().rposition(|at| *at >= RAISED).unwrap_or(begins);
            let peak = highest(&smooth(&later[begins..=ends]));
            Echo { peak, begins: self.span(raised + begins), lasts: self.span(ends + 1 - begins) }
        });
        let raised_for = self.span(raised);
        Reload { peak, peak_for: self.span(peak_for), raised_for, echo }
    }
}

/// The mean of each point and its two neighbours.
fn smooth(load: &[f64]) -> Vec<f64> {
    let mean = |i: usize| {
        let near = &load[i.saturating_sub(1)..(i + 2).min(load.len())];
        near.iter().sum::<f64>() / near.len() as f64
    };
    (0..load.len()).map(mean).collect()
}
