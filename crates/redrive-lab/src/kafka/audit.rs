//! Checks that every order ended exactly once, and that every repetition is explained by an interruption.
//!
//! The witnesses are the trace of the handlers and the records of the dead-letter topic, not the engine's counters.

use std::fmt;

use super::letters::LetterRecord;
use super::trace::Tried;
use crate::fate::Fate;
use crate::order;

/// How many missing or doubtful orders are named.
const NAMED_MAX: usize = 10;

/// What is known about one order.
#[derive(Clone, Copy, Debug, Default)]
struct SeenRecords {
    attempts: u8,
    successes: u8,
    letters: u8,
    /// Milliseconds since the beginning, at least 1; 0 means never.
    first_ms: u32,
    last_ms: u32,
    success_ms: u32,
}

/// Collects attempts and letters, then judges.
#[derive(Debug)]
pub struct Audit {
    orders: Vec<SeenRecords>,
    begun_us: u64,
    /// Kills, rebalances and restarts, which may cause repetitions. Ascending, in milliseconds.
    interruptions_ms: Vec<u32>,
    attempts_max: u8,
    verdict: AuditVerdict,
    repeat_ages_ms: Vec<u32>,
}

/// The result of an audit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuditVerdict {
    pub produced: u64,
    pub succeeded: u64,
    pub dead: u64,
    pub attempts: u64,
    /// Orders that have not ended.
    pub missing: u64,
    /// Orders with a success and a letter.
    pub both: u64,
    /// Poison that succeeded, or other orders that died.
    pub wrong: u64,
    /// Attempts and letters of orders that were never produced.
    pub strangers: u64,
    pub interruptions: u64,
    /// Successes of orders that had already succeeded.
    pub repeats: u64,
    /// Repeats by a twin: an interruption before the first success made a second copy of the order.
    pub repeats_of_twins: u64,
    /// Repeats without an interruption that explains them.
    pub repeats_unexplained: u64,
    /// The longest time between a success and the interruption that caused its repetition.
    pub repeat_age_max_ms: u32,
    pub repeat_age_p50_ms: u32,
    /// Additional letters of an order that already has one.
    pub twin_letters: u64,
    pub attempts_of_one_max: u8,
    /// Orders with more attempts than their budget plus one for each interruption during their lifetime.
    pub over_budget: u64,
    /// Attempts and letters whose own attempt count exceeds the budget.
    pub count_too_high: u64,
    /// A few of the orders that are missing, wrong or over budget.
    pub named: Vec<u64>,
}

impl Audit {
    /// Audits orders `0..produced`; `attempts_max` is the budget of each.
    pub fn new(produced: u64, attempts_max: u8, begun_us: u64, interruptions_us: &[u64]) -> Self {
        let mut interruptions_ms: Vec<u32> =
            interruptions_us.iter().map(|at| after_ms(begun_us, *at)).collect();
        interruptions_ms.sort_unstable();
        Self {
            orders: vec![SeenRecords::default(); produced as usize],
            begun_us,
            verdict: AuditVerdict {
                produced,
                interruptions: interruptions_ms.len() as u64,
                ..AuditVerdict::default()
            },
            interruptions_ms,
            attempts_max,
            repeat_ages_ms: Vec::new(),
        }
    }

    /// Records an attempt. Attempts of the same order must be recorded in order.
    pub fn tried(&mut self, tried: Tried) {
        let at_ms = after_ms(self.begun_us, tried.at_us);
        let Some(seen) = self.orders.get_mut(tried.order as usize) else {
            self.verdict.strangers += 1;
            return;
        };
        self.verdict.attempts += 1;
        self.verdict.count_too_high += u64::from(tried.attempt > self.attempts_max);
        seen.attempts = seen.attempts.saturating_add(1);
        if seen.first_ms == 0 {
            seen.first_ms = at_ms;
        }
        seen.last_ms = at_ms;
        if !tried.succeeded {
            return;
        }
        if seen.successes > 0 {
            self.verdict.repeats += 1;
            let next = self.interruptions_ms.partition_point(|at| *at < seen.success_ms);
            match self.interruptions_ms.get(next) {
                Some(interrupted) if *interrupted <= at_ms => {
                    self.repeat_ages_ms.push(interrupted - seen.success_ms);
                }
                // An earlier interruption made a twin, and both copies ended.
                _ if next > 0 && self.interruptions_ms[next - 1] >= seen.first_ms => {
                    self.verdict.repeats_of_twins += 1;
                }
                _ => self.verdict.repeats_unexplained += 1,
            }
        }
        seen.successes = seen.successes.saturating_add(1);
        seen.success_ms = at_ms;
    }

    pub fn letter(&mut self, letter: LetterRecord) {
        let Some(seen) = self.orders.get_mut(letter.order as usize) else {
            self.verdict.strangers += 1;
            return;
        };
        self.verdict.count_too_high += u64::from(letter.attempts > u32::from(self.attempts_max));
        self.verdict.twin_letters += u64::from(seen.letters > 0);
        seen.letters = seen.letters.saturating_add(1);
    }

    /// Judges every order by the fates of the workload.
    pub fn verdict(self) -> AuditVerdict {
        self.verdict_by(|i| Fate::of(&order::id(i)))
    }

