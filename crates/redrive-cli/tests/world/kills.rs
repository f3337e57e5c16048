//! A processor that delivers to a webhook and is killed repeatedly, on any engine.

use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

use super::pill::Scene;
use super::process::Processor;
use super::receiver::{OK, Receiver};
use super::wait_for;

/// What the next process finds on disk after a kill.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disk {
    Intact,
    Lost,
}

/// `count` messages are at a slow receiver when the process is killed, `kills` times; each time all of them are there
/// again concurrently, although the receiver has answered none. In the end all are delivered, none was a suspect and
/// none is dead.
pub fn nobody_waits_alone(scene: &Scene<'_>, dir: &Path, count: usize, kills: u32, disk: Disk) {
    let hangs = Arc::new(AtomicBool::new(true));
    let hung = Arc::clone(&hangs);
    let receiver = Receiver::start(move |_| {
        while hung.load(SeqCst) {
            std::thread::sleep(Duration::from_millis(5));
        }
        OK
    });
    let mut processor = Processor::start(dir, &scene.config(&receiver.url()));
    (0..count).for_each(|number| (scene.bring)(&processor, &format!("o-{number}")));
    let shown = |processor: &Processor| processor.get(&format!("/v1/pipelines/{}", scene.pipeline)).json();
    for kill in 0..kills {
        wait_for(&format!("all to be in flight before kill {kill}"), || {
            shown(&processor)["pending"]["in_flight"] == count
        });
        processor.kill();
        if disk == Disk::Lost {
            std::fs::remove_dir_all(dir.join("data")).unwrap();
        }
        processor.restart();
    }
    wait_for("all to be in flight after the last kill", || {
        shown(&processor)["pending"]["in_flight"] == count
    });
    hangs.store(false, SeqCst);
    wait_for("all to be delivered", || shown(&processor)["succeeded"] == count);
    let (shown, log) = (shown(&processor), processor.log());
    assert_eq!((&shown["dead"], &shown["letters"]["open"]), (&0.into(), &0.into()), "{shown}");
    assert!(!log.contains("runs alone") && !log.contains("poison_pill"), "{log}");
    let delivered: HashSet<String> =
        receiver.requests().iter().map(|request| request.id().to_owned()).collect();
    assert_eq!(delivered.len(), count);
}
