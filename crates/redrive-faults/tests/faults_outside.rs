//! Kills from outside that the supervisor of a process with its own handlers has seen: nothing is quarantined, and a
//! pill among them is still found after three deaths.
//!
//! `REDRIVE_OUTSIDE_KILLS` sets the number of kills.

mod support;

use std::collections::BTreeSet;
use std::os::unix::process::ExitStatusExt;
use std::process::Command;
use std::time::{Duration, Instant};

use redrive::internal::engine::{Query, StoreOptions};
use redrive::{LastEnd, Reason};
use redrive_core::SplitMix64;
use redrive_faults::pill::{self, Death, PILL, PIPELINES};
use redrive_faults::plan;
use support::{HANG_GUARD, Rig, Victim, often};

/// The supervisor's view of a victim that is restarted again and again.
struct Lives {
    rig: Rig,
    death: Death,
    starts: u64,
    last_end: LastEnd,
}

impl Lives {
    fn new(death: Death) -> Self {
        Self { rig: Rig::new(), death, starts: 0, last_end: LastEnd::Unknown }
    }

    fn log(&self) -> std::path::PathBuf {
        self.rig.scratch.0.join("log")
    }

    fn calls(&self) -> u64 {
        std::fs::metadata(self.log()).map_or(0, |metadata| metadata.len())
    }

    fn start(&mut self, stay: bool) -> Victim {
        let mut command = Command::new("sh");
        command.arg("-c").arg("ulimit -c 0; exec \"$0\" \"$@\"").arg(env!("CARGO_BIN_EXE_pill"));
        command.args([&self.rig.dir, &self.log()]).args([self.death.name(), &self.starts.to_string()]);
        command.arg(if self.last_end == LastEnd::FromOutside { "outside" } else { "unknown" });
        command.args(stay.then_some("stay")).env("RUST_BACKTRACE", "0");
        self.starts += 1;
        Victim::spawn(&mut command)
    }

    /// Waits until a call ends, then a random time, and kills it. In one case of four it only waits the random time,
    /// which may hit the opening.
    fn kill(&mut self, victim: Victim, random: &mut SplitMix64) {
        if !random.chance(25) {
            let (before, begun) = (self.calls(), Instant::now());
            while self.calls() == before {
                assert!(begun.elapsed() < HANG_GUARD, "the victim does nothing");
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        std::thread::sleep(Duration::from_millis(random.draw() % 100));
        victim.kill();
        self.last_end = LastEnd::of(Some(9), false);
    }

    /// Returns the dead letters of each pipeline, and checks that all other messages of the last start were delivered.
    fn dead(&self) -> Vec<(String, Reason, u32)> {
        let done = std::fs::read_to_string(self.log()).expect("the log of calls");
        let done: BTreeSet<&str> = done.lines().collect();
        let embedded = redrive::Embedded::open_with(&self.rig.dir, plan::tuning()).expect("it opens");
        let mut dead = Vec::new();
        for name in PIPELINES {
            let mut store = embedded.store(name, StoreOptions::default()).expect("a store");
            assert_eq!(store.counts().pending(), 0);
            for letter in store.letters(None, None, 10_000).expect("letters") {
                dead.push((letter.message.id().to_owned(), letter.reason, letter.meta.crashes));
            }
            // The last start ended by itself, so its messages were accepted.
            for message in pill::brought(name, self.starts - 1) {
                assert!(done.contains(message.id()), "{} was lost", message.id());
            }
        }
        dead
    }
}

#[test]
fn kills_that_a_supervisor_has_seen_quarantine_nothing() {
    let kills = often("REDRIVE_OUTSIDE_KILLS", 15);
    let mut random = SplitMix64::new(often("REDRIVE_SEED", 1));
    let mut lives = Lives::new(Death::Never);
    for _ in 0..kills {
        let victim = lives.start(true);
        lives.kill(victim, &mut random);
    }
    let (status, said) = lives.start(false).wait();
    assert!(status.success(), "{status}: {said}");
    assert!(!said.contains("suspect"), "{said}");
    let calls = std::fs::read_to_string(lives.log()).expect("the log").lines().count();
    assert_eq!(lives.dead(), [], "after {kills} kills");
    println!("{kills} kills in {calls} calls of handlers in the process: 0 quarantined");
}

#[test]
fn a_pill_among_kills_from_outside_is_found_by_three_deaths_of_its_own() {
    let mut random = SplitMix64::new(often("REDRIVE_SEED", 2));
    let mut lives = Lives::new(Death::Abort);
    let (mut deaths, mut kills_while_opening) = (0, 0);
    let said = loop {
        assert!(lives.starts < 16, "it never lived");
        // Every second process is killed from outside, if the pill leaves time for it.
        if lives.starts % 2 == 1 {
            let (mut victim, calls) = (lives.start(true), lives.calls());
            std::thread::sleep(Duration::from_millis(random.draw() % 30));
            if let Some(status) = victim.end_now() {
                assert_eq!(status.signal(), Some(6));
                deaths += 1;
                lives.last_end = LastEnd::of(status.signal(), false);
            } else {
                lives.last_end = LastEnd::FromOutside;
                kills_while_opening += u32::from(lives.calls() == calls);
            }
            continue;
        }
        let (status, said) = lives.start(false).wait();
        if status.success() {
            break said;
        }
        assert_eq!(status.signal(), Some(6), "{said}");
        deaths += 1;
        lives.last_end = LastEnd::of(status.signal(), false);
    };
    // A process that is killed before it has recorded the previous death loses that death.
    assert!((3..=3 + kills_while_opening).contains(&deaths), "{deaths} deaths: {said}");
    assert_eq!(lives.dead(), [(PILL.to_owned(), Reason::PoisonPill, 3)], "{said}");
}
