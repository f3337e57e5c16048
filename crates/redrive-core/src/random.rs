//! A random number as an argument: the caller draws it, the decision only spends it.

/// One drawn 64-bit number. The same number always gives the same decision, so a run can be repeated from its seed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Random(pub u64);

impl Random {
    /// As a fraction in `[0, 1)`.
    pub fn unit(self) -> f64 {
        // 53 bits are what an f64 holds exactly; with more, the largest numbers would round up to 1.
        (self.0 >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Uniform in `0..=max_ms`.
    pub fn below_ms(self, max_ms: u64) -> u64 {
        // Widening multiplication instead of a remainder: no bias towards small delays, and no overflow at the top.
        ((u128::from(self.0) * (u128::from(max_ms) + 1)) >> 64) as u64
    }

    /// Uniform in `from_ms..=to_ms`; `from_ms` when the range is empty.
    pub fn between_ms(self, from_ms: u64, to_ms: u64) -> u64 {
        from_ms + self.below_ms(to_ms.saturating_sub(from_ms))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_unit_fraction_never_reaches_one() {
        assert_eq!(Random(0).unit().to_bits(), 0.0_f64.to_bits());
        assert!(Random(u64::MAX).unit() < 1.0);
        assert!((Random(1 << 63).unit() - 0.5).abs() < 1e-12);
    }

    #[test]
    fn both_ends_of_a_range_can_be_drawn() {
        assert_eq!(Random(0).below_ms(10), 0);
        assert_eq!(Random(u64::MAX).below_ms(10), 10);
        assert_eq!(Random(u64::MAX).below_ms(u64::MAX), u64::MAX);
        assert_eq!(Random(1 << 63).below_ms(9), 5);
        assert_eq!(Random(0).between_ms(3, 7), 3);
        assert_eq!(Random(u64::MAX).between_ms(3, 7), 7);
    }

    #[test]
    fn an_empty_range_is_its_start() {
        assert_eq!(Random(u64::MAX).between_ms(7, 3), 7);
        assert_eq!(Random(u64::MAX).below_ms(0), 0);
    }
}
