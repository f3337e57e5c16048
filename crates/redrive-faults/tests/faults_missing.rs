//! Missing or truncated files of a store: refused with a message that says which and how much, with and without the
//! index; and once the loss is accepted, no lost message is ever called `succeeded`.

use std::fs;
use std::path::{Path, PathBuf};

use redrive::internal::engine::embedded::directory::accept::accept_loss;
use redrive::internal::engine::embedded::{Embedded, Tuning};
use redrive::internal::engine::{Deliver, EngineError, MessagePhase, Query};
use redrive_core::Time;
use redrive_faults::plan;
use redrive_faults::sample::{self, Fates, SampleFate};
use redrive_faults::verify::{Scratch, copy_dir};

struct Sample {
    scratch: Scratch,
    fates: Fates,
}

impl Sample {
    fn new() -> Self {
        let scratch = Scratch::new().expect("a scratch directory");
        let fates = sample::make(&scratch.0.join("whole"), "plain", 300).expect("the sample is made");
        Self { scratch, fates }
    }

    fn copy(&self, name: &str, with_index: bool) -> PathBuf {
        let dir = self.scratch.0.join(format!("{name}-{with_index}"));
        copy_dir(&self.scratch.0.join("whole"), &dir).expect("a copy");
        if !with_index {
            fs::remove_dir_all(dir.join("plain/index")).expect("removed");
        }
        dir
    }
}

fn segments(dir: &Path, log: &str) -> Vec<PathBuf> {
    let files =
        fs::read_dir(dir.join("plain/journal")).expect("a journal").map(|entry| entry.unwrap().path());
    let name = |file: &PathBuf| file.file_name().unwrap().to_string_lossy().into_owned();
    let mut files: Vec<_> = files.filter(|file| name(file).starts_with(log)).collect();
    files.sort();
    files
}

fn refused(dir: &Path, fates: &Fates) -> String {
    match sample::look(dir, "plain", fates) {
        Err(EngineError::Damaged(text)) => text,
        other => panic!("not refused: {other:?}"),
    }
}

fn accept(dir: &Path) -> Tuning {
    let tuning = Tuning { accept_missing: true, ..plan::tuning() };
    let embedded = Embedded::open_with(dir, tuning).expect("the directory opens");
    let mut store =
        embedded.store("plain", sample::options("plain")).expect("it opens when the loss is accepted");
    let report = embedded.report("plain").expect("a report");
    assert!(!report.journal.missing.is_empty() || !report.letters.missing.is_empty(), "{report:?}");
    store.close().expect("closed");
    tuning
}

/// 5,000 of 5,000 letters were once lost this way, and called `succeeded`.
#[test]
fn a_letter_log_that_is_gone_is_refused_and_its_letters_never_succeeded() {
    let sample = Sample::new();
    for with_index in [true, false] {
        let dir = sample.copy("letters", with_index);
        for file in segments(&dir, "l-") {
            fs::remove_file(file).expect("removed");
        }
        let text = refused(&dir, &sample.fates);
        assert!(text.contains("letter log") && text.contains("l-0000000000000000.seg"), "{text}");
        assert!(text.contains("at most") && text.contains("dead letters"), "{text}");
        assert!(text.contains("--accept-loss") && text.contains("backup"), "{text}");

        accept(&dir);
        let found = sample::look(&dir, "plain", &sample.fates).expect("it opens from now on");
        for (id, _) in sample.fates.iter().filter(|(_, fate)| **fate == SampleFate::Open) {
            let phase = found.phases[id];
            assert!(
                matches!(phase, Some(MessagePhase::Dead | MessagePhase::Unknown)),
                "index {with_index}: {id} is said to be {phase:?}"
            );
        }
    }
}

#[test]
fn each_segment_of_the_letter_log_is_missed() {
    let sample = Sample::new();
    let count = segments(&sample.scratch.0.join("whole"), "l-").len();
    assert!(count >= 2);
    for i in 0..count {
        for with_index in [true, false] {
            let dir = sample.copy(&format!("one-{i}"), with_index);
            let gone = segments(&dir, "l-")[i].clone();
            fs::remove_file(&gone).expect("removed");
            let text = refused(&dir, &sample.fates);
            assert!(text.contains(gone.file_name().unwrap().to_str().unwrap()), "{text}");
        }
    }
}

