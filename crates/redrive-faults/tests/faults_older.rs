//! Stores that earlier versions wrote still open, and everything is in them. `tests/fixtures` has one per format,
//! created by the binary `sample` of that version.

use std::fs;
use std::path::{Path, PathBuf};

use redrive::internal::engine::embedded::disk::real::RealDisk;
use redrive::internal::engine::embedded::index::runs::SortedRuns;
use redrive::internal::engine::embedded::index::tables::{IndexTables as _, Space};
use redrive_faults::plan::PIPELINES;
use redrive_faults::sample;
use redrive_faults::verify::{Scratch, copy_dir};

/// Format 2 before attempts had the kind, status and code of their failures.
const WITHOUT_KINDS: &str = "format-2-without-kinds";

/// All fixtures; the last has the current format.
const FORMATS: [&str; 6] = ["format-1", "format-2", WITHOUT_KINDS, "format-3", "format-4", "format-5"];

fn fixture(format: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(format)
}

fn opens(format: &str, with_index: bool) {
    let scratch = Scratch::new().expect("a scratch directory");
    let dir = scratch.0.join("store");
    copy_dir(&fixture(format).join("store"), &dir).expect("a copy");
    for pipeline in PIPELINES {
        if !with_index {
            fs::remove_dir_all(dir.join(pipeline).join("index")).expect("removed");
        }
        let text = fs::read_to_string(fixture(format).join(format!("{pipeline}.txt"))).expect("the fates");
        let fates = sample::read(&text);
        assert!(fates.len() > 300);
        let found = sample::look(&dir, pipeline, &fates).expect("it opens");
        assert_eq!(found.missing(&fates), [""; 0], "{pipeline}");
        assert!(found.corrupt.is_empty() && found.report.journal.rot.is_empty(), "{pipeline}");
        let forgotten: Vec<_> = found.phases.iter().filter(|(_, phase)| phase.is_none()).collect();
        assert!(forgotten.is_empty(), "{pipeline}: {forgotten:?}");
    }
}

#[test]
fn a_store_of_format_1_opens_and_nothing_is_missing() {
    opens("format-1", true);
    opens("format-1", false);
}

#[test]
fn a_store_of_format_2_opens_and_nothing_is_missing() {
    opens("format-2", true);
    opens("format-2", false);
}

#[test]
fn a_store_of_format_3_opens_and_nothing_is_missing() {
    opens("format-3", true);
    opens("format-3", false);
}

#[test]
fn a_store_of_format_4_opens_and_nothing_is_missing() {
    opens("format-4", true);
    opens("format-4", false);
}

#[test]
fn a_store_of_format_5_opens_and_nothing_is_missing() {
    opens("format-5", true);
    opens("format-5", false);
}

/// Before attempts had kinds, the status was only in the text of the error. Letters from that time are still found by
/// it.
#[test]
fn letters_of_a_store_without_kinds_are_found_by_their_status() {
    opens(WITHOUT_KINDS, true);
    opens(WITHOUT_KINDS, false);
    for pipeline in PIPELINES {
        let scratch = Scratch::new().expect("a scratch directory");
        let dir = scratch.0.join("store");
        copy_dir(&fixture(WITHOUT_KINDS).join("store"), &dir).expect("a copy");
        let text = fs::read_to_string(fixture(WITHOUT_KINDS).join(format!("{pipeline}.txt"))).expect("fates");
        // This version writes new letters after them.
        let fates = sample::go_on(&dir, pipeline, sample::read(&text), 200).expect("it goes on");
        let found = sample::look(&dir, pipeline, &fates).expect("it opens again");
        assert_eq!(found.missing(&fates), [""; 0], "{pipeline}");
        assert!(found.letters.len() > 60, "{pipeline}: {}", found.letters.len());
        assert_eq!(found.unavailable, found.letters.len(), "{pipeline}");
    }
}

/// Even after new messages, letters and checkpoints were added to what the earlier version had written.
#[test]
fn a_store_of_every_format_is_continued() {
    for format in FORMATS {
        for pipeline in PIPELINES {
            let scratch = Scratch::new().expect("a scratch directory");
            let dir = scratch.0.join("store");
            copy_dir(&fixture(format).join("store"), &dir).expect("a copy");
            let text =
                fs::read_to_string(fixture(format).join(format!("{pipeline}.txt"))).expect("the fates");
            let before = sample::read(&text);
            let fates = sample::go_on(&dir, pipeline, before.clone(), 200).expect("it goes on");
            assert!(fates.len() >= before.len() + 200, "{format} {pipeline}");
            let found = sample::look(&dir, pipeline, &fates).expect("it opens again");
            assert_eq!(found.missing(&fates), [""; 0], "{format} {pipeline}");
            assert!(
                found.corrupt.is_empty() && found.report.rebuilt.is_none(),
                "{format} {pipeline}: {:?}",
                found.report
            );
        }
    }
}

/// The fixture of the current format must be one: a new format needs a new fixture, made by the version that introduces
/// it.
#[test]
fn the_newest_fixture_has_the_format_that_a_new_store_gets() {
    let scratch = Scratch::new().expect("a scratch directory");
    sample::make(&scratch.0, "plain", 50).expect("the sample is made");
    let format = |dir: &Path| {
        let text = fs::read_to_string(dir.join("FORMAT")).expect("the format");
        text.lines().nth(1).expect("its line").to_owned()
    };
    let newest = FORMATS[FORMATS.len() - 1];
    assert_eq!(
        format(&scratch.0),
        format(&fixture(newest).join("store")),
        "{newest} is not the current format"
    );
}

/// The version of the tables is the first number of their only meta entry. Tables of another version have another
/// meaning: they are rebuilt, and the store is not refused.
#[test]
fn tables_of_another_version_are_rebuilt() {
    for version in [0, 5, u64::MAX] {
        let scratch = Scratch::new().expect("a scratch directory");
        let fates = sample::make(&scratch.0, "plain", 50).expect("the sample is made");
        let index = scratch.0.join("plain/index");
        {
            let tables = SortedRuns::open(RealDisk::new(index).expect("a disk"), 0, 1).expect("they open");
            let (key, mut meta) = tables.range(Space::Meta, &[], None, 1).expect("read").remove(0);
            meta[..8].copy_from_slice(&u64::to_be_bytes(version));
            tables.apply(&mut vec![(Space::Meta, key, Some(meta))]).expect("written");
        }
        let found = sample::look(&scratch.0, "plain", &fates).expect("it opens");
        let why = found.report.rebuilt.as_ref().expect("it was rebuilt");
        assert!(why.contains(&format!("its version is {version}, ")), "{why}");
        assert_eq!(found.missing(&fates), [""; 0]);
    }
}
