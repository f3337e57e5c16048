//! Elects one of several processes of a pipeline for a task that only one should do. The holder's name is in a record
//! that all of them read. The holder renews the record; if it stops, another process overwrites it with its own name.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::engine::SharedRecords;

/// Renewal interval of the holder.
const RENEW_EVERY: Duration = Duration::from_secs(4);
/// A lease that was not renewed for this long may be claimed by any process.
const SILENCE_MAX: Duration = Duration::from_secs(16);
/// A claim becomes valid after this time: if two processes claim at the same moment, the last write wins.
const SETTLE: Duration = Duration::from_secs(1);

/// What to do about a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LeaseStep {
    /// Nothing to do now: another process holds it, or this one wrote it recently.
    Wait,
    /// Write the record with this number.
    Write(u64),
}

/// What a process remembers of the lease, by its own clock.
#[derive(Debug)]
pub(crate) struct Lease {
    /// The key of its record.
    key: &'static str,
    /// The name of this process.
    name: String,
    /// The last content of the record, and since when it is unchanged.
    read: Option<(String, Instant)>,
    /// Since when the record has had this process's name.
    held_since: Option<Instant>,
}

impl Lease {
    /// `name` is that of this process, `key` that of the record.
    pub(crate) fn new(key: &'static str, name: String) -> Self {
        Self { key, name, read: None, held_since: None }
    }

    /// Claims the lease if it is free, or renews it. Returns whether this process holds it. A failed write is retried
    /// at the next look.
    pub(crate) async fn look(&mut self, shared: &Arc<dyn SharedRecords>) -> bool {
        if !shared.is_known() {
            return false;
        }
        let record = shared.records(self.key).into_iter().next();
        let text = record.map(|(_, value)| String::from_utf8_lossy(&value).into_owned());
        if let LeaseStep::Write(number) = self.step(text, Instant::now()) {
            let (shared, key, text) = (Arc::clone(shared), self.key, format!("{} {number}", self.name));
            let _ = tokio::task::spawn_blocking(move || shared.write(key, Some(text.as_bytes()))).await;
        }
        self.is_held(Instant::now())
    }

    /// Pure, except for the state it remembers.
    fn step(&mut self, record: Option<String>, now: Instant) -> LeaseStep {
        let Some(text) = record else {
            (self.read, self.held_since) = (None, None);
            return LeaseStep::Write(1);
        };
        let since = match &self.read {
            Some((known, since)) if *known == text => *since,
            _ => now,
        };
        let number = text.rsplit(' ').next().and_then(|number| number.parse().ok()).unwrap_or(0_u64);
        let is_own = text.strip_prefix(&self.name).is_some_and(|rest| rest.starts_with(' '));
        self.read = Some((text, since));
        let silence = now.duration_since(since);
        // After such a long silence the lease is lost, whatever the record says.
        if is_own && silence < SILENCE_MAX {
            self.held_since.get_or_insert(now);
        } else {
            self.held_since = None;
        }
        if silence >= if is_own { RENEW_EVERY } else { SILENCE_MAX } {
            return LeaseStep::Write(number.wrapping_add(1));
        }
        LeaseStep::Wait
    }

    /// Whether the lease is held. A holder that could not renew it in time must not act, since another may hold it.
    fn is_held(&self, now: Instant) -> bool {
        let is_old = self.held_since.is_some_and(|since| now.duration_since(since) >= SETTLE);
        is_old && self.read.as_ref().is_some_and(|(_, since)| now.duration_since(*since) < SILENCE_MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two processes look at the same record every second, each one only while `lives` says so. Returns the holders.
    fn holders(seconds: u64, lives: impl Fn(usize, u64) -> bool) -> Vec<Vec<usize>> {
        let begun = Instant::now();
        let mut leases = [Lease::new("lease", "r-a-".into()), Lease::new("lease", "r-b-".into())];
        let mut record: Option<String> = None;
        let mut held = Vec::new();
        for second in 0..seconds {
            let now = begun + Duration::from_secs(second);
            // Both look before either writes, and the last write wins.
            let steps: Vec<(usize, LeaseStep)> = (0..2)
                .filter(|which| lives(*which, second))
                .map(|which| (which, leases[which].step(record.clone(), now)))
                .collect();
            for (which, step) in &steps {
                if let LeaseStep::Write(number) = step {
                    record = Some(format!("{} {number}", leases[*which].name));
                }
            }
            held.push((0..2).filter(|which| lives(*which, second) && leases[*which].is_held(now)).collect());
        }
        held
    }

    #[test]
    fn two_that_claim_it_in_the_same_moment_never_both_hold_it() {
        let held = holders(60, |_, _| true);
        assert!(held.iter().all(|holders| holders.len() <= 1), "{held:?}");
        assert!(held[3..].iter().all(|holders| *holders == [1]), "the last claim stands: {held:?}");
    }

    #[test]
    fn another_takes_it_when_its_holder_is_silent_and_the_first_does_not_get_it_back() {
        let held = holders(60, |which, second| which == 0 || !(10..40).contains(&second));
        assert!(held.iter().all(|holders| holders.len() <= 1), "{held:?}");
        assert_eq!(held[9], [1]);
        assert!(held[30..].iter().all(|holders| *holders == [0]), "{held:?}");
    }

    #[test]
    fn a_process_that_comes_back_under_its_name_goes_on_with_it() {
        let (mut lease, now) = (Lease::new("lease", "r-a-".into()), Instant::now());
        assert_eq!(lease.step(Some("r-a- 7".into()), now), LeaseStep::Wait);
        assert!(!lease.is_held(now) && lease.is_held(now + SETTLE));
        assert_eq!(lease.step(Some("r-a- 7".into()), now + RENEW_EVERY), LeaseStep::Write(8));
    }
}
