//! Selects the letters for a command: `--group`, `--filter`, `--edit`, `--ids`, `--since`, `--all`.

use std::fmt;

use redrive::{GroupId, Time};
use redrive_api::{LetterSelection, NotOpenLetter};

use crate::client::{PageQuery, Session};
use crate::exit::Failed;
use crate::output::{Output, count, instant, safe};

/// The maximum number of ids on a command line; use a filter for more.
const IDS_MAX: usize = 10_000;
/// The maximum number of letters listed as not open.
const NOT_OPEN_SHOWN_MAX: usize = 20;
const HEADING: &str = "Selection (one is needed)";

#[derive(Clone, Debug, Default, clap::Args)]
pub struct Selection {
    /// Letters that match, as in `reason:permanent age:>1h -tenant:acme`
    #[arg(long, value_name = "EXPR", allow_hyphen_values = true, value_parser = expression, help_heading = HEADING)]
    pub filter: Option<String>,
    /// Letters of a group, as `dlq groups` prints it
    #[arg(long, value_name = "GROUP", value_parser = super::groups::group, help_heading = HEADING)]
    pub group: Option<GroupId>,
    /// Letters that this edit has changed, as in e-12
    #[arg(long, value_name = "EDIT", help_heading = HEADING)]
    pub edit: Option<String>,
    /// Letter or message ids
    #[arg(long, value_name = "IDS", value_delimiter = ',', help_heading = HEADING)]
    pub ids: Vec<String>,
    /// Letters that died since: 1h ago, or an RFC 3339 time
    #[arg(long, allow_hyphen_values = true, value_name = "AGE|TIME", help_heading = HEADING)]
    pub since: Option<String>,
    /// All open letters
    #[arg(long, help_heading = HEADING)]
    pub all: bool,
}

impl Selection {
    /// The selection for a request. An empty one is an error: only `--all` selects all.
    pub fn letters(&self, verb: &str, now: Time) -> Result<LetterSelection, Failed> {
        let ids = self.ids.iter().map(|id| id.trim()).filter(|id| !id.is_empty());
        let ids: Vec<String> = ids.map(str::to_owned).collect();
        if ids.len() > IDS_MAX {
            let message = format!("--ids names {} letters, at most {IDS_MAX} fit one command", ids.len());
            return Err(Failed::usage(message).hint("select them with --filter or --since"));
        }
        let edit = self.edit.as_deref().map(|edit| format!("edit:{edit}"));
        let filter = super::groups::with_filter(self.filter.as_deref(), self.group);
        let filter: Vec<String> = edit.into_iter().chain(filter).collect();
        let letters = LetterSelection {
            filter: (!filter.is_empty()).then(|| filter.join(" ")),
            ids: (!ids.is_empty()).then_some(ids),
            since: self.since.as_deref().map(|since| moment(since, now)).transpose()?,
            all: self.all,
        };
        let by_rule = letters.filter.is_some() || letters.since.is_some();
        match (self.all, letters.ids.is_some(), by_rule) {
            (false, false, false) => Err(Failed::usage(format!("{verb} needs a selection of letters"))
                .hint("give --group, --filter EXPR, --edit e-12, --ids a,b, --since 1h or --all")),
            (true, true, _) | (true, _, true) => {
                Err(Failed::usage("--all cannot be combined with another selection").hint("give one of them"))
            }
            (false, true, true) => {
                Err(Failed::usage("--ids cannot be combined with --group, --filter or --since")
                    .hint("give the ids, or what they have in common"))
            }
            (true, false, false) | (false, true, false) | (false, false, true) => Ok(letters),
        }
    }
}

impl Selection {
    /// Fails for an empty selection: either a typo, or another user was faster.
    pub fn fail_if_empty(&self, letters: u64, which: &str, pipeline: &str) -> Result<(), Failed> {
        if letters == 0 { Err(self.no_letter(which, pipeline)) } else { Ok(()) }
    }

    /// The fault that no letter matches; `which` is `open letter`, or `letter` if all states are selected.
    pub fn no_letter(&self, which: &str, pipeline: &str) -> Failed {
        self.none_of(&self.conditions(None), None, which, pipeline)
    }

    /// The same with the condition of `--where`. Checks whether the group or the edit has such letters at all, so that
    /// the condition is named if only it matches nothing.
    pub async fn nothing_selected(
        &self,
        condition: Option<&str>,
        which: &str,
        pipeline: &str,
        session: &Session,
    ) -> Failed {
        let conditions = self.conditions(condition);
        let found = match self.set() {
            Some(set) if !conditions.is_empty() => {
                let state = (which == "open letter").then(|| "open".to_owned());
                let query = PageQuery { filter: Some(set.filter()), state, limit: 1, ..PageQuery::default() };
                let page = session.api.letters(pipeline, &query).await;
                page.ok().map(|page| !page.view.letters.is_empty())
            }
            _ => None,
        };
        self.none_of(&conditions, found, which, pipeline)
    }

