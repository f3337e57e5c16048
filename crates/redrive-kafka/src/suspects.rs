//! Who may have killed a process, as far as the notes of a partition tell. No I/O.
//!
//! After an end that was not in order everything is a suspect that may have been handed out by then and is not done. Who
//! was running alone at the time is named in the note, with how often that happened before: this is all there is to know,
//! so it survives a machine without its disk.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use redrive::engine::Suspect;
use redrive_core::Time;

use crate::lane::LaneKind;
use crate::progress::CommitNote;

/// How many that ran alone are named in a note. There is hardly ever more than one.
const NAMED_MAX: usize = 16;

/// How often processes ended while somebody ran, and when; in milliseconds, 0 where nobody has looked at a clock yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Crashes {
    pub count: u32,
    pub first: u64,
    pub last: u64,
}

/// Those that may have been handed out when the last owner died.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
enum Region {
    #[default]
    Nobody,
    /// Of a source, offsets below this.
    Below(u64),
    /// Of a tier, what was due by then.
    DueBy(u64),
    /// Those that ran, by offset; others did not.
    These(BTreeSet<u64>),
}

#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Suspected {
    region: Region,
    /// What was due by then is reserved.
    until: Option<u64>,
    /// The run that has a file of what ran.
    by: Option<u64>,
    /// Whoever ran alone, by offset.
    crashed: BTreeMap<u64, Crashes>,
    /// The one that was announced when the last owner died, and has one crash more for it.
    blamed: Option<u64>,
    /// The one that is announced.
    alone: Option<u64>,
    /// Counts what has changed that a note tells, and how much of it is committed.
    changes: u64,
    kept: u64,
}

impl Suspected {
    /// What the note of the last owner makes of the records that are not done.
    pub fn after(kind: LaneKind, note: &CommitNote) -> Self {
        let region = match kind {
            _ if note.clean => Region::Nobody,
            LaneKind::Source => Region::Below(note.taken),
            LaneKind::Tier | LaneKind::Replay => note.until.map_or(Region::Nobody, Region::DueBy),
        };
        let mut crashed: BTreeMap<u64, Crashes> = note.crashed.iter().copied().collect();
        if let Some(alone) = note.alone {
            let before = crashed.get(&alone).copied().unwrap_or(Crashes { count: 1, first: 0, last: 0 });
            crashed.insert(alone, Crashes { count: before.count.saturating_add(1), last: 0, ..before });
        }
        let until = if let Region::DueBy(due) = region { Some(due) } else { None };
        Self { region, until, by: note.by, crashed, blamed: note.alone, ..Self::default() }
    }

    /// The run whose file would say more.
    pub fn by(&self) -> Option<u64> {
        self.by
    }

    /// Exactly these ran and did not come back. The next note is of another run, and has to say so before that one's file
    /// is needed.
    pub fn narrow(&mut self, ran: BTreeSet<u64>) {
        // It came back before the process died, and no note had told so yet.
        if let Some(innocent) = self.blamed.take().filter(|blamed| !ran.contains(blamed)) {
            self.crashed.remove(&innocent);
        }
        self.region = Region::These(ran);
        self.changes += 1;
    }

    /// Whether it is known exactly who is suspected, so that a list of what runs from now on tells the same.
    pub fn is_exact(&self) -> bool {
        matches!(self.region, Region::Nobody | Region::These(_))
    }

    /// Those that are known to have run.
    pub fn ran(&self) -> impl Iterator<Item = u64> {
        let these = if let Region::These(ran) = &self.region { Some(ran.iter().copied()) } else { None };
        these.into_iter().flatten()
    }

    /// Offsets below this may have been handed out by somebody else.
    pub fn below(&self) -> u64 {
        match &self.region {
            Region::Below(below) => *below,
            Region::These(ran) => ran.last().map_or(0, |last| last + 1),
            Region::Nobody | Region::DueBy(_) => 0,
        }
    }

    /// What was due by then may have been handed out by somebody else.
    pub fn due_by(&self) -> Option<u64> {
        self.until
    }

    /// What is known of a record that is handed out.
    pub fn of(&mut self, offset: u64, due: Option<Time>, now: Time) -> Option<Suspect> {
        let is_suspect = match &self.region {
            Region::Nobody => false,
            Region::Below(below) => offset < *below,
            Region::DueBy(by) => due.unwrap_or_default().as_millis() <= *by,
            Region::These(ran) => ran.contains(&offset),
        };
        let now = now.as_millis();
        let Some(known) = self.crashed.get_mut(&offset) else {
            let at = Some(Time::from_millis(now));
            return is_suspect.then_some(Suspect { crashes: 1, first_crash: at, last_crash: at });
        };
        for time in [&mut known.first, &mut known.last] {
            if *time == 0 {
                *time = now;
            }
        }
        let time = |ms: u64| Some(Time::from_millis(ms));
        Some(Suspect { crashes: known.count, first_crash: time(known.first), last_crash: time(known.last) })
    }

    /// It is about to run, and whoever was announced before it is not. Whether that is committed.
    pub fn announce(&mut self, offset: u64, now: Time) -> bool {
        if self.alone != Some(offset) {
            let at = now.as_millis();
            self.crashed.entry(offset).or_insert(Crashes { count: 1, first: at, last: at });
            self.alone = Some(offset);
            self.changes += 1;
        }
        self.kept == self.changes
    }

