//! The state of a letter, as one line of JSON in `T.DLQ.state`.

use redrive::internal::engine::LetterState;
use redrive::timestamp;
use redrive_core::Time;
use serde_json::{Map, Value, json};

/// Jobs remembered per letter; beyond that the oldest are dropped.
pub const JOBS_MAX: usize = 64;

/// Longer names are truncated.
const ACTOR_BYTES_MAX: usize = 256;

/// The key of a marker record without a state. A process writes one to each partition when it begins to change letters:
/// a reader that has read it has read everything before it. There is no other way to know the end of a topic.
pub const BEGIN: &[u8] = b"begin";

/// The state of one generation of a letter: that of the record in `T.DLQ` whose `x-replays` is this number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateRecord {
    pub generation: u32,
    pub is: LetterState,
    /// Jobs that requeued the letter, the latest last. Every record has all of them, because compaction keeps only the
    /// latest record of a letter.
    pub jobs: Vec<u64>,
    pub at: Time,
}

impl StateRecord {
    pub fn key(number: u64) -> String {
        number.to_string()
    }

    pub fn number(key: &[u8]) -> Option<u64> {
        std::str::from_utf8(key).ok()?.parse().ok()
    }

    pub fn to_json(&self) -> Vec<u8> {
        self.to_json_by(None)
    }

    /// Includes who changed the letter. That is for people and other tools; it is not read back.
    pub fn to_json_by(&self, actor: Option<&str>) -> Vec<u8> {
        let mut line = Map::new();
        line.insert("generation".to_owned(), json!(self.generation));
        line.insert("state".to_owned(), json!(self.is.name()));
        if let Some((job, earlier)) = self.jobs.split_last() {
            line.insert("job".to_owned(), json!(job));
            if !earlier.is_empty() {
                line.insert("earlier_jobs".to_owned(), json!(earlier));
            }
        }
        line.insert("at".to_owned(), json!(timestamp::print(self.at)));
        if let Some(actor) = actor {
            line.insert("actor".to_owned(), json!(&actor[..actor.floor_char_boundary(ACTOR_BYTES_MAX)]));
        }
        Value::Object(line).to_string().into_bytes()
    }

    /// Returns `None` if it is not a state. Unknown fields are ignored: a later version may have written them.
    pub fn from_json(line: &[u8]) -> Option<Self> {
        let value: Value = serde_json::from_slice(line).ok()?;
        let name = value.get("state")?.as_str()?;
        let mut jobs: Vec<u64> = match value.get("earlier_jobs") {
            Some(earlier) => earlier.as_array()?.iter().map(Value::as_u64).collect::<Option<_>>()?,
            None => Vec::new(),
        };
        jobs.extend(value.get("job").and_then(Value::as_u64));
        Some(Self {
            generation: u32::try_from(value.get("generation")?.as_u64()?).ok()?,
            is: LetterState::ALL.into_iter().find(|state| state.name() == name)?,
            jobs,
            at: value.get("at").and_then(Value::as_str).and_then(timestamp::parse).unwrap_or(Time::ZERO),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(jobs: Vec<u64>) -> StateRecord {
        StateRecord {
            generation: 1,
            is: LetterState::Replaying,
            jobs,
            at: Time::from_millis(1_700_000_000_123),
        }
    }

    #[test]
    fn a_state_comes_back_from_its_line() {
        for jobs in [vec![], vec![7], vec![3, 1 << 62, 7]] {
            let state = state(jobs);
            assert_eq!(StateRecord::from_json(&state.to_json()), Some(state));
        }
    }

    #[test]
    fn the_line_can_be_read_by_people() {
        let line = String::from_utf8(state(vec![3, 7]).to_json()).unwrap();
        let told = r#"{"at":"2023-11-14T22:13:20.123Z","earlier_jobs":[3],"generation":1,"job":7,"state":"replaying"}"#;
        let same: Value = serde_json::from_str(told).unwrap();
        assert_eq!(serde_json::from_str::<Value>(&line).unwrap(), same);
        let by: Value = serde_json::from_slice(&state(vec![]).to_json_by(Some("ops"))).unwrap();
        assert_eq!(by["actor"], "ops");
    }

    #[test]
    fn what_is_no_state_is_refused_and_what_is_new_is_left_alone() {
        assert_eq!(StateRecord::from_json(b"{}"), None);
        assert_eq!(StateRecord::from_json(br#"{"generation":0,"state":"lost"}"#), None);
        assert_eq!(StateRecord::from_json(br#"{"generation":-1,"state":"open"}"#), None);
        assert_eq!(StateRecord::from_json(b"\xff"), None);
        let newer = br#"{"generation":0,"state":"open","at":"soon","actor":"ops","mood":"fine"}"#;
        let open = StateRecord { generation: 0, is: LetterState::Open, jobs: vec![], at: Time::ZERO };
        assert_eq!(StateRecord::from_json(newer), Some(open));
        assert_eq!(StateRecord::number(b"281474976710656"), Some(1 << 48));
        assert_eq!(StateRecord::number(b"orders"), None);
    }
}
