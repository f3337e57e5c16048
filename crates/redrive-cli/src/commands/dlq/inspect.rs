//! `redrive dlq inspect`: a table of letters.

use redrive::GroupId;
use redrive::letters::Filter;
use redrive_api::LetterView;
use serde::Deserialize as _;
use serde_json::{Value, json};

use super::{redact, selection};
use crate::args::whole;
use crate::client::{PageQuery, Session};
use crate::exit::{Exit, Failed};
use crate::output::{Align, Output, TextTable, age, count, safe};

/// How much of an error a table shows; `show` prints all of it.
const ERROR_CHARS: usize = 100;
/// How much of an id or a key a table shows.
const ID_CHARS: usize = 40;
/// The position of the state column in a table of letters in several states.
const STATE_COLUMN: usize = 1;
/// The maximum number of letters per request.
const PAGE: u32 = 200;

#[derive(Debug, clap::Args)]
pub struct InspectArgs {
    /// The pipeline
    pub pipeline: String,
    /// Letters that match, as in `reason:permanent age:>1h -tenant:acme`
    #[arg(long, value_name = "EXPR", allow_hyphen_values = true, value_parser = selection::expression)]
    pub filter: Option<String>,
    /// Letters of this group, as `dlq groups` prints it
    #[arg(long, value_name = "GROUP", value_parser = super::groups::group)]
    pub group: Option<GroupId>,
    /// Letters in this state; default: open, or those that the filter names
    #[arg(long, value_enum)]
    pub state: Option<LetterStateArg>,
    /// Letters that died since: 1h ago, or an RFC 3339 time
    #[arg(long, allow_hyphen_values = true, value_name = "AGE|TIME")]
    pub since: Option<String>,
    /// At most this many
    #[arg(long, default_value_t = 20, allow_hyphen_values = true, value_parser = whole::<u32>(1, 10_000))]
    pub limit: u32,
}

/// The states of a letter, and all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum LetterStateArg {
    Open,
    Replaying,
    Succeeded,
    Discarded,
    Erased,
    All,
}

impl LetterStateArg {
    /// The effective state. A filter that names a state overrides the default.
    pub fn meant(given: Option<Self>, filter: Option<&str>) -> Self {
        let named =
            || filter.and_then(|text| Filter::parse(text).ok()).is_some_and(|filter| filter.names_state());
        given.unwrap_or_else(|| if named() { Self::All } else { Self::Open })
    }

    /// The parameter for the API: no state means every state.
    pub fn query(self) -> Option<String> {
        let word = match self {
            Self::Open => "open",
            Self::Replaying => "replaying",
            Self::Succeeded => "succeeded",
            Self::Discarded => "discarded",
            Self::Erased => "erased",
            Self::All => return None,
        };
        Some(word.to_owned())
    }
}

pub async fn run(args: &InspectArgs, session: &Session, out: &mut Output) -> Result<Exit, Failed> {
    let since = args.since.as_deref().map(|since| selection::moment(since, session.now())).transpose()?;
    let state = LetterStateArg::meant(args.state, args.filter.as_deref());
    let mut query = PageQuery {
        filter: super::groups::with_filter(args.filter.as_deref(), args.group),
        state: state.query(),
        since,
        ..PageQuery::default()
    };
    let mut letters: Vec<Value> = Vec::new();
    // A page may be short or even empty without being the last: the processor scans a bounded number of letters for
    // each.
    while letters.len() < args.limit as usize {
        query.limit = PAGE.min(args.limit - letters.len() as u32);
        let page = session.api.letters(&args.pipeline, &query).await?.view;
        letters.extend(page.letters);
        query.cursor = page.next;
        if query.cursor.is_none() {
            break;
        }
    }
    letters.truncate(args.limit as usize);
    letters.iter_mut().for_each(redact::hide_secret_headers);
    if out.is_json() {
        out.json(&json!({ "letters": letters, "next": query.cursor }))?;
        return Ok(Exit::Ok);
    }
    write_table(&letters, state, session, out)?;
    let shown = count(letters.len() as u64);
    let more = query.cursor.is_some();
    out.line(&match (letters.is_empty(), more) {
        (true, _) => "no letters match".to_owned(),
        (false, true) => {
            format!("   {shown} shown, more: --limit {}", args.limit.saturating_mul(2).min(10_000))
        }
        (false, false) => format!("   {shown} shown"),
    })?;
    Ok(Exit::Ok)
}

fn write_table(
    letters: &[Value],
    state: LetterStateArg,
    session: &Session,
    out: &mut Output,
) -> Result<(), Failed> {
    if letters.is_empty() {
        return Ok(());
    }
    // Leave out a column that would be the same in every row.
    let states = state == LetterStateArg::All;
    let mut columns = vec![
        ("LETTER", Align::Left),
        ("MESSAGE", Align::Left),
        ("KEY", Align::Left),
        ("ATTEMPTS", Align::Right),
        ("DEAD", Align::Left),
        ("CLASS", Align::Left),
        ("REASON", Align::Left),
        ("ERROR", Align::Left),
    ];
    if states {
        columns.insert(STATE_COLUMN, ("STATE", Align::Left));
    }
    let mut table = TextTable::new(columns);
    let now = session.now();
    for letter in letters {
        let letter = LetterView::deserialize(letter).map_err(|error| session.strange(&error))?;
        let mut cells = vec![
            letter.id,
            safe::short(&letter.message, ID_CHARS),
            safe::short(letter.key.as_deref().unwrap_or("-"), ID_CHARS),
            count(letter.attempts.into()),
            age::since(now, letter.dead_at.0),
            letter.class.unwrap_or_else(|| "-".to_owned()),
            letter.reason,
            safe::short(letter.error.as_deref().unwrap_or(""), ERROR_CHARS),
        ];
        if states {
            cells.insert(STATE_COLUMN, letter.state);
        }
        table.row(cells);
    }
    out.table(&table)
}
