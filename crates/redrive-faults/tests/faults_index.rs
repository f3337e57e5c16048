//! The index is a cache: if it is deleted, truncated, incomplete or older than the journal, it is rebuilt or caught up.

mod support;

use std::fs;
use std::os::unix::fs::FileExt;

use redrive::internal::engine::embedded::Embedded;
use redrive::internal::engine::{
    Accepted, Deliver, Engine, EngineError, IngestError, LetterState, MessagePhase, NewMessage, Query,
    StoreNotice,
};
use redrive_core::Reason;
use redrive_core::SplitMix64;
use redrive_faults::plan::{self, PIPELINES};
use redrive_faults::sample::{self, patiently};
use redrive_faults::settle;
use redrive_faults::verify::{Scratch, SeenEffects, copy_dir};
use support::{Rig, files_in, often};

#[derive(Debug, Clone, Copy)]
enum Harm {
    Delete,
    HalfDelete,
    Truncate,
    Older,
}

#[test]
fn whatever_happens_to_the_index_nothing_is_lost() {
    let rounds = often("REDRIVE_INDEX_ROUNDS", 24);
    let mut random = SplitMix64::new(often("REDRIVE_SEED", 4));
    let mut rig = Rig::new();
    let mut seen = SeenEffects::default();
    for round in 0..rounds {
        if round % 8 == 0 {
            rig = Rig::new();
        }
        let older = rig.scratch.0.join("older");
        let _ = fs::remove_dir_all(&older);
        for pipeline in PIPELINES {
            let index = rig.dir.join(pipeline).join("index");
            if index.exists() {
                copy_dir(&index, &older.join(pipeline)).expect("a copy");
            }
        }
        if random.chance(50) {
            rig.work(random.draw(), 300);
        } else {
            let victim = rig.start(random.draw(), 0);
            support::random_moment(&rig, &mut random);
            victim.kill();
        }
        let harm = [Harm::Delete, Harm::HalfDelete, Harm::Truncate, Harm::Older][random.below(4) as usize];
        for pipeline in PIPELINES {
            let index = rig.dir.join(pipeline).join("index");
            if index.exists() {
                harm_index(harm, &index, &older.join(pipeline), &mut random);
            }
        }
        // The verifier compares the index with one that is built from the journal alone.
        seen += rig.check(false, &format!("round {round}, {harm:?}"));
    }
    println!("{rounds} times harmed, verified after each: {seen}");
}

fn harm_index(harm: Harm, index: &std::path::Path, older: &std::path::Path, random: &mut SplitMix64) {
    let mut files = files_in(index);
    match harm {
        Harm::Delete => fs::remove_dir_all(index).expect("removed"),
        Harm::HalfDelete => {
            files.retain(|_| random.chance(50));
            for file in &files {
                fs::remove_file(file).expect("removed");
            }
        }
        // A victim that was killed before its first checkpoint leaves an empty directory.
        Harm::Truncate if files.is_empty() => {}
        Harm::Truncate => {
            let file = &files[random.below(files.len() as u64) as usize];
            let len = fs::metadata(file).expect("it is there").len();
            let open = fs::OpenOptions::new().write(true).open(file).expect("opened");
            open.set_len(random.below(len.max(1))).expect("cut");
        }
        Harm::Older if older.exists() => {
            fs::remove_dir_all(index).expect("removed");
            copy_dir(older, index).expect("a copy");
        }
        Harm::Older => {}
    }
}

