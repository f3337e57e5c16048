//! Every produced id with its marks, one byte each.
//!
//! Only memory grows with the size of an audit. A range (`o-0..o-9999`) takes one byte per id, a list from a file about
//! 40 bytes more than the id itself. [`RANGE_MAX`] and [`LISTED_MAX`] bound both.
//!
//! A message that got a new id from an edit (`o-1~e-12`) continues under that id: its outcome is that of the produced
//! id, and it counts once.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

use redrive::internal::engine::continued::ids_before;

/// The maximum size of a range: 500 MB.
pub const RANGE_MAX: u64 = 500_000_000;
/// The maximum size of a list: 1 to 2 GB with ids of ordinary length.
pub const LISTED_MAX: usize = 20_000_000;

/// The findings about one id. Marks are only ever added.
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
    /// It is waiting for an attempt, or one is running.
    pub const PENDING: Self = Self(1 << 5);
    /// The list names it more than once.
    pub const LISTED_AGAIN: Self = Self(1 << 6);
    /// It was found in the table of effects; a second occurrence is a second effect.
    pub const EFFECT: Self = Self(1 << 7);

    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Every combination, for exhaustive tests.
    #[cfg(test)]
    pub fn all() -> impl Iterator<Item = Self> {
        (0..=u8::MAX).map(Self)
    }
}

#[derive(Debug)]
pub struct ProducedIds {
    produced: ProducedKind,
    /// Later ids of produced ones, by the produced id. Few, since each comes from an edit.
    continued: HashMap<Box<str>, Vec<(Box<str>, Marks)>>,
    /// Ids whose letters were erased. Few, so they need no mark in every id's byte.
    erased: HashSet<Box<str>>,
}

#[derive(Debug)]
enum ProducedKind {
    Range { prefix: String, first: u64, marks: Vec<Marks> },
    Listed(HashMap<Box<str>, Marks>),
}

impl ProducedKind {
    fn get(&self, id: &str) -> Option<Marks> {
        match self {
            Self::Range { prefix, first, marks } => marks.get(position(prefix, *first, id)?).copied(),
            Self::Listed(ids) => ids.get(id).copied(),
        }
    }

    fn get_mut(&mut self, id: &str) -> Option<&mut Marks> {
        match self {
            Self::Range { prefix, first, marks } => {
                position(prefix, *first, id).and_then(|position| marks.get_mut(position))
            }
            Self::Listed(ids) => ids.get_mut(id),
        }
    }
}

impl ProducedIds {
    fn of(produced: ProducedKind) -> Self {
        Self { produced, continued: HashMap::new(), erased: HashSet::new() }
    }

    /// The ids `prefix + first` to `prefix + last`, both included.
    pub fn range(prefix: &str, first: u64, last: u64) -> Option<Self> {
        let count = last.checked_sub(first)?.checked_add(1).filter(|count| *count <= RANGE_MAX)?;
        let marks = vec![Marks::NONE; usize::try_from(count).ok()?];
        Some(Self::of(ProducedKind::Range { prefix: prefix.to_owned(), first, marks }))
    }

    pub fn listed() -> Self {
        Self::of(ProducedKind::Listed(HashMap::new()))
    }

    /// Adds an id to a list; a repeated one is marked. `false` if the list is full. Ranges know their ids already.
    pub fn add(&mut self, id: &str) -> bool {
        let ProducedKind::Listed(ids) = &mut self.produced else { return true };
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
        match &self.produced {
            ProducedKind::Range { marks, .. } => marks.len() as u64,
            ProducedKind::Listed(ids) => ids.len() as u64,
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The marks of an id, either a produced one or one that it continues under; `None` if it is neither.
    pub fn get(&self, id: &str) -> Option<Marks> {
        self.produced.get(id).or_else(|| {
            let produced = self.produced_before(id)?;
            let later = self.continued.get(produced).and_then(|all| all.iter().find(|(one, _)| **one == *id));
            Some(later.map_or(Marks::NONE, |(_, marks)| *marks))
        })
    }

    /// The produced id that continues under this one.
    fn produced_before<'i>(&self, id: &'i str) -> Option<&'i str> {
        ids_before(id).find(|before| self.produced.get(before).is_some())
    }

    /// Adds a mark to an id; `false` if it was not produced and no produced id continues under it.
    pub fn mark(&mut self, id: &str, mark: Marks) -> bool {
        if let Some(marks) = self.produced.get_mut(id) {
            *marks = marks.with(mark);
            return true;
        }
        let Some(produced) = self.produced_before(id) else { return false };
        let all = self.continued.entry(produced.into()).or_default();
        match all.iter_mut().find(|(one, _)| **one == *id) {
            Some((_, marks)) => *marks = marks.with(mark),
            None => all.push((id.into(), mark)),
        }
        true
    }

