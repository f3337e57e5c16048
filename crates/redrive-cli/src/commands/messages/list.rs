//! The table of messages that are not terminal.

use redrive::Time;
use redrive_api::{Instant, ListedMessage};
use serde::Deserialize as _;
use serde_json::{Value, json};

use super::MessageStateArg;
use crate::args::whole;
use crate::client::{MessageQuery, Session};
use crate::commands::dlq::{expression, hide_secret_headers};
use crate::exit::{Exit, Failed};
use crate::output::{Align, Output, TextTable, age, count, safe};

/// How much of an error, and of an id or a key, a table shows.
const ERROR_CHARS: usize = 80;
const ID_CHARS: usize = 40;
/// The maximum number of messages per request.
const PAGE: u32 = 200;
const LIMIT_DEFAULT: u32 = 20;

#[derive(Debug, clap::Args)]
pub struct ListArgs {
    /// Messages in this state; default: every state
    #[arg(long, value_enum)]
    pub state: Option<MessageStateArg>,
    /// Messages that match, as in `tenant:acme attempts:>=3 age:>1h`
    #[arg(long, value_name = "EXPR", allow_hyphen_values = true, value_parser = expression)]
    pub filter: Option<String>,
    /// At most this many; default: 20
    #[arg(long, allow_hyphen_values = true, value_parser = whole::<u32>(1, 10_000))]
    pub limit: Option<u32>,
}

impl ListArgs {
    pub fn is_given(&self) -> bool {
        self.state.is_some() || self.filter.is_some() || self.limit.is_some()
    }
}

/// What a listing found.
pub struct Listed {
    pub messages: Vec<Value>,
    pub next: Option<String>,
    /// Pending messages that the processor has not read yet.
    pub unlisted: u64,
}

/// Requests pages until enough messages are found. A page may be short or even empty without being the last.
pub async fn gather(
    pipeline: &str,
    state: Option<MessageStateArg>,
    filter: Option<&str>,
    limit: u32,
    session: &Session,
) -> Result<Listed, Failed> {
    let mut query = MessageQuery {
        state: state.map(|state| state.name().to_owned()),
        filter: filter.map(str::to_owned),
        ..MessageQuery::default()
    };
    let (mut messages, mut unlisted) = (Vec::new(), 0);
    while (messages.len() as u32) < limit {
        query.limit = PAGE.min(limit - messages.len() as u32);
        let page = session.api.messages(pipeline, &query).await?.view;
        messages.extend(page.messages);
        unlisted += page.unlisted;
        query.cursor = page.next;
        if query.cursor.is_none() {
            break;
        }
    }
    Ok(Listed { messages, next: query.cursor, unlisted })
}

pub async fn run(
    pipeline: &str,
    args: &ListArgs,
    session: &Session,
    out: &mut Output,
) -> Result<Exit, Failed> {
    let limit = args.limit.unwrap_or(LIMIT_DEFAULT);
    let mut listed = gather(pipeline, args.state, args.filter.as_deref(), limit, session).await?;
    listed.messages.iter_mut().for_each(hide_secret_headers);
    if out.is_json() {
        let Listed { messages, next, unlisted } = listed;
        out.json(&json!({ "messages": messages, "next": next, "unlisted": unlisted }))?;
        return Ok(Exit::Ok);
    }
    write_table(&listed.messages, session, out)?;
    let shown = count(listed.messages.len() as u64);
    out.line(&match (listed.messages.is_empty(), listed.next.is_some()) {
        (true, _) => "no messages match".to_owned(),
        (false, true) => format!("   {shown} shown, more: --limit {}", limit.saturating_mul(2).min(10_000)),
        (false, false) => format!("   {shown} shown"),
    })?;
    if listed.unlisted > 0 {
        out.note(&format!(
            "  {} more are in the topics and not read by this processor yet; what other members own, they list",
            count(listed.unlisted)
        ));
    }
    Ok(Exit::Ok)
}

fn write_table(messages: &[Value], session: &Session, out: &mut Output) -> Result<(), Failed> {
    if messages.is_empty() {
        return Ok(());
    }
    let mut table = TextTable::new([
        ("MESSAGE", Align::Left),
        ("NUMBER", Align::Left),
        ("STATE", Align::Left),
        ("KEY", Align::Left),
        ("ATTEMPTS", Align::Right),
        ("AGE", Align::Left),
        ("DUE", Align::Left),
        ("CLASS", Align::Left),
        ("ERROR", Align::Left),
    ]);
    let now = session.now();
    for message in messages {
        let message = ListedMessage::deserialize(message).map_err(|error| session.strange(&error))?;
        table.row([
            safe::short(&message.id, ID_CHARS),
            message.number,
            message.state,
            safe::short(message.key.as_deref().unwrap_or("-"), ID_CHARS),
            count(message.attempts.into()),
            age::since(now, message.created.0),
            due(message.due, now),
            message.class.unwrap_or_else(|| "-".to_owned()),
            safe::short(message.error.as_deref().unwrap_or(""), ERROR_CHARS),
        ]);
    }
    out.table(&table)
}

/// `in 5m`, `now`, or empty for a message without a due time.
fn due(due: Option<Instant>, now: Time) -> String {
    match due {
        None => "-".to_owned(),
        Some(due) if due.0 > now => format!("in {}", age::age(due.0.since(now))),
        Some(_) => "now".to_owned(),
    }
}
