//! Power cuts on a real ext4: the store is on an image whose power goes at a random moment, the acknowledgements are on
//! another file system. `REDRIVE_CUTS` says how many.

#[path = "support/image.rs"]
mod image;
mod support;

use image::Image;
use redrive_faults::plan::Random;
use redrive_faults::verify::Seen;
use support::{Rig, often, random_moment};

const CUTS_PER_IMAGE: u64 = 5;

#[test]
fn power_cuts_lose_nothing_that_was_acknowledged() {
    let cuts = often("REDRIVE_CUTS", 15);
    let mut random = Random::new(often("REDRIVE_SEED", 3));
    let mut seen = Seen::default();
    let mut stopped = 0;
    for first in (0..cuts).step_by(CUTS_PER_IMAGE as usize) {
        let mut rig = Rig::new();
        let mut image = match Image::new(&rig.scratch.0, 96) {
            Ok(image) => image,
            Err(missing) => return println!("skipped: {missing}"),
        };
        rig.dir = image.mount.join("store");
        for cut in first..cuts.min(first + CUTS_PER_IMAGE) {
            let victim = rig.start(random.next(), 0);
            random_moment(&rig, &mut random);
            if let Err(missing) = image.cut(&rig.acks) {
                return println!("skipped: {missing}");
            }
            // It finds its storage failing, says so and stops.
            let (status, said) = victim.wait();
            assert_eq!(status.code(), Some(74), "cut {cut}: {said}");
            stopped += 1;
            image.remount();
            seen += rig.check(false, &format!("cut {cut}"));
        }
    }
    println!("{cuts} power cuts, {stopped} times stopped with 74, verified after each: {seen}");
}
