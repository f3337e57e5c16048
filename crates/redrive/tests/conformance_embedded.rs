//! The embedded engine against the conformance suite: on a simulated disk with thousands of power failures, and on a
//! real directory with its threads.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use redrive::internal::engine::conformance::{Harness, check_seeds, seeds_from_env};
use redrive::internal::engine::embedded::disk::real::{Disk as _, DiskFile as _};
use redrive::internal::engine::embedded::disk::sim::SimDisk;
use redrive::internal::engine::embedded::index::runs::SortedRuns;
use redrive::internal::engine::embedded::store::Store;
use redrive::internal::engine::embedded::store::location::{OpenIndex, StoreLocation, seed};
use redrive::internal::engine::embedded::store::open::open_by_hand;
use redrive::internal::engine::embedded::{Embedded, Tuning, dir::EmbeddedStore};
use redrive::internal::engine::seam::{Engine, Query, StoreOptions};

/// Small enough that a few messages fill segments, trigger checkpoints and start the cleaner.
fn tiny() -> Tuning {
    Tuning {
        segment_bytes: 2048,
        reserve_bytes: 0,
        near_max: 4,
        checkpoint_bytes: 1500,
        checkpoint_changes: 5,
        clean_above_bytes: 4096,
        resolved_retention: Duration::from_hours(1_000_000),
        scrub: None,
        accept_missing: false,
    }
}

type SimStore = Store<SimDisk, SortedRuns<SimDisk>>;

struct SimHarness {
    place: StoreLocation<SimDisk>,
    /// The disk of the index.
    index: SimDisk,
    store: Option<SimStore>,
    cuts: u64,
    /// Damages the index once per this many calls; 0: never.
    damage_every: u64,
    calls: u64,
}

/// How often running indexes were rebuilt.
static REBUILDS: AtomicU64 = AtomicU64::new(0);

impl Drop for SimHarness {
    fn drop(&mut self) {
        self.count_rebuilds();
    }
}

impl SimHarness {
    fn count_rebuilds(&self) {
        let rebuilds = self.store.as_ref().map_or(0, |store| store.upkeep().index_rebuilds);
        REBUILDS.fetch_add(rebuilds, Ordering::Relaxed);
    }

    fn reopen(&mut self) {
        self.count_rebuilds();
        self.store = None;
        self.store = Some(open_sim(&self.place, &self.index));
    }
}

impl SimHarness {
    /// Checks that the running index equals one rebuilt from the journal alone.
    fn compare_with_rebuilt(&self) {
        let running = self.store.as_ref().expect("open").dump_index().expect("the running index can be read");
        // The disk as a power failure would leave it now, because the index may only reflect durable data.
        let place = StoreLocation { disk: self.place.disk.power_cut(self.cuts), ..self.place.clone() };
        let rebuilt = open_sim(&place, &SimDisk::new());
        let mut rebuilt = rebuilt.dump_index().expect("the rebuilt index can be read");
        // The journal may already have records that are not reported yet; then the two cannot be compared.
        if rebuilt[0].split(' ').nth(1) != running[0].split(' ').nth(1) {
            return;
        }
        // No place may be missing either: a message without one would be taken for delivered.
        let places = |lines: &[String]| lines.iter().filter(|line| line.starts_with("place ")).count();
        assert_eq!(places(&rebuilt), places(&running), "rebuilt: {rebuilt:#?}\nrunning: {running:#?}");
        rebuilt.retain(|line| !running.contains(line));
        assert!(rebuilt.is_empty(), "rebuilt: {rebuilt:#?}\nrunning: {running:#?}");
    }
}

impl SimHarness {
    /// Flips bits in one file of the running index.
    fn damage_index(&mut self) {
        let names = self.index.list().expect("the simulated disk lists");
        let runs: Vec<_> = names.iter().filter(|name| name.starts_with("r-")).collect();
        let Some(name) = runs.get(self.calls as usize % runs.len().max(1)) else { return };
        let len = self.index.open(name).and_then(|file| file.len()).expect("it is there");
        for i in 0..4 {
            self.index.flip_bit(name, (self.calls * 7919 + i * 131) % len.max(1), (self.calls % 8) as u8);
        }
    }
}

fn open_sim(place: &StoreLocation<SimDisk>, index: &SimDisk) -> SimStore {
    let (seed, base) = (seed(&place.store_id), place.tuning.checkpoint_changes);
    let index = index.clone();
    let open_index: OpenIndex<_> = Arc::new(move |anew: bool| {
        let open = if anew { SortedRuns::anew } else { SortedRuns::open };
        open(index.clone(), seed, base).map(Arc::new)
    });
    let (store, _) = open_by_hand(place, &open_index).expect("a store that was cut off opens again");
    store
}

impl Harness for SimHarness {
    fn engine(&mut self) -> &mut dyn Engine {
        self.calls += 1;
        if self.damage_every > 0 && self.calls.is_multiple_of(self.damage_every) {
            self.damage_index();
        }
        self.store.as_mut().expect("open")
    }

    fn crash_and_reopen(&mut self) {
        self.compare_with_rebuilt();
        self.count_rebuilds();
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
    let place = StoreLocation {
        disk: SimDisk::new(),
        store_id: *b"conformance test",
        options,
        tuning: tiny(),
        owner: 1,
    };
    let index = SimDisk::new();
    let store = Some(open_sim(&place, &index));
    Box::new(SimHarness { place, index, store, cuts: 0, damage_every: 0, calls: 0 })
}

/// The same, with an index that is damaged all the time.
fn sim_with_damage(options: StoreOptions) -> Box<dyn Harness> {
    let place = StoreLocation {
        disk: SimDisk::new(),
        store_id: *b"conformance test",
        options,
        tuning: tiny(),
        owner: 1,
    };
    let index = SimDisk::new();
    let store = Some(open_sim(&place, &index));
    Box::new(SimHarness { place, index, store, cuts: 0, damage_every: 5, calls: 0 })
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
        self.store = Some(embedded.store("orders", self.options.clone()).expect("the store opens again"));
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

/// Damaged tables are rebuilt during any operation, and all answers stay correct.
#[test]
fn an_index_that_is_damaged_all_the_time_conforms() {
    let seeds = seeds_from_env("REDRIVE_SEEDS").unwrap_or(1_500) / 10;
    REBUILDS.store(0, Ordering::Relaxed);
    check_seeds(&sim_with_damage, 0..seeds / 10 * 9, 60);
    check_seeds(&sim_with_damage, seeds / 10 * 9..seeds, 250);
    let rebuilds = REBUILDS.load(Ordering::Relaxed);
    println!("{seeds} seeds, the index was rebuilt {rebuilds} times while it was used");
    assert!(rebuilds >= seeds, "the damage was met: {rebuilds}");
}

#[test]
fn a_real_directory_conforms() {
    let seeds = seeds_from_env("REDRIVE_DIR_SEEDS").unwrap_or(12);
    check_seeds(&directory, 0..seeds, 80);
}
