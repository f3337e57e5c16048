//! Opens a copy of what the victim left behind, drives everything to its end and compares it with the ledger.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;
use std::fs;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use redrive::internal::engine::embedded::{Embedded, StoreReport, Tuning};
use redrive::internal::engine::{Engine, LetterState};
use redrive_core::Time;

use crate::acks::{self, Step};
use crate::ledger::{Book, Ledger, LedgerState};
use crate::plan::{self, PIPELINES};
use crate::settle;

/// Nothing takes this long unless it hangs.
const HANG_GUARD: Duration = Duration::from_mins(5);

/// What a verification covered.
#[derive(Debug, Default, Clone, Copy)]
pub struct SeenEffects {
    pub acknowledged: u64,
    pub messages: u64,
    pub delivered: u64,
    pub letters: u64,
    pub started: u64,
    pub rebuilt: u64,
}

impl fmt::Display for SeenEffects {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { acknowledged, messages, delivered, letters, started, rebuilt } = self;
        write!(
            f,
            "{acknowledged} acknowledgements, {messages} messages: {delivered} delivered, {letters} letters; \
             {started} had been started, {rebuilt} indexes rebuilt"
        )
    }
}

impl std::ops::AddAssign for SeenEffects {
    fn add_assign(&mut self, other: Self) {
        self.acknowledged += other.acknowledged;
        self.messages += other.messages;
        self.delivered += other.delivered;
        self.letters += other.letters;
        self.started += other.started;
        self.rebuilt += other.rebuilt;
    }
}

/// What to check besides that nothing is lost.
#[derive(Debug, Clone, Copy)]
pub struct Asked {
    /// Whether everything in flight must be marked as started: true for a killed process, not for a power cut.
    pub started: bool,
    pub tuning: Tuning,
}

pub fn verify(dir: &Path, acks: &Path) -> Result<SeenEffects, String> {
    verify_as(dir, acks, Asked { started: false, tuning: plan::tuning() })
}

/// Verifies copies of `dir`; the directory itself is not changed.
pub fn verify_as(dir: &Path, acks: &Path, asked: Asked) -> Result<SeenEffects, String> {
    let lines = acks::read(acks).map_err(|error| format!("{}: {error}", acks.display()))?;
    let ledger = Ledger::of(&lines)?;
    let scratch = Scratch::new().map_err(|error| error.to_string())?;
    let (as_found, without_index) = (scratch.0.join("as-found"), scratch.0.join("without-index"));
    copy_dir(dir, &as_found).map_err(|error| error.to_string())?;
    copy_without_index(dir, &without_index).map_err(|error| error.to_string())?;
    let embedded = Embedded::open_with(&as_found, asked.tuning).map_err(|error| error.to_string())?;
    let anew = Embedded::open_with(&without_index, asked.tuning).map_err(|error| error.to_string())?;
    let mut seen = SeenEffects { acknowledged: ledger.acknowledged, ..SeenEffects::default() };
    for pipeline in PIPELINES {
        if !dir.join(pipeline).exists() && !ledger.books.contains_key(pipeline) {
            continue;
        }
        let options = plan::options(pipeline);
        let mut store =
            embedded.store(pipeline, options.clone()).map_err(|error| format!("{pipeline}: {error}"))?;
        let rebuilt = anew.store(pipeline, options).map_err(|error| format!("{pipeline} anew: {error}"))?;
        let dumps = (store.dump_index(), rebuilt.dump_index());
        let (Ok(running), Ok(rebuilt)) = dumps else { return Err(format!("{pipeline}: no dump")) };
        same_index(&running, &rebuilt).map_err(|what| format!("{pipeline}: {what}"))?;
        let book = ledger.books.get(pipeline).cloned().unwrap_or_default();
        let report = embedded.report(pipeline).unwrap_or_default();
        let found = settle_all(&mut store, book, &report, asked);
        seen += found.map_err(|what| format!("{pipeline}: {what}; opening said: {report:?}"))?;
    }
    Ok(seen)
}

/// Checks that the index rebuilt from the journal alone equals the one that was found and caught up.
pub fn same_index(running: &[String], rebuilt: &[String]) -> Result<(), String> {
    let only = |these: &[String], those: &[String]| {
        these.iter().filter(|line| !those.contains(line)).take(5).cloned().collect::<Vec<_>>()
    };
    if running == rebuilt {
        return Ok(());
    }
    let (here, there) = (only(running, rebuilt), only(rebuilt, running));
    Err(format!("the index differs; running: {here:#?} rebuilt: {there:#?}"))
}

