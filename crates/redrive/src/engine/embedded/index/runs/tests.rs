//! The sorted runs of the index agree with a plain map, even after restarts and damage.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::engine::embedded::disk::sim::SimDisk;
use crate::engine::embedded::index::tables::{Cell, IdSlot};

const SEED: u64 = 7;
const BASE: usize = 8;

fn open(disk: &SimDisk) -> Result<SortedRuns<SimDisk>, IndexError> {
    SortedRuns::open(disk.clone(), SEED, BASE)
}

fn put(space: Space, key: u64, value: &[u8]) -> Write {
    (space, key.bytes(), Some(value.to_vec()))
}

fn all(runs: &SortedRuns<SimDisk>, space: Space) -> Vec<Pair> {
    runs.range(space, &[], None, usize::MAX).unwrap()
}

/// Tables with several runs, some of them merged.
fn filled(disk: &SimDisk) -> SortedRuns<SimDisk> {
    let runs = open(disk).unwrap();
    for n in 0..40 {
        let id = |i: u64| IdSlot { seq: n, at: 1000 + n * 10 + i, deadline: None }.bytes();
        let mut writes = vec![put(Space::Meta, 0, &n.to_le_bytes())];
        for i in 0..30 {
            writes.push(put(Space::Letters, (n * 37 + i * 11) % 400, &[n as u8; 100]));
            writes.push(put(Space::Ids, n * 1000 + i, &id(i)));
        }
        writes.push((Space::Letters, ((n * 13) % 400).bytes(), None));
        runs.apply(&mut writes).unwrap();
        if n % 3 == 0 {
            while runs.merge().unwrap() {}
        }
    }
    runs
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn runs_are_a_plain_map_whatever_is_merged_and_reopened(
        steps in prop::collection::vec((0u8..8, prop::collection::vec((0u64..60, 0u8..5), 0..12)), 1..40)
    ) {
        let disk = SimDisk::new();
        let mut runs = open(&disk).unwrap();
        let mut plain: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
        for (n, (what, changes)) in steps.into_iter().enumerate() {
            match what {
                0 => runs = open(&disk).unwrap(),
                1 | 2 => while runs.merge().unwrap() {},
                _ => {
                    let write = |(key, value): &(u64, u8)| {
                        let value = (*value > 0).then(|| vec![*value, n as u8]);
                        (Space::Letters, key.bytes(), value)
                    };
                    let mut writes: Vec<_> = changes.iter().map(write).collect();
                    for (_, key, value) in &writes {
                        match value {
                            Some(value) => drop(plain.insert(key.clone(), value.clone())),
                            None => drop(plain.remove(key)),
                        }
                    }
                    runs.apply(&mut writes).unwrap();
                }
            }
            let expected: Vec<Pair> = plain.iter().map(|(k, v)| (k.clone(), v.clone())).collect();
            prop_assert_eq!(all(&runs, Space::Letters), expected);
            for key in 0..60u64 {
                prop_assert_eq!(runs.get(Space::Letters, &key.bytes()).unwrap(), plain.get(&key.bytes()).cloned());
            }
            let (from, to) = (20u64.bytes(), 35u64.bytes());
            let some: Vec<Pair> = plain.range(from.clone()..=to.clone()).take(5).map(|(k, v)| (k.clone(), v.clone())).collect();
            prop_assert_eq!(runs.range(Space::Letters, &from, Some(&to), 5).unwrap(), some);
        }
    }
}

#[test]
fn lines_are_found_by_the_first_half_of_their_keys() {
    let runs = open(&SimDisk::new()).unwrap();
    for n in 0..20u64 {
        let mut writes = (0..5).map(|i| (Space::Lines, (n, i).bytes(), Some(vec![n as u8]))).collect();
        runs.apply(&mut writes).unwrap();
    }
    while runs.merge().unwrap() {}
    for n in 0..40u64 {
        let line = runs.range(Space::Lines, &(n, 2).bytes(), Some(&(n, u64::MAX).bytes()), 9).unwrap();
        assert_eq!(line.len(), if n < 20 { 3 } else { 0 });
    }
}