/// 108 of 200 acknowledged messages once vanished this way.
#[test]
fn a_last_segment_that_was_cut_anywhere_is_refused_with_the_index_and_without() {
    let sample = Sample::new();
    for log in ["j-", "l-"] {
        let whole = segments(&sample.scratch.0.join("whole"), log).pop().expect("a segment");
        let len = fs::metadata(&whole).expect("it is there").len();
        let mut tried = 0;
        for cut in (0..len).step_by((len as usize / 24).max(1)).chain([len - 1, len - 8]) {
            for with_index in [true, false] {
                let dir = sample.copy("cut", with_index);
                let last = segments(&dir, log).pop().expect("a segment");
                fs::File::options().write(true).open(&last).and_then(|file| file.set_len(cut)).expect("cut");
                let text = refused(&dir, &sample.fates);
                assert!(
                    text.contains(last.file_name().unwrap().to_str().unwrap()),
                    "{} cut to {cut} of {len}: {text}",
                    last.display()
                );
                fs::remove_dir_all(&dir).expect("removed");
                tried += 1;
            }
        }
        println!("{log}: cut in {tried} ways, refused each time");
    }
}

#[test]
fn a_tail_that_is_given_up_leaves_corrupt_letters_and_no_number_is_used_twice() {
    let sample = Sample::new();
    for with_index in [true, false] {
        let dir = sample.copy("tail", with_index);
        let size = |path: &Path| fs::metadata(path).expect("it is there").len();
        let mut all = segments(&dir, "j-");
        let mut last = all.pop().expect("a segment");
        // A segment that was just begun holds nothing to lose: remove it together with the tail of the previous one.
        while size(&last) < 1_024 {
            fs::remove_file(&last).expect("removed");
            last = all.pop().expect("a segment with messages");
        }
        fs::File::options()
            .write(true)
            .open(&last)
            .and_then(|file| file.set_len(size(&last) / 3))
            .expect("cut");
        accept(&dir);
        let found = sample::look(&dir, "plain", &sample.fates).expect("it opens from now on");
        assert!(!found.corrupt.is_empty(), "what was accepted in the tail is a letter `corrupt`");
        let missing = found.missing(&sample.fates).len();
        assert!(missing > 0 && missing <= found.corrupt.len() + 12, "{missing} missing, {:?}", found.corrupt);
        let lying = found.phases.iter().filter(|(id, phase)| {
            sample.fates[*id] != SampleFate::Done && **phase == Some(MessagePhase::Succeeded)
        });
        assert_eq!(lying.count(), 0);
        let embedded = Embedded::open_with(&dir, plan::tuning()).expect("the directory opens");
        let store = embedded.store("plain", sample::options("plain")).expect("it opens");
        assert!(store.counts().accepted >= sample.fates.len() as u64);
    }
}

#[test]
fn a_watermark_that_is_gone_or_says_nothing_is_refused() {
    let sample = Sample::new();
    for with_index in [true, false] {
        let dir = sample.copy("watermark", with_index);
        let file = dir.join("plain/journal/watermark");
        fs::remove_file(&file).expect("removed");
        let text = refused(&dir, &sample.fates);
        assert!(
            text.contains("watermark is missing") || text.contains("which records where the logs end"),
            "{text}"
        );
        fs::write(&file, b"nonsense").expect("written");
        let text = refused(&dir, &sample.fates);
        assert!(text.contains("damaged") && text.contains("--accept-loss"), "{text}");
        let tuning = Tuning { accept_missing: true, ..plan::tuning() };
        let embedded = Embedded::open_with(&dir, tuning).expect("the directory opens");
        drop(embedded.store("plain", sample::options("plain")).expect("it opens when that is asked for"));
        drop(embedded);
        let found = sample::look(&dir, "plain", &sample.fates).expect("it opens from now on");
        assert_eq!(found.missing(&sample.fates), [""; 0]);
    }
}

