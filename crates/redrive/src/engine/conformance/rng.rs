//! What the suite draws: ranges, chances and picks. The same seed gives the same run on every machine, for ever.

use redrive_core::SplitMix64;

#[derive(Clone, Debug)]
pub struct Rng(SplitMix64);

impl Rng {
    pub const fn new(seed: u64) -> Self {
        Self(SplitMix64::new(seed))
    }

    pub fn draw(&mut self) -> u64 {
        self.0.draw()
    }

    /// Uniform in `0..end`; zero for an empty range.
    pub fn below(&mut self, end: u64) -> u64 {
        self.0.below(end)
    }

    /// Uniform in `from..=to`.
    pub fn between(&mut self, from: u64, to: u64) -> u64 {
        from + self.below(to - from + 1)
    }

    pub fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len() as u64) as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::Rng;

    #[test]
    fn ranges_keep_their_ends() {
        let mut rng = Rng::new(7);
        let drawn: Vec<u64> = (0..1000).map(|_| rng.between(3, 5)).collect();
        assert_eq!((drawn.iter().min(), drawn.iter().max()), (Some(&3), Some(&5)));
        assert_eq!(rng.below(0), 0);
    }
}
