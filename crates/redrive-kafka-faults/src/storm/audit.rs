//! Compares what was produced with what the receiver saw and with the letters in `T.DLQ`.

use std::collections::{BTreeMap, HashMap};
use std::fmt;

use super::flow::{Flow, KEYS};
use super::seen::Attempt;

/// One attempt and three retries.
pub const ATTEMPTS_MAX: usize = 4;

/// A period in which deliveries may have been repeated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    pub from_us: u64,
    pub to_us: u64,
}

/// All the evidence about one flow.
#[derive(Clone, Copy, Debug)]
pub struct Evidence<'a> {
    pub flow: Flow,
    /// Records with numbers below this were acknowledged by the cluster.
    pub produced: u64,
    /// In the order of the answers.
    pub attempts: &'a [Attempt],
    /// The number of each record in `T.DLQ`.
    pub letters: &'a [u64],
    /// Letters that were put back onto the source by hand, after their records were repaired.
    pub put_back: &'a [u64],
    /// Faults that may repeat deliveries.
    pub windows: &'a [Window],
}

/// The findings. All but `produced`, `delivered`, `dead`, `put_back`, `twins`, `repeats` and `repeats_most` must be 0.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StormAudit {
    pub produced: u64,
    pub delivered: u64,
    pub dead: u64,
    pub put_back: u64,
    /// Neither delivered nor dead.
    pub lost: Vec<u64>,
    /// Delivered and dead, although the letter was not put back.
    pub both: Vec<u64>,
    /// Put back by hand and never delivered.
    pub dropped: Vec<u64>,
    /// Letters beyond the first of a record.
    pub twins: u64,
    /// Successful calls beyond the first.
    pub repeats: u64,
    /// Successful calls of the most repeated record, beyond the first.
    pub repeats_most: u64,
    /// Repeats with no fault between the two calls.
    pub unexplained: Vec<u64>,
    /// Records that were attempted before their predecessor of the same key was terminal.
    pub out_of_order: Vec<u64>,
    /// Calls and letters for records that were never produced.
    pub unknown: u64,
}

impl StormAudit {
    pub fn is_good(&self) -> bool {
        let lists = [&self.lost, &self.both, &self.dropped, &self.unexplained, &self.out_of_order];
        lists.iter().all(|list| list.is_empty()) && self.unknown == 0
    }
}

impl fmt::Display for StormAudit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let line = |f: &mut fmt::Formatter<'_>, name: &str, list: &[u64]| {
            let some = list.iter().take(5).map(|number| format!("o-{number}")).collect::<Vec<_>>().join(" ");
            writeln!(f, "  {name:<38}{:>9} {some}", list.len())
        };
        writeln!(f, "  {:<38}{:>9}", "produced", self.produced)?;
        writeln!(f, "  {:<38}{:>9}", "delivered", self.delivered)?;
        writeln!(f, "  {:<38}{:>9}", "dead letters", self.dead)?;
        writeln!(f, "  {:<38}{:>9}", "put back by hand and delivered", self.put_back)?;
        line(f, "lost", &self.lost)?;
        line(f, "delivered and dead", &self.both)?;
        line(f, "put back by hand and dropped", &self.dropped)?;
        line(f, "repeats without a fault", &self.unexplained)?;
        line(f, "out of order by key", &self.out_of_order)?;
        writeln!(f, "  {:<38}{:>9}", "unknown records", self.unknown)?;
        writeln!(f, "  {:<38}{:>9}", "second letters (twins)", self.twins)?;
        let share = self.repeats as f64 * 100.0 / (self.produced as f64).max(1.0);
        let most = self.repeats_most;
        writeln!(
            f,
            "  {:<38}{:>9} ({share:.2} %; one record at most {most} times)",
            "repeated deliveries", self.repeats
        )
    }
}

/// Compares everything.
pub fn audit(evidence: &Evidence<'_>) -> StormAudit {
    let Evidence { produced, attempts, letters, put_back, .. } = *evidence;
    let mut successes: HashMap<u64, Vec<&Attempt>> = HashMap::new();
    for attempt in attempts.iter().filter(|attempt| attempt.succeeded) {
        successes.entry(attempt.number).or_default().push(attempt);
    }
    let mut dead: HashMap<u64, u64> = HashMap::new();
    for letter in letters {
        *dead.entry(*letter).or_default() += 1;
    }
    let is_put_back = |number: &u64| put_back.contains(number);
    let mut found = StormAudit {
        produced,
        delivered: successes.len() as u64,
        dead: dead.len() as u64,
        ..StormAudit::default()
    };
    found.lost = (0..produced).filter(|n| !successes.contains_key(n) && !dead.contains_key(n)).collect();
    found.both = dead.keys().filter(|n| successes.contains_key(n) && !is_put_back(n)).copied().collect();
    found.dropped = put_back.iter().filter(|n| !successes.contains_key(n)).copied().collect();
    found.put_back = (put_back.len() - found.dropped.len()) as u64;
    found.twins = dead.values().map(|letters| letters - 1).sum();
    let called = attempts.iter().map(|attempt| attempt.number);
    found.unknown = called.chain(letters.iter().copied()).filter(|number| *number >= produced).count() as u64;
    for (number, calls) in &successes {
        let repeats = calls.len() as u64 - 1;
        found.repeats += repeats;
        found.repeats_most = found.repeats_most.max(repeats);
        let unexplained = calls.windows(2).filter(|pair| !is_explained(pair[0], pair[1], evidence.windows));
        found.unexplained.extend(unexplained.map(|_| number));
    }
    if evidence.flow.keeps_order() {
        found.out_of_order = out_of_order(attempts, &dead);
    }
    for list in [&mut found.both, &mut found.unexplained] {
        list.sort_unstable();
    }
    found
}

