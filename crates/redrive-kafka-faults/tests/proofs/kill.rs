//! `kill -9` at random moments.

use std::time::Duration;

use redrive_core::SplitMix64;

use super::support::{Flow, World, often};

const PER_SECOND: u64 = 1_000;
/// Completions are committed ten times a second, or within a second if bitmaps are needed; so repeats were done shortly
/// before the kill. The bound is generous, since the test machine may be busy.
const REPEAT_AGE_MAX_MS: u32 = 5_000;

#[test]
fn nothing_is_lost_when_the_processor_is_killed_again_and_again() {
    let kills = often("REDRIVE_KAFKA_KILLS", 30);
    let seed = often("REDRIVE_SEED", 11);
    let mut random = SplitMix64::new(seed);
    let mut world = World::shared("kill", 4).patient();
    let flow = Flow::start(world.loader(), PER_SECOND);
    for _ in 0..kills {
        let member = world.member("one");
        // In one case of four it may be killed before it has joined its group.
        if random.below(4) > 0 {
            world.wait_until_moving();
        } else {
            std::thread::sleep(Duration::from_millis(random.below(500)));
        }
        std::thread::sleep(Duration::from_millis(random.below(1_200)));
        let at = member.kill();
        world.interrupted(at);
    }
    let member = world.member("one");
    world.wait_until_moving();
    let produced = flow.end();
    world.wait_until_ended(produced);
    member.stop();
    let told = world.audit(produced, &format!("{kills} kills, seed {seed}"));
    assert_eq!((told.repeats_unexplained, told.over_budget), (0, 0), "{told}");
    assert!(told.repeat_age_max_ms < REPEAT_AGE_MAX_MS, "{told}");
}
