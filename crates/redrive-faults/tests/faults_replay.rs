//! `kill -9` of a process with a running replay job, again and again: each letter is requeued once, and delivered once
//! apart from deliveries that were in flight at a kill. The job has a canary and is stopped for failures repeatedly;
//! the process that runs it resumes it.
//!
//! `REDRIVE_REPLAY_KILLS` sets the number of kills.

mod support;

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use redrive::LetterState;
use redrive::internal::engine::Query;
use redrive::internal::engine::embedded::Embedded;
use redrive::replay::{ReplayState, Replays};
use redrive_core::SplitMix64;
use redrive_faults::plan;
use redrive_faults::replaying::{PIPELINE, check_calls, dies_again, options, stops};
use redrive_faults::verify::Scratch;
use support::{HANG_GUARD, Victim, often};

const REPLAYER: &str = env!("CARGO_BIN_EXE_replayer");
const RATE: &str = "300";
/// More than a run can replay before it is killed.
const LETTERS_PER_KILL: u64 = 150;

fn len(path: &Path) -> u64 {
    std::fs::metadata(path).map_or(0, |metadata| metadata.len())
}

/// Waits a random time after the handler was called again; in one case of four from the start, which may hit the
/// opening.
fn random_moment(log: &Path, random: &mut SplitMix64) {
    if !random.chance(25) {
        let (before, begun) = (len(log), Instant::now());
        // The line of the opening is shorter than 200 bytes; calls follow it.
        while len(log) < before + 200 {
            assert!(begun.elapsed() < HANG_GUARD, "the replay does not go on");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    std::thread::sleep(Duration::from_micros(random.below(80_000)));
}

#[test]
fn a_killed_replay_job_delivers_every_letter_once() {
    let kills = often("REDRIVE_REPLAY_KILLS", 20);
    let letters = kills * LETTERS_PER_KILL;
    let mut random = SplitMix64::new(often("REDRIVE_SEED", 3));
    let scratch = Scratch::new().expect("a scratch directory");
    let (dir, log) = (scratch.0.join("store"), scratch.0.join("calls"));
    let (status, said) =
        Victim::spawn(Command::new(REPLAYER).arg("seed").arg(&dir).arg(letters.to_string())).wait();
    assert!(status.success(), "{said}");

    let replay = || Victim::spawn(Command::new(REPLAYER).arg("replay").args([&dir, &log]).arg(RATE));
    for _ in 0..kills {
        let victim = replay();
        random_moment(&log, &mut random);
        victim.kill();
    }
    let (status, said) = replay().wait();
    assert!(status.success(), "{said}");

    let told = check_calls(&log, letters).unwrap_or_else(|error| panic!("after {kills} kills: {error}"));
    let stopped = std::fs::read_to_string(stops(&log)).unwrap_or_default();
    println!("{kills} kills, {} stops: {told}", stopped.lines().count());
    assert!(stopped.lines().any(|why| why.contains("of the last 50 failed (limit 20 %)")), "{stopped}");
    assert!(stopped.lines().any(|why| why.contains("of the first 10 failed (canary")), "{stopped}");
    assert!(told.runs > kills / 2, "most kills met a process that had opened the store: {told}");

    let replays = Replays::open(Some(&dir)).expect("the jobs can be read");
    let jobs = replays.list();
    assert_eq!(jobs.len(), 1, "{jobs:?}");
    let job = &jobs[0];
    assert_eq!(job.state, ReplayState::Done);

    let embedded = Embedded::open_with(&dir, plan::tuning()).expect("the directory is free");
    let mut store = embedded.store(PIPELINE, options()).expect("the store opens");
    let kept = store.letters(None, None, letters as usize + 1).expect("letters can be listed");
    assert_eq!(kept.len() as u64, letters);
    let dead_again = kept.iter().filter(|letter| dies_again(&letter.message)).count() as u64;
    assert_eq!((job.total, job.published, job.skipped), (letters, letters, 0), "{job:?}");
    assert_eq!((job.succeeded, job.dead_again), (letters - dead_again, dead_again), "{job:?}");
    for letter in kept {
        let expected = if dies_again(&letter.message) { LetterState::Open } else { LetterState::Succeeded };
        assert_eq!(letter.state, expected, "{letter:?}");
        assert_eq!(letter.meta.replays, 1, "put back once: {letter:?}");
    }
}
