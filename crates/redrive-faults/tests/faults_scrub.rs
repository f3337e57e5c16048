//! The scrub finds damage in files that are not being read, while the store runs.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Duration;

use redrive::internal::engine::embedded::{Embedded, Tuning, inspect};
use redrive::internal::engine::{Deliver, Query, StoreNotice};
use redrive_faults::plan;
use redrive_faults::sample;
use redrive_faults::verify::{Scratch, copy_dir};

fn flip(file: &Path, at: u64) {
    let open = fs::OpenOptions::new().read(true).write(true).open(file).expect("opened");
    let mut byte = [0];
    open.read_exact_at(&mut byte, at).expect("read");
    byte[0] ^= 4;
    open.write_all_at(&byte, at).expect("written");
}

fn first(dir: &Path, prefix: &str) -> std::path::PathBuf {
    let files = fs::read_dir(dir).expect("a directory").map(|entry| entry.expect("an entry").path());
    let mut files: Vec<_> =
        files.filter(|file| file.file_name().unwrap().to_string_lossy().starts_with(prefix)).collect();
    files.sort();
    files.swap_remove(0)
}

/// Flips a bit that matters: sections in older files of the index may have been merged into newer ones.
fn flip_in_index(dir: &Path) {
    let files = fs::read_dir(dir).expect("an index").map(|entry| entry.expect("an entry").path());
    let newest = files.filter(|file| file.extension().is_some()).max().expect("a run");
    flip(&newest, 20);
}

#[test]
fn a_scrub_reads_everything_and_tells_of_damage_in_logs_and_tables() {
    let scratch = Scratch::new().expect("a scratch directory");
    let whole = scratch.0.join("whole");
    sample::make(&whole, "plain", 300).expect("the sample is made");
    for harmed in ["", "j-", "l-", "r-"] {
        let dir = scratch.0.join(format!("copy-{harmed}"));
        copy_dir(&whole, &dir).expect("a copy");
        let tuning = Tuning { scrub: Some(Duration::from_millis(5)), ..plan::tuning() };
        let embedded = Embedded::open_with(&dir, tuning).expect("it opens");
        let mut store = embedded.store("plain", sample::options("plain")).expect("it opens");
        match harmed {
            "" => {}
            "r-" => flip_in_index(&dir.join("plain/index")),
            log => flip(&first(&dir.join("plain/journal"), log), 1_000),
        }
        let mut notices = Vec::new();
        let begun = std::time::Instant::now();
        let told = |notices: &[StoreNotice]| match harmed {
            "" => notices.iter().any(|notice| matches!(notice, StoreNotice::Scrubbed { damaged: 0, .. })),
            "r-" => notices.iter().any(|notice| matches!(notice, StoreNotice::IndexRebuilt { .. })),
            log => {
                notices.iter().any(|notice| matches!(notice, StoreNotice::Scrubbed { damaged: 1, .. }))
                    && notices.iter().any(
                        |notice| matches!(notice, StoreNotice::Damage { file, .. } if file.starts_with(log)),
                    )
            }
        };
        while !told(&notices) {
            store.poll(&mut Vec::new()).expect("it goes on");
            store.notices(&mut notices);
            std::thread::sleep(Duration::from_millis(1));
            assert!(
                begun.elapsed() < Duration::from_mins(1),
                "{harmed}: {:?} {:?}",
                store.upkeep(),
                notices.last()
            );
        }
        let upkeep = store.upkeep();
        if harmed != "r-" {
            // A damaged table ends the pass that finds it.
            assert!(upkeep.scrubbed_bytes > 80_000, "{upkeep:?}");
        }
        if harmed == "j-" || harmed == "l-" {
            assert_eq!(upkeep.damaged, 1);
            let found = inspect::inspect(&dir, "plain", &mut |_| {}).expect("it can be read");
            assert!(found.is_damaged());
        }
        if harmed.is_empty() {
            assert!(upkeep.scrubbed.is_some());
            assert_eq!(inspect::check_index(&dir, "plain"), None);
        }
    }
}

#[test]
fn who_only_reads_finds_what_is_missing_too() {
    let scratch = Scratch::new().expect("a scratch directory");
    let whole = scratch.0.join("whole");
    sample::make(&whole, "plain", 300).expect("the sample is made");
    let damaged = |dir: &Path| {
        let found = inspect::inspect(dir, "plain", &mut |_| {}).expect("it can be read");
        found.is_damaged() || inspect::check_index(dir, "plain").is_some()
    };
    assert!(!damaged(&whole));
    for name in ["l-", "j-", "watermark"] {
        let dir = scratch.0.join(format!("without-{name}"));
        copy_dir(&whole, &dir).expect("a copy");
        let mut files = fs::read_dir(dir.join("plain/journal")).expect("a journal");
        let last = files
            .by_ref()
            .map(|entry| entry.expect("an entry").path())
            .filter(|file| file.file_name().unwrap().to_string_lossy().starts_with(name));
        fs::remove_file(last.max().expect("a file")).expect("removed");
        assert!(damaged(&dir), "{name}");
    }
    let dir = scratch.0.join("index");
    copy_dir(&whole, &dir).expect("a copy");
    flip_in_index(&dir.join("plain/index"));
    assert!(
        inspect::check_index(&dir, "plain").is_some_and(|what| what.contains("r-")),
        "the index is read too"
    );
}