    /// Records that the letter of this id was erased: it is resolved like a discarded one, but counted separately.
    pub fn erased(&mut self, id: &str) {
        if self.mark(id, Marks::DISCARDED) {
            self.erased.insert(id.into());
        }
    }

    pub fn is_erased(&self, id: &str) -> bool {
        self.erased.contains(id)
    }

    /// The number of produced ids that continue under another one, and how many of these the witness also has under an
    /// earlier one.
    pub fn continued(&self) -> (u64, u64) {
        let also = self.continued.iter().filter(|(produced, later)| {
            let last = latest(later).map(|(id, _)| id);
            let earlier = later.iter().filter(|(id, _)| Some(&**id) != last).map(|(_, marks)| *marks);
            earlier.chain(self.produced.get(produced)).any(|marks| marks.has(Marks::APPLIED))
        });
        (self.continued.len() as u64, also.count() as u64)
    }

    /// The marks of a produced id, and its current name: that of the id it continues under, if there is one. An effect
    /// under an earlier id is not the effect that the edit asked for; for a letter it is reported.
    fn present<'n>(&self, own: Marks, name: &'n str) -> (Marks, Cow<'n, str>) {
        let later = self.continued.get(name);
        let Some((id, marks)) = later.and_then(|later| latest(later)) else { return (own, name.into()) };
        let all = || later.into_iter().flatten().map(|(_, marks)| *marks).chain([own]);
        let any = |mark: Marks| if all().any(|marks| marks.has(mark)) { mark } else { Marks::NONE };
        let is_dead = marks.has(Marks::OPEN) || marks.has(Marks::DISCARDED);
        let applied = if is_dead { any(Marks::APPLIED) } else { Marks::NONE };
        let marks = marks.with(applied).with(any(Marks::APPLIED_AGAIN)).with(any(Marks::LISTED_AGAIN));
        (marks, id.to_owned().into())
    }

    /// Calls `see` with the marks of every produced id, and a function for its current name. A range is visited in
    /// order.
    pub fn each(&self, mut see: impl FnMut(Marks, &dyn Fn() -> String)) {
        let mut shown = |own: Marks, name: &dyn Fn() -> String| {
            if self.continued.is_empty() {
                return see(own, name);
            }
            let name = name();
            let (marks, id) = self.present(own, &name);
            see(marks, &|| id.clone().into_owned());
        };
        match &self.produced {
            ProducedKind::Range { prefix, first, marks } => {
                for (number, marks) in (*first..).zip(marks) {
                    shown(*marks, &|| format!("{prefix}{number}"));
                }
            }
            ProducedKind::Listed(ids) => ids.iter().for_each(|(id, marks)| shown(*marks, &|| id.to_string())),
        }
    }

    /// At most `max` ids with `wanted` marks, under their current names, starting from a position; and the position to
    /// continue from, `None` at the end. Avoids holding all ids a second time.
    pub fn some(
        &self,
        from: usize,
        max: usize,
        wanted: impl Fn(Marks) -> bool,
    ) -> (Vec<String>, Option<usize>) {
        let few = self.continued.is_empty();
        let look = |own: Marks, name: &dyn Fn() -> String| {
            if few {
                return wanted(own).then(name);
            }
            let name = name();
            let (marks, id) = self.present(own, &name);
            wanted(marks).then(|| id.into_owned())
        };
        let found: Vec<(usize, String)> = match &self.produced {
            ProducedKind::Range { prefix, first, marks } => {
                let rest = marks.iter().enumerate().skip(from);
                let name = |place: usize| format!("{prefix}{}", first + place as u64);
                let found = rest.filter_map(|(place, own)| Some((place, look(*own, &|| name(place))?)));
                found.take(max).collect()
            }
            // The order of a map is stable as long as no id is added.
            ProducedKind::Listed(ids) => {
                let rest = ids.iter().enumerate().skip(from);
                let found =
                    rest.filter_map(|(place, (id, own))| Some((place, look(*own, &|| id.to_string())?)));
                found.take(max).collect()
            }
        };
        let next = found.last().filter(|_| found.len() == max).map(|(place, _)| place + 1);
        (found.into_iter().map(|(_, id)| id).collect(), next)
    }
}