    /// Nobody runs alone: it came back unstarted, or another one is announced in another partition.
    pub fn recall(&mut self) {
        self.changes += u64::from(self.alone.take().is_some());
    }

    /// A record came back, or nobody needs it any more. Whether it was known by name.
    pub fn settled(&mut self, offset: u64) -> bool {
        let had_run = if let Region::These(ran) = &mut self.region { ran.remove(&offset) } else { false };
        let had_crashed = self.crashed.remove(&offset).is_some();
        let was_named = had_crashed || self.alone == Some(offset);
        if was_named {
            self.alone = self.alone.filter(|alone| *alone != offset);
            self.changes += 1;
        }
        had_run || was_named
    }

    pub fn is_alone(&self, offset: u64) -> bool {
        self.alone == Some(offset)
    }

    /// Whether a note has to be committed soon: somebody waits for it.
    pub fn has_news(&self) -> bool {
        self.changes > self.kept
    }

    pub fn changes(&self) -> u64 {
        self.changes
    }

    pub fn committed(&mut self, changes: u64) {
        self.kept = self.kept.max(changes);
    }

    /// The words of a note.
    pub fn write(&self, text: &mut String) {
        let mut separator = " crashed=";
        for (offset, Crashes { count, first, last }) in self.crashed.iter().take(NAMED_MAX) {
            let _ = write!(text, "{separator}{offset}:{count}:{first}:{last}");
            separator = ",";
        }
        if let Some(alone) = self.alone {
            let _ = write!(text, " alone={alone}");
        }
    }
}

/// The value of `crashed=`. What is no record of this kind says nothing.
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
    use redrive::engine::completion::CompletionSet;

    use super::*;
    use crate::progress::{Standing, note};

    const NOW: Time = Time::from_millis(5_000);

    /// What the next owner knows if this one dies now.
    fn died(suspected: &Suspected, taken: u64) -> Suspected {
        let standing = Standing { clean: false, taken, suspected: Some(suspected), ..Standing::default() };
        let (text, _) = note(&standing, &CompletionSet::starting_at(3));
        Suspected::after(LaneKind::Source, &CommitNote::read(&text, 3))
    }

    fn crashes(suspected: &mut Suspected, offset: u64) -> Option<u32> {
        suspected.of(offset, None, NOW).map(|suspect| suspect.crashes)
    }

    #[test]
    fn three_lives_of_a_pill() {
        let mut second = died(&Suspected::default(), 10);
        assert_eq!([9, 10].map(|offset| crashes(&mut second, offset)), [Some(1), None]);
        assert!(!second.announce(7, NOW), "not before it is committed");
        second.committed(second.changes());
        assert!(second.announce(7, NOW));
        let mut third = died(&second, 20);
        assert_eq!([7, 8, 19].map(|offset| crashes(&mut third, offset)), [Some(2), Some(1), Some(1)]);
        let mut nothing_ran = died(&third, 20);
        assert_eq!(crashes(&mut nothing_ran, 7), Some(2), "a process that announced nobody adds nothing");
        third.announce(7, NOW);
        let mut fourth = died(&third, 20);
        let pill = fourth.of(7, None, Time::from_millis(9_000)).unwrap();
        assert_eq!((pill.crashes, pill.first_crash), (3, Some(NOW)));
        assert_eq!(pill.last_crash, Some(Time::from_millis(9_000)));
        assert!(fourth.settled(7) && crashes(&mut died(&fourth, 20), 7) == Some(1));
    }

    /// Somebody ends processes from outside just after a suspect has come back and before that is committed.
    #[test]
    fn who_came_back_is_not_blamed_for_what_happened_after() {
        let mut second = died(&Suspected::default(), 10);
        second.announce(7, NOW);
        let mut by_the_note = died(&second, 20);
        assert_eq!(crashes(&mut by_the_note, 7), Some(2));
        let mut by_the_file = died(&second, 20);
        by_the_file.narrow(BTreeSet::from([8]));
        assert_eq!([7, 8, 9].map(|offset| crashes(&mut by_the_file, offset)), [None, Some(1), None]);
        let mut did_not_come_back = died(&second, 20);
        did_not_come_back.narrow(BTreeSet::from([7, 8]));
        assert_eq!([7, 8].map(|offset| crashes(&mut did_not_come_back, offset)), [Some(2), Some(1)]);
    }

    #[test]
    fn one_is_announced_at_a_time() {
        let mut suspected = died(&Suspected::default(), 10);
        suspected.announce(7, NOW);
        suspected.announce(8, NOW);
        let mut next = died(&suspected, 10);
        assert_eq!([7, 8].map(|offset| crashes(&mut next, offset)), [Some(1), Some(2)]);
        suspected.recall();
        assert_eq!(crashes(&mut died(&suspected, 10), 8), Some(1));
    }

    #[test]
    fn of_a_tier_only_what_was_due_can_have_run() {
        let note = CommitNote { until: Some(400), taken: 9, ..CommitNote::default() };
        let mut suspected = Suspected::after(LaneKind::Tier, &note);
        let mut of = |due: u64| suspected.of(3, Some(Time::from_millis(due)), NOW).is_some();
        assert!(of(400) && !of(401));
    }

    #[test]
    fn damaged_words_say_nothing() {
        assert_eq!(read_crashed("x,1:2,7:2:5:6,9:99999999999:1:1").len(), 1);
    }
}
