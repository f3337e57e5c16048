//! Which messages may have killed a process, according to the commit notes of a partition. No I/O.
//!
//! After an unclean end, every message is a suspect that may have been handed out by then and is not done. The note
//! names the messages that were announced to run alone, and how often processes died with them before. That is all
//! there is to know, so it survives even the loss of the machine's disk.

use std::collections::{BTreeMap, BTreeSet};

use redrive::internal::engine::Suspect;
use redrive_core::Time;

use crate::commit::progress::CommitNote;
use crate::crash::crashes::{Crashes, Named};
use crate::topics::LaneKind;

/// The messages that may have been handed out when the last owner died.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
enum Region {
    #[default]
    Nobody,
    /// For a source: offsets below this.
    Below(u64),
    /// For a tier: messages due by this time.
    DueBy(u64),
    /// Exactly these offsets ran.
    These(BTreeSet<u64>),
}

#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Suspected {
    region: Region,
    /// Messages due by this time are reserved.
    until: Option<u64>,
    /// The run whose file lists what ran, and the run of the last owner.
    by: Option<u64>,
    of: Option<u64>,
    /// Messages that ran alone, by offset.
    crashed: BTreeMap<u64, Crashes>,
    /// Messages that were announced when the last owner died; each was charged one crash for it.
    implicated: BTreeSet<u64>,
    /// Messages that are announced; they run one after the other.
    alone: BTreeSet<u64>,
    /// Numbers of changes to the note: the latest one, the latest that a caller waits for, the latest that is
    /// committed.
    changes: u64,
    awaited: u64,
    kept: u64,
}

impl Suspected {
    /// Derives the suspects among the unfinished records from the note of the last owner.
    pub fn after(kind: LaneKind, note: &CommitNote) -> Self {
        let region = match kind {
            _ if note.clean => Region::Nobody,
            LaneKind::Source => Region::Below(note.taken),
            LaneKind::Tier | LaneKind::Replay => note.until.map_or(Region::Nobody, Region::DueBy),
        };
        let mut crashed: BTreeMap<u64, Crashes> = note.crashed.iter().copied().collect();
        for alone in &note.alone {
            let before = crashed.get(alone).copied().unwrap_or(Crashes { count: 1, first: 0, last: 0 });
            crashed.insert(*alone, Crashes { count: before.count.saturating_add(1), last: 0, ..before });
        }
        let until = if let Region::DueBy(due) = region { Some(due) } else { None };
        Self {
            region,
            until,
            by: note.by,
            of: note.of,
            crashed,
            implicated: note.alone.clone(),
            ..Self::default()
        }
    }

    /// Returns the run whose file may say more.
    pub fn by(&self) -> Option<u64> {
        self.by
    }

    /// Returns the run of the last owner.
    pub fn of_run(&self) -> Option<u64> {
        self.of
    }

    /// For a partition that was lost and returns to the same process, which has not died: the suspects stay the same,
    /// and none runs alone.
    #[must_use]
    pub fn of_the_living(self) -> Self {
        let nobody = BTreeSet::new();
        Self { alone: nobody.clone(), implicated: nobody, changes: 1, awaited: 0, kept: 0, ..self }
    }

    /// Narrows the suspects to the messages that ran and did not come back; of the announced ones only `alone` was
    /// running. The next note names another run, so it has to say this before the old file stops being consulted.
    pub fn narrow(&mut self, ran: BTreeSet<u64>, alone: Option<u64>) {
        for innocent in std::mem::take(&mut self.implicated).into_iter().filter(|one| Some(*one) != alone) {
            // It came back before the process died, or its turn had not come.
            match self.crashed.get_mut(&innocent) {
                Some(crashes) if crashes.count > 2 && ran.contains(&innocent) => crashes.count -= 1,
                _ => drop(self.crashed.remove(&innocent)),
            }
        }
        self.region = Region::These(ran);
        self.changed(true);
    }

    /// Handles an end of the last owner that came from outside: no crash is charged for it. A message that only shared
    /// a crash with everything else that ran is cleared; one with crashes of its own keeps them.
    pub fn ended_from_outside(&mut self, is_done: impl Fn(u64) -> bool) {
        for announced in std::mem::take(&mut self.implicated) {
            match self.crashed.get_mut(&announced) {
                Some(crashes) if crashes.count > 2 => crashes.count -= 1,
                _ => drop(self.crashed.remove(&announced)),
            }
        }
        self.region = Region::These(self.crashed.keys().copied().filter(|at| !is_done(*at)).collect());
        self.changed(true);
    }

    fn changed(&mut self, awaited: bool) {
        self.changes += 1;
        if awaited {
            self.awaited = self.changes;
        }
    }

    /// Whether the suspects are known exactly, so that a list of what runs from now on is exact too.
    pub fn is_exact(&self) -> bool {
        matches!(self.region, Region::Nobody | Region::These(_))
    }