#[test]
fn a_power_cut_leaves_one_checkpoint_or_the_other() {
    let disk = SimDisk::new();
    let runs = filled(&disk);
    let before = all(&runs, Space::Letters);
    runs.apply(&mut vec![put(Space::Letters, 9999, b"new"), put(Space::Meta, 0, b"new")]).unwrap();
    let after = all(&runs, Space::Letters);
    for seed in 0..200 {
        let found = open(&disk.power_cut(seed)).expect("what was published is durable");
        assert_eq!(all(&found, Space::Letters), after);
    }
    // Interrupted before it was published, at each operation that may fail.
    for nth in 1..4 {
        for op in [
            crate::engine::embedded::disk::sim::SimOp::Sync,
            crate::engine::embedded::disk::sim::SimOp::Create,
            crate::engine::embedded::disk::sim::SimOp::Write,
        ] {
            let disk = SimDisk::new();
            let runs = filled(&disk);
            disk.fail_next(op, nth, std::io::ErrorKind::Other);
            if runs.apply(&mut vec![put(Space::Letters, 9999, b"new"), put(Space::Meta, 0, b"new")]).is_ok() {
                continue;
            }
            for seed in 0..20 {
                let found = open(&disk.power_cut(seed)).expect("the checkpoint before it is whole");
                let found = all(&found, Space::Letters);
                assert!(found == before || found == after, "{op:?} {nth}");
            }
        }
    }
}

/// No damage goes unnoticed: either opening or reading fails, or the data read is right.
#[test]
fn a_flipped_bit_is_an_error_or_changes_nothing() {
    let disk = SimDisk::new();
    let whole = filled(&disk);
    let (letters, ids) = (all(&whole, Space::Letters), all(&whole, Space::Ids));
    let (mut refused, mut read, mut tried) = (0, 0, 0);
    for name in disk.list().unwrap() {
        let len = disk.open(&name).unwrap().len().unwrap();
        for offset in (0..len).step_by(997) {
            let disk = disk.power_cut(offset);
            disk.flip_bit(&name, offset, (offset % 8) as u8);
            tried += 1;
            let Ok(runs) = open(&disk) else {
                refused += 1;
                continue;
            };
            let found = [Space::Letters, Space::Ids].map(|space| runs.range(space, &[], None, usize::MAX));
            match found {
                [Ok(l), Ok(i)] => assert!(l == letters && i == ids, "{name} {offset}"),
                _ => read += 1,
            }
            assert!(
                runs.verify(&mut |_| true).is_err() || (l_ok(&runs)),
                "{name} {offset}: not found by a scrub"
            );
        }
    }
    assert!(refused > 3 && read > 10, "{tried} flips, {refused} found when opened, {read} when read");
}

fn l_ok(runs: &SortedRuns<SimDisk>) -> bool {
    [Space::Letters, Space::Ids].iter().all(|space| runs.range(*space, &[], None, usize::MAX).is_ok())
}

#[test]
fn ids_that_have_expired_are_forgotten_and_the_others_are_not() {
    let disk = SimDisk::new();
    let runs = filled(&disk);
    let before = all(&runs, Space::Ids);
    runs.forget_ids_before(1250);
    while runs.merge().unwrap() {}
    let left = all(&runs, Space::Ids);
    let valid = |left: &[Pair]| left.iter().filter(|(_, value)| IdSlot::at_of(value) >= 1250).count();
    assert_eq!(valid(&left), valid(&before));
    assert!(left.len() < before.len(), "{} left", left.len());
    let newest = (39u64 * 1000 + 29).bytes();
    assert!(runs.get(Space::Ids, &newest).unwrap().is_some());
}

/// The clock was set back, so that later entries may have expired before earlier ones.
#[test]
fn an_id_that_expired_does_not_bring_back_an_older_one() {
    let runs = open(&SimDisk::new()).unwrap();
    let id = |at: u64| IdSlot { seq: at, at, deadline: None }.bytes();
    let slot_of = |key: u64| runs.get(Space::Ids, &key.bytes()).unwrap().map(|raw| IdSlot::at_of(&raw));
    runs.apply(&mut vec![put(Space::Ids, 1, &id(9_000)), put(Space::Ids, 2, &id(100))]).unwrap();
    for n in 0..40 {
        runs.apply(&mut vec![put(Space::Ids, 2, &id(200)), put(Space::Ids, 100 + n, &id(200))]).unwrap();
        runs.forget_ids_before(5_000);
        while runs.merge().unwrap() {}
        assert!(matches!(slot_of(2), None | Some(200)), "after {n}: {:?}", slot_of(2));
    }
    assert_eq!(slot_of(1), Some(9_000));
}

#[test]
fn tables_that_are_built_anew_leave_nothing_of_the_old_ones() {
    let disk = SimDisk::new();
    let old = filled(&disk);
    let new = SortedRuns::anew(disk.clone(), SEED, BASE).unwrap();
    assert!(all(&new, Space::Letters).is_empty());
    assert!(!all(&old, Space::Letters).is_empty(), "who still reads the old ones is not disturbed");
    new.apply(&mut vec![put(Space::Letters, 1, b"x")]).unwrap();
    assert_eq!(all(&open(&disk).unwrap(), Space::Letters).len(), 1);
    assert_eq!(disk.list().unwrap().len(), 2, "one run and a catalog");
}
