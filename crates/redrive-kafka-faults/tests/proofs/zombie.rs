//! A process that is frozen for longer than its session, and then continues as if nothing had happened.

use std::time::Duration;

use redrive_lab::kafka::trace;

use super::support::{Flow, SESSION, Signal, World, wait_for};

const PER_SECOND: u64 = 1_000;

#[test]
fn a_zombie_neither_loses_nor_overwrites_what_others_did_meanwhile() {
    let mut world = World::shared("zombie", 4);
    let flow = Flow::start(world.loader(), PER_SECOND);
    let frozen = world.member("frozen");
    world.wait_until_moving();
    let awake = world.member("awake");
    let written = flow.written();
    wait_for("both to share the work", || flow.written() > written + 3 * PER_SECOND);

    world.interrupted(frozen.signal(Signal::Stop));
    let written = flow.written();
    // Long enough for the group to reassign its partitions, and for the other member to work on them.
    let beyond = (SESSION + Duration::from_secs(3)).as_secs();
    wait_for("the group to go on without it", || flow.written() > written + beyond * PER_SECOND);
    world.wait_until_reached(written);
    // From now on it may repeat deliveries.
    world.interrupted(trace::wall_us());
    frozen.signal(Signal::Cont);

    let written = flow.written();
    wait_for("some work after its return", || flow.written() > written + 3 * PER_SECOND);
    let produced = flow.end();
    world.wait_until_ended(produced);
    frozen.stop();
    awake.stop();
    world.members_were_replaced();
    let told = world.audit(produced, "zombie");
    // Letters may be there twice if they were already in the socket when the process froze: a process has 64 deliveries
    // in flight, and hardly one of them is a letter at that moment.
    assert_eq!((told.repeats_unexplained, told.over_budget), (0, 0), "{told}");
    assert!(told.twin_letters <= 1, "{told}");
}
