//! Estimates how many endpoints are active without remembering them: two sketches of 4 KiB (HyperLogLog).

use std::time::Duration;

use redrive_core::Time;

use super::record::EndpointId;

/// An endpoint that took no push for one to two of these is not counted any more.
pub const GENERATION: Duration = Duration::from_hours(7 * 24);

const INDEX_BITS: u32 = 12;
const REGISTERS: usize = 1 << INDEX_BITS;

/// Endpoints that took a push lately. Their ids are keyed hashes, so their bits are as good as random.
#[derive(Clone, Debug)]
pub struct Seen {
    current: Vec<u8>,
    previous: Vec<u8>,
    /// When the current generation began.
    since: Time,
}

impl Default for Seen {
    fn default() -> Self {
        Self { current: vec![0; REGISTERS], previous: vec![0; REGISTERS], since: Time::ZERO }
    }
}

impl Seen {
    /// An endpoint took a push. Whether that may have changed the estimate.
    pub fn see(&mut self, id: EndpointId, now: Time) -> bool {
        if self.since == Time::ZERO {
            self.since = now;
        } else if now.since(self.since) >= GENERATION {
            self.previous = std::mem::replace(&mut self.current, vec![0; REGISTERS]);
            self.since = now;
        }
        let index = (id.number() >> (u64::BITS - INDEX_BITS)) as usize;
        let rank = ((id.number() << INDEX_BITS).leading_zeros().min(u64::BITS - INDEX_BITS) + 1) as u8;
        let register = &mut self.current[index];
        let grows = rank > *register;
        *register = rank.max(*register);
        grows
    }

    /// Within about 2 %.
    pub fn estimate(&self) -> u64 {
        let registers = self.current.iter().zip(&self.previous).map(|(a, b)| *a.max(b));
        let (mut sum, mut zeros) = (0.0, 0_u32);
        for register in registers {
            sum += 2_f64.powi(-i32::from(register));
            zeros += u32::from(register == 0);
        }
        let count = REGISTERS as f64;
        let raw = 0.7213 / (1.0 + 1.079 / count) * count * count / sum;
        let few = raw <= 2.5 * count && zeros > 0;
        let estimate = if few { count * (count / f64::from(zeros)).ln() } else { raw };
        estimate.round() as u64
    }
}

#[cfg(test)]
mod tests {
    use redrive_core::SplitMix64;

    use super::*;

    fn ids(seed: u64, count: usize) -> Vec<EndpointId> {
        let mut dice = SplitMix64::new(seed);
        (0..count).map(|_| EndpointId::from_number(dice.draw())).collect()
    }

    #[test]
    fn the_estimate_is_close_and_counts_nobody_twice() {
        for count in [0, 1, 10, 1_000, 18_204, 200_000] {
            let mut seen = Seen::default();
            for _ in 0..2 {
                for id in ids(7, count) {
                    seen.see(id, Time::from_millis(1));
                }
            }
            let off = seen.estimate().abs_diff(count as u64) as f64 / (count.max(1) as f64);
            assert!(off < 0.05, "{count}: {}", seen.estimate());
        }
    }

    #[test]
    fn who_is_not_heard_of_for_two_generations_is_forgotten() {
        let mut seen = Seen::default();
        let start = Time::from_millis(1);
        for id in ids(7, 1000) {
            seen.see(id, start);
        }
        let one = ids(8, 1)[0];
        seen.see(one, start.plus(GENERATION));
        assert!(seen.estimate() > 900);
        seen.see(one, start.plus(2 * GENERATION));
        assert_eq!(seen.estimate(), 1);
    }
}
