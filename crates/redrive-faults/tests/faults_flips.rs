//! Flips one bit in any file: either the store is refused with the file's name, or everything is intact except the
//! message that was hit, which becomes a dead letter `corrupt`. There is never a panic or a silent loss.

mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

use redrive::internal::engine::embedded::Embedded;
use redrive::internal::engine::{Deliver, LetterState, Query};
use redrive_core::SplitMix64;
use redrive_core::{Reason, Time};
use redrive_faults::plan;
use redrive_faults::sample::patiently;
use redrive_faults::settle;
use redrive_faults::verify::copy_dir;
use support::{Rig, files_in, often};

/// What was found in one pipeline.
#[derive(Debug, Default, Clone)]
struct Found {
    delivered: BTreeSet<u64>,
    corrupt: BTreeSet<u64>,
    letters: BTreeMap<u64, LetterState>,
    /// Whether damage was reported on opening.
    told: bool,
}

impl Found {
    fn has(&self, seq: u64) -> bool {
        self.delivered.contains(&seq) || self.corrupt.contains(&seq) || self.letters.contains_key(&seq)
    }
}

fn look(dir: &Path, pipeline: &str) -> Result<Found, String> {
    let text = |error: redrive::internal::engine::EngineError| error.to_string();
    let embedded = Embedded::open_with(dir, plan::tuning()).map_err(text)?;
    let mut store = embedded.store(pipeline, plan::options(pipeline)).map_err(text)?;
    let report = embedded.report(pipeline).unwrap_or_default();
    let cut = report.journal.cut_bytes + report.letters.cut_bytes;
    let told = !report.journal.rot.is_empty() || !report.letters.rot.is_empty() || cut > 0;
    let mut found = Found { told, ..Found::default() };
    for letter in patiently(|| store.letters(None, None, usize::MAX)).map_err(text)? {
        if letter.reason == Reason::Corrupt {
            found.corrupt.insert(letter.id);
        }
        found.letters.insert(letter.id, letter.state);
    }
    let later = Time::from_millis(plan::now().as_millis() + 10 * 3_600_000);
    let begun = Instant::now();
    loop {
        let mut hands = Vec::new();
        store.poll(&mut Vec::new()).map_err(text)?;
        store.take(later, 64, &mut hands).map_err(text)?;
        let counts = store.counts();
        if hands.is_empty() && counts.pending() == 0 {
            return Ok(found);
        }
        assert!(begun.elapsed() < support::HANG_GUARD, "it does not come to its end: {counts:?}");
        let mut batch = Vec::new();
        for delivery in hands {
            let seq = delivery.receipt.seq;
            if let Some(reason) = delivery.doomed {
                assert_eq!(reason, Reason::Corrupt);
                found.corrupt.insert(seq);
                batch.push(settle::dead(delivery, reason, later));
            } else {
                let id = delivery.message.id().to_owned();
                assert_eq!(delivery.message.payload(), Some(&plan::payload(&id)[..]), "{id} is not whole");
                found.delivered.insert(seq);
                batch.push(settle::done(delivery));
            }
        }
        store.settle(batch).map_err(text)?;
    }
}

fn flip(file: &Path, at: u64, bit: u64) {
    let open = fs::OpenOptions::new().read(true).write(true).open(file).expect("opened");
    let mut byte = [0];
    open.read_exact_at(&mut byte, at).expect("read");
    byte[0] ^= 1 << bit;
    open.write_all_at(&byte, at).expect("written");
}

