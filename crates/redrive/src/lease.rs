//! Which of several processes of a pipeline does what only one of them should: the one whose name stands in a record that all
//! of them read. Its holder renews the record; if it does not any more, another writes its own name over it.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::engine::SharedRecords;

/// How often its holder renews it.
const RENEW_EVERY: Duration = Duration::from_secs(4);
/// A lease that was not renewed for so long may be claimed by any process.
const SILENCE_MAX: Duration = Duration::from_secs(16);
/// A claim counts once it has stood for so long: two may have made one in the same moment, and the last one stands.
const SETTLE: Duration = Duration::from_secs(1);

/// What to do about a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LeaseStep {
    /// It is another's, or a claim that is too young.
    Wait,
    /// Write the record, with this number.
    Write(u64),
}

/// What a process remembers of the lease, by its own clock.
#[derive(Debug)]
pub(crate) struct Lease {
    /// The key of its record.
    key: &'static str,
    /// Of this process.
    name: String,
    /// What the record said last, and since when.
    read: Option<(String, Instant)>,
    /// Since when this process's name has stood in it.
    held_since: Option<Instant>,
}

impl Lease {
    /// `name` is this process's own, `key` that of the record.
    pub(crate) fn new(key: &'static str, name: String) -> Self {
        Self { key, name, read: None, held_since: None }
    }

    /// Whether this process holds it. Claims it if it is free, and renews it. What cannot be written now is tried with the
    /// next look.
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

    /// Pure but for what it remembers.
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
        // Who was silent for so long has lost it, whatever has been read of the record.
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

    /// A holder that could not renew it in time must not act: another may hold it by now.
    fn is_held(&self, now: Instant) -> bool {
        let is_old = self.held_since.is_some_and(|since| now.duration_since(since) >= SETTLE);
        is_old && self.read.as_ref().is_some_and(|(_, since)| now.duration_since(*since) < SILENCE_MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two processes that look at the same record once a second, the second one only while `lives` says so; who holds it.
    fn holders(seconds: u64, lives: impl Fn(usize, u64) -> bool) -> Vec<Vec<usize>> {
        let begun = Instant::now();
        let mut leases = [Lease::new("lease", "r-a-".into()), Lease::new("lease", "r-b-".into())];
        let mut record: Option<String> = None;
        let mut held = Vec::new();
        for second in 0..seconds {
            let now = begun + Duration::from_secs(second);
            // Both look before either writes, and the last write stands.
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
