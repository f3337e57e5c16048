//! Story 11: one process after the other is stopped cleanly and started again, under load.

use super::support::{Flow, World, often, wait_for};

const PER_SECOND: u64 = 2_000;
const MEMBERS: [&str; 3] = ["redrive-0", "redrive-1", "redrive-2"];

#[test]
fn a_rolling_restart_misses_nothing_and_repeats_nothing() {
    let rounds = often("REDRIVE_KAFKA_ROLLS", 1);
    let world = World::shared("rolling", 6).patient();
    let flow = Flow::start(world.loader(), PER_SECOND);
    let mut members: Vec<_> = MEMBERS.iter().map(|name| world.member(name)).collect();
    world.wait_until_moving();
    for _ in 0..rounds {
        for name in MEMBERS {
            let written = flow.written();
            wait_for("the load", || flow.written() > written + PER_SECOND);
            // The first one has run longest.
            members.remove(0).stop();
            members.push(world.member(name));
            world.wait_until_moving();
        }
    }
    let produced = flow.end();
    world.wait_until_ended(produced);
    for member in members {
        member.stop();
    }
    let told = world.audit(produced, &format!("{rounds} rolling restarts of {} members", MEMBERS.len()));
    assert_eq!((told.repeats, told.twin_letters, told.over_budget), (0, 0, 0), "{told}");
}
