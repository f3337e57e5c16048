//! How the letters of a job ended: the latest of them, and those that went first. Pure.

use std::collections::VecDeque;

/// How many of the letters that ended last are judged.
pub(crate) const WINDOW: usize = 50;

/// How the latest letters ended, oldest first; `true` is dead again.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub(super) struct Latest {
    ends: VecDeque<bool>,
}

impl Latest {
    pub(super) fn push(&mut self, died: bool) {
        if self.ends.len() == WINDOW {
            self.ends.pop_front();
        }
        self.ends.push_back(died);
    }

    /// Ends whose order is not known, spread evenly.
    pub(super) fn push_unordered(&mut self, succeeded: u64, died: u64) {
        let total = succeeded + died;
        (0..total).for_each(|n| self.push((n + 1) * died / total > n * died / total));
    }

    /// How many of them are remembered, at most [`WINDOW`].
    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }

    pub(super) fn died(&self) -> usize {
        self.ends.iter().filter(|died| **died).count()
    }

    /// One character for each, `x` for dead again.
    pub(super) fn text(&self) -> String {
        self.ends.iter().map(|died| if *died { 'x' } else { '.' }).collect()
    }

    pub(super) fn of_text(text: &str) -> Self {
        let mut latest = Self::default();
        text.chars().for_each(|end| latest.push(end == 'x'));
        latest
    }
}

/// Letters that go first while nothing else goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Trial {
    /// Letters that were put back, and those that had died again, before it began.
    pub(super) published_before: u64,
    pub(super) died_before: u64,
    pub(super) letters: u64,
}

/// How the letters that went first ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Canary {
    /// How many go first.
    pub letters: u64,
    /// How many of them were delivered.
    pub succeeded: u64,
    /// Whether all of them have ended.
    pub is_over: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_that_were_not_written_down_are_spread_evenly() {
        let mut latest = Latest::default();
        latest.push_unordered(190, 10);
        assert_eq!((latest.len(), latest.died()), (50, 3));
        assert_eq!(Latest::of_text(&latest.text()), latest);
        latest.push_unordered(0, 0);
        assert_eq!(latest.died(), 3);
    }
}
