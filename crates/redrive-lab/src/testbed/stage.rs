//! Progress and interruption of a run.

use std::time::Duration;

/// Observes a run and can interrupt it.
pub trait Watch: Send + Sync {
    /// Reports progress; `done` is the share of the whole run, from 0 to 1.
    fn progress(&self, done: f64, doing: &str);

    fn is_interrupted(&self) -> bool;
}

/// Ignores progress and never interrupts.
#[derive(Clone, Copy, Debug, Default)]
pub struct Silent;

impl Watch for Silent {
    fn progress(&self, _done: f64, _doing: &str) {}

    fn is_interrupted(&self) -> bool {
        false
    }
}

/// The part of a run that one variant takes.
#[derive(Clone, Copy)]
pub struct Stage<'a> {
    watch: &'a dyn Watch,
    name: &'a str,
    from: f64,
    to: f64,
}

impl std::fmt::Debug for Stage<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Stage({}, {}..{})", self.name, self.from, self.to)
    }
}

impl<'a> Stage<'a> {
    /// Part `index` of `of` equal parts.
    pub fn of(watch: &'a dyn Watch, name: &'a str, index: usize, of: usize) -> Self {
        let share = |index: usize| index as f64 / of.max(1) as f64;
        Self { watch, name, from: share(index), to: share(index + 1) }
    }

    /// Part `index` of `of` equal parts of this stage.
    #[must_use]
    pub fn part(&self, index: usize, of: usize) -> Self {
        let at = |index: usize| self.from + (self.to - self.from) * index as f64 / of.max(1) as f64;
        Self { from: at(index), to: at(index + 1), ..*self }
    }

    /// Reports progress by elapsed time.
    pub fn at(&self, now: Duration, ends: Duration) {
        let share = now.as_secs_f64() / ends.as_secs_f64().max(f64::MIN_POSITIVE);
        self.share(share);
    }

    pub fn share(&self, share: f64) {
        self.watch.progress(self.from + (self.to - self.from) * share.clamp(0.0, 1.0), self.name);
    }

    pub fn is_interrupted(&self) -> bool {
        self.watch.is_interrupted()
    }
}