    /// The group or edit whose letters the other conditions narrow down.
    fn set(&self) -> Option<LetterSet<'_>> {
        let of_edit = self.edit.as_deref().map(LetterSet::Edit);
        of_edit.or(self.group.map(LetterSet::Group))
    }

    /// The other conditions, as typed.
    fn conditions(&self, condition: Option<&str>) -> Vec<String> {
        let group = self.group.filter(|_| self.edit.is_some()).map(|group| format!("--group {group}"));
        let typed = |flag: &str, text: &str| format!("{flag} '{}'", safe::line(text));
        let rest = [
            ("--filter", self.filter.as_deref()),
            ("--since", self.since.as_deref()),
            ("--where", condition),
        ];
        let rest = rest.into_iter().filter_map(|(flag, text)| Some(typed(flag, text?)));
        group.into_iter().chain(rest).collect()
    }

    /// `found` says whether the group or the edit has letters of which the conditions match none, if known.
    fn none_of(&self, conditions: &[String], found: Option<bool>, which: &str, pipeline: &str) -> Failed {
        let conditions = conditions.join(" and ");
        let (what, hint) = match (self.set(), found) {
            (Some(set), Some(true)) => (
                format!("{which}s of `{pipeline}` are {set}, but none of them matches {conditions}"),
                format!(
                    "`redrive dlq inspect {pipeline} --filter {}` lists them; nothing was done",
                    set.filter()
                ),
            ),
            (Some(set), None) if !conditions.is_empty() => (
                format!("no {which} of `{pipeline}` is {set} and matches {conditions}"),
                format!("`redrive dlq inspect {pipeline} --filter {}` lists those {set}", set.filter()),
            ),
            (Some(LetterSet::Edit(edit)), _) => (
                format!("there is no edit {} in any {which} of `{pipeline}`", safe::line(edit)),
                format!(
                    "`redrive audit {pipeline} --actions` lists the edits; one that was undone is in no letter"
                ),
            ),
            (Some(set @ LetterSet::Group(_)), _) => (
                format!("no {which} of `{pipeline}` is {set}"),
                format!("`redrive dlq groups {pipeline}` lists the groups with open letters"),
            ),
            (None, _) => {
                let matches = if conditions.is_empty() { conditions } else { format!(" {conditions}") };
                (
                    format!("no {which} of `{pipeline}` matches{matches}; nothing was done"),
                    format!("`redrive dlq inspect {pipeline}` lists them"),
                )
            }
        };
        Failed::usage(what).hint(hint)
    }
}

/// The letters of a group or an edit.
#[derive(Clone, Copy, Debug)]
enum LetterSet<'a> {
    Group(GroupId),
    Edit(&'a str),
}

impl LetterSet<'_> {
    fn filter(self) -> String {
        match self {
            Self::Group(group) => format!("group:{group}"),
            Self::Edit(edit) => format!("edit:{}", safe::line(edit)),
        }
    }
}

impl fmt::Display for LetterSet<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Group(group) => write!(f, "in group {group}"),
            Self::Edit(edit) => write!(f, "changed by edit {}", safe::line(edit)),
        }
    }
}

/// Reports named letters that are not open and were left alone; returns whether there are any.
pub fn say_not_open(letters: &[NotOpenLetter], done: &str, out: &mut Output) -> Result<bool, Failed> {
    for NotOpenLetter { letter, state } in letters.iter().take(NOT_OPEN_SHOWN_MAX) {
        out.line(&format!("  {} is {}, not open: not {done}", safe::line(letter), safe::line(state)))?;
    }
    if letters.len() > NOT_OPEN_SHOWN_MAX {
        let more = count((letters.len() - NOT_OPEN_SHOWN_MAX) as u64);
        out.line(&format!("  … and {more} more that are not open (--json names them)"))?;
    }
    Ok(!letters.is_empty())
}

/// Parses a filter and keeps it as typed. An empty one is a typo, or a variable that is not set.
pub fn expression(text: &str) -> Result<String, String> {
    if text.trim().is_empty() {
        return Err("it is empty; leave --filter out, or select letters with it".to_owned());
    }
    Ok(text.to_owned())
}

/// Parses a time: `1h` is an hour before `now`, a timestamp is itself. Returns RFC 3339, as the API expects.
pub fn moment(text: &str, now: Time) -> Result<String, Failed> {
    moment_at("--since", text, now).map(instant::print)
}

