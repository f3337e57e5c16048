//! Which letters a request means: read from its fields, and checked before anything is touched.

use redrive::letters::select::{self, LetterIds};
use redrive::letters::{Filter, FilterError, SelectError, Selection};
use redrive::{LetterState, PipelineHandle, Time};
use redrive_core::duration;
use serde::Serialize;

use super::view;
use crate::problem::{Code, Problem};
use redrive::timestamp;

/// The most ids of one request; more than that is a filter.
pub const IDS_MAX: usize = 10_000;

/// The fields of a selection as they were given.
#[derive(Clone, Debug, Default)]
pub struct Given {
    pub filter: Option<String>,
    pub ids: Option<Vec<String>>,
    pub since: Option<String>,
    pub all: bool,
}

/// A letter that was named and is not open.
#[derive(Debug, Serialize)]
pub struct NotOpenView {
    letter: String,
    state: &'static str,
}

impl Given {
    /// The open letters that are meant. Something must be said: nothing is never everything.
    pub fn open(self, now: Time) -> Result<Selection, Problem> {
        self.in_state(Some(LetterState::Open), now)
    }

    /// The letters in whatever state that are meant.
    pub fn any(self, now: Time) -> Result<Selection, Problem> {
        self.in_state(None, now)
    }

    fn in_state(self, state: Option<LetterState>, now: Time) -> Result<Selection, Problem> {
        if self.filter.is_none() && self.ids.is_none() && self.since.is_none() && !self.all {
            return Err(empty());
        }
        if self.ids.as_ref().is_some_and(Vec::is_empty) {
            return Err(Problem::new(
                Code::EmptySelection,
                "`ids` is an empty list",
                "name at least one letter",
            ));
        }
        if let Some(ids) = self.ids.as_ref().filter(|ids| ids.len() > IDS_MAX) {
            let message = format!("`ids` has {} entries, at most {IDS_MAX} are read", ids.len());
            return Err(Problem::bad_request(message, "use `filter` or `since`, or several requests"));
        }
        Ok(Selection {
            filter: self.filter.as_deref().map(filter).transpose()?,
            state,
            since: self.since.as_deref().map(|text| since(text, now)).transpose()?,
            ids: self.ids,
            all: self.all,
        })
    }

    /// The letters that were named one by one and are not open, so that nothing is done to them.
    pub async fn not_open(&self, handle: &PipelineHandle) -> Result<Vec<NotOpenView>, Problem> {
        let Some(ids) = &self.ids else { return Ok(Vec::new()) };
        let names = LetterIds::of(handle);
        let states = select::not_open(handle, ids).await?.into_iter();
        let states =
            states.map(|(number, state)| NotOpenView { letter: names.text(number), state: state.name() });
        Ok(states.collect())
    }

    /// In words, for the record of actions.
    pub fn words(&self) -> String {
        let mut parts = Vec::new();
        if let Some(filter) = &self.filter {
            parts.push(filter.clone());
        }
        match self.ids.as_deref() {
            Some([id]) => parts.push(format!("letter {id}")),
            Some(ids) => parts.push(format!("{} letters by id", ids.len())),
            None => {}
        }
        if let Some(since) = &self.since {
            parts.push(format!("since {since}"));
        }
        if self.all && parts.is_empty() {
            parts.push("all".to_owned());
        }
        parts.join(" ")
    }
}

pub fn filter(text: &str) -> Result<Filter, Problem> {
    Filter::parse(text).map_err(|FilterError { column, problem }| {
        let hint = "write it like `reason:permanent,gone attempts:>=3 -tenant:acme`";
        Problem::new(Code::BadFilter, format!("the filter, column {column}: {problem}"), hint)
    })
}

/// A time, or how long ago.
pub fn since(text: &str, now: Time) -> Result<Time, Problem> {
    if let Ok(span) = duration::parse(text) {
        let ms = now.as_millis().saturating_sub(u64::try_from(span.as_millis()).unwrap_or(u64::MAX));
        return Ok(Time::from_millis(ms));
    }
    let day = || timestamp::parse(&format!("{text}T00:00:00Z"));
    timestamp::parse(text).or_else(day).ok_or_else(|| {
        let hint =
            "write a time like 2026-11-15T09:00:00Z or 2026-11-15, or a span like 1h for that long ago";
        Problem::bad_request(format!("`since` is {text:?}, which is no time"), hint)
    })
}

pub fn state(name: &str) -> Result<LetterState, Problem> {
    view::letter_state(name).ok_or_else(|| {
        let message = format!("`state` is {name:?}, which letters do not have");
        Problem::bad_request(message, "one of open, replaying, succeeded, discarded, erased")
    })
}

fn empty() -> Problem {
    Problem::new(
        Code::EmptySelection,
        "it is not said which letters are meant",
        "give `filter`, `ids` or `since`, or `\"all\": true` if all open letters are meant",
    )
}

impl From<SelectError> for Problem {
    fn from(error: SelectError) -> Self {
        match error {
            SelectError::Empty => empty(),
            SelectError::NotFound { .. } => Self::not_found(
                error,
                "`orders/17` (on Kafka `orders/7/1182`), `17` and the id of a message are understood",
            ),
            SelectError::Ambiguous { .. } => Self::new(
                Code::Conflict,
                error,
                "nothing was done; write the letter you mean with its pipeline",
            ),
            SelectError::TooMany => Self::bad_request(error, "narrow it down by `since` or `filter`"),
            SelectError::Handle(error) => error.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Time = Time::from_millis(10_000_000);

    #[test]
    fn nothing_is_never_everything() {
        let empty = |given: Given| given.open(NOW).unwrap_err().code;
        assert_eq!(empty(Given::default()), Code::EmptySelection);
        assert_eq!(empty(Given { ids: Some(Vec::new()), ..Given::default() }), Code::EmptySelection);
        assert_eq!(empty(Given { filter: Some("  ".into()), ..Given::default() }), Code::BadFilter);
        assert!(Given { all: true, ..Given::default() }.open(NOW).is_ok());
    }

    #[test]
    fn since_is_a_time_or_a_span() {
        assert_eq!(since("1h", NOW).unwrap(), Time::from_millis(6_400_000));
        assert_eq!(since("1970-01-01T00:00:05Z", NOW).unwrap(), Time::from_millis(5_000));
        assert_eq!(since("1970-01-02", NOW).unwrap(), Time::from_millis(86_400_000));
        assert!(since("yesterday", NOW).unwrap_err().message.contains("yesterday"));
    }

    #[test]
    fn a_selection_is_told_in_words() {
        let words = |given: Given| given.words();
        assert_eq!(words(Given { all: true, ..Given::default() }), "all");
        assert_eq!(words(Given { ids: Some(vec!["7".into()]), ..Given::default() }), "letter 7");
        let both = Given { filter: Some("reason:gone".into()), since: Some("1h".into()), ..Given::default() };
        assert_eq!(words(both), "reason:gone since 1h");
    }
}
