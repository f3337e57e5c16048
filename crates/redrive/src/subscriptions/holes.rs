//! Finds the lost lines of the log and their keys. Pure: examines one line after the other.
//!
//! A lost line may have been the latest of its key, so that the older ones no longer hold. Its key is known from its
//! remains, or from the line [`ECHO_DISTANCE`] after it. If neither can be read, any key may be affected.

use std::collections::BTreeSet;

use super::lines::{ECHO_DISTANCE, KeyDigest, LineHead, LineTrace, ScannedLine, line_trace};

/// Holes that are tracked; if there are more, all are replaced by one loss with unknown keys.
const HOLES_MAX: usize = 100;
/// Longest run of damaged lines that is examined.
const RUN_MAX: usize = 16;
/// Longest damaged line that is examined.
const TEXT_BYTES_MAX: usize = 64 * 1024;

/// The lines lost at one place.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Loss {
    keys: BTreeSet<KeyDigest>,
    /// Whether lines are lost whose keys are unknown.
    is_anything: bool,
}

impl Loss {
    /// Whether a line of this key is certainly lost.
    pub(super) fn names(&self, key: &str) -> bool {
        self.keys.contains(&KeyDigest::of(key))
    }

    /// Whether a line of this key may be lost.
    pub(super) fn may_be_of(&self, key: &str) -> bool {
        self.is_anything || self.names(key)
    }

    pub(super) fn is_anything(&self) -> bool {
        self.is_anything
    }
}

#[derive(Debug)]
struct Hole {
    /// The number of whole lines before it.
    at: u64,
    /// The numbers of the lost lines.
    first: u32,
    lost: u32,
    keys: BTreeSet<KeyDigest>,
    /// How many of the lost lines have a readable key.
    named: u32,
    /// How many are echoed by a later line.
    echoed: u32,
}

impl Hole {
    fn loss(&self) -> Loss {
        let is_anything = self.named < self.lost && self.echoed < self.lost;
        Loss { keys: self.keys.clone(), is_anything }
    }
}

/// A run of damaged lines that may continue.
#[derive(Debug, Default)]
struct DamagedRun {
    texts: Vec<Vec<u8>>,
    /// Whether it is too long to be examined.
    is_long: bool,
}

/// The lines that a damaged run consisted of, as far as they can be recognised.
#[derive(Debug, Default, PartialEq, Eq)]
struct RunLines {
    keys: Vec<KeyDigest>,
    /// Whether the run was exactly these lines.
    is_all: bool,
}

impl DamagedRun {
    fn is_open(&self) -> bool {
        !self.texts.is_empty() || self.is_long
    }

    fn add(&mut self, text: &[u8]) {
        self.is_long |= self.texts.len() == RUN_MAX || text.len() > TEXT_BYTES_MAX;
        if self.is_long { self.texts.clear() } else { self.texts.push(text.to_vec()) }
    }

    /// Recognises the lines of the run. `number` is that of its first line. A line that was broken in two is joined
    /// again.
    fn lines(&self, mut number: u32) -> RunLines {
        let mut said = RunLines { keys: Vec::new(), is_all: !self.is_long };
        let mut texts = self.texts.as_slice();
        while let [first, rest @ ..] = texts {
            let mended = rest.first().map(|second| [first.as_slice(), b"\n", second].concat());
            let mended = mended.map(|text| line_trace(&text, number));
            texts = rest;
            match (line_trace(first, number), mended) {
                (LineTrace::Line(key), _) => said.keys.push(key),
                (_, Some(LineTrace::Line(key))) => {
                    said.keys.push(key);
                    texts = &rest[1..];
                }
                (LineTrace::Begins(key), _) => {
                    said.keys.push(key);
                    said.is_all = false;
                }
                (LineTrace::Nothing, _) => said.is_all = false,
            }
            number = number.saturating_add(1);
        }
        said
    }
}

/// Finds the holes of a log.
#[derive(Debug, Default)]
pub(super) struct HoleFinder {
    whole: u64,
    last_number: u32,
    run: DamagedRun,
    holes: Vec<Hole>,
    overflow: Option<u64>,
}

impl HoleFinder {
    pub(super) fn see(&mut self, scanned: &ScannedLine<'_>) {
        match scanned {
            ScannedLine::Whole(head, _) => self.whole(*head),
            ScannedLine::Joined(_, both) => both.iter().for_each(|(head, _)| self.whole(Some(*head))),
            ScannedLine::Damaged(_, text) => self.run.add(text),
        }
    }

    /// The losses, each with the number of whole lines before it; and the number of the last line, including lost
    /// ones.
    pub(super) fn finish(mut self) -> (Vec<(u64, Loss)>, u32) {
        if self.run.is_open() {
            // The number of lost lines is unknown, unless all of them can be recognised.
            let said = self.run.lines(self.next_number());
            let lost = if said.is_all { said.keys.len() as u32 } else { u32::MAX };
            let passed = self.run.texts.len().max(said.keys.len()).max(1) as u32;
            self.close(lost);
            self.last_number = self.last_number.saturating_add(passed);
        }
        let losses = match self.overflow {
            Some(at) => vec![(at, Loss { keys: BTreeSet::new(), is_anything: true })],
            None => self.holes.iter().map(|hole| (hole.at, hole.loss())).collect(),
        };
        (losses, self.last_number)
    }

    fn next_number(&self) -> u32 {
        self.last_number.saturating_add(1)
    }