    /// Returns the offsets that are known to have run.
    pub fn ran(&self) -> impl Iterator<Item = u64> {
        let these = if let Region::These(ran) = &self.region { Some(ran.iter().copied()) } else { None };
        these.into_iter().flatten()
    }

    /// Returns the offset below which an earlier owner may have handed out messages.
    pub fn below(&self) -> u64 {
        match &self.region {
            Region::Below(below) => *below,
            Region::These(ran) => ran.last().map_or(0, |last| last + 1),
            Region::Nobody | Region::DueBy(_) => 0,
        }
    }

    /// Returns the due time up to which an earlier owner may have handed out messages.
    pub fn due_by(&self) -> Option<u64> {
        self.until
    }

    /// Returns what is known about a record that is handed out, if it is a suspect.
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

    /// Announces that these are about to run, one after the other, instead of those announced before. A caller waits
    /// until that is committed.
    pub fn announce(&mut self, next: BTreeSet<u64>, now: Time) {
        if next == self.alone {
            return;
        }
        let at = now.as_millis();
        self.alone = next;
        self.crashed.retain(|offset, crashes| crashes.count > 1 || self.alone.contains(offset));
        for offset in &self.alone {
            self.crashed.entry(*offset).or_insert(Crashes { count: 1, first: at, last: at });
        }
        self.changed(true);
    }

    /// Notes that it came back unstarted, or that its run was given up.
    pub fn take_turn_back(&mut self, offset: u64) {
        if self.alone.remove(&offset) {
            self.changed(false);
        }
    }

    /// Takes back the announcement, because suspects of other partitions run next.
    pub fn recall(&mut self) {
        if !self.alone.is_empty() {
            self.alone.clear();
            self.changed(true);
        }
    }

    /// Notes that a record came back, or is not needed any more. Returns whether it was suspected individually.
    pub fn settled(&mut self, offset: u64) -> bool {
        let had_run = if let Region::These(ran) = &mut self.region { ran.remove(&offset) } else { false };
        let crashes = self.crashed.remove(&offset);
        let was_named = self.alone.remove(&offset) || crashes.is_some();
        if was_named {
            // All others wait for the end of an exclusive run.
            self.changed(crashes.is_some_and(|crashes| crashes.count > 1));
        }
        had_run || was_named
    }

    pub fn is_announced(&self, offset: u64) -> bool {
        self.alone.contains(&offset)
    }

    /// Whether there is something to commit.
    pub fn has_news(&self) -> bool {
        self.changes > self.kept
    }

    /// Whether a caller waits for a change to be committed.
    pub fn is_awaited(&self) -> bool {
        self.awaited > self.kept
    }

    pub fn changes(&self) -> u64 {
        self.changes
    }

    pub fn committed(&mut self, changes: u64) {
        self.kept = self.kept.max(changes);
    }

    /// Returns the messages that the last note of an owner names: no message that runs or is announced has killed a
    /// process.
    pub fn named_at_end(&self) -> Named<'_> {
        static NOBODY: BTreeSet<u64> = BTreeSet::new();
        Named { crashed: &self.crashed, alone: &NOBODY }
    }

    /// Returns the messages that a note names.
    pub fn named(&self) -> Named<'_> {
        Named { crashed: &self.crashed, alone: &self.alone }
    }
}

#[cfg(test)]
mod tests {
    use redrive::internal::engine::completion::CompletionSet;

    use super::*;
    use crate::commit::progress::{CommitStanding, note};

    const NOW: Time = Time::from_millis(5_000);

    /// Returns what the next owner knows if this one dies now.
    fn died(suspected: &Suspected, taken: u64) -> Suspected {
        let standing = CommitStanding {
            clean: false,
            taken,
            named: Some(suspected.named()),
            ..CommitStanding::default()
        };
        let (text, _) = note(&standing, &CompletionSet::starting_at(3));
        Suspected::after(LaneKind::Source, &CommitNote::read(&text, 3))
    }

    fn announce(suspected: &mut Suspected, next: &[u64]) {
        suspected.announce(next.iter().copied().collect(), NOW);
    }

    fn crashes(suspected: &mut Suspected, offset: u64) -> Option<u32> {
        suspected.of(offset, None, NOW).map(|suspect| suspect.crashes)
    }

    #[test]
    fn three_lives_of_a_pill() {
        let mut second = died(&Suspected::default(), 10);
        assert_eq!([9, 10].map(|offset| crashes(&mut second, offset)), [Some(1), None]);
        announce(&mut second, &[7]);
        assert!(second.is_awaited(), "not before it is committed");
        second.committed(second.changes());
        assert!(second.is_announced(7) && !second.is_awaited());
        let mut third = died(&second, 20);
        assert_eq!([7, 8, 19].map(|offset| crashes(&mut third, offset)), [Some(2), Some(1), Some(1)]);
        let mut nothing_ran = died(&third, 20);
        assert_eq!(crashes(&mut nothing_ran, 7), Some(2), "a process that announced no message adds nothing");
        announce(&mut third, &[7]);
        let mut fourth = died(&third, 20);
        let pill = fourth.of(7, None, Time::from_millis(9_000)).unwrap();
        assert_eq!((pill.crashes, pill.first_crash), (3, Some(NOW)));
        assert_eq!(pill.last_crash, Some(Time::from_millis(9_000)));
        assert!(fourth.settled(7) && crashes(&mut died(&fourth, 20), 7) == Some(1));
    }

