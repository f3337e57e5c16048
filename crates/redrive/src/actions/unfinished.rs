//! Detects shared actions that a process did not finish because it was killed, so that another can complete them.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;

use crate::engine::SharedRecords;

/// Heartbeat interval of the process that carries an action out.
const BEAT_EVERY: Duration = Duration::from_secs(3);
/// An action without a heartbeat for this long is finished by another process.
const SILENCE_MAX: Duration = Duration::from_secs(12);

/// An action that is being carried out, marked by a record beside its own until all its letters have changed.
#[derive(Debug)]
pub(super) struct RunningAction {
    /// `None` if no other process could finish it.
    place: Option<(Arc<dyn SharedRecords>, String)>,
    beat: u64,
    at: Instant,
}

impl RunningAction {
    pub(super) fn new(place: Option<(Arc<dyn SharedRecords>, String)>) -> Self {
        Self { place, beat: 0, at: Instant::now() }
    }

    /// Writes a heartbeat if one is due. If that fails, another process may repeat a part of the action, which does
    /// no harm.
    pub(super) async fn beat(&mut self) {
        if self.at.elapsed() >= BEAT_EVERY {
            (self.beat, self.at) = (self.beat + 1, Instant::now());
            self.write(Some(self.beat.to_string())).await;
        }
    }

    /// Removes the mark. If that fails, another process finds that nothing is left to do.
    pub(super) async fn end(self) {
        self.write(None).await;
    }

    async fn write(&self, value: Option<String>) {
        let Some((records, key)) = self.place.clone() else { return };
        let write =
            move || records.write(&key, value.as_deref().map(str::as_bytes)).map_err(io::Error::other);
        let _ = tokio::task::spawn_blocking(write).await;
    }
}

/// The last heartbeat seen of each unfinished action, timed by this process's own clock.
#[derive(Debug, Default)]
pub(super) struct Unfinished {
    heard: BTreeMap<String, (Bytes, Instant)>,
}

impl Unfinished {
    /// Those of the unfinished actions in `running` that are overdue at `now`.
    pub(super) fn overdue(&mut self, running: &[(String, Bytes)], now: Instant) -> Vec<String> {
        self.heard.retain(|record, _| running.iter().any(|(known, _)| known == record));
        let mut overdue = Vec::new();
        for (record, said) in running {
            let last = self.heard.entry(record.clone()).or_insert_with(|| (said.clone(), now));
            if last.0 != *said {
                *last = (said.clone(), now);
            }
            if now.duration_since(last.1) >= SILENCE_MAX {
                overdue.push(record.clone());
            }
        }
        overdue
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_action_is_overdue_when_nothing_was_said_about_it_for_long() {
        let (mut unfinished, begun) = (Unfinished::default(), Instant::now());
        let mut at = |seconds: u64, running: &[(&str, &'static str)]| {
            let running: Vec<(String, Bytes)> =
                running.iter().map(|(record, said)| ((*record).to_owned(), Bytes::from(*said))).collect();
            unfinished.overdue(&running, begun + Duration::from_secs(seconds))
        };
        assert!(at(0, &[("a", "0")]).is_empty());
        assert!(at(11, &[("a", "0"), ("b", "0")]).is_empty());
        assert!(at(11, &[("a", "1"), ("b", "0")]).is_empty(), "it goes on");
        assert_eq!(at(23, &[("a", "1"), ("b", "0")]), ["a", "b"]);
        assert!(at(24, &[]).is_empty());
        assert!(at(25, &[("a", "1")]).is_empty(), "it was finished, and is new");
    }
}
