//! Fast maps for internal integer keys; never attacker-controlled, so a cheap hasher is safe.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// A map whose keys are such numbers.
pub type NumberMap<K, V> = HashMap<K, V, BuildHasherDefault<NumberHasher>>;

/// Keeps the low bits of a number: messages in flight have neighbouring numbers and so lie close together in the map.
/// Only the highest bits, by which the map tells neighbours apart, are mixed.
#[derive(Clone, Copy, Debug, Default)]
pub struct NumberHasher(u64);

const MIX: u64 = 0x9e37_79b9_7f4a_7c15;
const LOW: u64 = u64::MAX >> 7;

impl Hasher for NumberHasher {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = self.0.wrapping_mul(MIX) ^ number;
    }

    fn finish(&self) -> u64 {
        (self.0 & LOW) | (self.0.wrapping_mul(MIX) & !LOW)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_found_again_whether_they_are_neighbours_or_not() {
        let mut map = NumberMap::<u64, u64>::default();
        let numbers = || (0..10_000).chain((0..1_000).map(|n| n << 40)).chain([u64::MAX]);
        map.extend(numbers().map(|n| (n, !n)));
        assert!(numbers().all(|n| map.get(&n) == Some(&!n)));
        let mut pairs = NumberMap::<(u64, u64), u64>::default();
        pairs.extend((0..10_000).map(|n| ((1_700_000_000_000 + n % 7, n), n)));
        assert!((0..10_000).all(|n| pairs.remove(&(1_700_000_000_000 + n % 7, n)) == Some(n)));
    }
}
