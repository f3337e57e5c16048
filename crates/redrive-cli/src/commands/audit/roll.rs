//! The roll: every produced id with what was found out about it, one byte each.
//!
//! Memory is the only thing that grows with an audit. A range (`o-0..o-9999`) takes one byte per id, a list from a
//! file about 40 bytes more than the id itself. [`RANGE_MAX`] and [`LISTED_MAX`] bound both.

use std::collections::{HashMap, HashSet};

/// The longest range: 500 MB.
pub const RANGE_MAX: u64 = 500_000_000;
/// The longest list: 1 to 2 GB with ids of ordinary length.
pub const LISTED_MAX: usize = 20_000_000;

/// What is known about one id. Marks are only ever added.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Marks(u8);

impl Marks {
    pub const NONE: Self = Self(0);
    /// The witness has it.
    pub const APPLIED: Self = Self(1);
    /// The witness has it more than once.
    pub const APPLIED_AGAIN: Self = Self(1 << 1);
    /// It has an open dead letter.
    pub const OPEN: Self = Self(1 << 2);
    /// Its dead letter was discarded.
    pub const DISCARDED: Self = Self(1 << 3);
    /// Its dead letter is being replayed.
    pub const REPLAYING: Self = Self(1 << 4);
    /// It waits for an attempt, or one is running.
    pub const PENDING: Self = Self(1 << 5);
    /// The list names it more than once.
    pub const LISTED_AGAIN: Self = Self(1 << 6);
    /// It was met in the table of effects; a second meeting is a second effect.
    pub const EFFECT: Self = Self(1 << 7);

    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Every combination there is, for tests that leave none out.
    #[cfg(test)]
    pub fn all() -> impl Iterator<Item = Self> {
        (0..=u8::MAX).map(Self)
    }
}

#[derive(Debug)]
pub struct Roll(RollKind, Erased);

/// Ids whose letters were erased: few, so they have no mark of their own in every id's byte.
type Erased = HashSet<Box<str>>;

#[derive(Debug)]
enum RollKind {
    Range { prefix: String, first: u64, marks: Vec<Marks> },
    Listed(HashMap<Box<str>, Marks>),
}

impl Roll {
    /// The ids `prefix + first` to `prefix + last`, both included.
    pub fn range(prefix: &str, first: u64, last: u64) -> Option<Self> {
        let count = last.checked_sub(first)?.checked_add(1).filter(|count| *count <= RANGE_MAX)?;
        let marks = vec![Marks::NONE; usize::try_from(count).ok()?];
        Some(Self(RollKind::Range { prefix: prefix.to_owned(), first, marks }, Erased::new()))
    }

    pub fn listed() -> Self {
        Self(RollKind::Listed(HashMap::new()), Erased::new())
    }

    /// Adds an id to a list; a second time is remembered. `false`: the list is full. Ranges know their ids already.
    pub fn add(&mut self, id: &str) -> bool {
        let RollKind::Listed(ids) = &mut self.0 else { return true };
        if let Some(marks) = ids.get_mut(id) {
            *marks = marks.with(Marks::LISTED_AGAIN);
            return true;
        }
        let room = ids.len() < LISTED_MAX;
        if room {
            ids.insert(id.into(), Marks::NONE);
        }
        room
    }

