//! What of the health of a sink outlives the process, as a short line of text that an engine keeps.

use std::str::FromStr;
use std::time::Duration;

use redrive_core::Time;
use redrive_core::breaker::{Cause, StillOpen};
use redrive_core::time::millis;
use redrive_core::views::Gate;

/// The first word; another one is another version, and not understood.
const OPEN: &str = "open1";

/// Empty if there is nothing to remember.
pub(super) fn write(left: Option<&StillOpen>) -> Vec<u8> {
    let Some(StillOpen { since, next_probe, rounds, probes, cause }) = left else { return Vec::new() };
    let Cause { failed, of, within, by, .. } = cause;
    let by = match by {
        Gate::Breaker => "breaker",
        Gate::Credential => "credential",
    };
    let (since, next, within) = (since.as_millis(), next_probe.as_millis(), millis(*within));
    format!("{OPEN} {by} {since} {next} {rounds} {probes} {failed} {of} {within} end\n").into_bytes()
}

/// `None` for nothing, and for what is not whole: then the breaker finds out by itself.
pub(super) fn read(text: &[u8]) -> Option<StillOpen> {
    let mut words = str::from_utf8(text).ok()?.split_ascii_whitespace();
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
        let left = StillOpen { since, next_probe, rounds: 3, probes: 9, cause };
        let text = write(Some(&left));
        assert_eq!(read(&text), Some(left));
        assert_eq!(read(&write(None)), None);
        for len in 0..text.len() - 1 {
            assert_eq!(read(&text[..len]), None, "{len}");
        }
        assert_eq!(read(b"open2 breaker 1 2 3 4 5 6 7 end"), None);
    }
}
