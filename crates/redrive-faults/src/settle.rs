//! The verdicts that the workload and the verifier use.

use std::time::Duration;

use redrive::internal::engine::{Attempt, Delivery, Settlement, Verdict};
use redrive_core::{Class, FailureKind, Reason, Time};

use crate::acks::Step;
use redrive_core::SplitMix64;

/// Outlives the segment it is written to, so that the cleaner has to carry it forward.
const LONG_MS: u64 = 3_600_000;

/// Returns a random settlement, and what it means for the message.
pub fn any(random: &mut SplitMix64, delivery: Delivery, now: Time) -> (Step, Settlement) {
    if let Some(reason) = delivery.doomed {
        return (Step::Dead, dead(delivery, reason, now));
    }
    // Death gets more likely with the attempts, so that nothing retries forever.
    match random.below(100) {
        0..45 => (Step::Done, done(delivery)),
        45..53 => (Step::Released, Settlement { delivery, verdict: Verdict::Release, attempt: None }),
        53..80 if delivery.meta.attempts < 4 => {
            let delay = [0, 0, 1, 5, 20, LONG_MS][random.below(6) as usize];
            (Step::Retry, retry(delivery, now, Duration::from_millis(delay)))
        }
        _ => (Step::Dead, dead(delivery, Reason::MaxRetries, now)),
    }
}

pub fn done(delivery: Delivery) -> Settlement {
    Settlement { delivery, verdict: Verdict::Done, attempt: None }
}

pub fn retry(delivery: Delivery, now: Time, delay: Duration) -> Settlement {
    let attempt = attempt(&delivery, now);
    let meta = redrive_core::Meta { attempts: delivery.meta.attempts + 1, ..delivery.meta };
    Settlement { delivery, verdict: Verdict::Retry { due: now.plus(delay), meta }, attempt: Some(attempt) }
}

pub fn dead(delivery: Delivery, reason: Reason, now: Time) -> Settlement {
    let attempt = attempt(&delivery, now);
    let meta = delivery.meta;
    Settlement { delivery, verdict: Verdict::Dead { reason, meta, at: now }, attempt: Some(attempt) }
}

fn attempt(delivery: &Delivery, now: Time) -> Attempt {
    Attempt {
        number: delivery.meta.attempts + 1,
        at: now,
        took_ms: 1,
        class: Class::Transient,
        kind: FailureKind::Status(503),
        code: None,
        counted: true,
        ambiguous: false,
        error: "the workload says no".into(),
    }
}
