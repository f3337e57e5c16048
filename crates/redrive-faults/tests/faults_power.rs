//! Power cuts on a real ext4: the store is on an image that loses power at a random moment, the acknowledgements are on
//! another file system. `REDRIVE_CUTS` sets the number of cuts.
//!
//! Acknowledgements after the cut do not count: the kernel lets a sync that is running at that moment return without an
//! error although its data is gone (see `scripts/power-cut`).

#[path = "support/image.rs"]
mod image;
mod support;

use std::process::Command;

use image::Image;
use redrive_core::SplitMix64;
use redrive_faults::verify::SeenEffects;
use support::{Rig, VICTIM, Victim, often, random_moment};

const CUTS_PER_IMAGE: u64 = 5;

#[test]
fn power_cuts_lose_nothing_that_was_acknowledged() {
    let cuts = often("REDRIVE_CUTS", 15);
    let mut random = SplitMix64::new(often("REDRIVE_SEED", 3));
    let mut seen = SeenEffects::default();
    let mut stopped = 0;
    for first in (0..cuts).step_by(CUTS_PER_IMAGE as usize) {
        let mut rig = Rig::new();
        let mut image = match Image::new(&rig.scratch.0, 96) {
            Ok(image) => image,
            Err(missing) => return println!("skipped: {missing}"),
        };
        rig.dir = image.mount.join("store");
        for cut in first..cuts.min(first + CUTS_PER_IMAGE) {
            let victim = rig.start(random.draw(), 0);
            random_moment(&rig, &mut random);
            if let Err(missing) = image.cut(&rig.acks) {
                return println!("skipped: {missing}");
            }
            // It notices that its storage fails, reports it and stops.
            let (status, said) = victim.wait();
            assert_eq!(status.code(), Some(74), "cut {cut}: {said}");
            stopped += 1;
            image.remount();
            seen += rig.check(false, &format!("cut {cut}"));
        }
    }
    println!("{cuts} power cuts, {stopped} times stopped with 74, verified after each: {seen}");
}

/// The control, without any code of ours: a loop of append and sync keeps what was reported before the cut. What a sync
/// reported that ran during the cut may be lost; how often that happens is printed.
#[test]
fn a_bare_loop_keeps_what_it_was_told_before_the_cut_and_no_more() {
    let cuts = often("REDRIVE_CUTS", 15);
    let mut random = SplitMix64::new(often("REDRIVE_SEED", 6));
    let rig = Rig::new();
    let mut image = match Image::new(&rig.scratch.0, 96) {
        Ok(image) => image,
        Err(missing) => return println!("skipped: {missing}"),
    };
    let file = image.mount.join("appended");
    let mut lost_after = 0;
    for cut in 0..cuts {
        std::fs::write(&rig.acks, "").expect("written");
        let victim = Victim::spawn(Command::new(VICTIM).arg("append").args([&file, &rig.acks]));
        random_moment(&rig, &mut random);
        if let Err(missing) = image.cut(&rig.acks) {
            return println!("skipped: {missing}");
        }
        let (status, said) = victim.wait();
        assert_eq!(status.code(), Some(74), "cut {cut}: {said}");
        image.remount();
        let len = std::fs::metadata(&file).map_or(0, |metadata| metadata.len());
        let said = std::fs::read_to_string(&rig.acks).expect("read");
        let last = |text: &str| text.lines().filter_map(|line| line.parse::<u64>().ok()).max().unwrap_or(0);
        let before = said.split("CUT").next().unwrap_or_default();
        assert!(len >= last(before), "cut {cut}: {len} bytes are there, {} were synced", last(before));
        lost_after += u64::from(len < last(&said));
    }
    println!("{cuts} cuts of a bare loop: in {lost_after} the sync that ran at that moment lied");
}