    pub fn len(&self) -> u64 {
        match &self.0 {
            RollKind::Range { marks, .. } => marks.len() as u64,
            RollKind::Listed(ids) => ids.len() as u64,
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What is known about an id; `None` if it was not produced.
    pub fn get(&self, id: &str) -> Option<Marks> {
        match &self.0 {
            RollKind::Range { prefix, first, marks } => marks.get(position(prefix, *first, id)?).copied(),
            RollKind::Listed(ids) => ids.get(id).copied(),
        }
    }

    /// Adds what was found out about an id; `false` if it was not produced.
    pub fn mark(&mut self, id: &str, mark: Marks) -> bool {
        let slot = match &mut self.0 {
            RollKind::Range { prefix, first, marks } => {
                position(prefix, *first, id).and_then(|position| marks.get_mut(position))
            }
            RollKind::Listed(ids) => ids.get_mut(id),
        };
        slot.map(|marks| *marks = marks.with(mark)).is_some()
    }

    /// The letter of this id was erased: it is closed as if it had been discarded, and counted apart.
    pub fn erased(&mut self, id: &str) {
        if self.mark(id, Marks::DISCARDED) {
            self.1.insert(id.into());
        }
    }

    pub fn is_erased(&self, id: &str) -> bool {
        self.1.contains(id)
    }

    /// Shows the marks of every id, and its name to who wants it. A range goes in order.
    pub fn each(&self, mut see: impl FnMut(Marks, &dyn Fn() -> String)) {
        match &self.0 {
            RollKind::Range { prefix, first, marks } => {
                for (number, marks) in (*first..).zip(marks) {
                    see(*marks, &|| format!("{prefix}{number}"));
                }
            }
            RollKind::Listed(ids) => ids.iter().for_each(|(id, marks)| see(*marks, &|| id.to_string())),
        }
    }

    /// At most `max` ids whose marks are `wanted`, from a place in the roll on, and the place to go on from; `None`
    /// at its end. So that nobody has to hold all ids a second time.
    pub fn some(
        &self,
        from: usize,
        max: usize,
        wanted: impl Fn(Marks) -> bool,
    ) -> (Vec<String>, Option<usize>) {
        let found: Vec<(usize, String)> = match &self.0 {
            RollKind::Range { prefix, first, marks } => {
                let rest = marks.iter().enumerate().skip(from).filter(|(_, marks)| wanted(**marks));
                rest.take(max)
                    .map(|(place, _)| (place, format!("{prefix}{}", first + place as u64)))
                    .collect()
            }
            // The order of a map stays the same as long as no id is added.
            RollKind::Listed(ids) => {
                let rest = ids.iter().enumerate().skip(from).filter(|(_, (_, marks))| wanted(**marks));
                rest.take(max).map(|(place, (id, _))| (place, id.to_string())).collect()
            }
        };
        let next = found.last().filter(|_| found.len() == max).map(|(place, _)| place + 1);
        (found.into_iter().map(|(_, id)| id).collect(), next)
    }
}

/// Where an id stands in a range. Only the usual way of writing a number is the id: `o-07` is not `o-7`.
fn position(prefix: &str, first: u64, id: &str) -> Option<usize> {
    let number = number(id.strip_prefix(prefix)?)?;
    usize::try_from(number.checked_sub(first)?).ok()
}

/// A number as ids write it: digits alone, no needless zero in front.
pub fn number(text: &str) -> Option<u64> {
    let plain = text.bytes().all(|b| b.is_ascii_digit()) && (text == "0" || !text.starts_with('0'));
    if plain { text.parse().ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_holds_its_ends_and_nothing_else() {
        let mut roll = Roll::range("o-", 3, 5).unwrap();
        assert_eq!(roll.len(), 3);
        for (id, known) in [
            ("o-2", false),
            ("o-3", true),
            ("o-5", true),
            ("o-6", false),
            ("o-03", false),
            ("c-3", false),
            ("o-", false),
        ] {
            assert_eq!(roll.mark(id, Marks::APPLIED), known, "{id}");
        }
        let (marked, end) = roll.some(0, 10, |marks| marks.has(Marks::APPLIED));
        assert_eq!(end, None);
        assert_eq!(marked, ["o-3", "o-5"]);
    }

    #[test]
    fn a_range_that_runs_backwards_or_is_too_long_is_none() {
        assert!(Roll::range("o-", 5, 4).is_none());
        assert!(Roll::range("o-", 0, RANGE_MAX).is_none());
        assert!(Roll::range("o-", 0, u64::MAX).is_none());
    }

    #[test]
    fn a_roll_can_be_gone_through_in_parts() {
        let range = Roll::range("o-", 5, 29).unwrap();
        let mut listed = Roll::listed();
        (5..30).for_each(|i| assert!(listed.add(&format!("o-{i}"))));
        for roll in [range, listed] {
            let (mut all, mut from) = (Vec::new(), Some(0));
            while let Some(place) = from {
                let (part, next) = roll.some(place, 7, |_| true);
                assert!(part.len() <= 7);
                all.extend(part);
                from = next;
            }
            all.sort();
            let mut whole: Vec<String> = (5..30).map(|i| format!("o-{i}")).collect();
            whole.sort();
            assert_eq!(all, whole);
        }
    }

    #[test]
    fn an_id_listed_twice_counts_once_and_is_remembered() {
        let mut roll = Roll::listed();
        for id in ["a", "b", "a"] {
            assert!(roll.add(id));
        }
        assert_eq!(roll.len(), 2);
        assert!(roll.get("a").unwrap().has(Marks::LISTED_AGAIN));
        assert!(!roll.get("b").unwrap().has(Marks::LISTED_AGAIN));
        assert_eq!(roll.get("c"), None);
    }
}
