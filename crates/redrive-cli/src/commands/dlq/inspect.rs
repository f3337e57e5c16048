//! `redrive dlq inspect`: a table of letters.

use serde::Deserialize as _;
use serde_json::{Value, json};

use super::{redact, selection};
use crate::client::answers::LetterView;
use crate::client::{PageQuery, Session};
use crate::exit::{Exit, Failed};
use crate::output::{Align, Output, Table, age, count, safe};

/// How much of an error a table shows; `show` has all of it.
const ERROR_CHARS: usize = 100;
/// How much of an id or a key a table shows.
const ID_CHARS: usize = 40;
/// The most letters asked for in one request.
const PAGE: u32 = 200;

#[derive(Debug, clap::Args)]
pub struct Args {
    /// The pipeline
    pub pipeline: String,
    /// Letters that match, as in `reason:permanent age:>1h -tenant:acme`
    #[arg(long, value_name = "EXPR", allow_hyphen_values = true)]
    pub filter: Option<String>,
    /// Letters in this state
    #[arg(long, value_enum, default_value_t = State::Open)]
    pub state: State,
    /// Letters that died since: 1h ago, or an instant in RFC 3339
    #[arg(long, value_name = "AGE|TIME")]
    pub since: Option<String>,
    /// At most this many
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub limit: u32,
}

/// The states of a letter, and all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum State {
    Open,
    Replaying,
    Succeeded,
    Discarded,
    All,
}

impl State {
    /// As the API wants it: no state is every state.
    pub fn query(self) -> Option<String> {
        let word = match self {
            Self::Open => "open",
            Self::Replaying => "replaying",
            Self::Succeeded => "succeeded",
            Self::Discarded => "discarded",
            Self::All => return None,
        };
        Some(word.to_owned())
    }
}

pub async fn run(args: &Args, session: &Session, out: &mut Output) -> Result<Exit, Failed> {
    let since = args.since.as_deref().map(|since| selection::moment(since, session.now())).transpose()?;
    let mut query =
        PageQuery { filter: args.filter.clone(), state: args.state.query(), since, ..PageQuery::default() };
    let mut letters: Vec<Value> = Vec::new();
    // A page may be short, or empty, and still not be the last: the processor looks through a bounded number of
    // letters for each.
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
    write_table(&letters, session, out)?;
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

fn write_table(letters: &[Value], session: &Session, out: &mut Output) -> Result<(), Failed> {
    if letters.is_empty() {
        return Ok(());
    }
    let mut table = Table::new([
        ("LETTER", Align::Left),
        ("MESSAGE", Align::Left),
        ("KEY", Align::Left),
        ("ATTEMPTS", Align::Right),
        ("DEAD", Align::Left),
        ("CLASS", Align::Left),
        ("REASON", Align::Left),
        ("ERROR", Align::Left),
    ]);
    let now = session.now();
    for letter in letters {
        let letter = LetterView::deserialize(letter).map_err(|error| session.strange(&error))?;
        table.row([
            letter.id,
            safe::short(&letter.message, ID_CHARS),
            safe::short(letter.key.as_deref().unwrap_or("-"), ID_CHARS),
            count(letter.attempts),
            letter.dead_at.map_or_else(|| "-".to_owned(), |at| age::since(now, at.0)),
            letter.class.unwrap_or_else(|| "-".to_owned()),
            letter.reason,
            safe::short(letter.error.as_deref().unwrap_or(""), ERROR_CHARS),
        ]);
    }
    out.table(&table)
}
