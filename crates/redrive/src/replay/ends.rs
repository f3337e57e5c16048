//! How the letters of a job ended: the latest ones, and those of the canary. Pure.

use std::collections::VecDeque;

/// How many of the latest ends are judged.
pub(crate) const WINDOW: usize = 50;

/// The ends of the latest letters, oldest first; `true` means dead again.
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

    /// Adds ends whose order is unknown, spread evenly.
    pub(super) fn push_unordered(&mut self, succeeded: u64, died: u64) {
        let total = succeeded + died;
        (0..total).for_each(|n| self.push((n + 1) * died / total > n * died / total));
    }

    /// The number of remembered ends, at most [`WINDOW`].
    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }

    pub(super) fn died(&self) -> usize {
        self.ends.iter().filter(|died| **died).count()
    }

    /// One character per end, `x` for dead again.
    pub(super) fn text(&self) -> String {
        self.ends.iter().map(|died| if *died { 'x' } else { '.' }).collect()
    }

    pub(super) fn of_text(text: &str) -> Self {
        let mut latest = Self::default();
        text.chars().for_each(|end| latest.push(end == 'x'));
        latest
    }
}

/// The canary: letters that go first, while the others wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Trial {
    /// Letters that had been put back, and those that had died again, before it began.
    pub(super) published_before: u64,
    pub(super) died_before: u64,
    pub(super) letters: u64,
}

/// The result of the canary, the letters that go first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Canary {
    /// How many letters go first.
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