/// The same for any flag, as a [`Time`].
pub fn moment_at(flag: &str, text: &str, now: Time) -> Result<Time, Failed> {
    if let Some(at) = instant::parse(text) {
        return Ok(at);
    }
    let span = redrive_core::duration::parse(text).map_err(|_| {
        Failed::usage(format!("{flag} `{text}` is neither a duration nor a time"))
            .hint("write it like 90s, 1h, 7d, 2026-11-15 or 2026-11-15T08:00:00Z")
    })?;
    Ok(Time::from_millis(now.as_millis().saturating_sub(redrive_core::time::millis(span))))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Time = Time::from_millis(1_794_778_805_120);

    #[test]
    fn a_selection_that_names_nothing_is_a_usage_error() {
        for empty in [
            Selection::default(),
            Selection { filter: Some("  ".into()), ..Selection::default() },
            Selection { ids: vec![String::new()], ..Selection::default() },
        ] {
            let failed = empty.letters("replay", NOW).unwrap_err();
            assert_eq!(
                failed.to_string(),
                "replay needs a selection of letters\n  give --group, --filter EXPR, --edit e-12, --ids a,b, --since 1h or --all"
            );
            assert_eq!(failed.exit.code(), 2);
        }
    }

    #[test]
    fn each_way_to_select_is_sent_under_its_own_name() {
        let letters = |selection: Selection| selection.letters("replay", NOW).unwrap();
        let all = LetterSelection { all: true, ..LetterSelection::default() };
        assert_eq!(letters(Selection { all: true, ..Selection::default() }), all);
        let ids = vec!["o-1".to_owned(), " orders/2 ".to_owned()];
        let sent = letters(Selection { ids, ..Selection::default() });
        assert_eq!(sent.ids.unwrap(), ["o-1", "orders/2"]);
        let both = Selection {
            filter: Some("reason:gone".into()),
            since: Some("1h".into()),
            ..Selection::default()
        };
        let sent = letters(both);
        assert_eq!(sent.filter.unwrap(), "reason:gone");
        assert_eq!(sent.since.unwrap(), "2026-11-15T20:40:05.120Z");
    }

    #[test]
    fn contradictions_are_refused() {
        let all = Selection { all: true, since: Some("1h".into()), ..Selection::default() };
        assert!(all.letters("discard", NOW).unwrap_err().message.contains("--all cannot be combined"));
        let edited =
            Selection { edit: Some("e-12".into()), filter: Some("key:c-7".into()), ..Selection::default() };
        let letters = edited.letters("replay", NOW).unwrap();
        assert_eq!(letters.filter.unwrap(), "edit:e-12 key:c-7");
        let ids = Selection { ids: vec!["a".into()], since: Some("1h".into()), ..Selection::default() };
        assert!(ids.letters("discard", NOW).is_err());
    }

    #[test]
    fn a_selection_without_letters_says_what_was_not_found() {
        let none = |selection: Selection| selection.fail_if_empty(0, "open letter", "orders").unwrap_err();
        let by_filter = none(Selection { filter: Some("key:c-7".into()), ..Selection::default() });
        let text = "no open letter of `orders` matches --filter 'key:c-7'; nothing was done";
        assert_eq!(by_filter.message, text);
        assert_eq!(by_filter.exit.code(), 2, "as for a replay of nothing");
        let by_edit = none(Selection { edit: Some("e-77".into()), ..Selection::default() });
        assert!(by_edit.message.starts_with("there is no edit e-77"), "{by_edit}");
        let group = super::super::groups::group("g7k2m9x4q").ok();
        let in_group = none(Selection { group, ..Selection::default() });
        assert_eq!(in_group.message, "no open letter of `orders` is in group g7k2m9x4q");
        let all = none(Selection { all: true, ..Selection::default() });
        assert_eq!(all.message, "no open letter of `orders` matches; nothing was done");
        assert!(Selection::default().fail_if_empty(1, "letter", "orders").is_ok());
    }

    /// A group with letters must not be reported as empty.
    #[test]
    fn a_condition_that_matches_no_letter_of_a_group_is_named() {
        let group = super::super::groups::group("g7k2m9x4q").ok();
        let selection = Selection { group, since: Some("1h".into()), ..Selection::default() };
        let none = |found| {
            let conditions = selection.conditions(Some("/region == \"DE\""));
            selection.none_of(&conditions, found, "open letter", "orders").message
        };
        let conditions = "--since '1h' and --where '/region == \"DE\"'";
        assert_eq!(
            none(Some(true)),
            format!("open letters of `orders` are in group g7k2m9x4q, but none of them matches {conditions}")
        );
        assert_eq!(none(Some(false)), "no open letter of `orders` is in group g7k2m9x4q");
        assert_eq!(
            none(None),
            format!("no open letter of `orders` is in group g7k2m9x4q and matches {conditions}")
        );
    }

    #[test]
    fn since_is_a_span_or_an_instant() {
        assert_eq!(moment("1h30m", NOW).unwrap(), "2026-11-15T20:10:05.120Z");
        assert_eq!(moment("2026-11-15T08:00:00+01:00", NOW).unwrap(), "2026-11-15T07:00:00.000Z");
        let failed = moment("yesterday", NOW).unwrap_err();
        assert!(failed.to_string().contains("neither a duration nor a time"), "{failed}");
    }
}
