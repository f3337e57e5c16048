//! Random numbers for jitter: seeded once per pipeline, drawn per failure.

use std::hash::{BuildHasher, RandomState};

use redrive_core::Random;

/// SplitMix64: plenty for spreading retries, and a run can be repeated from its seed.
#[derive(Debug)]
pub(crate) struct Dice {
    state: u64,
}

impl Dice {
    pub(crate) fn from_entropy() -> Self {
        Self { state: RandomState::new().hash_one(std::process::id()) }
    }

    pub(crate) fn roll(&mut self) -> Random {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        Random(mixed ^ (mixed >> 31))
    }
}
