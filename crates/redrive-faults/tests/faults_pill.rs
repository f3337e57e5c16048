//! One message among 64 in flight kills its process: three deaths, one message quarantined, no other affected.

mod support;

use std::collections::BTreeSet;
use std::os::unix::process::ExitStatusExt;
use std::process::Command;

use redrive::Reason;
use redrive::internal::engine::{Query, StoreOptions};
use redrive_faults::pill::{self, Death, PILL, PIPELINES, STUCK};
use redrive_faults::plan;
use support::{Rig, Victim};

/// Virtual memory of the victim in kibibytes: far more than it needs, far less than the pill allocates.
const MEMORY_KIB: u64 = 6 << 20;
const STARTS_MAX: u64 = 8;

/// Restarts the victim until it ends by itself. Returns how often it died, and its output.
fn until_it_lives(rig: &Rig, death: Death) -> (u64, String) {
    let (log, mut said) = (rig.scratch.0.join("log"), String::new());
    for start in 0..STARTS_MAX {
        let mut command = Command::new("sh");
        command.arg("-c").arg(format!("ulimit -c 0; ulimit -v {MEMORY_KIB}; exec \"$0\" \"$@\""));
        command
            .arg(env!("CARGO_BIN_EXE_pill"))
            .args([&rig.dir, &log])
            .args([death.name(), &start.to_string()]);
        // A backtrace while dying takes longer than the watchdog waits.
        command.env("RUST_BACKTRACE", "0");
        let (status, stderr) = Victim::spawn(&mut command).wait();
        said.extend([format!("--- start {start}: {status}\n{stderr}")]);
        if status.success() {
            return (start, said);
        }
        let expected = match death {
            Death::Abort | Death::Memory => status.signal() == Some(6),
            Death::Loop => status.code() == Some(STUCK),
            Death::Panic | Death::Never => false,
        };
        assert!(expected, "it died of something else:\n{said}");
    }
    panic!("it never lived:\n{said}");
}

fn check(death: Death, deaths_expected: u64) {
    let rig = Rig::new();
    let (deaths, said) = until_it_lives(&rig, death);
    assert_eq!(deaths, deaths_expected, "{said}");

    let done = std::fs::read_to_string(rig.scratch.0.join("log")).expect("the log of calls");
    let done: BTreeSet<&str> = done.lines().collect();
    let embedded = redrive::Embedded::open_with(&rig.dir, plan::tuning()).expect("it opens");
    for name in PIPELINES {
        for message in (0..=deaths).flat_map(|start| pill::brought(name, start)) {
            assert!(message.id() == PILL || done.contains(message.id()), "{} was lost\n{said}", message.id());
        }
        let mut store = embedded.store(name, StoreOptions::default()).expect("a store");
        let letters = store.letters(None, None, 1_000).expect("letters");
        let dead: Vec<_> = letters.iter().map(|letter| (letter.message.id(), letter.reason)).collect();
        let expected = if name == PIPELINES[0] { vec![(PILL, Reason::PoisonPill)] } else { vec![] };
        assert_eq!(dead, expected, "{said}");
        if let Some(pill) = letters.first() {
            assert_eq!(pill.meta.crashes, 3, "{:?}", pill.meta);
            assert!(pill.meta.last_crash.is_some());
        }
        assert_eq!(store.counts().pending(), 0);
    }
    println!("{}: {deaths} deaths, 1 message quarantined\n{said}", death.name());
}

#[test]
fn a_handler_that_aborts_costs_three_deaths() {
    check(Death::Abort, 3);
}

#[test]
fn a_handler_that_takes_all_memory_costs_three_deaths() {
    check(Death::Memory, 3);
}

#[test]
fn a_handler_that_never_comes_back_costs_three_deaths() {
    check(Death::Loop, 3);
}

#[test]
fn a_handler_that_panics_costs_none() {
    check(Death::Panic, 0);
}
