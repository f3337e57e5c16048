//! A disk that fills up: below the reserve nothing is accepted and settling continues; with a full disk the store
//! stops.

#[path = "support/image.rs"]
mod image;
mod support;

use std::fs;
use std::time::{Duration, Instant};

use image::Image;
use redrive::internal::engine::embedded::{Embedded, Tuning};
use redrive::internal::engine::{Accepted, Deliver, Engine, EngineError, Event, IngestError, NewMessage};
use redrive_faults::plan;
use redrive_faults::settle;
use redrive_faults::workload::Work;
use support::Rig;

const RESERVE_BYTES: u64 = 8 << 20;

fn image(rig: &mut Rig) -> Option<Image> {
    match Image::new(&rig.scratch.0, 40) {
        Ok(image) => {
            rig.dir = image.mount.join("store");
            Some(image)
        }
        Err(missing) => {
            println!("skipped: {missing}");
            None
        }
    }
}

fn offer(store: &impl Engine, id: &str) -> Result<Vec<Accepted>, IngestError> {
    let message = plan::message(id, None);
    let ingest = store.ingest().expect("it takes messages in");
    ingest.submit(vec![NewMessage { message, due: None }], plan::now()).blocking_recv().expect("answered")
}

/// Fills the disk until about this much is free.
fn fill(image: &Image, leave: u64) {
    let free = || {
        let stat = std::process::Command::new("stat").args(["-f", "-c", "%a %S"]).arg(&image.mount).output();
        let text = String::from_utf8(stat.expect("stat").stdout).expect("text");
        text.split_whitespace().map(|word| word.parse::<u64>().expect("a number")).product::<u64>()
    };
    let filler = image.mount.join("filler");
    let mut file = fs::File::create(filler).expect("made");
    while free() > leave {
        let chunk = vec![1; (free() - leave).min(256 * 1024) as usize];
        if std::io::Write::write_all(&mut file, &chunk).is_err() {
            break;
        }
        file.sync_all().expect("synced");
    }
}

#[test]
fn below_the_reserve_ingest_waits_and_settling_goes_on() {
    let mut rig = Rig::new();
    let Some(image) = image(&mut rig) else { return };
    let tuning = Tuning { reserve_bytes: RESERVE_BYTES, ..plan::tuning() };
    let embedded = Embedded::open_with(&rig.dir, tuning).expect("it opens");
    let mut store = embedded.store("plain", plan::options("plain")).expect("it opens");
    for n in 0..20 {
        offer(&store, &format!("before-{n}")).expect("there is room");
    }
    fill(&image, RESERVE_BYTES / 2);
    let refused = offer(&store, "refused").expect_err("there is no room");
    assert!(matches!(refused, IngestError::DiskFull { .. }), "{refused}");

    let mut hands = Vec::new();
    store.poll(&mut Vec::new()).expect("it goes on");
    store.take(plan::now(), 20, &mut hands).expect("it goes on");
    assert_eq!(hands.len(), 20);
    let now = plan::now();
    let batch = hands.into_iter().map(|delivery| settle::retry(delivery, now, Duration::ZERO)).collect();
    let ticket = store.settle(batch).expect("it goes on");
    let mut events = Vec::new();
    while !events.contains(&Event::Durable(ticket)) {
        store.poll(&mut events).expect("settling goes on from the reserve");
    }

    fs::remove_file(image.mount.join("filler")).expect("removed");
    // ext4 frees the blocks of a removed file with its next commit, a few seconds later.
    let begun = Instant::now();
    while let Err(refused) = offer(&store, "after") {
        assert!(begun.elapsed() < support::HANG_GUARD, "space came back: {refused}");
        std::thread::sleep(Duration::from_millis(20));
    }
    store.close().expect("a clean end");
    drop((store, embedded));
    println!("refused below the reserve, settled 20 from it, accepted again when space came back");
}

#[test]
fn a_disk_that_is_really_full_stops_the_store_and_loses_nothing() {
    let mut rig = Rig::new();
    let Some(image) = image(&mut rig) else { return };
    let work = |seed, steps| {
        let (dir, acks) = (&*rig.dir, &*rig.acks);
        Work { dir, acks, seed, steps, pipelines: &plan::PIPELINES, tuning: plan::tuning() }.run()
    };
    work(1, 200).expect("there is room");
    let mut stops = 0;
    for round in 0..6 {
        fill(&image, 200_000 + round * 30_000);
        let stopped = work(round, 100_000).expect_err("there is no room");
        assert!(matches!(stopped, EngineError::Storage(_) | EngineError::Directory { .. }), "{stopped}");
        stops += 1;
        fs::remove_file(image.mount.join("filler")).expect("removed");
        let seen = rig.check(false, &format!("round {round}"));
        println!("stop {stops}: {stopped}; {seen}");
        work(round, 50).expect("it goes on when there is room again");
    }
}
