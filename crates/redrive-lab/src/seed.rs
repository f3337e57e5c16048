//! The ids of a run. The seed is part of the id, so that the id alone determines the fate: the same seed gives the
//! same ids and the same poison, and runs with different seeds are never duplicates of each other.

use redrive_core::SplitMix64;

use crate::order;

/// The seed of the common workload, whose ids are plain `o-<n>`.
pub const DEFAULT_SEED: u64 = 42;

/// The id of order `number` in the run with this seed: `o-17`, or `o-7-17` with seed 7.
pub fn id(seed: u64, number: u64) -> String {
    if seed == DEFAULT_SEED { order::id(number) } else { format!("o-{seed}-{number}") }
}

/// Seed and number of an id, if it is exactly in the format of [`id`].
pub fn parse(id: &str) -> Option<(u64, u64)> {
    let rest = id.strip_prefix("o-")?;
    match rest.split_once('-') {
        None => Some((DEFAULT_SEED, decimal(rest)?)),
        Some((seed, number)) => {
            Some((decimal(seed)?, decimal(number)?)).filter(|(seed, _)| *seed != DEFAULT_SEED)
        }
    }
}

/// Parses a number without sign or leading zeros: `007` is a different id than `7`.
fn decimal(digits: &str) -> Option<u64> {
    let plain = digits == "0" || !digits.starts_with('0');
    (plain && digits.bytes().all(|byte| byte.is_ascii_digit())).then(|| digits.parse().ok())?
}

/// A random number for `(seed, id, salt)`; deterministic, and practically independent for different salts.
pub fn draw(seed: u64, id: &str, salt: u64) -> u64 {
    let of_all =
        crate::fate::fnv1a64(id.as_bytes()) ^ seed.rotate_left(32) ^ salt.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    // The generator mixes every bit of the hash into every bit of its first number.
    SplitMix64::new(of_all).draw()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn an_id_is_read_back_as_it_was_written(seed: u64, number: u64) {
            prop_assert_eq!(parse(&id(seed, number)), Some((seed, number)));
        }

        /// Otherwise two different ids would be the same order.
        #[test]
        fn only_one_text_stands_for_an_order(text in "o-[0-9+-]{1,12}") {
            if let Some((seed, number)) = parse(&text) {
                prop_assert_eq!(id(seed, number), text);
            }
        }
    }

    #[test]
    fn the_default_seed_gives_the_ids_of_the_workload() {
        assert_eq!(id(DEFAULT_SEED, 17), "o-17");
        assert_eq!(id(7, 17), "o-7-17");
        for foreign in ["", "o-", "o-x", "c-1", "o-007", "o-+7", "o-1-", "o--1", "o-1-2-3", "o-42-1"] {
            assert_eq!(parse(foreign), None, "{foreign}");
        }
    }

    #[test]
    fn drawn_numbers_differ_by_seed_id_and_salt_and_repeat_otherwise() {
        assert_eq!(draw(1, "o-1", 1), draw(1, "o-1", 1));
        let others = [draw(2, "o-1", 1), draw(1, "o-2", 1), draw(1, "o-1", 2)];
        assert!(others.iter().all(|other| *other != draw(1, "o-1", 1)), "{others:?}");
    }
}
