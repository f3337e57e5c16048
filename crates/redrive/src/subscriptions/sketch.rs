//! A set of endpoints of which only the size can be estimated: a HyperLogLog sketch of 4 KiB. Sketches of equal sets
//! are equal, and those of several processes can be merged.

use super::record::EndpointId;

const INDEX_BITS: u32 = 12;
const REGISTERS: usize = 1 << INDEX_BITS;
const RANK_MAX: u8 = (u64::BITS - INDEX_BITS + 1) as u8;
/// A register is written as this character plus its rank. None of the characters needs an escape in JSON.
const FIRST_CHAR: u8 = b'#';

/// The registers. Ids are keyed hashes, so their bits are as good as random.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Sketch {
    registers: Vec<u8>,
}

impl Default for Sketch {
    fn default() -> Self {
        Self { registers: vec![0; REGISTERS] }
    }
}

impl Sketch {
    /// Adds an endpoint. Returns whether the estimate may have changed.
    pub(super) fn add(&mut self, id: EndpointId) -> bool {
        let index = (id.number() >> (u64::BITS - INDEX_BITS)) as usize;
        let rank = ((id.number() << INDEX_BITS).leading_zeros().min(u64::BITS - INDEX_BITS) + 1) as u8;
        let register = &mut self.registers[index];
        let grows = rank > *register;
        *register = rank.max(*register);
        grows
    }

    pub(super) fn merge(&mut self, other: &Self) {
        self.registers.iter_mut().zip(&other.registers).for_each(|(own, other)| *own = (*own).max(*other));
    }

    pub(super) fn is_empty(&self) -> bool {
        self.registers.iter().all(|register| *register == 0)
    }

    /// The estimated size, within about 2 %.
    pub(super) fn estimate(&self) -> u64 {
        estimate(self.registers.iter().copied())
    }

    pub(super) fn to_text(&self) -> String {
        self.registers.iter().map(|rank| char::from(FIRST_CHAR + rank)).collect()
    }

    /// Parses the text of a sketch; `None` if it is not valid.
    pub(super) fn from_text(text: &str) -> Option<Self> {
        let rank = |byte: u8| byte.checked_sub(FIRST_CHAR).filter(|rank| *rank <= RANK_MAX);
        let registers: Vec<u8> = text.bytes().map(rank).collect::<Option<_>>()?;
        (registers.len() == REGISTERS).then_some(Self { registers })
    }
}

fn estimate(registers: impl Iterator<Item = u8>) -> u64 {
    let mut ranks = [0_u32; RANK_MAX as usize + 1];
    registers.for_each(|rank| ranks[usize::from(rank.min(RANK_MAX))] += 1);
    let zeros = ranks[0];
    let sum: f64 = (0..).zip(ranks).map(|(rank, registers)| f64::from(registers) * 2_f64.powi(-rank)).sum();
    let count = REGISTERS as f64;
    let raw = 0.7213 / (1.0 + 1.079 / count) * count * count / sum;
    let few = raw <= 2.5 * count && zeros > 0;
    let estimate = if few { count * (count / f64::from(zeros)).ln() } else { raw };
    estimate.round() as u64
}

#[cfg(test)]
mod tests {
    use redrive_core::SplitMix64;

    use super::*;

    fn sketch(seed: u64, count: usize) -> Sketch {
        let (mut dice, mut sketch) = (SplitMix64::new(seed), Sketch::default());
        for _ in 0..count {
            sketch.add(EndpointId::from_number(dice.draw()));
        }
        sketch
    }

    #[test]
    fn the_estimate_is_close_and_counts_nobody_twice() {
        for count in [0, 1, 10, 1_000, 18_204, 200_000] {
            let mut both = sketch(7, count);
            both.merge(&sketch(7, count));
            assert_eq!(both, sketch(7, count));
            let off = both.estimate().abs_diff(count as u64) as f64 / (count.max(1) as f64);
            assert!(off < 0.05, "{count}: {}", both.estimate());
        }
    }

    #[test]
    fn sketches_of_two_processes_merge_into_that_of_both() {
        let (one, other) = (sketch(7, 10_000), sketch(8, 10_000));
        let mut both = one.clone();
        both.merge(&other);
        assert!(both.estimate().abs_diff(20_000) < 1_000, "{}", both.estimate());
    }

    #[test]
    fn a_sketch_reads_back_and_its_text_needs_no_escapes() {
        let mut sketch = sketch(7, 100_000);
        sketch.add(EndpointId::from_number(0));
        let text = sketch.to_text();
        assert_eq!(Sketch::from_text(&text), Some(sketch));
        assert_eq!(serde_json::Value::from(text.as_str()).to_string().len(), text.len() + 2);
        assert_eq!(Sketch::from_text(&Sketch::default().to_text()), Some(Sketch::default()));
        assert!(Sketch::default().is_empty());
        for wrong in ["", "###", &text[1..], &format!("~{}", &text[1..]), &format!("\"{}", &text[1..])] {
            assert_eq!(Sketch::from_text(wrong), None);
        }
    }
}
