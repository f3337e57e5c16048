//! The broker stalls for longer than a session, again and again: the member loses its partitions and stays alive.

use redrive_lab::kafka::trace;

use super::support::{SESSION, World, own_broker};

/// All of them are written before the first stall, because a foreign client may not recover from it.
const ORDERS: u64 = 3_000;
const STALLS: u32 = 2;
/// Long enough that many are running whenever the broker stalls.
const TAKES_MAX_US: &str = "500000";

#[test]
fn a_broker_that_stalls_makes_nobody_a_suspect() {
    let dir = tempfile::tempdir().expect("a scratch directory");
    let broker = own_broker(&dir);
    let mut world = World::at(broker.address(), "stall", 4);
    world.loader().write(0..ORDERS).expect("orders can be written");
    let member = world.member_with(&["--member", "one", "--state", "one", "--takes-max-us", TAKES_MAX_US]);
    world.wait_until_moving();
    for _ in 0..STALLS {
        world.interrupted(trace::wall_us());
        broker.stall(SESSION * 2).expect("it goes on");
        world.interrupted(trace::wall_us());
        world.wait_until_moving();
    }
    world.wait_until_ended(ORDERS);
    member.stop();
    world.members_were_replaced();
    let told = world.audit(ORDERS, "a broker that stalled twice");
    assert_eq!((told.repeats_unexplained, told.over_budget), (0, 0), "{told}");
    let said = world.said();
    assert!(said.contains("the group continued without this member"), "it lost its partitions: {said}");
    assert!(!said.contains("suspect"), "and has lived all the time: {said}");
}
