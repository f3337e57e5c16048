//! A Bloom filter instead of the ledger of applied ids: what it saves, and which replays it would drop.

use std::collections::HashSet;

use serde::Deserialize;

use super::super::fault::LabError;
use super::super::setup::{ExperimentSetup, complete};
use crate::results::{Column, Curve, Outcome, Plot, Scale, Unit, VariantResult};
use crate::scenario::Scenario;
use crate::seed;

/// Approximate memory per entry in a set of 64-bit hashes, including empty slots.
const HASH_BYTES_PER_ID: f64 = 16.0;
const SALT: [u64; 2] = [11, 13];

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct BloomParameters {
    /// Number of applied ids.
    applied: u64,
    /// Dead letters that were never applied and are replayed.
    replayed: u64,
    /// 0 uses a set of 64-bit hashes.
    bits_per_id: u64,
    /// Ids per second, to compute the window that fits into a gigabyte.
    rate: f64,
}

struct Bloom {
    bits: Vec<u64>,
    hashes: u64,
}

impl Bloom {
    fn new(ids: u64, bits_per_id: u64) -> Self {
        let words = (ids * bits_per_id).div_ceil(64).max(1);
        let hashes = (bits_per_id as f64 * std::f64::consts::LN_2).round().max(1.0) as u64;
        Self { bits: vec![0; words as usize], hashes }
    }

    /// Derives all bit positions from two hashes.
    fn places(&self, id: &str) -> impl Iterator<Item = (usize, u64)> + use<> {
        let [one, other] = SALT.map(|salt| seed::draw(0, id, salt));
        let (bits, hashes) = (self.bits.len() as u64 * 64, self.hashes);
        (0..hashes).map(move |i| {
            let bit = one.wrapping_add(i.wrapping_mul(other | 1)) % bits;
            ((bit / 64) as usize, 1 << (bit % 64))
        })
    }

    fn insert(&mut self, id: &str) {
        for (word, bit) in self.places(id) {
            self.bits[word] |= bit;
        }
    }

    fn contains(&self, id: &str) -> bool {
        self.places(id).all(|(word, bit)| self.bits[word] & bit != 0)
    }
}

pub fn run(scenario: &Scenario, setup: &ExperimentSetup<'_>) -> Result<Outcome, LabError> {
    let each = setup.each(scenario, |variant, stage| {
        let p: &BloomParameters = &variant.parameters;
        if stage.is_interrupted() {
            return Ok(None);
        }
        let id = |number| seed::id(setup.seed, number);
        let (swallowed, forgotten, bytes) = if p.bits_per_id == 0 {
            let ledger: HashSet<u64> = (0..p.applied).map(|n| seed::draw(0, &id(n), SALT[0])).collect();
            let known = |number| ledger.contains(&seed::draw(0, &id(number), SALT[0]));
            let swallowed = (p.applied..p.applied + p.replayed).filter(|n| known(*n)).count();
            (swallowed, (0..p.applied).filter(|n| !known(*n)).count(), p.applied as f64 * HASH_BYTES_PER_ID)
        } else {
            let mut filter = Bloom::new(p.applied, p.bits_per_id);
            (0..p.applied).for_each(|number| filter.insert(&id(number)));
            let known = |number| filter.contains(&id(number));
            let swallowed = (p.applied..p.applied + p.replayed).filter(|n| known(*n)).count();
            let forgotten = (0..p.applied).filter(|n| !known(*n)).count();
            (swallowed, forgotten, filter.bits.len() as f64 * 8.0)
        };
        let share = swallowed as f64 / p.replayed.max(1) as f64;
        let per_id = bytes / p.applied.max(1) as f64;
        let result = VariantResult::new(&variant.name, None)
            .with("bytes", bytes)
            .with("window_hours", 1e9 / per_id / p.rate / 3600.0)
            .with("swallowed", swallowed as f64)
            .with("swallowed_share", share)
            .with("forgotten", forgotten as f64);
        Ok(Some((result, (per_id, share * 1e6))))
    })?;
    let (variants, points, is_partial) = complete(each);
    let columns = vec![
        Column::new("memory", "bytes", Unit::Bytes),
        Column::new("window in 1 GB, hours", "window_hours", Unit::Count),
        Column::new("replays swallowed", "swallowed", Unit::Count),
        Column::new("of all", "swallowed_share", Unit::Share),
        Column::new("applied and not known", "forgotten", Unit::Count),
    ];
    let curve = Curve::new("swallowed of a million replays", points);
    let title = "Replays that would be lost without a word";
    let plot = Plot::new("swallowed", title, "bytes per id", "of a million replays", vec![curve]);
    let plots = vec![plot.y_scale(Scale::Log(1.0))];
    let notes = vec![
        "A false positive of the filter is a message that is taken for applied and is not: a replay that reports success and \
         changes nothing. No size of the filter makes that zero, so the ledger stays a table with the ids, in the transaction of \
         the effect. A filter may stand before it, to answer \"surely not applied\" without a lookup."
            .to_owned(),
    ];
    Ok(Outcome { columns, variants, plots, notes, is_partial, ..Outcome::default() })
}
