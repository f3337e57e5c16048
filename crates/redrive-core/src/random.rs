//! A random number as an argument: the caller draws it, the decision uses it. And the one generator.

/// A drawn 64-bit number. The same number always gives the same decision, so a run can be repeated from its seed.
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

/// The generator of the whole project (SplitMix64): small, well spread, and the same seed gives the same numbers on every
/// machine, for ever. Not for secrets.
#[derive(Clone, Debug)]
pub struct SplitMix64(u64);

impl SplitMix64 {
    /// A generator that starts from `seed`.
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number.
    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Uniform in `0..end`; zero for an empty range.
    pub fn below(&mut self, end: u64) -> u64 {
        ((u128::from(self.draw()) * u128::from(end)) >> 64) as u64
    }

    /// Uniform in `from..=to`; `from` for an empty range.
    pub fn between(&mut self, from: u64, to: u64) -> u64 {
        from + self.below(to.saturating_sub(from) + 1)
    }

    /// True with a probability of `percent`.
    pub fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// Picks one of these, of which there must be at least one.
    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len() as u64) as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_the_published_numbers() {
        let mut random = SplitMix64::new(1_234_567);
        assert_eq!([random.draw(), random.draw()], [6_457_827_717_110_365_317, 3_203_168_211_198_807_973]);
    }

    #[test]
    fn ranges_keep_their_ends() {
        let mut random = SplitMix64::new(7);
        let drawn: Vec<u64> = (0..1000).map(|_| random.between(3, 5)).collect();
        assert_eq!((drawn.iter().min(), drawn.iter().max()), (Some(&3), Some(&5)));
        assert_eq!((random.below(0), random.between(5, 3)), (0, 5));
        assert!((0..100).all(|_| random.chance(100) && !random.chance(0)));
        let picked: Vec<char> = (0..100).map(|_| random.pick(&['a', 'b'])).collect();
        assert!(picked.contains(&'a') && picked.contains(&'b'));
    }

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
