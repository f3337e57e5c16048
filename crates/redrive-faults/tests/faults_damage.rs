//! Damages every file of a cleaned store in every way (bits flipped, truncated, removed), with and without the index.
//! Every acknowledged message is found or reported as lost; none is called `succeeded` that was not.
//!
//! `REDRIVE_DAMAGE=N` sets the number of cases per pipeline, with and without the index each.

mod support;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use redrive::internal::engine::{EngineError, MessagePhase, StoreNotice};
use redrive_core::SplitMix64;
use redrive_faults::sample::{self, Fates, FoundStore, SampleFate};
use redrive_faults::verify::{Scratch, copy_dir};
use support::{files_in, often};

/// How a file is damaged.
#[derive(Debug, Clone, Copy)]
enum Harm {
    Flip { at: u64, bit: u8 },
    Cut { to: u64 },
    Remove,
}

impl Harm {
    fn to(self, file: &Path) {
        match self {
            Self::Remove => fs::remove_file(file).expect("removed"),
            Self::Cut { to } => {
                let open = fs::OpenOptions::new().write(true).open(file).expect("opened");
                open.set_len(to).expect("cut");
            }
            Self::Flip { at, bit } => {
                let open = fs::OpenOptions::new().read(true).write(true).open(file).expect("opened");
                let mut byte = [0];
                open.read_exact_at(&mut byte, at).expect("read");
                byte[0] ^= 1 << bit;
                open.write_all_at(&byte, at).expect("written");
            }
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Flip { .. } => "flipped",
            Self::Cut { .. } => "cut",
            Self::Remove => "removed",
        }
    }
}

/// The results of the cases of one kind of file and damage.
#[derive(Debug, Default, Clone, Copy)]
struct Tally {
    tried: u64,
    refused: u64,
    told: u64,
    corrupt: u64,
    /// Lost, and reported as lost.
    gone: u64,
}

struct Suite {
    scratch: Scratch,
    pipeline: &'static str,
    fates: Fates,
    with_index: bool,
    tallies: BTreeMap<(String, &'static str), Tally>,
}

impl Suite {
    fn new(pipeline: &'static str, with_index: bool) -> Self {
        let scratch = Scratch::new().expect("a scratch directory");
        let whole = scratch.0.join("whole");
        let fates = sample::make(&whole, pipeline, 300).expect("the sample is made");
        if !with_index {
            fs::remove_dir_all(whole.join(pipeline).join("index")).expect("removed");
        }
        Self { scratch, pipeline, fates, with_index, tallies: BTreeMap::new() }
    }

    fn files(&self) -> Vec<PathBuf> {
        let whole = self.scratch.0.join("whole");
        files_in(&whole)
            .into_iter()
            .map(|file| file.strip_prefix(&whole).expect("inside").to_owned())
            .collect()
    }

    fn run(&mut self, cases: u64) {
        let whole = self.look(None).expect("it opens while nothing is wrong");
        assert_eq!(whole.missing(&self.fates), [""; 0]);
        let files = self.files();
        let mut random = SplitMix64::new(often("REDRIVE_SEED", 12));
        let filled = |file: &Path| {
            let metadata = fs::metadata(self.scratch.0.join("whole").join(file)).expect("it is there");
            metadata.len().min(metadata.blocks() * 512)
        };
        let mut harms: Vec<(PathBuf, Harm)> = Vec::new();
        let all: u64 = files.iter().map(|file| filled(file)).sum();
        for file in &files {
            harms.push((file.clone(), Harm::Remove));
            let len = filled(file);
            // Half of them evenly over all files, half by their size.
            let flips = (cases / 2 / files.len() as u64).max(1) + cases * len / 2 / all.max(1);
            for _ in 0..if len == 0 { 0 } else { flips } {
                let at = random.below(len);
                harms.push((file.clone(), Harm::Flip { at, bit: (random.draw() % 8) as u8 }));
            }
            for _ in 0..if len == 0 { 0 } else { flips.div_ceil(4) } {
                harms.push((file.clone(), Harm::Cut { to: random.below(len) }));
            }
        }
        for (file, harm) in harms {
            self.case(&file, harm);
        }
        self.print();
    }

    fn look(&self, harm: Option<(&Path, Harm)>) -> Result<FoundStore, EngineError> {
        let copy = self.scratch.0.join("copy");
        let _ = fs::remove_dir_all(&copy);
        copy_dir(&self.scratch.0.join("whole"), &copy).expect("a copy");
        if let Some((file, harm)) = harm {
            harm.to(&copy.join(file));
        }
        sample::look(&copy, self.pipeline, &self.fates)
    }

