//! Random numbers for jitter: seeded once per pipeline, drawn per failure.

use std::hash::{BuildHasher, RandomState};

use redrive_core::{Random, SplitMix64};

#[derive(Debug)]
pub(crate) struct Dice(SplitMix64);

impl Dice {
    pub(crate) fn from_entropy() -> Self {
        Self(SplitMix64::new(RandomState::new().hash_one(std::process::id())))
    }

    pub(crate) fn roll(&mut self) -> Random {
        Random(self.0.draw())
    }
}
