//! Random numbers for jitter: seeded once per pipeline, drawn per failure.

use std::hash::{BuildHasher, RandomState};

use redrive_core::{Random, SplitMix64};

#[derive(Debug)]
pub(crate) struct RandomSource(SplitMix64);

impl RandomSource {
    pub(crate) fn from_entropy() -> Self {
        Self(SplitMix64::new(RandomState::new().hash_one(std::process::id())))
    }

    pub(crate) fn draw(&mut self) -> Random {
        Random(self.0.draw())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    /// These assertions fail by chance less than once in a billion runs, but always with a constant, a counter or a
    /// few bits of randomness.
    #[test]
    fn numbers_are_spread_evenly_and_no_two_pipelines_draw_the_same() {
        let mut seen = HashSet::new();
        for _ in 0..16 {
            let mut random = RandomSource::from_entropy();
            let draws: Vec<Random> = (0..10_000).map(|_| random.draw()).collect();
            assert!(draws.iter().all(|draw| seen.insert(draw.0)), "a number was drawn twice");
            for tenth in 0..10 {
                let within = draws.iter().filter(|draw| (draw.unit() * 10.0) as usize == tenth).count();
                // 1,000 are expected, with a deviation of 30.
                assert!((800..1_200).contains(&within), "{within} in tenth {tenth}");
            }
            let mean = draws.iter().map(|draw| draw.unit()).sum::<f64>() / draws.len() as f64;
            assert!((0.47..0.53).contains(&mean), "{mean}");
        }
    }
}
