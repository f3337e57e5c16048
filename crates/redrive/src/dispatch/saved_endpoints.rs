//! Serializes the cooldowns of endpoints so that they survive a restart: one line of the reminder for each.
//!
//! The numbers of endpoints come from the sink, and are only valid for a sink that numbers the same way. So each line
//! names the numbering, and lines with a different one are skipped.

use std::fmt::Write as _;
use std::time::Duration;

use redrive_core::Time;
use redrive_core::endpoints::{Cooldown, Unit};

/// The first word of a line. A different word means a different version, which is not read.
const COOLDOWN: &str = "cool1";
/// Cooldowns may change with every call, so they are written at most this often.
const WRITE_EVERY: Duration = Duration::from_secs(1);

#[derive(Clone, Debug)]
pub(super) struct SavedEndpoints {
    /// `None` if the numbers are valid only in this process.
    numbering: Option<u64>,
    looked: Time,
    written: u64,
}

impl SavedEndpoints {
    pub(super) fn new(numbering: Option<u64>) -> Self {
        Self { numbering, looked: Time::ZERO, written: 0 }
    }

    /// Whether cooldowns have changed since they were written; checked once a second.
    pub(super) fn is_due(&mut self, changes: u64, now: Time) -> bool {
        if self.numbering.is_none() || (now.since(self.looked) < WRITE_EVERY && now >= self.looked) {
            return false;
        }
        self.looked = now;
        std::mem::replace(&mut self.written, changes) != changes
    }

    pub(super) fn write(&self, cooldowns: &[Cooldown]) -> Vec<u8> {
        let Some(numbering) = self.numbering else { return Vec::new() };
        let mut text = String::new();
        for Cooldown { unit, number, open_until, rounds, not_before } in cooldowns {
            let unit = match unit {
                Unit::Endpoint => 'e',
                Unit::Origin => 'o',
            };
            let (open, not_before) = (open_until.map_or(0, Time::as_millis), not_before.as_millis());
            // Writing to a string does not fail.
            let _ = writeln!(
                text,
                "{COOLDOWN} {numbering:016x} {unit} {number:016x} {open} {rounds} {not_before} end"
            );
        }
        text.into_bytes()
    }

    /// Reads the cooldowns. Incomplete lines and those of another numbering are skipped.
    pub(super) fn read(&self, reminder: &[u8]) -> Vec<Cooldown> {
        let Some(numbering) = self.numbering else { return Vec::new() };
        let lines = reminder.split_inclusive(|byte| *byte == b'\n');
        lines.filter_map(|line| read(str::from_utf8(line).ok()?, numbering)).collect()
    }
}

fn read(line: &str, numbering: u64) -> Option<Cooldown> {
    let mut words = line.strip_suffix('\n')?.split_ascii_whitespace();
    let hex = |word: &str| u64::from_str_radix(word, 16).ok();
    if words.next()? != COOLDOWN || hex(words.next()?)? != numbering {
        return None;
    }
    let unit = match words.next()? {
        "e" => Unit::Endpoint,
        "o" => Unit::Origin,
        _ => return None,
    };
    let number = hex(words.next()?)?;
    let open_until = Some(words.next()?.parse().ok()?).filter(|at| *at > 0).map(Time::from_millis);
    let rounds = words.next()?.parse().ok()?;
    let not_before = Time::from_millis(words.next()?.parse().ok()?);
    (words.next()? == "end").then_some(Cooldown { unit, number, open_until, rounds, not_before })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Time {
        Time::from_millis(1_800_000_000_000 + ms)
    }

    #[test]
    fn what_was_written_is_read_by_the_same_numbering_and_what_is_torn_is_not() {
        let kept = SavedEndpoints::new(Some(7));
        let open_until = Some(at(5));
        let one = Cooldown {
            unit: Unit::Endpoint,
            number: u64::MAX,
            open_until,
            rounds: 3,
            not_before: Time::ZERO,
        };
        let two = Cooldown { unit: Unit::Origin, number: 0, open_until: None, rounds: 0, not_before: at(9) };
        let text = kept.write(&[one, two]);
        assert_eq!(kept.read(&text), [one, two]);
        let line = text.iter().position(|byte| *byte == b'\n').unwrap() + 1;
        for len in 0..text.len() {
            let expected: &[Cooldown] = if len < line { &[] } else { &[one] };
            assert_eq!(kept.read(&text[..len]), expected, "{len}");
        }
        assert_eq!(SavedEndpoints::new(Some(8)).read(&text), [], "other numbers");
        assert_eq!(SavedEndpoints::new(None).read(&text), []);
        assert_eq!(
            SavedEndpoints::new(None).write(&[one]),
            b"",
            "they would mean nothing to the next process"
        );
        let own = b"open1 breaker 1 2 3 4 5 6 7 end\n".iter().chain(&text).copied().collect::<Vec<u8>>();
        assert_eq!(kept.read(&own), [one, two], "among other lines");
    }

    #[test]
    fn changes_are_written_once_a_second() {
        let mut kept = SavedEndpoints::new(Some(7));
        assert!(!kept.is_due(0, at(0)), "nothing has changed");
        assert!(!kept.is_due(1, at(999)) && kept.is_due(2, at(1_000)));
        assert!(!kept.is_due(2, at(2_000)));
        assert!(kept.is_due(3, at(0)), "a clock that was set back");
        assert!(!SavedEndpoints::new(None).is_due(1, at(5_000)));
    }
}