/// Whether a fault lies between two deliveries of the same record.
fn is_explained(earlier: &Attempt, later: &Attempt, windows: &[Window]) -> bool {
    windows.iter().any(|window| window.from_us <= later.arrived_us && earlier.answered_us <= window.to_us)
}

/// Returns records whose first call arrived before their predecessor of the same key had ended: by a success, or, if it
/// died, by as many failures as it has attempts.
fn out_of_order(attempts: &[Attempt], dead: &HashMap<u64, u64>) -> Vec<u64> {
    let mut calls: BTreeMap<u64, Vec<&Attempt>> = BTreeMap::new();
    for attempt in attempts {
        calls.entry(attempt.number).or_default().push(attempt);
    }
    let end_us = |number: u64| -> Option<u64> {
        let calls = calls.get(&number)?;
        let success = calls.iter().filter(|call| call.succeeded).map(|call| call.answered_us).min();
        if !dead.contains_key(&number) {
            return success;
        }
        let mut failures: Vec<u64> =
            calls.iter().filter(|call| !call.succeeded).map(|call| call.answered_us).collect();
        failures.sort_unstable();
        failures.get(ATTEMPTS_MAX - 1).or(failures.last()).copied()
    };
    let overtook = |(number, calls): (&u64, &Vec<&Attempt>)| {
        let before = number.checked_sub(KEYS)?;
        let first = calls.iter().map(|call| call.arrived_us).min()?;
        // A record that never ended counts as lost, not as overtaken.
        (first < end_us(before)?).then_some(*number)
    };
    calls.iter().filter_map(overtook).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(number: u64, at_us: u64, succeeded: bool) -> Attempt {
        Attempt { number, partition: 0, arrived_us: at_us, answered_us: at_us + 5, succeeded }
    }

    fn of<'a>(flow: Flow, produced: u64, attempts: &'a [Attempt], letters: &'a [u64]) -> Evidence<'a> {
        Evidence { flow, produced, attempts, letters, put_back: &[], windows: &[] }
    }

    #[test]
    fn a_record_without_an_end_is_lost() {
        let attempts = [call(0, 10, true), call(1, 20, false)];
        let found = audit(&of(Flow::Orders, 4, &attempts, &[3]));
        assert_eq!((found.lost.clone(), found.delivered, found.dead), (vec![1, 2], 1, 1));
        assert!(!found.is_good());
    }

    #[test]
    fn a_record_must_not_be_delivered_and_dead_unless_it_was_put_back() {
        let attempts = [call(0, 10, true)];
        let evidence = of(Flow::Orders, 1, &attempts, &[0, 0]);
        let found = audit(&evidence);
        assert_eq!((found.both.clone(), found.twins), (vec![0], 1));
        let found = audit(&Evidence { put_back: &[0], ..evidence });
        assert_eq!((found.both.len(), found.put_back, found.is_good()), (0, 1, true));
    }

    #[test]
    fn a_record_that_was_put_back_must_be_delivered() {
        let evidence = of(Flow::Orders, 1, &[], &[0]);
        assert!(audit(&evidence).is_good());
        assert_eq!(audit(&Evidence { put_back: &[0], ..evidence }).dropped, [0]);
    }

    #[test]
    fn a_repeat_needs_a_fault_between_the_two_deliveries() {
        let attempts = [call(0, 10, true), call(0, 100, true)];
        let evidence = of(Flow::Orders, 1, &attempts, &[]);
        let with = |from_us, to_us| audit(&Evidence { windows: &[Window { from_us, to_us }], ..evidence });
        assert_eq!((with(40, 60).repeats, with(40, 60).unexplained.len()), (1, 0));
        assert_eq!(with(101, 200).unexplained, [0]);
        assert_eq!(with(1, 14).unexplained, [0]);
        assert_eq!(audit(&evidence).unexplained, [0]);
    }

    #[test]
    fn a_record_that_is_tried_before_the_end_of_the_one_before_it_is_out_of_order() {
        let second = KEYS;
        let early = [call(0, 10, false), call(second, 20, true), call(0, 30, true)];
        let produced = KEYS + 1;
        assert_eq!(audit(&of(Flow::Accounts, produced, &early, &[])).out_of_order, [second]);
        assert!(audit(&of(Flow::Orders, produced, &early, &[])).out_of_order.is_empty());
        let kept = [call(0, 10, false), call(0, 30, true), call(second, 40, true), call(0, 50, true)];
        assert!(audit(&of(Flow::Accounts, produced, &kept, &[])).out_of_order.is_empty());
    }

    #[test]
    fn a_dead_record_ends_with_its_last_attempt() {
        let second = KEYS;
        let mut attempts: Vec<Attempt> = (0..4).map(|n| call(0, 10 + n * 10, false)).collect();
        attempts.push(call(second, 46, true));
        let letters = [0];
        assert!(audit(&of(Flow::Accounts, KEYS + 1, &attempts, &letters)).out_of_order.is_empty());
        attempts[4].arrived_us = 44;
        assert_eq!(audit(&of(Flow::Accounts, KEYS + 1, &attempts, &letters)).out_of_order, [second]);
    }

    #[test]
    fn what_nobody_produced_is_found() {
        let attempts = [call(0, 10, true), call(7, 10, true)];
        assert_eq!(audit(&of(Flow::Orders, 1, &attempts, &[9])).unknown, 2);
    }
}