    fn whole(&mut self, head: Option<LineHead>) {
        let lost = head.map(|head| head.number.checked_sub(self.next_number()));
        match lost {
            Some(Some(0)) => self.run = DamagedRun::default(),
            Some(Some(lost)) => self.close(lost),
            // It has no number, or the numbering restarted, so the number of lost lines is unknown.
            Some(None) | None if self.run.is_open() => self.close(u32::MAX),
            Some(None) | None => {}
        }
        head.into_iter().for_each(|head| self.echo(head));
        self.last_number = head.map_or(self.next_number(), |head| head.number);
        self.whole += 1;
    }

    fn close(&mut self, lost: u32) {
        let first = self.next_number();
        let keys = std::mem::take(&mut self.run).lines(first).keys;
        if self.holes.len() >= HOLES_MAX {
            self.overflow = Some(self.whole);
            return;
        }
        let named = keys.len() as u32;
        let keys = keys.into_iter().collect();
        self.holes.push(Hole { at: self.whole, first, lost, keys, named, echoed: 0 });
    }

    fn echo(&mut self, head: LineHead) {
        let Some(repeated) = head.number.checked_sub(ECHO_DISTANCE).filter(|_| head.echo.is_known()) else {
            return;
        };
        let holes = self.holes.iter_mut().filter(|hole| hole.lost < u32::MAX);
        for hole in holes.filter(|hole| (hole.first..hole.first + hole.lost).contains(&repeated)) {
            hole.keys.insert(head.echo);
            hole.echoed += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::entry::Entry;
    use super::super::lines::{line, scan};
    use super::*;

    /// A log of `lines` lines with different keys.
    fn log(lines: u32) -> Vec<String> {
        let key = |number: u32| format!("endpoint/{number:016x}");
        let digest = |number: Option<u32>| {
            number.filter(|number| *number > 0).map(|number| KeyDigest::of(&key(number))).unwrap_or_default()
        };
        let entry = |number| Entry { key: key(number), value: Some("{}".into()) };
        (1..=lines)
            .map(|number| line(&entry(number), number, digest(number.checked_sub(ECHO_DISTANCE))))
            .collect()
    }

    fn holes(text: &[u8]) -> Vec<(u64, Loss)> {
        let mut finder = HoleFinder::default();
        scan(&mut &*text, &mut |scanned| finder.see(&scanned)).unwrap();
        finder.finish().0
    }

    fn is_only_of(loss: &Loss, numbers: std::ops::RangeInclusive<u32>) -> bool {
        let keys = numbers.map(|number| KeyDigest::of(&format!("endpoint/{number:016x}"))).collect();
        *loss == Loss { keys, is_anything: false }
    }

    #[test]
    fn a_whole_log_has_no_holes() {
        assert_eq!(holes(log(200).concat().as_bytes()), []);
        assert_eq!(holes(b""), []);
    }

    /// Whatever the damage, even if it joins two lines.
    #[test]
    fn one_damaged_byte_is_about_one_key_also_in_the_last_line() {
        let lines = log(3);
        for number in [1_u32, 2, 3] {
            let from: usize = lines[..number as usize - 1].iter().map(String::len).sum();
            for (at, other) in
                (0..lines[number as usize - 1].len() - 1).flat_map(|at| [(at, 0_u8), (at, b'\n')])
            {
                let mut text = lines.concat().into_bytes();
                text[from + at] = other;
                let found = holes(&text);
                assert_eq!(found.len(), 1, "line {number}, byte {at} is {other}: {found:?}");
                assert_eq!(found[0].0, u64::from(number) - 1);
                assert!(
                    is_only_of(&found[0].1, number..=number),
                    "line {number}, byte {at} is {other}: {found:?}"
                );
            }
        }
    }

    #[test]
    fn a_lost_page_is_known_by_the_lines_behind_it() {
        let lines = log(200);
        for (first, last) in [(1, 1), (10, 40), (70, 133)] {
            let mut text = lines.concat().into_bytes();
            let start: usize = lines[..first - 1].iter().map(String::len).sum();
            let end: usize = lines[..last].iter().map(String::len).sum();
            text[start..end - 1].fill(0);
            let found = holes(&text);
            assert!(is_only_of(&found[0].1, first as u32..=last as u32), "{found:?}");
            // Even without their remains.
            let without = [&lines[..first - 1], &lines[last..]].concat().concat();
            assert!(is_only_of(&holes(without.as_bytes())[0].1, first as u32..=last as u32));
        }
    }

    #[test]
    fn what_nothing_repeats_may_be_about_anything() {
        let lines = log(200);
        let mut text = lines.concat().into_bytes();
        let start: usize = lines[..180].iter().map(String::len).sum();
        let end: usize = lines[..190].iter().map(String::len).sum();
        text[start..end].fill(0);
        let found = holes(&text);
        assert_eq!((found.len(), found[0].0), (1, 180));
        assert!(found[0].1.may_be_of("endpoint/0000000000000001"));
        let zeros = [vec![0; 100], b"\n".to_vec()].concat();
        assert!(holes(&zeros)[0].1.is_anything());
    }

    #[test]
    fn very_many_holes_are_one() {
        let mut lines = log(500);
        lines.iter_mut().step_by(2).for_each(|line| line.replace_range(0..3, "zzz"));
        let found = holes(lines.concat().as_bytes());
        assert_eq!(found.len(), 1);
        assert!(found[0].1.is_anything() && found[0].0 > 200, "{found:?}");
    }
}
