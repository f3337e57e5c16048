//! The broker goes away and comes back with the same data.

use redrive_lab::kafka::broker::BrokerEnd;
use redrive_lab::kafka::trace;

use super::support::{Flow, World, own_broker, wait_for};

const PER_SECOND: u64 = 1_000;
/// A letter in flight when the broker went away may be stored after its message was delivered again and has died again.
/// Two members have 128 deliveries in flight, of which one in a hundred is poison, and one in four of these on its last
/// attempt.
const LETTERS_ON_THEIR_WAY: u64 = 2;

#[test]
fn nothing_is_lost_while_the_broker_is_killed_and_started_again() {
    let dir = tempfile::tempdir().expect("a scratch directory");
    let mut broker = own_broker(&dir);
    let mut world = World::at(broker.address(), "broker", 4).patient();
    let flow = Flow::start(world.loader(), PER_SECOND);
    let members = ["one", "two"].map(|name| world.member(name));
    world.wait_until_moving();
    for end in [BrokerEnd::Kill, BrokerEnd::Stop] {
        let written = flow.written();
        wait_for("the load", || flow.written() > written + 2 * PER_SECOND);
        world.interrupted(trace::wall_us());
        broker.restart(end).expect("it comes back");
        world.interrupted(trace::wall_us());
        world.wait_until_moving();
    }
    let produced = flow.end();
    world.wait_until_ended(produced);
    for member in members {
        member.stop();
    }
    // After its return the broker may replace members that it no longer knows.
    world.members_were_replaced();
    let told = world.audit(produced, "a broker killed once and stopped once");
    assert_eq!((told.repeats_unexplained, told.over_budget), (0, 0), "{told}");
    assert!(told.twin_letters <= LETTERS_ON_THEIR_WAY, "{told}");
    drop(world);
}
