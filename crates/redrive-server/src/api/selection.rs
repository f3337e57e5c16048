//! The letters that a request selects: read from its fields, and validated before anything is changed.

use redrive::internal::letters::select::{self, LetterIds};
use redrive::letters::redact::{REDACTED, Redaction};
use redrive::letters::{Filter, FilterError, SelectError, Selection};
use redrive::{LetterState, PipelineHandle, Time};
use redrive_api::{LetterSelection, NotOpenLetter};
use redrive_core::duration;

use super::view;
use crate::problem::{Code, Problem};
use crate::service::Served;
use redrive::timestamp;

/// The maximum number of ids per request; use a filter for more.
pub const IDS_MAX: usize = 10_000;

/// Selects open letters. The selection must be explicit: an empty one never means everything.
pub fn open(letters: LetterSelection, redaction: &Redaction, now: Time) -> Result<Selection, Problem> {
    in_state(Some(LetterState::Open), letters, redaction, now)
}

/// Selects letters in any state.
pub fn any(letters: LetterSelection, redaction: &Redaction, now: Time) -> Result<Selection, Problem> {
    in_state(None, letters, redaction, now)
}

fn in_state(
    state: Option<LetterState>,
    letters: LetterSelection,
    redaction: &Redaction,
    now: Time,
) -> Result<Selection, Problem> {
    if letters.filter.is_none() && letters.ids.is_none() && letters.since.is_none() && !letters.all {
        return Err(empty());
    }
    if letters.ids.as_ref().is_some_and(Vec::is_empty) {
        return Err(Problem::new(Code::EmptySelection, "`ids` is an empty list", "name at least one letter"));
    }
    if let Some(ids) = letters.ids.as_ref().filter(|ids| ids.len() > IDS_MAX) {
        let message = format!("`ids` has {} entries, at most {IDS_MAX} are read", ids.len());
        return Err(Problem::bad_request(message, "use `filter` or `since`, or several requests"));
    }
    Ok(Selection {
        filter: letters.filter.as_deref().map(|text| filter(text, redaction)).transpose()?,
        state,
        since: letters.since.as_deref().map(|text| since(text, now)).transpose()?,
        ids: letters.ids,
        all: letters.all,
    })
}

/// The numbers of the selected open letters, and the individually named ones that are not open and stay unchanged.
pub async fn freeze(
    letters: LetterSelection,
    Served { handle, redaction, .. }: &Served,
) -> Result<(Vec<u64>, Vec<NotOpenLetter>), Problem> {
    let named = letters.ids.clone();
    let selection = open(letters, redaction, handle.now())?;
    let not_open = not_open(named.as_deref(), handle).await?;
    Ok((selection.freeze(handle).await?, not_open))
}

/// The individually named letters that are not open.
pub async fn not_open(
    named: Option<&[String]>,
    handle: &PipelineHandle,
) -> Result<Vec<NotOpenLetter>, Problem> {
    let Some(named) = named else { return Ok(Vec::new()) };
    let names = LetterIds::of(handle);
    let states = select::not_open(handle, named).await?.into_iter();
    let view = |(number, state): (u64, LetterState)| NotOpenLetter {
        letter: names.text(number),
        state: state.name().to_owned(),
    };
    Ok(states.map(view).collect())
}

/// Describes a selection for the action log. If values are redacted, a filter that quotes a message is left out.
pub fn words(letters: &LetterSelection, redaction: &Redaction) -> String {
    let mut parts = Vec::new();
    if let Some(filter) = &letters.filter {
        let quotes = !redaction.is_empty() && Filter::parse(filter).is_ok_and(|filter| filter.quotes());
        parts.push(if quotes { REDACTED.to_owned() } else { filter.clone() });
    }
    match letters.ids.as_deref() {
        Some([id]) if redaction.is_empty() => parts.push(format!("letter {id}")),
        Some([_]) => parts.push("1 letter by id".to_owned()),
        Some(ids) => parts.push(format!("{} letters by id", ids.len())),
        None => {}
    }
    if let Some(since) = &letters.since {
        parts.push(format!("since {since}"));
    }
    if letters.all && parts.is_empty() {
        parts.push("all".to_owned());
    }
    parts.join(" ")
}

