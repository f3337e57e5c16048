//! The progress of overwriting erased letters: one pass over all segments for all letters erased when it begins.
//! Pure.

use std::collections::HashSet;
use std::sync::Arc;

/// Goes through segments `P`, one at a time.
#[derive(Debug)]
pub(super) struct Wiping<P> {
    /// Erased letters that are not part of the current pass.
    wanted: HashSet<u64>,
    pass: Option<WipePass<P>>,
}

#[derive(Debug)]
struct WipePass<P> {
    letters: Arc<HashSet<u64>>,
    /// Segments still to be overwritten, the next one last.
    left: Vec<P>,
    /// Whether one is being overwritten.
    is_busy: bool,
}

impl<P> Default for Wiping<P> {
    fn default() -> Self {
        Self { wanted: HashSet::new(), pass: None }
    }
}

impl<P> Wiping<P> {
    pub(super) fn want(&mut self, letters: impl IntoIterator<Item = u64>) {
        self.wanted.extend(letters);
    }

    pub(super) fn is_wanted(&self) -> bool {
        self.pass.is_some() || !self.wanted.is_empty()
    }

    /// The number of segments left until everything requested is overwritten; a pass that has not begun counts as
    /// one.
    pub(super) fn parts_left(&self) -> u64 {
        let under_way = self.pass.as_ref().map_or(0, |pass| pass.left.len() as u64 + u64::from(pass.is_busy));
        under_way + u64::from(!self.wanted.is_empty())
    }

    /// Whether the next segment is the first of a new pass.
    pub(super) fn begins(&self) -> bool {
        self.pass.is_none() && !self.wanted.is_empty()
    }

    /// The next segment to overwrite and the letters to overwrite in it; `None` while one is being overwritten. `all`
    /// lists the segments that exist when a pass begins.
    pub(super) fn next(&mut self, all: impl FnOnce() -> Vec<P>) -> Option<(P, Arc<HashSet<u64>>)> {
        if self.begins() {
            let letters = Arc::new(std::mem::take(&mut self.wanted));
            self.pass = Some(WipePass { letters, left: all(), is_busy: false });
        }
        let pass = self.pass.as_mut().filter(|pass| !pass.is_busy)?;
        let part = pass.left.pop()?;
        pass.is_busy = true;
        Some((part, Arc::clone(&pass.letters)))
    }

    /// Records that the segment is overwritten. Returns the letters of the pass if it was the last one.
    pub(super) fn wiped(&mut self) -> Option<Arc<HashSet<u64>>> {
        let pass = self.pass.as_mut()?;
        pass.is_busy = false;
        if pass.left.is_empty() { self.pass.take().map(|pass| pass.letters) } else { None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pass_goes_through_all_segments_and_later_letters_get_another_one() {
        let mut wiping = Wiping::default();
        assert!(!wiping.is_wanted() && wiping.next(|| vec![1]).is_none());
        wiping.want([7, 9]);
        assert!(wiping.begins() && wiping.parts_left() == 1);
        let (part, letters) = wiping.next(|| vec![2, 1]).unwrap();
        assert_eq!((part, letters.len(), wiping.parts_left()), (1, 2, 2));
        assert!(wiping.next(Vec::new).is_none(), "one at a time");
        wiping.want([11]);
        assert_eq!((wiping.wiped(), wiping.parts_left()), (None, 2));
        assert_eq!(wiping.next(Vec::new).unwrap().0, 2);
        assert_eq!(wiping.wiped().unwrap().len(), 2);
        assert!(wiping.is_wanted() && wiping.begins());
        wiping.next(|| vec![3]).unwrap();
        assert_eq!(*wiping.wiped().unwrap(), HashSet::from([11]));
        assert!(!wiping.is_wanted() && wiping.parts_left() == 0);
    }
}
