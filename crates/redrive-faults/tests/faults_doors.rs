//! Directories that must not be opened, or not as they are: each is refused with a message that says what to do.

mod support;

use std::fs;
use std::path::{Path, PathBuf};

use redrive::internal::engine::embedded::{Embedded, Tuning, dir::FORMAT};
use redrive::internal::engine::{EngineError, Query};
use redrive_faults::plan;
use redrive_faults::verify::copy_dir;
use support::{Rig, files_in};

fn used() -> Rig {
    let rig = Rig::new();
    rig.work(11, 2000);
    rig
}

fn segments(dir: &Path) -> Vec<PathBuf> {
    let mut files = files_in(&dir.join("plain/journal"));
    files.retain(|file| file.file_name().is_some_and(|name| name.to_string_lossy().starts_with("j-")));
    files
}

fn open(dir: &Path, tuning: Tuning) -> Result<u64, EngineError> {
    let embedded = Embedded::open_with(dir, tuning)?;
    let store = embedded.store("plain", plan::options("plain"))?;
    let counts = store.counts();
    Ok(counts.waiting() + counts.letters_open)
}

#[test]
fn a_missing_segment_is_refused_unless_it_is_accepted() {
    let rig = used();
    let all = segments(&rig.dir);
    assert!(all.len() >= 3, "the workload rolls segments");
    let mut tried = 0;
    for (what, index) in [("first", 0), ("middle", all.len() / 2)] {
        for without_index in [false, true] {
            let dir = rig.scratch.0.join(format!("{what}-{without_index}"));
            copy_dir(&rig.dir, &dir).expect("a copy");
            fs::remove_file(&segments(&dir)[index]).expect("removed");
            if without_index {
                fs::remove_dir_all(dir.join("plain/index")).expect("removed");
            }
            let error = open(&dir, plan::tuning()).expect_err("a hole in the journal is not passed over");
            assert!(
                matches!(&error, EngineError::Damaged(text) if text.contains("accept_missing")),
                "{error}"
            );
            let accepting = Tuning { accept_missing: true, ..plan::tuning() };
            open(&dir, accepting).expect("it opens when that is asked for");
            tried += 1;
        }
    }
    println!("{tried} holes refused, and opened when asked for");
}

/// The last segment may have a torn write, but not be missing as a whole.
#[test]
fn a_missing_last_segment_is_never_passed_over_in_silence() {
    let rig = used();
    let last = segments(&rig.dir).pop().expect("segments");
    fs::remove_file(last).expect("removed");
    let error = open(&rig.dir, plan::tuning()).expect_err("the index knows that the journal was longer");
    assert!(matches!(&error, EngineError::Damaged(text) if text.contains("accept_missing")), "{error}");
    let accepting = Tuning { accept_missing: true, ..plan::tuning() };
    open(&rig.dir, accepting).expect("it opens when that is asked for");
}

/// A store that has written too little for its index to know about it.
#[test]
fn a_journal_that_is_gone_is_not_a_new_one() {
    let rig = Rig::new();
    open(&rig.dir, plan::tuning()).expect("made");
    open(&rig.dir, plan::tuning()).expect("an empty store opens again");
    for file in files_in(&rig.dir.join("plain/journal")) {
        fs::remove_file(file).expect("removed");
    }
    let error = open(&rig.dir, plan::tuning()).expect_err("everything is gone");
    assert!(matches!(&error, EngineError::Damaged(text) if text.contains("backup")), "{error}");
    let accepting = Tuning { accept_missing: true, ..plan::tuning() };
    open(&rig.dir, accepting).expect("it opens when that is asked for");
}

#[test]
fn a_newer_format_is_refused() {
    let rig = used();
    let file = rig.dir.join("FORMAT");
    let text = fs::read_to_string(&file).expect("a format file");
    fs::write(&file, text.replace(&format!("format {FORMAT}"), &format!("format {}", FORMAT + 1)))
        .expect("written");
    let error = open(&rig.dir, plan::tuning()).expect_err("refused");
    assert!(
        matches!(&error, EngineError::Version(text) if text.contains("FORMAT") && text.contains(&(FORMAT + 1).to_string())),
        "{error}"
    );
}

#[test]
fn a_second_owner_is_told_who_the_first_is() {
    let rig = Rig::new();
    let victim = rig.start(1, 0);
    while rig.acks_len() == 0 {
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    let owner = fs::read_to_string(rig.dir.join("LOCK")).expect("a lock file");
    let error = open(&rig.dir, plan::tuning()).expect_err("refused");
    assert!(matches!(&error, EngineError::Owned(text) if text.contains(owner.trim())), "{error}");
    victim.kill();
    open(&rig.dir, plan::tuning()).expect("free again");
}

#[test]
fn a_foreign_segment_or_directory_is_refused() {
    let (rig, other) = (used(), used());
    let foreign = segments(&other.dir).pop().expect("segments");
    let name = segments(&rig.dir).pop().expect("segments");
    fs::copy(foreign, &name).expect("a copy");
    let error = open(&rig.dir, plan::tuning()).expect_err("refused");
    let named = name.file_name().expect("a name").to_string_lossy().into_owned();
    assert!(matches!(&error, EngineError::Damaged(text) if text.contains(&named)), "{error}");

    let strange = Rig::new();
    fs::create_dir_all(&strange.dir).expect("made");
    fs::write(strange.dir.join("FORMAT"), "somebody else's file\n").expect("written");
    let error = open(&strange.dir, plan::tuning()).expect_err("refused");
    assert!(matches!(&error, EngineError::Damaged(text) if text.contains("FORMAT")), "{error}");
}