/// Validates a filter, whatever it is used for: even a count of letters reveals something. It must not allow guessing
/// hidden values piece by piece.
pub fn filter(text: &str, redaction: &Redaction) -> Result<Filter, Problem> {
    let filter = Filter::parse(text).map_err(|FilterError { column, problem }| {
        let hint = "write it like `reason:permanent,gone attempts:>=3 -tenant:acme`";
        Problem::new(Code::BadFilter, format!("the filter, column {column}: {problem}"), hint)
    })?;
    match filter.guesses(redaction) {
        None => Ok(filter),
        Some(field) => Err(guess(&field)),
    }
}

/// The filter would reveal a hidden value piece by piece.
pub fn guess(field: &str) -> Problem {
    let message = format!("`{field}` cannot be searched like this: the pipeline redacts");
    let hint = "ask for a whole value, or use status, class, reason and group";
    Problem::new(Code::BadFilter, message, hint)
}

/// Parses a time, or an age.
pub fn since(text: &str, now: Time) -> Result<Time, Problem> {
    if let Ok(span) = duration::parse(text) {
        let ms = now.as_millis().saturating_sub(u64::try_from(span.as_millis()).unwrap_or(u64::MAX));
        return Ok(Time::from_millis(ms));
    }
    let day = || timestamp::parse(&format!("{text}T00:00:00Z"));
    timestamp::parse(text).or_else(day).ok_or_else(|| {
        let hint =
            "write a time like 2026-11-15T09:00:00Z or 2026-11-15, or a span like 1h for that long ago";
        Problem::bad_request(format!("`since` is {text:?}, which is not a time"), hint)
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
        "no letters are selected",
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
            _ => Self::bad_request(error, "select the letters in another way"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Time = Time::from_millis(10_000_000);

    #[test]
    fn nothing_is_never_everything() {
        let empty = |letters: LetterSelection| open(letters, &Redaction::default(), NOW).unwrap_err().code;
        assert_eq!(empty(LetterSelection::default()), Code::EmptySelection);
        assert_eq!(
            empty(LetterSelection { ids: Some(Vec::new()), ..LetterSelection::default() }),
            Code::EmptySelection
        );
        assert_eq!(
            empty(LetterSelection { filter: Some("  ".into()), ..LetterSelection::default() }),
            Code::BadFilter
        );
        assert!(
            open(LetterSelection { all: true, ..LetterSelection::default() }, &Redaction::default(), NOW)
                .is_ok()
        );
    }

    /// A dry run answers with a count, which helps guessing as much as a list.
    #[test]
    fn what_is_hidden_is_guessed_with_no_selection() {
        let mut redaction = Redaction::default();
        assert!(redaction.add("/email"));
        let select = |filter: &str| {
            let letters = LetterSelection { filter: Some(filter.into()), ..LetterSelection::default() };
            [open(letters.clone(), &redaction, NOW), any(letters, &redaction, NOW)]
                .map(|selection| selection.map_err(|problem| problem.code).err())
        };
        for guess in ["error:erika", "payload.email:>5", "payload.copy:<=7", "-payload.copy:<7 status:422"] {
            assert_eq!(select(guess), [Some(Code::BadFilter), Some(Code::BadFilter)], "{guess}");
        }
        for fair in ["payload.email:eve@example.com", "payload.n:5", "status:>=500 attempts:>3", "age:>1h"] {
            assert_eq!(select(fair), [None, None], "{fair}");
        }
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
        let words = |letters: LetterSelection| words(&letters, &Redaction::default());
        assert_eq!(words(LetterSelection { all: true, ..LetterSelection::default() }), "all");
        assert_eq!(
            words(LetterSelection { ids: Some(vec!["7".into()]), ..LetterSelection::default() }),
            "letter 7"
        );
        let both = LetterSelection {
            filter: Some("reason:gone".into()),
            since: Some("1h".into()),
            ..LetterSelection::default()
        };
        assert_eq!(words(both), "reason:gone since 1h");
        let mut redaction = Redaction::default();
        assert!(redaction.add("/email"));
        let told = |filter: &str| {
            let letters = LetterSelection { filter: Some(filter.into()), ..LetterSelection::default() };
            super::words(&letters, &redaction)
        };
        assert_eq!(told("reason:gone payload.email:eve@example.com"), "[redacted]");
        assert_eq!(told("reason:gone group:g7k2m9x4q"), "reason:gone group:g7k2m9x4q");
    }
}