/// The current id of a message: each edit makes it longer.
fn latest(later: &[(Box<str>, Marks)]) -> Option<(&str, Marks)> {
    later.iter().max_by_key(|(id, _)| id.len()).map(|(id, marks)| (&**id, *marks))
}

/// The position of an id in a range. A number counts only in its usual form: `o-07` is not `o-7`.
fn position(prefix: &str, first: u64, id: &str) -> Option<usize> {
    let number = number(id.strip_prefix(prefix)?)?;
    usize::try_from(number.checked_sub(first)?).ok()
}

/// A number as ids write it: only digits, without leading zeros.
pub fn number(text: &str) -> Option<u64> {
    let plain = text.bytes().all(|b| b.is_ascii_digit()) && (text == "0" || !text.starts_with('0'));
    if plain { text.parse().ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_holds_its_ends_and_nothing_else() {
        let mut produced = ProducedIds::range("o-", 3, 5).unwrap();
        assert_eq!(produced.len(), 3);
        for (id, known) in [
            ("o-2", false),
            ("o-3", true),
            ("o-5", true),
            ("o-6", false),
            ("o-03", false),
            ("c-3", false),
            ("o-", false),
        ] {
            assert_eq!(produced.mark(id, Marks::APPLIED), known, "{id}");
        }
        let (marked, end) = produced.some(0, 10, |marks| marks.has(Marks::APPLIED));
        assert_eq!(end, None);
        assert_eq!(marked, ["o-3", "o-5"]);
    }

    #[test]
    fn a_range_that_runs_backwards_or_is_too_long_is_none() {
        assert!(ProducedIds::range("o-", 5, 4).is_none());
        assert!(ProducedIds::range("o-", 0, RANGE_MAX).is_none());
        assert!(ProducedIds::range("o-", 0, u64::MAX).is_none());
    }

    #[test]
    fn a_roll_can_be_gone_through_in_parts() {
        let range = ProducedIds::range("o-", 5, 29).unwrap();
        let mut listed = ProducedIds::listed();
        (5..30).for_each(|i| assert!(listed.add(&format!("o-{i}"))));
        for produced in [range, listed] {
            let (mut all, mut from) = (Vec::new(), Some(0));
            while let Some(place) = from {
                let (part, next) = produced.some(place, 7, |_| true);
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
    fn a_message_that_goes_on_under_a_new_id_counts_once_under_its_present_name() {
        let mut listed = ProducedIds::listed();
        (0..4).for_each(|i| assert!(listed.add(&format!("o-{i}"))));
        for mut produced in [ProducedIds::range("o-", 0, 3).unwrap(), listed] {
            let names = |produced: &ProducedIds, wanted: Marks| {
                let mut names = produced.some(0, 10, |marks| marks.has(wanted)).0;
                names.sort();
                names
            };
            assert!(!produced.mark("o-9~e-1", Marks::APPLIED), "nobody produced it");
            // Applied under its first id, and under the new one.
            assert!(produced.mark("o-0", Marks::APPLIED) && produced.mark("o-0~e-1", Marks::APPLIED));
            assert_eq!(names(&produced, Marks::APPLIED), ["o-0~e-1"]);
            // The effect of the edit is missing, whatever was applied before.
            assert!(produced.mark("o-1", Marks::APPLIED) && produced.mark("o-1~e-1", Marks::NONE));
            assert_eq!(names(&produced, Marks::APPLIED), ["o-0~e-1"]);
            // A letter, edited twice, that was applied under its first id.
            assert!(produced.mark("o-2", Marks::APPLIED) && produced.mark("o-2~e-1~e-2", Marks::OPEN));
            assert_eq!(produced.get("o-2~e-1"), Some(Marks::NONE));
            assert_eq!(names(&produced, Marks::OPEN.with(Marks::APPLIED)), ["o-2~e-1~e-2"]);
            assert_eq!((produced.len(), produced.continued()), (4, (3, 3)));
            let mut seen = 0;
            produced.each(|_, _| seen += 1);
            assert_eq!(seen, 4);
        }
    }

    #[test]
    fn an_id_listed_twice_counts_once_and_is_remembered() {
        let mut produced = ProducedIds::listed();
        for id in ["a", "b", "a"] {
            assert!(produced.add(id));
        }
        assert_eq!(produced.len(), 2);
        assert!(produced.get("a").unwrap().has(Marks::LISTED_AGAIN));
        assert!(!produced.get("b").unwrap().has(Marks::LISTED_AGAIN));
        assert_eq!(produced.get("c"), None);
    }
}
