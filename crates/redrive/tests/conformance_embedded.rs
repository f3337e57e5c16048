//! The embedded engine against the conformance suite: on a simulated disk with thousands of power cuts, and on a real
//! directory with its threads.

use std::sync::Arc;
use std::time::Duration;

use redrive::engine::conformance::{Harness, check_seeds, seeds_from_env};
use redrive::engine::embedded::disk_sim::SimDisk;
use redrive::engine::embedded::open::seed;
use redrive::engine::embedded::open::{Place, open_by_hand};
use redrive::engine::embedded::runs::SortedRuns;
use redrive::engine::embedded::store::Store;
use redrive::engine::embedded::{Embedded, Tuning, dir::EmbeddedStore};
use redrive::engine::seam::{Engine, StoreOptions};

/// Small enough that a few messages roll segments, cut checkpoints and start the cleaner.
fn tiny() -> Tuning {
    Tuning {
        segment_bytes: 2048,
        reserve_bytes: 0,
        near_max: 4,
        checkpoint_bytes: 1500,
        checkpoint_changes: 5,
        clean_above_bytes: 4096,
        closed_keep: Duration::from_hours(1_000_000),
        accept_missing: false,
    }
}

type SimStore = Store<SimDisk, SortedRuns<SimDisk>>;

struct SimHarness {
    place: Place<SimDisk>,
    /// The disk of the index.
    index: SimDisk,
    store: Option<SimStore>,
    cuts: u64,
}

impl SimHarness {
    fn reopen(&mut self) {
        self.store = None;
        self.store = Some(open_sim(&self.place, &self.index));
    }
}

impl SimHarness {
    /// The index that follows from the journal alone is the one that is running.
    fn compare_with_rebuilt(&self) {
        let running = self.store.as_ref().expect("open").dump_index().expect("the running index can be read");
        // The disk as a power cut would leave it now: the index may only reflect what is durable.
        let place = Place { disk: self.place.disk.power_cut(self.cuts), ..self.place.clone() };
        let rebuilt = open_sim(&place, &SimDisk::new());
        let mut rebuilt = rebuilt.dump_index().expect("the rebuilt index can be read");
        // What was written and not reported yet may be in the journal already; then the two cannot be compared.
        if rebuilt[0].split(' ').nth(1) != running[0].split(' ').nth(1) {
            return;
        }
        // Nothing may be missing either: a message whose place is not known would be taken for delivered.
        let places = |lines: &[String]| lines.iter().filter(|line| line.starts_with("place ")).count();
        assert_eq!(places(&rebuilt), places(&running), "rebuilt: {rebuilt:#?}\nrunning: {running:#?}");
        rebuilt.retain(|line| !running.contains(line));
        assert!(rebuilt.is_empty(), "rebuilt: {rebuilt:#?}\nrunning: {running:#?}");
    }
}

fn open_sim(place: &Place<SimDisk>, index: &SimDisk) -> SimStore {
    let (seed, base) = (seed(&place.store_id), place.tuning.checkpoint_changes);
    let open_shelf = |anew: bool| {
        let open = if anew { SortedRuns::anew } else { SortedRuns::open };
        open(index.clone(), seed, base).map(Arc::new)
    };
    let (store, _) = open_by_hand(place, &open_shelf).expect("a store that was cut off opens again");
    store
}

impl Harness for SimHarness {
    fn engine(&mut self) -> &mut dyn Engine {
        self.store.as_mut().expect("open")
    }

    fn crash_and_reopen(&mut self) {
        self.compare_with_rebuilt();
        self.store = None;
        self.cuts += 1;
        let cuts = self.cuts;
        self.place.disk = self.place.disk.power_cut(cuts);
        self.index = if cuts.is_multiple_of(4) { SimDisk::new() } else { self.index.power_cut(cuts) };
        self.reopen();
    }

    fn reopen_after_close(&mut self) {
        self.reopen();
    }

    fn idle(&mut self) {}

    fn window(&self) -> usize {
        0
    }
}

fn sim(options: StoreOptions) -> Box<dyn Harness> {
    let place =
        Place { disk: SimDisk::new(), store_id: *b"conformance test", options, tuning: tiny(), owner: 1 };
    let index = SimDisk::new();
    let store = Some(open_sim(&place, &index));
    Box::new(SimHarness { place, index, store, cuts: 0 })
}

struct DirHarness {
    dir: tempfile::TempDir,
    options: StoreOptions,
    store: Option<EmbeddedStore>,
    embedded: Option<Embedded>,
}

impl DirHarness {
    fn open(&mut self) {
        self.store = None;
        self.embedded = None;
        let embedded = Embedded::open_with(self.dir.path(), tiny()).expect("the directory is free again");
        self.store = Some(embedded.store("orders", self.options).expect("the store opens again"));
        self.embedded = Some(embedded);
    }
}

impl Harness for DirHarness {
    fn engine(&mut self) -> &mut dyn Engine {
        self.store.as_mut().expect("open")
    }

    fn crash_and_reopen(&mut self) {
        self.open();
    }

    fn reopen_after_close(&mut self) {
        self.open();
    }

    fn window(&self) -> usize {
        0
    }
}

fn directory(options: StoreOptions) -> Box<dyn Harness> {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let mut harness = DirHarness { dir, options, store: None, embedded: None };
    harness.open();
    Box::new(harness)
}

#[test]
fn the_journal_on_a_simulated_disk_conforms() {
    let seeds = seeds_from_env("REDRIVE_SEEDS").unwrap_or(1_500);
    check_seeds(&sim, 0..seeds / 10 * 9, 60);
    check_seeds(&sim, seeds / 10 * 9..seeds, 250);
}

#[test]
fn a_real_directory_conforms() {
    let seeds = seeds_from_env("REDRIVE_DIR_SEEDS").unwrap_or(12);
    check_seeds(&directory, 0..seeds, 80);
}
