//! Which messages ran alone when processes died, and which run next, as part of a commit note: `crashed=7:2:5000:9000
//! alone=7,8`.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

/// The most messages that a note names: several times as many as are announced together.
const NAMED_MAX: usize = 32;

/// How often processes died while a message ran alone, and when, in milliseconds; 0 if the time is not known yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Crashes {
    pub count: u32,
    pub first: u64,
    pub last: u64,
}

/// The messages that a note names.
#[derive(Clone, Copy, Debug)]
pub struct Named<'a> {
    /// Messages that ran alone when a process died, by offset.
    pub crashed: &'a BTreeMap<u64, Crashes>,
    /// Messages that are announced to run alone, one after the other.
    pub alone: &'a BTreeSet<u64>,
}

impl Named<'_> {
    pub fn write(&self, text: &mut String) {
        let mut separator = " crashed=";
        for (offset, Crashes { count, first, last }) in self.crashed.iter().take(NAMED_MAX) {
            let _ = write!(text, "{separator}{offset}:{count}:{first}:{last}");
            separator = ",";
        }
        let mut separator = " alone=";
        for offset in self.alone.iter().take(NAMED_MAX) {
            let _ = write!(text, "{separator}{offset}");
            separator = ",";
        }
    }
}

/// Parses the value of `alone=`.
pub fn read_alone(text: &str) -> BTreeSet<u64> {
    text.split(',').take(NAMED_MAX).filter_map(|offset| offset.parse().ok()).collect()
}

/// Parses the value of `crashed=`. Malformed entries are ignored.
pub fn read_crashed(text: &str) -> Vec<(u64, Crashes)> {
    let one = |part: &str| {
        let mut numbers = part.split(':').map(str::parse::<u64>);
        let mut next = || numbers.next()?.ok();
        let (offset, count, first, last) = (next()?, next()?, next()?, next()?);
        Some((offset, Crashes { count: u32::try_from(count).ok()?, first, last }))
    };
    text.split(',').take(NAMED_MAX).filter_map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn damaged_words_say_nothing() {
        assert_eq!(read_crashed("x,1:2,7:2:5:6,9:99999999999:1:1").len(), 1);
        assert_eq!(read_alone("7,x,,8"), BTreeSet::from([7, 8]));
    }
}
