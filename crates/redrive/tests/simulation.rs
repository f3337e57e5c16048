//! The simulation over many seeds.
//!
//! `REDRIVE_SEED=7` runs exactly that seed, `REDRIVE_SIM_SEEDS=1000000` that many (use `--release` for a soak).

use redrive::Reason;
use redrive::internal::engine::conformance::seeds_from_env;
use redrive::internal::sim;

#[test]
fn every_invariant_holds_on_every_seed() {
    let seeds = seeds_from_env("REDRIVE_SIM_SEEDS").unwrap_or(2_000);
    let started = std::time::Instant::now();
    let total = sim::check_seeds(seeds);
    let hours = total.true_ms / 3_600_000;
    println!("{seeds} seeds in {:?}: {hours} h of virtual time, {total:?}", started.elapsed());
    assert_eq!(total.succeeded + total.dead, total.messages);
    if seeds_from_env("REDRIVE_SEED").is_none() {
        everything_was_reached(&total);
    }
}

/// Checks that everything happened at least once: a simulation in which an event never occurs says nothing about it.
fn everything_was_reached(total: &sim::Summary) {
    // Damage and imports have their own tests.
    let elsewhere = [Reason::Corrupt, Reason::Imported];
    for reason in Reason::ALL.into_iter().filter(|reason| !elsewhere.contains(reason)) {
        assert!(total.reasons.contains_key(&reason), "no message died of {reason}: {total:?}");
    }
    assert!(total.crashes > 0 && total.replays > 0 && total.succeeded > total.messages / 10);
}

#[test]
fn a_seed_gives_the_same_run_every_time() {
    assert_eq!(sim::run(11).unwrap(), sim::run(11).unwrap());
}
