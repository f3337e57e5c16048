//! Measures the cost of many letters: reading them at a start, memory, and replaying them. Figures without assertions
//! on them.

use std::time::Instant;

use redrive::internal::engine::ReplayAnswer;

use crate::fixture::{Fixture, NOW, job};

/// `REDRIVE_LETTERS=100000 cargo test -p redrive-kafka --release --test letters measures -- --ignored --nocapture`
#[test]
#[ignore = "a measurement"]
fn many_letters_are_read_and_put_back() {
    let letters = std::env::var("REDRIVE_LETTERS").ok().and_then(|n| n.parse().ok()).unwrap_or(100_000_i64);
    let fixture = Fixture::new("measures", 4);
    let numbers = fixture.park_many(4, letters / 4);
    let (before, began) = (resident(), Instant::now());
    let mut held = fixture.letters();
    let took = began.elapsed();
    let cache = std::fs::read_dir(fixture.cluster.state_dir.join("kafka")).unwrap();
    let cached: u64 = cache.map(|entry| entry.unwrap().metadata().unwrap().len()).sum();
    assert_eq!(held.counts().open, numbers.len() as u64);
    println!(
        "{} letters read in {took:.1?} ({:.0}/s), {} MB more memory, {} MB in the local file",
        numbers.len(),
        numbers.len() as f64 / took.as_secs_f64(),
        resident().saturating_sub(before) >> 20,
        cached >> 20
    );
    let wanted = &numbers[..numbers.len().min(10_000)];
    let (began, mut longest) = (Instant::now(), std::time::Duration::ZERO);
    for part in wanted.chunks(100) {
        let call = Instant::now();
        let answers = held.replay(&job(1), part, NOW).unwrap();
        assert!(answers.iter().all(|answer| *answer == ReplayAnswer::Replayed));
        longest = longest.max(call.elapsed());
    }
    let rate = wanted.len() as f64 / began.elapsed().as_secs_f64();
    println!(
        "{} letters put back, 100 in a transaction: {rate:.0}/s, the longest call {longest:.1?}",
        wanted.len()
    );
}

fn resident() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    statm.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4096
}
