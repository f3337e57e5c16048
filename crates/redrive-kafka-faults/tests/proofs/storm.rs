//! Members come and go all the time, cleanly or by being killed.

use std::time::{Duration, Instant};

use redrive_core::SplitMix64;
use redrive_lab::kafka::trace;

use super::support::{Flow, Member, World, often};

const PER_SECOND: u64 = 1_500;
const MEMBERS_MIN: usize = 2;
const MEMBERS_MAX: usize = 4;

#[test]
fn a_storm_of_rebalances_loses_nothing() {
    let seconds = often("REDRIVE_KAFKA_STORM_SECONDS", 24);
    let seed = often("REDRIVE_SEED", 13);
    let mut random = SplitMix64::new(seed);
    let mut world = World::shared("storm", 8);
    let flow = Flow::start(world.loader(), PER_SECOND);
    let (mut members, mut started): (Vec<Member>, u64) = (Vec::new(), 0);
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(seconds) {
        // Every member takes part in the following rebalance and has to give up something.
        world.interrupted(trace::wall_us());
        let joins = members.len() < MEMBERS_MIN || members.len() < MEMBERS_MAX && random.below(2) == 0;
        if joins {
            started += 1;
            members.push(world.stranger(&format!("state-{started}")));
        } else {
            let leaver = members.remove(random.below(members.len() as u64) as usize);
            if random.below(3) == 0 {
                world.interrupted(leaver.kill());
            } else {
                leaver.stop();
            }
        }
        world.interrupted(trace::wall_us());
        std::thread::sleep(Duration::from_millis(500 + random.below(2_000)));
    }
    let produced = flow.end();
    world.wait_until_ended(produced);
    for member in members {
        member.stop();
    }
    // On a busy machine the group may also remove a member without any fault.
    world.members_were_replaced();
    let told = world.audit(produced, &format!("storm of {seconds} s with {started} members, seed {seed}"));
    assert_eq!((told.repeats_unexplained, told.over_budget), (0, 0), "{told}");
}