fn settle_all(
    store: &mut impl Engine,
    mut book: Book,
    report: &StoreReport,
    asked: Asked,
) -> Result<SeenEffects, String> {
    let report_rot = !report.journal.rot.is_empty() || !report.letters.rot.is_empty();
    if report_rot || !report.journal.missing.is_empty() || !report.letters.missing.is_empty() {
        return Err("damage was reported where only a crash happened".into());
    }
    if asked.started {
        all_started(&book, report)?;
    }
    let text = |error: redrive::internal::engine::EngineError| error.to_string();
    let counts = store.counts();
    let letters = store.letters(None, None, usize::MAX).map_err(text)?;
    let mut states: HashMap<u64, LetterState> = HashMap::new();
    for letter in &letters {
        let whole = letter.message.payload() == Some(&plan::payload(letter.message.id())[..]);
        if !whole {
            return Err(format!("letter #{} is not whole: {letter:?}", letter.id));
        }
        states.insert(letter.id, letter.state);
    }
    let count = |state| states.values().filter(|found| **found == state).count() as u64;
    if (counts.letters_open, counts.letters_discarded)
        != (count(LetterState::Open), count(LetterState::Discarded))
    {
        return Err(format!("counts do not add up: {counts:?}, letters {states:?}"));
    }
    let before = book.clone();
    let delivered = deliver_all(store, &mut book)?;
    let pending = counts.pending();
    if pending != delivered.len() as u64 {
        return Err(format!("counts do not add up: {counts:?}, {} were delivered", delivered.len()));
    }
    for (seq, known) in &before.known {
        let state = match states.get(seq) {
            _ if delivered.contains(seq) => LedgerState::Pending,
            Some(LetterState::Open) => LedgerState::Letter,
            Some(LetterState::Discarded) => LedgerState::Discarded,
            Some(LetterState::Erased) => return Err(format!("#{seq} is erased, which nobody asked for")),
            Some(LetterState::Replaying) => return Err(format!("#{seq} is in replay and never came")),
            Some(LetterState::Succeeded) | None => LedgerState::Done,
        };
        if !known.may_be.contains(&state) {
            let (id, may_be) = (&known.id, &known.may_be);
            return Err(format!(
                "#{seq} {id} may be {may_be:?} and is {state:?} (letter {:?})",
                states.get(seq)
            ));
        }
    }
    Ok(SeenEffects {
        acknowledged: 0,
        messages: book.known.len() as u64,
        delivered: delivered.len() as u64,
        letters: letters.len() as u64,
        started: report.started.len() as u64,
        rebuilt: u64::from(report.rebuilt.is_some()),
    })
}

fn all_started(book: &Book, report: &StoreReport) -> Result<(), String> {
    let marked: HashSet<u64> = report.started.iter().map(|mark| mark.seq).collect();
    let out: BTreeMap<_, _> = book.known.iter().filter(|(_, known)| known.out && !known.settling).collect();
    match out.iter().find(|(seq, _)| !marked.contains(seq)) {
        Some((seq, known)) => Err(format!(
            "#{seq} {known:?} was in flight and is not marked as started ({} of {} are)",
            out.keys().filter(|seq| marked.contains(seq)).count(),
            out.len()
        )),
        None => Ok(()),
    }
}

/// Takes and settles until nothing is left. Returns the numbers that were delivered.
fn deliver_all(store: &mut impl Engine, book: &mut Book) -> Result<HashSet<u64>, String> {
    let later = Time::from_millis(plan::now().as_millis() + 10 * 3_600_000);
    let text = |error: redrive::internal::engine::EngineError| error.to_string();
    for known in book.known.values_mut() {
        (known.out, known.settling) = (false, false);
    }
    let mut delivered = HashSet::new();
    let begun = Instant::now();
    loop {
        let mut hands = Vec::new();
        store.poll(&mut Vec::new()).map_err(text)?;
        store.take(later, 16, &mut hands).map_err(text)?;
        let counts = store.counts();
        if hands.is_empty() {
            if counts.pending() == 0 {
                return Ok(delivered);
            }
            if begun.elapsed() > HANG_GUARD {
                return Err(format!("it does not come to its end: {counts:?}"));
            }
            std::thread::sleep(Duration::from_micros(200));
            continue;
        }
        let mut batch = Vec::new();
        for delivery in hands {
            let (seq, id) = (delivery.receipt.seq, delivery.message.id().to_owned());
            if delivery.doomed.is_some() || delivery.message.payload() != Some(&plan::payload(&id)[..]) {
                return Err(format!("#{seq} is not whole: {delivery:?}"));
            }
            if !delivered.insert(seq) {
                return Err(format!("#{seq} {id} was delivered twice"));
            }
            book.taken(seq, &id)?;
            book.step(seq, Step::Done, true).or_else(|_| {
                book.step(seq, Step::Done, false)?;
                book.step(seq, Step::Done, true)
            })?;
            batch.push(settle::done(delivery));
        }
        store.settle(batch).map_err(text)?;
    }
}

/// A directory for copies, in memory if possible; it is removed on drop.
#[derive(Debug)]
pub struct Scratch(pub PathBuf);

impl Scratch {
    pub fn new() -> io::Result<Self> {
        use std::sync::atomic::{AtomicU64, Ordering};
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let memory = Path::new("/dev/shm");
        let base = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = base.join(format!("redrive-verify-{}-{count}", std::process::id()));
        fs::create_dir_all(&path)?;
        Ok(Self(path))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Copies a store without its indexes.
pub fn copy_without_index(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir_all(to)?;
    for name in ["FORMAT", "LOCK", "PIPELINES"] {
        if from.join(name).exists() {
            copy_file(&from.join(name), &to.join(name))?;
        }
    }
    for pipeline in PIPELINES {
        let journal = Path::new(pipeline).join("journal");
        if from.join(&journal).is_dir() {
            copy_dir(&from.join(&journal), &to.join(&journal))?;
        }
    }
    Ok(())
}

/// Copies a directory and keeps holes: the index reserves far more than it fills.
pub fn copy_dir(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy_dir(&entry.path(), &target)?;
        } else {
            copy_file(&entry.path(), &target)?;
        }
    }
    Ok(())
}

fn copy_file(from: &Path, to: &Path) -> io::Result<()> {
    let (from, to) = (fs::File::open(from)?, fs::File::create(to)?);
    let metadata = from.metadata()?;
    let mut left = metadata.blocks() * 512;
    let mut buf = vec![0; 64 * 1024];
    let mut at = 0;
    while at < metadata.len() && left > 0 {
        let got = from.read_at(&mut buf, at)?;
        if got == 0 {
            break;
        }
        if buf[..got].iter().any(|byte| *byte != 0) {
            to.write_all_at(&buf[..got], at)?;
            left = left.saturating_sub(got as u64);
        }
        at += got as u64;
    }
    to.set_len(metadata.len())
}