/// Flipped bits in tables that were already open used to make letters unlistable, known ids refused, and the process
/// exit with "repair the disk".
#[test]
fn tables_that_are_damaged_while_they_are_open_are_built_anew_and_every_answer_is_right() {
    let scratch = Scratch::new().expect("a scratch directory");
    let whole = scratch.0.join("whole");
    let fates = sample::make(&whole, "plain", 300).expect("the sample is made");
    let mut random = SplitMix64::new(often("REDRIVE_SEED", 9));
    let (rounds, mut rebuilt) = (often("REDRIVE_INDEX_ROUNDS", 24), 0);
    for round in 0..rounds {
        let dir = scratch.0.join("copy");
        let _ = fs::remove_dir_all(&dir);
        copy_dir(&whole, &dir).expect("a copy");
        let embedded = Embedded::open_with(&dir, plan::tuning()).expect("it opens");
        let mut store = embedded.store("plain", sample::options("plain")).expect("it opens");
        let runs: Vec<_> = files_in(&dir.join("plain/index"))
            .into_iter()
            .filter(|file| file.extension().is_some())
            .collect();
        for _ in 0..20 {
            let file = &runs[random.below(runs.len() as u64) as usize];
            let len = fs::metadata(file).expect("it is there").len();
            if len == 0 {
                // It was truncated to nothing before: there is nothing left to damage.
                continue;
            }
            damage(file, random.below(len), round % 3 == 2 && len > 100);
        }
        let letters = patiently(|| store.letters(None, None, usize::MAX)).expect("listed");
        let open = letters.iter().filter(|letter| letter.state == LetterState::Open).count();
        let expected = fates.values().filter(|fate| **fate == sample::SampleFate::Open).count();
        assert_eq!(open, expected, "round {round}");
        assert!(letters.iter().all(|letter| letter.reason != Reason::Corrupt), "round {round}");
        for (id, fate) in &fates {
            let state = patiently(|| store.message(id, sample::NOW)).expect("found").map(|state| state.state);
            let right = match fate {
                sample::SampleFate::Done => state == Some(MessagePhase::Succeeded),
                sample::SampleFate::Open => state == Some(MessagePhase::Dead),
                sample::SampleFate::Discarded => state == Some(MessagePhase::Discarded),
                sample::SampleFate::Pending => {
                    matches!(state, Some(MessagePhase::Ready | MessagePhase::Delayed))
                }
            };
            assert!(right, "round {round}: {id} is {fate:?}, and said to be {state:?}");
        }
        // A known id is refused as a duplicate, not because of the damage.
        let new = NewMessage { message: plan::message(fates.keys().next().expect("an id"), None), due: None };
        let ingest = store.ingest().expect("ingest");
        let answer = patiently(|| {
            let answer = ingest.submit(vec![new.clone()], sample::NOW).blocking_recv().expect("an answer");
            answer.map_err(|error| match error {
                IngestError::Busy => EngineError::Unavailable(error.to_string()),
                error => EngineError::Storage(error.to_string()),
            })
        })
        .expect("answered");
        assert!(matches!(answer[..], [Accepted::Duplicate { .. }]), "round {round}: {answer:?}");
        store.poll(&mut Vec::new()).expect("it goes on");
        rebuilt += store.upkeep().index_rebuilds;
        let mut notices = Vec::new();
        store.notices(&mut notices);
        let said = notices.iter().filter(|notice| matches!(notice, StoreNotice::IndexDamaged { .. })).count();
        assert!(said as u64 >= store.upkeep().index_rebuilds, "round {round}: {notices:?}");
    }
    println!("{rounds} rounds of 20 places damaged, {rebuilt} indexes rebuilt while open");
    assert!(rebuilt >= rounds / 2, "the damage was met: {rebuilt}");
}

fn damage(file: &std::path::Path, at: u64, cut: bool) {
    let open = fs::OpenOptions::new().read(true).write(true).open(file).expect("opened");
    if cut {
        return open.set_len(at).expect("cut");
    }
    let mut byte = [0];
    open.read_exact_at(&mut byte, at).expect("read");
    byte[0] ^= 1 << (at % 8);
    open.write_all_at(&byte, at).expect("written");
}

/// The cleaner carries ids forward, and a running store does not check on disk whether it knows them: it must know all
/// of them, now and after a restart, with and without its index.
#[test]
fn ids_outlive_the_segments_they_came_in() {
    let scratch = Scratch::new().expect("a scratch directory");
    let open = || {
        let embedded = Embedded::open_with(&scratch.0, plan::tuning()).expect("it opens");
        let options =
            redrive::internal::engine::StoreOptions { dedup: Some(WINDOW), ..plan::options("plain") };
        embedded.store("plain", options).expect("it opens")
    };
    let first_segment = || {
        let segments = files_in(&scratch.0.join("plain/journal"));
        segments.into_iter().filter(|path| path.extension().is_some_and(|end| end == "seg")).min()
    };
    let mut ids: Vec<String> = Vec::new();
    let mut store = open();
    let first = first_segment();
    // The cleaner has its own thread, so it is unknown when it has carried the first ids forward.
    while first_segment() == first {
        let part: Vec<String> = (0..50).map(|i| format!("id-{}", ids.len() + i)).collect();
        assert_eq!(known(&mut store, &part), 0, "new ids");
        let mut left = part.len();
        while left > 0 {
            let mut taken = Vec::new();
            store.poll(&mut Vec::new()).expect("it goes on");
            store.take(sample::NOW, left, &mut taken).expect("it goes on");
            left -= taken.len();
            store.settle(taken.into_iter().map(settle::done).collect()).expect("it goes on");
        }
        ids.extend(part);
        assert!(ids.len() < 1_000_000, "the first segment is never cleaned");
    }
    assert_eq!(known(&mut store, &ids), ids.len(), "while it runs");
    drop(store);
    assert_eq!(known(&mut open(), &ids), ids.len(), "after a restart");
    fs::remove_dir_all(scratch.0.join("plain/index")).expect("removed");
    assert_eq!(known(&mut open(), &ids), ids.len(), "without the index");
}

const WINDOW: std::time::Duration = std::time::Duration::from_hours(24);

/// Returns how many of these ids are refused as duplicates.
fn known(store: &mut impl Engine, ids: &[String]) -> usize {
    let new = ids.iter().map(|id| NewMessage { message: plan::message(id, None), due: None }).collect();
    let ingest = store.ingest().expect("ingest");
    let mut answer = ingest.submit(new, sample::NOW);
    loop {
        store.poll(&mut Vec::new()).expect("it goes on");
        match answer.try_recv() {
            Ok(answer) => {
                let answer = answer.expect("accepted");
                return answer.iter().filter(|one| matches!(one, Accepted::Duplicate { .. })).count();
            }
            Err(_) => std::thread::yield_now(),
        }
    }
}