    /// Covers processes that are killed from outside just after a suspect has come back and before that is committed.
    #[test]
    fn who_came_back_is_not_suspected_of_what_happened_after() {
        let mut second = died(&Suspected::default(), 10);
        announce(&mut second, &[7]);
        let mut by_the_note = died(&second, 20);
        assert_eq!(crashes(&mut by_the_note, 7), Some(2));
        let mut by_the_file = died(&second, 20);
        by_the_file.narrow(BTreeSet::from([8]), None);
        assert_eq!([7, 8, 9].map(|offset| crashes(&mut by_the_file, offset)), [None, Some(1), None]);
        let mut did_not_come_back = died(&second, 20);
        did_not_come_back.narrow(BTreeSet::from([7, 8]), Some(7));
        assert_eq!([7, 8].map(|offset| crashes(&mut did_not_come_back, offset)), [Some(2), Some(1)]);
    }

    #[test]
    fn an_end_from_outside_adds_no_crash() {
        let mut second = died(&Suspected::default(), 10);
        announce(&mut second, &[7]);
        let mut shared = died(&second, 20);
        shared.ended_from_outside(|_| false);
        assert_eq!([7, 8].map(|offset| crashes(&mut shared, offset)), [None, None]);
        let mut third = died(&second, 20);
        announce(&mut third, &[7]);
        let mut own = died(&third, 20);
        own.ended_from_outside(|_| false);
        assert_eq!([7, 8].map(|offset| crashes(&mut own, offset)), [Some(2), None]);
        assert!(own.is_exact() && own.is_awaited());
    }

    #[test]
    fn whoever_was_announced_before_has_had_its_turn() {
        let mut suspected = died(&Suspected::default(), 10);
        announce(&mut suspected, &[7]);
        announce(&mut suspected, &[8]);
        let mut next = died(&suspected, 10);
        assert_eq!([7, 8].map(|offset| crashes(&mut next, offset)), [Some(1), Some(2)]);
        suspected.recall();
        assert_eq!(crashes(&mut died(&suspected, 10), 8), Some(1));
    }

    #[test]
    fn those_that_were_announced_together_share_a_crash_unless_it_is_known_who_ran() {
        let mut suspected = died(&Suspected::default(), 10);
        announce(&mut suspected, &[6, 7, 8]);
        suspected.settled(6);
        assert!(suspected.has_news() && !died(&suspected, 10).is_announced(7));
        let mut by_the_note = died(&suspected, 10);
        assert_eq!([6, 7, 8].map(|offset| crashes(&mut by_the_note, offset)), [Some(1), Some(2), Some(2)]);
        announce(&mut by_the_note, &[7]);
        let mut quarantined = died(&by_the_note, 10);
        assert_eq!([7, 8].map(|offset| crashes(&mut quarantined, offset)), [Some(3), Some(2)]);
        let mut by_the_file = died(&suspected, 10);
        by_the_file.narrow(BTreeSet::from([7, 8]), Some(8));
        assert_eq!([6, 7, 8].map(|offset| crashes(&mut by_the_file, offset)), [None, Some(1), Some(2)]);
        announce(&mut by_the_file, &[8]);
        let mut before_it_ran = died(&by_the_file, 10);
        before_it_ran.narrow(BTreeSet::from([7, 8]), None);
        assert_eq!([7, 8].map(|offset| crashes(&mut before_it_ran, offset)), [Some(1), Some(2)]);
    }

    #[test]
    fn who_lost_its_partitions_and_lives_suspects_nothing() {
        let mut suspected = died(&Suspected::default(), 10);
        announce(&mut suspected, &[7, 8]);
        suspected.settled(9);
        let again = suspected.clone().of_the_living();
        assert!(!again.is_announced(7) && again.has_news() && !again.is_awaited());
        let mut again = again;
        assert_eq!([7, 8, 12].map(|offset| crashes(&mut again, offset)), [Some(1), Some(1), None]);
    }

    #[test]
    fn of_a_tier_only_what_was_due_can_have_run() {
        let note = CommitNote { until: Some(400), taken: 9, ..CommitNote::default() };
        let mut suspected = Suspected::after(LaneKind::Tier, &note);
        let mut of = |due: u64| suspected.of(3, Some(Time::from_millis(due)), NOW).is_some();
        assert!(of(400) && !of(401));
    }
}
