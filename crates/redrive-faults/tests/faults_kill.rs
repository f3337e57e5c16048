//! `kill -9` at random moments: nothing acknowledged is lost, nothing done is delivered again, and it is known what was
//! running.
//!
//! `REDRIVE_KILLS` sets the number of kills in each of the two tests.

mod support;

use redrive_core::SplitMix64;
use redrive_faults::verify::SeenEffects;
use support::{Rig, often, random_moment};

#[test]
fn many_kills_in_a_row_on_one_directory_lose_nothing() {
    let kills = often("REDRIVE_KILLS", 60);
    let mut random = SplitMix64::new(often("REDRIVE_SEED", 1));
    let mut rig = Rig::new();
    let mut seen = SeenEffects::default();
    for kill in 0..kills {
        // Opening takes longer and longer; a new directory now and then keeps up the rate of kills.
        if kill % 20 == 19 {
            rig = Rig::new();
        }
        let victim = rig.start(random.draw(), 0);
        random_moment(&rig, &mut random);
        victim.kill();
        seen += rig.check(true, &format!("kill {kill}"));
    }
    println!("{kills} kills on {} directories, verified after each: {seen}", kills.div_ceil(20));
    assert!(seen.started > 0, "no kill met a delivery in flight");
}

#[test]
fn kills_on_fresh_directories_lose_nothing() {
    let kills = often("REDRIVE_KILLS", 60);
    let mut random = SplitMix64::new(often("REDRIVE_SEED", 2));
    let mut seen = SeenEffects::default();
    for kill in 0..kills {
        let rig = Rig::new();
        let victim = rig.start(random.draw(), 0);
        random_moment(&rig, &mut random);
        victim.kill();
        seen += rig.check(true, &format!("kill {kill}"));
        // Continue as if nothing had happened, to a clean end.
        rig.work(random.draw(), 20);
        seen += rig.check(false, &format!("after kill {kill}"));
    }
    println!("{kills} kills on as many directories, verified before and after going on: {seen}");
}
