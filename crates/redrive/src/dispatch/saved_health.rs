//! Serializes the health of a sink so that it survives a restart: a few short lines of text that an engine stores.

use std::str::FromStr;
use std::time::Duration;

use redrive_core::Time;
use redrive_core::breaker::{Cause, StillOpen};
use redrive_core::pulse::{Pulse, SinceSuccess};
use redrive_core::time::millis;
use redrive_core::views::Gate;

/// The first words of lines. A different word means a different version, which is not read.
const OPEN: &str = "open1";
const PULSE: &str = "pulse1";
const USUAL: &str = "usual1";
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// The state that one process leaves to the next.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Left {
    pub(super) open: Option<StillOpen>,
    pub(super) pulse: SinceSuccess,
    /// Successful calls per second before the outage.
    pub(super) usual: Option<f64>,
}

/// Serializes the state; empty if there is nothing to remember.
pub(super) fn write(left: &Left) -> Vec<u8> {
    let mut text = Vec::new();
    if let Some(StillOpen { since, next_probe, rounds, probes, cause }) = &left.open {
        let Cause { failed, of, within, by, .. } = cause;
        let by = match by {
            Gate::Breaker => "breaker",
            Gate::Credential => "credential",
        };
        let (since, next, within) = (since.as_millis(), next_probe.as_millis(), millis(*within));
        text.push(format!("{OPEN} {by} {since} {next} {rounds} {probes} {failed} {of} {within} end\n"));
    }
    let SinceSuccess { last_good, failed } = &left.pulse;
    if last_good.is_some() || !failed.is_empty() {
        text.push(format!("{PULSE} {} {}", last_good.map_or(0, Time::as_millis), failed.len()));
        text.extend(failed.iter().map(|(message, at)| format!(" {message} {}", at.as_millis())));
        text.push(" end\n".into());
    }
    if let Some(per_second) = left.usual {
        text.push(format!("{USUAL} {per_second} end\n"));
    }
    text.concat().into_bytes()
}

/// A summary of the pulse that was written last. The pulse changes with every call; the next process needs only the
/// summary.
#[derive(Clone, Debug, Default)]
pub(super) struct PulseWritten {
    looked: Time,
    gist: (u64, u64, usize),
}

impl PulseWritten {
    /// Whether to write the pulse. Checks once a second, and ignores changes within the same minute for successes and
    /// within the same ten minutes for failures.
    pub(super) fn is_due(&mut self, pulse: &Pulse, now: Time) -> bool {
        if now.since(self.looked) < LOOK_EVERY {
            return false;
        }
        self.looked = now;
        let SinceSuccess { last_good, failed } = pulse.since_success(now);
        let minute = |at: Option<Time>, minutes: u64| at.map_or(0, |at| at.as_millis() / (60_000 * minutes));
        let gist = (minute(last_good, 1), minute(failed.iter().map(|(_, at)| *at).max(), 10), failed.len());
        std::mem::replace(&mut self.gist, gist) != gist
    }
}

/// Reads the state. Incomplete lines are skipped; then breaker and pulse have to learn the state anew.
pub(super) fn read(text: &[u8]) -> Left {
    let lines = || text.split_inclusive(|byte| *byte == b'\n').filter_map(|line| str::from_utf8(line).ok());
    Left {
        open: lines().find_map(read_open),
        pulse: lines().find_map(read_pulse).unwrap_or_default(),
        usual: lines().find_map(read_usual),
    }
}

fn read_open(line: &str) -> Option<StillOpen> {
    let mut words = line.split_ascii_whitespace();
    if words.next()? != OPEN {
        return None;
    }
    let by = match words.next()? {
        "breaker" => Gate::Breaker,
        "credential" => Gate::Credential,
        _ => return None,
    };
    let since = Time::from_millis(next(&mut words)?);
    let next_probe = Time::from_millis(next(&mut words)?);
    let (rounds, probes) = (next(&mut words)?, next(&mut words)?);
    let (failed, of) = (next(&mut words)?, next(&mut words)?);
    let within = Duration::from_millis(next(&mut words)?);
    let cause = Cause { failed, of, within, by, last: None };
    (words.next()? == "end").then_some(StillOpen { since, next_probe, rounds, probes, cause })
}

fn read_pulse(line: &str) -> Option<SinceSuccess> {
    let mut words = line.split_ascii_whitespace();
    if words.next()? != PULSE {
        return None;
    }
    let last_good = Some(next(&mut words)?).filter(|at| *at > 0).map(Time::from_millis);
    let len: usize = next(&mut words)?;
    let mut failed = Vec::new();
    for _ in 0..len {
        failed.push((next(&mut words)?, Time::from_millis(next(&mut words)?)));
    }
    (words.next()? == "end").then_some(SinceSuccess { last_good, failed })
}

fn read_usual(line: &str) -> Option<f64> {
    let mut words = line.split_ascii_whitespace();
    if words.next()? != USUAL {
        return None;
    }
    let per_second = next(&mut words).filter(|rate: &f64| rate.is_finite() && *rate > 0.0)?;
    (words.next()? == "end").then_some(per_second)
}

fn next<T: FromStr>(words: &mut std::str::SplitAsciiWhitespace<'_>) -> Option<T> {
    words.next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_is_read_and_what_is_torn_is_not() {
        let within = Duration::from_secs(10);
        let cause = Cause { failed: 11, of: 20, within, by: Gate::Credential, last: None };
        let (since, next_probe) =
            (Time::from_millis(1_800_000_000_000), Time::from_millis(1_800_000_030_000));
        let open = StillOpen { since, next_probe, rounds: 3, probes: 9, cause };
        let left = Left { open: Some(open), ..Left::default() };
        let text = write(&left);
        assert_eq!(read(&text), left);
        assert_eq!(write(&Left::default()), b"");
        for len in 0..text.len() - 1 {
            assert_eq!(read(&text[..len]), Left::default(), "{len}");
        }
        assert_eq!(read(b"open2 breaker 1 2 3 4 5 6 7 end"), Left::default());
        let pulse = SinceSuccess { last_good: Some(since), failed: vec![(7, next_probe), (8, next_probe)] };
        let both = Left { pulse, ..left.clone() };
        let text = write(&both);
        assert_eq!(read(&text), both);
        let line = text.iter().position(|byte| *byte == b'\n').unwrap() + 1;
        for len in line..text.len() - 1 {
            assert_eq!(read(&text[..len]), left, "{len}");
        }
        let all = Left { usual: Some(512.25), ..both.clone() };
        let longer = write(&all);
        assert_eq!(read(&longer), all);
        for len in text.len()..longer.len() - 1 {
            assert_eq!(read(&longer[..len]), both, "{len}");
        }
    }
}
