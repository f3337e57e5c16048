//! One order among 64 in flight kills its process: three deaths, one order quarantined, no other affected. Everything
//! known about it is in Kafka, so it works the same on a machine that lost its disk.

use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

use redrive_kafka_faults::pill::{Death, STUCK};

use super::support::{Flow, Member, World, wait_for};

const PILL: u64 = 41;
/// Orders in flight when the pill is taken for the first time.
const FIRST: u64 = 64;
/// Orders that are added before every further start, as other work besides the suspects.
const NEW_PER_START: u64 = 40;
/// An order that does not exist: none but the pill fails.
const NOBODY: &str = "999999999";
const STARTS_MAX: u64 = 8;

/// What is left of a machine when it is started again.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Disk {
    Kept,
    Empty,
}

struct Trial {
    death: Death,
    from_attempt: u32,
    disk: Disk,
}

impl Trial {
    fn expects(&self, status: ExitStatus) -> bool {
        match self.death {
            Death::Abort | Death::Memory => status.signal() == Some(6),
            Death::Loop => status.code() == Some(STUCK),
            Death::Panic | Death::Never => false,
        }
    }

    fn start(&self, world: &World) -> Member {
        let pill = format!("{PILL},{},{}", self.death.name(), self.from_attempt);
        world.member_with(&["--member", "one", "--state", "one", "--poison", NOBODY, "--pill", &pill])
    }

    /// Restarts a member until one survives and every order is terminal. Returns how often it died.
    fn run(&self, world: &World) -> u64 {
        let loader = world.loader();
        let mut produced = 0;
        for start in 0..STARTS_MAX {
            let new = if start == 0 { FIRST } else { NEW_PER_START };
            loader.write(produced..produced + new).expect("orders can be written");
            produced += new;
            let mut member = self.start(world);
            let mut status = None;
            wait_for("its death, or an end of everything", || {
                status = member.ended();
                status.is_some() || has_ended(world, produced)
            });
            let Some(status) = status else {
                member.stop();
                check_ends(world, produced);
                return start;
            };
            assert!(self.expects(status), "it died of something else: {status}\n{}", world.said());
            if self.disk == Disk::Empty {
                world.forget("one");
            }
        }
        panic!("it never lived\n{}", world.said());
    }
}

/// Whether the pill is a letter and all other orders are done.
fn has_ended(world: &World, produced: u64) -> bool {
    let succeeded: std::collections::HashSet<u64> =
        world.tried().into_iter().filter(|tried| tried.succeeded).map(|tried| tried.order).collect();
    succeeded.len() as u64 >= produced - 1 && !world.letters().is_empty()
}

/// Checks that exactly the pill is quarantined, and no other order has a letter or got beyond its first attempt.
fn check_ends(world: &World, produced: u64) {
    let letters = world.letters();
    let said = world.said();
    assert_eq!(letters.len(), 1, "{letters:?}\n{said}");
    assert!(letters[0].order == PILL && letters[0].is_pill, "{letters:?}\n{said}");
    assert_eq!(letters[0].crashes, 3, "{said}");
    let tried = world.tried();
    let first_only = tried.iter().all(|tried| tried.order == PILL || tried.attempt == 1);
    assert!(first_only, "the crashes of others are no attempts of an innocent order\n{said}");
    let succeeded: std::collections::HashSet<u64> =
        tried.iter().filter(|tried| tried.succeeded).map(|tried| tried.order).collect();
    assert_eq!(succeeded.len() as u64, produced - 1, "{said}");
}

fn check(what: &str, trial: &Trial, deaths: u64) {
    let world = World::shared(what, 2);
    assert_eq!(trial.run(&world), deaths, "{}", world.said());
}

#[test]
fn an_order_that_aborts_costs_three_deaths() {
    check("abort", &Trial { death: Death::Abort, from_attempt: 1, disk: Disk::Kept }, 3);
}

#[test]
fn an_order_that_takes_all_memory_costs_three_deaths() {
    check("memory", &Trial { death: Death::Memory, from_attempt: 1, disk: Disk::Kept }, 3);
}

#[test]
fn an_order_whose_handler_never_comes_back_costs_three_deaths() {
    check("loop", &Trial { death: Death::Loop, from_attempt: 1, disk: Disk::Kept }, 3);
}

#[test]
fn an_order_that_panics_costs_none() {
    check("panic", &Trial { death: Death::Panic, from_attempt: 1, disk: Disk::Kept }, 0);
}

#[test]
fn the_deaths_are_counted_on_a_machine_without_its_disk() {
    check("empty", &Trial { death: Death::Abort, from_attempt: 1, disk: Disk::Empty }, 3);
}

/// It waits in a tier by then, beside others.
#[test]
fn an_order_that_kills_at_its_retry_costs_three_deaths() {
    check("retry", &Trial { death: Death::Abort, from_attempt: 2, disk: Disk::Empty }, 3);
}

/// The new owner of a dead member's partitions suspects what that member had in flight; the third death is recognised,
/// whichever member dies.
#[test]
fn a_pill_that_goes_from_member_to_member_costs_three_deaths_in_all() {
    let world = World::shared("wanders", 2);
    world.loader().write(0..FIRST).expect("orders can be written");
    let pill = format!("{PILL},abort,1");
    let start = |number: u64| {
        world.member_with(&["--state", &format!("m{number}"), "--poison", NOBODY, "--pill", &pill])
    };
    let (mut members, mut deaths) = (vec![start(0), start(1)], 0);
    wait_for("an end of everything", || {
        for member in &mut members {
            if member.ended().is_some() {
                deaths += 1;
                *member = start(deaths + 1);
            }
        }
        has_ended(&world, FIRST)
    });
    members.into_iter().for_each(Member::stop);
    assert_eq!(deaths, 3, "{}", world.said());
    check_ends(&world, FIRST);
}

/// No process died, so no message is suspected.
#[test]
fn partitions_that_move_in_order_leave_nobody_suspected() {
    let world = World::shared("in-order", 4);
    let flow = Flow::start(world.loader(), 500);
    let one = world.member("one");
    world.wait_until_moving();
    let two = world.stranger("two");
    let written = flow.written();
    wait_for("both to share the work", || flow.written() > written + 1_500);
    one.stop();
    let written = flow.written();
    wait_for("the other to go on alone", || flow.written() > written + 1_500);
    let three = world.stranger("three");
    let written = flow.written();
    wait_for("a third to join", || flow.written() > written + 1_500);
    let produced = flow.end();
    world.wait_until_ended(produced);
    two.stop();
    three.stop();
    let said = world.said();
    assert!(!said.contains("suspect"), "{said}");
}