/// Flips bits in the files whose path contains `part`, and compares what is found with what was there before.
fn flips(part: &str, pipeline: &str, with_index: bool, budget: u64) {
    let mut random = SplitMix64::new(often("REDRIVE_SEED", 5));
    let rig = Rig::new();
    if part == "started" {
        // A clean end leaves no marks.
        let victim = rig.start(21, 0);
        while fs::metadata(rig.dir.join("plain/journal/started-0")).map_or(0, |marks| marks.len()) < 200 {
            std::thread::sleep(Duration::from_millis(1));
        }
        victim.kill();
    } else {
        rig.work(21, 90);
    }
    if !with_index {
        for pipeline in plan::PIPELINES {
            fs::remove_dir_all(rig.dir.join(pipeline).join("index")).expect("removed");
        }
    }
    let copy = rig.scratch.0.join("copy");
    let fresh = || {
        let _ = fs::remove_dir_all(&copy);
        copy_dir(&rig.dir, &copy).expect("a copy");
    };
    fresh();
    let before = look(&copy, pipeline).expect("it opens while nothing is wrong");
    let files: Vec<_> = files_in(&rig.dir)
        .into_iter()
        .filter(|file| file.strip_prefix(&rig.dir).is_ok_and(|file| file.to_string_lossy().contains(part)))
        .collect();
    // In a file that is mostly a hole, only the filled part is flipped.
    let filled = |file: &Path| {
        let metadata = fs::metadata(file).expect("it is there");
        metadata.len().min(std::os::unix::fs::MetadataExt::blocks(&metadata) * 512)
    };
    let total: u64 = files.iter().map(|file| filled(file)).sum();
    let stride = total.div_ceil(often("REDRIVE_FLIPS", budget)).max(1);
    let (mut tried, mut refused, mut hit, mut told, mut gone) = (0, 0, 0, 0, 0);
    for file in &files {
        let name = file.strip_prefix(&rig.dir).expect("inside").to_owned();
        let mut at = random.below(stride);
        while at < filled(file) {
            fresh();
            let bit = random.below(8);
            flip(&copy.join(&name), at, bit);
            let what = format!("{} byte {at} bit {bit}", name.display());
            let looked = std::panic::catch_unwind(|| look(&copy, pipeline));
            let looked = looked.unwrap_or_else(|_| panic!("{what}: a panic"));
            tried += 1;
            at += stride;
            let found = match looked {
                Err(error) => {
                    let named = name.file_name().expect("a name").to_string_lossy().into_owned();
                    assert!(error.contains(&named), "{what}: the error does not name the file: {error}");
                    refused += 1;
                    continue;
                }
                Ok(found) => found,
            };
            told += u64::from(found.told);
            hit += u64::from(found.corrupt.len() > before.corrupt.len());
            let there = before.delivered.iter().chain(before.letters.keys());
            let lost: Vec<_> = there.filter(|seq| !found.has(**seq)).collect();
            // Only if a frame's own header was hit, and the index that pointed to it is gone too, the message cannot be
            // identified. Even then a loss is reported.
            assert!(
                lost.is_empty() || (lost.len() == 1 && found.told && !with_index),
                "{what}: lost {lost:?}"
            );
            gone += lost.len();
            let corrupt = found.corrupt.difference(&before.corrupt).count();
            assert!(corrupt <= 1, "{what}: one bit and {corrupt} messages hit");
            let again = found.delivered.difference(&before.delivered);
            let again = again.filter(|seq| !before.letters.contains_key(seq)).count();
            assert!(
                again == 0 || found.told,
                "{what}: {again} that were done came back, and nothing was said"
            );
        }
    }
    println!(
        "{part} (index {}): {tried} flips over {} files, one per {stride} bytes: {refused} refused, {told} told when \
         opened, {hit} became a corrupt letter, {gone} gone and told",
        if with_index { "kept" } else { "removed" },
        files.len()
    );
    assert!(tried > 0);
}

#[test]
fn in_the_journal() {
    flips("plain/journal/j-", "plain", true, 150);
    flips("plain/journal/j-", "plain", false, 150);
    flips("keyed/journal/j-", "keyed", true, 80);
    flips("keyed/journal/j-", "keyed", false, 80);
}

#[test]
fn in_the_small_files_and_the_index() {
    flips("FORMAT", "plain", true, 1000);
    flips("LOCK", "plain", true, 1000);
    flips("plain/journal/l-", "plain", true, 64);
    flips("started", "plain", true, 64);
    flips("plain/index", "plain", true, 150);
}
