//! The simulation over many seeds.
//!
//! `REDRIVE_SEED=7` runs exactly that seed, `REDRIVE_SIM_SEEDS=1000000` that many (use `--release` for a soak).

use redrive::engine::conformance::seeds_from_env;
use redrive::sim;

#[test]
fn every_invariant_holds_on_every_seed() {
    let seeds = seeds_from_env("REDRIVE_SIM_SEEDS").unwrap_or(3_000);
    let started = std::time::Instant::now();
    let total = sim::check_seeds(seeds);
    let hours = total.true_ms / 3_600_000;
    println!("{seeds} seeds in {:?}: {hours} h of virtual time, {total:?}", started.elapsed());
    assert_eq!(total.succeeded + total.dead, total.messages);
}

#[test]
fn a_seed_gives_the_same_run_every_time() {
    let [first, second] = [sim::run(11), sim::run(11)].map(|run| run.map(|summary| format!("{summary:?}")));
    assert_eq!(first.ok(), second.ok());
}