    fn case(&mut self, file: &Path, harm: Harm) {
        let what = format!("{} {harm:?}, index {}", file.display(), self.with_index);
        let looked = catch_unwind(AssertUnwindSafe(|| self.look(Some((file, harm)))));
        let looked = looked.unwrap_or_else(|_| panic!("{what}: a panic"));
        let tally = self.tallies.entry((kind_of(file), harm.name())).or_default();
        tally.tried += 1;
        let found = match looked {
            Err(EngineError::Damaged(text) | EngineError::Version(text)) => {
                assert!(names_it(&text, file), "{what}: refused without the file's name: {text}");
                tally.refused += 1;
                return;
            }
            Err(error) => panic!("{what}: {error}"),
            Ok(found) => found,
        };
        let said = is_said(&found);
        tally.told += u64::from(said || is_index_said(&found));
        tally.corrupt += found.corrupt.len() as u64;
        let gone: Vec<&String> =
            self.fates.iter().filter(|(id, fate)| !is_there(&found, id, **fate)).map(|(id, _)| id).collect();
        tally.gone += gone.len() as u64;
        assert!(gone.is_empty() || said, "{what}: {gone:?} are gone, and nothing was said");
        // With the index it is known whose message was hit; without it, one may be lost with the header of its frame.
        let most = usize::from(!self.with_index);
        assert!(gone.len() <= most, "{what}: {gone:?} are gone: {:?}", found.report);
        let lied = self.fates.iter().filter(|(id, fate)| {
            **fate != SampleFate::Done && found.phases[*id] == Some(MessagePhase::Succeeded)
        });
        let lied: Vec<_> = lied.collect();
        assert!(lied.is_empty(), "{what}: {lied:?} did not succeed: {:?}", found.report);
    }

    fn print(&self) {
        let index = if self.with_index { "with the index" } else { "without the index" };
        println!("{} {index}:", self.pipeline);
        let mut all = Tally::default();
        for ((file, harm), Tally { tried, refused, told, corrupt, gone }) in &self.tallies {
            println!(
                "  {file:<12} {harm:<8} {tried:>5} tried, {refused:>4} refused, {told:>4} told when opened, {corrupt:>3} letters \
                 corrupt, {gone} gone and told"
            );
            all.tried += tried;
            all.refused += refused;
            all.gone += gone;
        }
        println!("  {} cases, {} refused, {} messages gone and told", all.tried, all.refused, all.gone);
    }
}

/// Whether anything reports the damage.
fn is_said(found: &FoundStore) -> bool {
    let report = &found.report;
    let logs = [&report.journal, &report.letters];
    let in_logs = logs.iter().any(|log| !log.rot.is_empty() || log.cut_bytes > 0 || !log.missing.is_empty());
    in_logs || !report.notes.is_empty() || !found.corrupt.is_empty()
}

fn is_index_said(found: &FoundStore) -> bool {
    found.report.rebuilt.is_some() || found.notices.iter().any(StoreNotice::is_bad)
}

/// Whether the message, or what is left of it, can still be found.
fn is_there(found: &FoundStore, id: &str, fate: SampleFate) -> bool {
    // Numbers are assigned in the order of the ids.
    let number: u64 = id.trim_start_matches("m-").parse().expect("a number");
    match fate {
        SampleFate::Done => true,
        SampleFate::Pending => found.delivered.contains(id) || found.corrupt.contains(&number),
        SampleFate::Open | SampleFate::Discarded => {
            found.letters.contains_key(id) || found.delivered.contains(id) || found.corrupt.contains(&number)
        }
    }
}

fn kind_of(file: &Path) -> String {
    let name = file.file_name().expect("a name").to_string_lossy().into_owned();
    match name.split_once('-') {
        Some((kind, _)) => format!("{kind}-*"),
        None => name,
    }
}

/// Whether a refusal names the file, or something else that leads to it.
fn names_it(text: &str, file: &Path) -> bool {
    let name = file.file_name().expect("a name").to_string_lossy();
    // Or the error is about another store than in FORMAT, or about a segment missing after another.
    text.contains(&*name) || (name == "FORMAT" && text.contains("FORMAT")) || text.contains(".seg")
}

fn damaged(pipeline: &'static str, cases: u64) {
    let cases = often("REDRIVE_DAMAGE", cases);
    for with_index in [true, false] {
        Suite::new(pipeline, with_index).run(cases);
    }
}

#[test]
fn whatever_happens_to_any_file_of_a_store_nothing_is_lost_in_silence() {
    damaged("plain", 120);
}

#[test]
fn whatever_happens_to_any_file_of_a_store_with_key_order_nothing_is_lost_in_silence() {
    damaged("keyed", 120);
}