/// 780 acknowledged ids once vanished this way without any report.
#[test]
fn a_store_that_was_removed_is_refused_with_what_it_held_until_the_loss_is_accepted() {
    let sample = Sample::new();
    let pending = sample.fates.values().filter(|fate| **fate == SampleFate::Pending).count();
    let open = sample.fates.values().filter(|fate| **fate == SampleFate::Open).count();
    for whole in [true, false] {
        let dir = sample.copy(&format!("removed-{whole}"), true);
        if whole {
            fs::remove_dir_all(dir.join("plain")).expect("removed");
        } else {
            fs::remove_dir_all(dir.join("plain/journal")).expect("removed");
            fs::create_dir(dir.join("plain/journal")).expect("made");
        }
        let text = refused(&dir, &sample.fates);
        assert!(text.contains("plain") && text.contains("--accept-loss"), "{text}");
        let held = format!("{pending} pending messages and {open} dead letters");
        assert!(!whole || text.contains(&held), "{held}: {text}");
        assert!(!dir.join("plain/journal/watermark").exists(), "nothing was made anew");

        let loss = accept_loss(&dir, "plain").expect("accepted");
        assert!(loss.to_string().contains(&held), "{loss}");
        let found = sample::look(&dir, "plain", &Fates::new()).expect("a new store");
        assert!(found.letters.is_empty() && found.delivered.is_empty());
    }
}

#[test]
fn accepting_a_loss_gives_up_what_is_missing_and_nothing_else() {
    let sample = Sample::new();
    let dir = sample.copy("accept", true);
    assert!(accept_loss(&dir, "plain").expect("accepted").is_nothing());
    let gone = segments(&dir, "l-").pop().expect("a segment");
    let bytes = fs::metadata(&gone).expect("it is there").len();
    fs::remove_file(&gone).expect("removed");
    let loss = accept_loss(&dir, "plain").expect("accepted");
    let lost: u64 = loss.letters.iter().map(|range| range.end - range.start).sum();
    assert_eq!((lost, loss.journal.len(), loss.end_unknown), (bytes, 0, false));
    assert!(loss.to_string().contains("of the letter log, with at most"), "{loss}");
    assert!(accept_loss(&dir, "plain").expect("accepted").is_nothing(), "once is enough");
    let found = sample::look(&dir, "plain", &sample.fates).expect("it opens from now on");
    // The index still knows the letters; their content is gone.
    let open = sample.fates.values().filter(|fate| **fate == SampleFate::Open).count();
    let whole = found.missing(&sample.fates).len() + found.corrupt.len();
    assert!(!found.corrupt.is_empty() && whole < open, "{:?}", found.corrupt);
}

/// After a kill the last acknowledgement counts, not the last sync of the watermark.
#[test]
fn a_cut_after_an_unclean_end_is_refused_up_to_the_last_acknowledgement() {
    let scratch = Scratch::new().expect("a scratch directory");
    let dir = scratch.0.join("store");
    let mut ends = Vec::new();
    {
        let embedded = Embedded::open_with(&dir, plan::tuning()).expect("a directory");
        let store = embedded.store("plain", sample::options("plain")).expect("a store");
        let ingest = store.ingest().expect("ingest");
        for n in 0..30 {
            let message = plan::message(&format!("m-{n}"), None);
            let new = redrive::internal::engine::NewMessage { message, due: None };
            let now = Time::from_millis(sample::NOW.as_millis());
            ingest.submit(vec![new], now).blocking_recv().expect("answered").expect("accepted");
            // The directory as a process leaves it that is killed right after the answer.
            let killed = scratch.0.join(format!("killed-{n}"));
            copy_dir(&dir, &killed).expect("a copy");
            ends.push(killed);
        }
    }
    for (n, killed) in ends.iter().enumerate() {
        let last = segments(killed, "j-").pop().expect("a segment");
        let len = fs::metadata(&last).expect("it is there").len();
        // A mark of 64 bytes may follow the batch.
        let cut = len - 64 - 8;
        fs::File::options().write(true).open(&last).and_then(|file| file.set_len(cut)).expect("cut");
        fs::remove_dir_all(killed.join("plain/index")).expect("removed");
        let embedded = Embedded::open_with(killed, plan::tuning()).expect("the directory opens");
        let opened = embedded.store("plain", sample::options("plain"));
        assert!(matches!(opened, Err(EngineError::Damaged(_))), "message {n}: {opened:?}");
    }
}
