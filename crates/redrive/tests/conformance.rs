//! The memory engine against the conformance suite.
//!
//! `REDRIVE_SEED=7` runs exactly that seed, `REDRIVE_SEEDS=100000` that many.

use proptest::prelude::*;
use redrive::internal::engine::Memory;
use redrive::internal::engine::conformance::{
    Command, Harness, Rng, check_seeds, run_commands, seeds_from_env,
};
use redrive::internal::engine::seam::{AfterDead, DeliveryOrder, Engine, StoreOptions};

struct MemoryHarness(Memory);

impl Harness for MemoryHarness {
    fn engine(&mut self) -> &mut dyn Engine {
        &mut self.0
    }

    fn crash_and_reopen(&mut self) {
        self.0.crash();
    }

    fn reopen_after_close(&mut self) {
        self.0.crash();
    }

    fn idle(&mut self) {}
}

fn open(options: StoreOptions) -> Box<dyn Harness> {
    Box::new(MemoryHarness(Memory::new(options)))
}

#[test]
fn memory_conforms() {
    let seeds = seeds_from_env("REDRIVE_SEEDS").unwrap_or(2_000);
    check_seeds(&open, 0..seeds / 10 * 9, 60);
    check_seeds(&open, seeds / 10 * 9..seeds, 250);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn memory_conforms_with_key_order(draws in prop::collection::vec(any::<u64>().no_shrink(), 1..120)) {
        let commands: Vec<Command> = draws.into_iter().map(|draw| Command::draw(&mut Rng::new(draw))).collect();
        let options = StoreOptions { ordering: DeliveryOrder::Key, after_dead: AfterDead::BlockKey, ..StoreOptions::default() };
        run_commands(&open, options, &commands).map_err(|v| TestCaseError::fail(format!("{v:?}")))?;
    }
}
