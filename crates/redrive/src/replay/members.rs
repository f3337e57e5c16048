//! Where several processes share the letters, what the others see of the sink: each says so as long as something is wrong for
//! it, and auto-replay does not begin before none of them does. Whoever is gone says nothing any more.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;

use super::records::UNHEALTHY;
use crate::engine::SharedRecords;

/// How often a process says again that something is wrong.
const RENEW_EVERY: Duration = Duration::from_secs(4);
/// Who has not said so for so long, by this process's clock, is gone or has forgotten to take it back.
const SILENCE_MAX: Duration = Duration::from_secs(16);

/// What this process says, and what it has heard.
#[derive(Debug)]
pub(super) struct MembersHealth {
    key: String,
    /// What it wrote last, and when; `None` if nothing is wrong.
    said: Option<(u64, Instant)>,
    /// What others said last, and since when.
    heard: HashMap<String, (Bytes, Instant)>,
}

/// What a process has to write.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Say {
    Nothing,
    /// Something is wrong, for the so many-th time.
    Wrong(u64),
    /// Nothing is wrong any more.
    TakeBack,
}

impl MembersHealth {
    /// `name` is this process's own.
    pub(super) fn new(name: &str) -> Self {
        Self { key: format!("{UNHEALTHY}{name}"), said: None, heard: HashMap::new() }
    }

    /// Says what this process sees; whether nothing is wrong for any of the others. What cannot be written now is tried with
    /// the next look.
    pub(super) async fn look(&mut self, shared: &Arc<dyn SharedRecords>, is_healthy: bool) -> bool {
        let now = Instant::now();
        let record = match self.say(is_healthy, now) {
            Say::Nothing => return self.are_others_healthy(shared.records(UNHEALTHY), now),
            Say::Wrong(number) => Some(number.to_string()),
            Say::TakeBack => None,
        };
        let (writing, key) = (Arc::clone(shared), self.key.clone());
        let write = move || writing.write(&key, record.as_deref().map(str::as_bytes)).is_ok();
        if !tokio::task::spawn_blocking(write).await.unwrap_or(false) && is_healthy {
            // It still stands there.
            self.said = Some((0, now));
        }
        self.are_others_healthy(shared.records(UNHEALTHY), now)
    }

    fn say(&mut self, is_healthy: bool, now: Instant) -> Say {
        if is_healthy {
            return self.said.take().map_or(Say::Nothing, |_| Say::TakeBack);
        }
        let number = match self.said {
            Some((_, at)) if now.duration_since(at) < RENEW_EVERY => return Say::Nothing,
            Some((number, _)) => number + 1,
            None => 1,
        };
        self.said = Some((number, now));
        Say::Wrong(number)
    }

    fn are_others_healthy(&mut self, records: Vec<(String, Bytes)>, now: Instant) -> bool {
        let mut heard = HashMap::new();
        for (key, said) in records.into_iter().filter(|(key, _)| *key != self.key) {
            let since = match self.heard.remove(&key) {
                Some((before, since)) if before == said => since,
                _ => now,
            };
            heard.insert(key, (said, since));
        }
        self.heard = heard;
        self.heard.values().all(|(_, since)| now.duration_since(*since) >= SILENCE_MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(own: &str, other: &str) -> Vec<(String, Bytes)> {
        let record = |name: &str, said: &str| (format!("{UNHEALTHY}{name}"), Bytes::from(said.to_owned()));
        vec![record("one", own), record("two", other)]
    }

    #[test]
    fn a_process_says_that_something_is_wrong_again_and_again_and_takes_it_back() {
        let mut one = MembersHealth::new("one");
        let now = Instant::now();
        assert_eq!(one.say(true, now), Say::Nothing, "nothing was ever wrong");
        assert_eq!(one.say(false, now), Say::Wrong(1));
        assert_eq!(one.say(false, now + Duration::from_secs(3)), Say::Nothing);
        assert_eq!(one.say(false, now + Duration::from_secs(4)), Say::Wrong(2));
        assert_eq!(one.say(true, now + Duration::from_secs(5)), Say::TakeBack);
        assert_eq!(one.say(true, now + Duration::from_secs(6)), Say::Nothing);
    }

    #[test]
    fn what_is_wrong_for_another_counts_until_it_is_taken_back_or_that_one_is_gone() {
        let mut one = MembersHealth::new("one");
        let now = Instant::now();
        let at = |seconds| now + Duration::from_secs(seconds);
        assert!(one.are_others_healthy(told("1", "1").split_off(2), at(0)));
        assert!(one.are_others_healthy(told("1", "1").drain(..1).collect(), at(0)), "its own does not");
        assert!(!one.are_others_healthy(told("1", "1"), at(1)));
        assert!(!one.are_others_healthy(told("1", "1"), at(16)));
        assert!(!one.are_others_healthy(told("1", "2"), at(17)), "it was said again");
        assert!(!one.are_others_healthy(told("1", "2"), at(32)));
        assert!(one.are_others_healthy(told("1", "2"), at(33)), "its process is gone");
        assert!(!one.are_others_healthy(told("1", "3"), at(34)), "or was only slow");
        assert!(one.are_others_healthy(Vec::new(), at(35)));
    }
}
