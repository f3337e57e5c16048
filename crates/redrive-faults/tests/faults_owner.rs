//! Two owners on one directory: the second is refused, whatever was done to the lock file; and if it gets in anyway,
//! neither overwrites what the other has acknowledged.

use std::fs;
use std::path::Path;

use redrive::internal::engine::embedded::disk::real::RealDisk;
use redrive::internal::engine::embedded::index::runs::SortedRuns;
use redrive::internal::engine::embedded::store::location::{OpenIndex, StoreLocation, seed};
use redrive::internal::engine::embedded::store::open::open;
use redrive::internal::engine::embedded::{Embedded, dir::EmbeddedStore};
use redrive::internal::engine::{Accepted, Deliver, EngineError, NewMessage};
use redrive_faults::verify::Scratch;
use redrive_faults::{plan, sample};
use std::sync::Arc;

const STORE_ID: [u8; 16] = *b"two owners of it";

fn ingest(store: &EmbeddedStore, id: &str) -> bool {
    let new = NewMessage { message: plan::message(id, None), due: None };
    let answer = store.ingest().expect("ingest").submit(vec![new], sample::NOW).blocking_recv();
    matches!(answer.as_ref().map(|answer| answer.as_deref()), Ok(Ok([Accepted::New { .. }])))
}

/// 50 of 100 acknowledged messages were once overwritten this way.
#[test]
fn a_second_process_is_refused_although_the_lock_file_was_removed() {
    let scratch = Scratch::new().expect("a scratch directory");
    let first = Embedded::open_with(&scratch.0, plan::tuning()).expect("a directory");
    let store = first.store("plain", sample::options("plain")).expect("a store");
    assert!(ingest(&store, "before"));
    for with_lock_file in [true, false] {
        if !with_lock_file {
            fs::remove_file(scratch.0.join("LOCK")).expect("removed");
        }
        let second = Embedded::open_with(&scratch.0, plan::tuning());
        assert!(matches!(&second, Err(EngineError::Owned(text)) if text.contains("process")), "{second:?}");
    }
    assert!(ingest(&store, "after"), "the first goes on");
    drop((store, first));
    Embedded::open_with(&scratch.0, plan::tuning()).expect("free again");
}

/// Opens the store below the lock, as a program would that does not know about it.
fn open_without_lock(path: &Path, owner: u64) -> EmbeddedStore {
    let disk = RealDisk::new(path.join("journal")).expect("a disk");
    let tuning = plan::tuning();
    let place = StoreLocation { disk, store_id: STORE_ID, options: sample::options("plain"), tuning, owner };
    let index = path.join(format!("index-{owner}"));
    let open_index: OpenIndex<SortedRuns<RealDisk>> = Arc::new(move |anew: bool| {
        let disk = RealDisk::new(&index).expect("a disk");
        let open = if anew { SortedRuns::anew } else { SortedRuns::open };
        open(disk, seed(&STORE_ID), tuning.checkpoint_changes).map(Arc::new)
    });
    open(&place, &open_index).expect("it opens").0
}

#[test]
fn two_writers_never_write_over_each_other() {
    let mut went_on = 0;
    for round in 0..20 {
        let scratch = Scratch::new().expect("a scratch directory");
        let mut acknowledged = Vec::new();
        {
            let first = open_without_lock(&scratch.0, 1);
            let mut say = |store: &EmbeddedStore, id: String| {
                if ingest(store, &id) {
                    acknowledged.push(id);
                }
            };
            (0..round).for_each(|n| say(&first, format!("first-{n}")));
            let second = open_without_lock(&scratch.0, 2);
            // Enough that both would roll segments.
            for n in 0..100 {
                say(&second, format!("second-{n}"));
                say(&first, format!("first-too-{n}"));
            }
            // Neither may write a clean end that it cannot guarantee.
            std::mem::forget((first, second));
        }
        // Both stop if each finds what the other has just written; otherwise one continues.
        went_on += usize::from(acknowledged.len() as u64 >= round + 50);
        let mut store = open_without_lock(&scratch.0, 3);
        let mut taken = Vec::new();
        store.take(sample::NOW, 1000, &mut taken).expect("taken");
        let there: Vec<&str> = taken.iter().map(|delivery| delivery.message.id()).collect();
        let lost: Vec<_> = acknowledged.iter().filter(|id| !there.contains(&id.as_str())).collect();
        assert!(lost.is_empty(), "round {round}: {lost:?} of {}", acknowledged.len());
    }
    assert!(went_on > 0, "both stopped in every round");
}

#[test]
fn a_segment_that_is_removed_or_cut_under_its_writer_stops_it() {
    for cut in [false, true] {
        let scratch = Scratch::new().expect("a scratch directory");
        let mut store = open_without_lock(&scratch.0, 1);
        assert!(ingest(&store, "one"));
        let segment = scratch.0.join("journal/j-0000000000000000.seg");
        if cut {
            fs::File::options().write(true).open(&segment).and_then(|file| file.set_len(90)).expect("cut");
        } else {
            fs::remove_file(&segment).expect("removed");
        }
        assert!(!ingest(&store, "two"), "not acknowledged");
        let error = loop {
            if let Err(error) = store.poll(&mut Vec::new()) {
                break error.to_string();
            }
        };
        let how = if cut { "changed" } else { "removed" };
        assert!(error.contains("j-0000000000000000.seg") && error.contains(how), "{error}");
    }
}