    pub fn verdict_by(mut self, fate: impl Fn(u64) -> Fate) -> AuditVerdict {
        let verdict = &mut self.verdict;
        for (i, seen) in self.orders.iter().enumerate() {
            let poison = fate(i as u64) == Fate::Poison;
            let (succeeded, dead) = (seen.successes > 0, seen.letters > 0);
            verdict.succeeded += u64::from(succeeded && !dead);
            verdict.dead += u64::from(dead && !succeeded);
            verdict.both += u64::from(succeeded && dead);
            verdict.missing += u64::from(!succeeded && !dead);
            let wrong = succeeded && poison || dead && !poison;
            verdict.wrong += u64::from(wrong);
            verdict.attempts_of_one_max = verdict.attempts_of_one_max.max(seen.attempts);
            let from = self.interruptions_ms.partition_point(|at| *at < seen.first_ms);
            let to = self.interruptions_ms.partition_point(|at| *at <= seen.last_ms);
            let over = usize::from(seen.attempts) > usize::from(self.attempts_max) + to.saturating_sub(from);
            verdict.over_budget += u64::from(over);
            if (wrong || over || !succeeded && !dead) && verdict.named.len() < NAMED_MAX {
                verdict.named.push(i as u64);
            }
        }
        self.repeat_ages_ms.sort_unstable();
        verdict.repeat_age_max_ms = self.repeat_ages_ms.last().copied().unwrap_or(0);
        verdict.repeat_age_p50_ms =
            self.repeat_ages_ms.get(self.repeat_ages_ms.len() / 2).copied().unwrap_or(0);
        self.verdict
    }
}

impl AuditVerdict {
    /// Checks `succeeded + dead == produced` by id: each order ended as its fate demands, and none was invented.
    pub fn all_ended_once(&self) -> Result<(), String> {
        let adds_up = self.succeeded + self.dead == self.produced;
        let clean = self.missing + self.both + self.wrong + self.strangers + self.count_too_high == 0;
        if adds_up && clean { Ok(()) } else { Err(self.to_string()) }
    }
}

impl fmt::Display for AuditVerdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { produced, succeeded, dead, attempts, missing, both, wrong, strangers, .. } = self;
        write!(
            f,
            "{produced} produced = {succeeded} succeeded + {dead} dead ({missing} missing, {both} both, {wrong} wrong, \
             {strangers} strangers); {attempts} attempts, at most {} of one, {} over budget, {} counted too high; {} interruptions: \
             {} repeated successes ({} of twins, {} unexplained, the others done {} ms before it in the median, {} ms at most), {} twin letters",
            self.attempts_of_one_max,
            self.over_budget,
            self.count_too_high,
            self.interruptions,
            self.repeats,
            self.repeats_of_twins,
            self.repeats_unexplained,
            self.repeat_age_p50_ms,
            self.repeat_age_max_ms,
            self.twin_letters,
        )?;
        if self.named.is_empty() { Ok(()) } else { write!(f, "; look at orders {:?}", self.named) }
    }
}

/// Milliseconds since the beginning, counted from 1, because 0 means never.
fn after_ms(begun_us: u64, at_us: u64) -> u32 {
    u32::try_from(at_us.saturating_sub(begun_us) / 1000 + 1).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn try_at(audit: &mut Audit, order: u64, attempt: u8, succeeded: bool, at_ms: u64) {
        audit.tried(Tried { order, attempt, succeeded, at_us: at_ms * 1000 });
    }

    fn fate(i: u64) -> Fate {
        if i == 1 { Fate::Poison } else { Fate::Success }
    }

    #[test]
    fn ends_add_up_by_id() {
        let mut audit = Audit::new(3, 4, 0, &[]);
        try_at(&mut audit, 0, 1, true, 5);
        (1..=4).for_each(|attempt| try_at(&mut audit, 1, attempt, false, 5));
        audit.letter(LetterRecord { order: 1, attempts: 4, crashes: 0, is_pill: false });
        let verdict = audit.verdict_by(fate);
        assert_eq!((verdict.succeeded, verdict.dead, verdict.missing), (1, 1, 1));
        assert!(verdict.all_ended_once().unwrap_err().contains("1 missing"), "order 2 has no end");
        assert_eq!((verdict.named.as_slice(), verdict.over_budget), ([2].as_slice(), 0));
    }

    #[test]
    fn a_poison_that_succeeds_and_a_good_one_that_dies_are_wrong() {
        let mut audit = Audit::new(2, 4, 0, &[]);
        try_at(&mut audit, 1, 1, true, 5);
        audit.letter(LetterRecord { order: 0, attempts: 4, crashes: 0, is_pill: false });
        let verdict = audit.verdict_by(fate);
        assert_eq!((verdict.wrong, verdict.both), (2, 0));
        assert!(verdict.all_ended_once().is_err());
    }

    #[test]
    fn a_repeat_needs_an_interruption_after_its_success() {
        let mut audit = Audit::new(2, 4, 0, &[100_000]);
        for (order, first) in [(0, 40), (0, 150), (1, 120), (1, 150)] {
            try_at(&mut audit, order, 1, true, first);
        }
        let verdict = audit.verdict_by(|_| Fate::Success);
        assert_eq!((verdict.repeats, verdict.repeats_unexplained), (2, 1));
        assert_eq!((verdict.repeat_age_max_ms, verdict.succeeded), (60, 2));
    }

    #[test]
    fn each_interruption_in_its_time_allows_one_more_attempt() {
        let over = |interruptions: &[u64]| {
            let mut audit = Audit::new(1, 4, 0, interruptions);
            (1..=5).for_each(|attempt| try_at(&mut audit, 0, attempt, attempt == 5, u64::from(attempt) * 10));
            audit.verdict_by(|_| Fate::Success).over_budget
        };
        assert_eq!((over(&[]), over(&[25_000]), over(&[70_000])), (1, 0, 1));
    }
}
