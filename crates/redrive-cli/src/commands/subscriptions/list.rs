//! Lists subscriptions: counts, rows, keys.

use redrive_api::{SubscriptionPage, SubscriptionView};
use serde::Deserialize as _;
use serde_json::Value;

use super::{NamedEndpoint, State};
use crate::args::whole;
use crate::client::{ApiAnswer, Session};
use crate::exit::{Exit, Failed};
use crate::output::{Align, Output, TextTable, age, count, safe};

/// The number of rows per request.
const PAGE: u32 = 500;
const LIMIT_DEFAULT: u32 = 20;
const REASON_CHARS: usize = 60;
const ID_CHARS: usize = 40;

#[derive(Debug, clap::Args)]
pub struct ListArgs {
    /// The pipeline
    pub pipeline: String,
    /// Those in this state; default: every state
    #[arg(long, value_enum)]
    pub state: Option<State>,
    /// At most this many; default: 20
    #[arg(long, allow_hyphen_values = true, value_parser = whole::<u32>(1, 10_000))]
    pub limit: Option<u32>,
}

#[derive(Debug, clap::Args)]
pub struct ExportArgs {
    /// The pipeline
    pub pipeline: String,
    /// Those in this state; default: every state
    #[arg(long, value_enum)]
    pub state: Option<State>,
}

/// `active 18,204   flagged 31 (…)   purged 212`.
pub async fn summary(pipeline: &str, session: &Session, out: &mut Output) -> Result<Exit, Failed> {
    let answer = session.api.subscriptions(pipeline, None, 1, None).await?;
    let page = &answer.view;
    if out.is_json() {
        let mut json = answer.json.clone();
        if let Value::Object(fields) = &mut json {
            fields.remove("subscriptions");
            fields.remove("next");
        }
        out.json(&json)?;
        return Ok(exit(page));
    }
    let verify = if page.purge == "verify" { " (verified at a delivery at least 1 h later)" } else { "" };
    out.line(&format!(
        "active about {}   flagged {}{verify}   purged {}   stored {}",
        count(page.active),
        count(page.flagged),
        count(page.purged),
        count(page.stored),
    ))?;
    if page.purged > 0 {
        out.note(&format!("  take back: redrive subscriptions undo {pipeline} --since 1h"));
    }
    warn(pipeline, page, out);
    Ok(exit(page))
}

/// Bad if something needs attention.
fn exit(page: &SubscriptionPage<Value>) -> Exit {
    let lost = page.unwritten + page.without_key + page.damaged;
    let is_bad = page.stopped.is_some() || page.full || lost > 0;
    if is_bad { Exit::Bad } else { Exit::Ok }
}

fn warn(pipeline: &str, page: &SubscriptionPage<Value>, out: &mut Output) {
    if let Some(stopped) = &page.stopped {
        let why = if stopped.active == 0 && stopped.purged == 0 {
            "the damaged part of subscriptions.log records whether purging is stopped, so it stays stopped"
                .to_owned()
        } else {
            let percent = stopped.percent;
            format!(
                "{percent} % of active subscriptions answered 404/410 in 5 min (limit 2 %). Looks like a fault at the push \
                 service or at us"
            )
        };
        out.complain(&format!(
            "purging stopped: {why}. Resume with: redrive subscriptions resume {pipeline}"
        ));
    }
    if page.full {
        out.complain("the table is full: further endpoints that are gone are not remembered");
    }
    if page.unwritten > 0 {
        out.complain(&format!("{} changes are not durable; see the log", count(page.unwritten)));
    }
    if page.unannounced > 0 {
        out.note(&format!("  not announced to `on_purged` yet: {}", count(page.unannounced)));
    }
    if page.without_key > 0 {
        out.complain(&format!(
            "{} stored subscriptions were made with a VAPID key that is not configured: see redrive subscriptions keys \
             {pipeline}",
            count(page.without_key)
        ));
    }
    if page.damaged > 0 {
        out.complain(&format!(
            "{} lines of subscriptions.log are damaged: see redrive journal --verify",
            count(page.damaged)
        ));
    }
}

pub async fn list(args: &ListArgs, session: &Session, out: &mut Output) -> Result<Exit, Failed> {
    let limit = args.limit.unwrap_or(LIMIT_DEFAULT);
    let (mut rows, mut cursor) = (Vec::new(), None);
    while (rows.len() as u32) < limit {
        let wanted = PAGE.min(limit - rows.len() as u32);
        let page =
            session.api.subscriptions(&args.pipeline, args.state.map(State::name), wanted, cursor).await?;
        rows.extend(page.view.subscriptions);
        cursor = page.view.next;
        if cursor.is_none() {
            break;
        }
    }
    if out.is_json() {
        out.json(&serde_json::json!({ "subscriptions": rows, "next": cursor }))?;
        return Ok(Exit::Ok);
    }
    let views: Result<Vec<SubscriptionView>, _> = rows.iter().map(SubscriptionView::deserialize).collect();
    write_rows(&views.map_err(|error| session.strange(&error))?, session, out)?;
    let shown = count(rows.len() as u64);
    out.line(&match (rows.is_empty(), cursor.is_some()) {
        (true, _) => "none; endpoints that were never flagged or stored are not listed".to_owned(),
        (false, true) => format!("   {shown} shown, more: --limit {}", limit.saturating_mul(2).min(10_000)),
        (false, false) => format!("   {shown} shown"),
    })?;
    Ok(Exit::Ok)
}

pub async fn show(args: &NamedEndpoint, session: &Session, out: &mut Output) -> Result<Exit, Failed> {
    let answer = session.api.subscription(&args.pipeline, &args.id).await?;
    write(&answer, session, out)
}

pub async fn export(args: &ExportArgs, session: &Session, out: &mut Output) -> Result<Exit, Failed> {
    let (mut cursor, mut exported) = (None, 0_u64);
    loop {
        let page =
            session.api.subscriptions(&args.pipeline, args.state.map(State::name), PAGE, cursor).await?;
        for row in &page.view.subscriptions {
            out.json(row)?;
            exported += 1;
        }
        cursor = page.view.next;
        if cursor.is_none() {
            break;
        }
    }
    out.note(&format!("exported {} subscriptions", count(exported)));
    Ok(Exit::Ok)
}

pub async fn keys(pipeline: &str, session: &Session, out: &mut Output) -> Result<Exit, Failed> {
    let answer = session.api.subscription_keys(pipeline).await?;
    if out.is_json() {
        out.json(&answer.json)?;
        return Ok(Exit::Ok);
    }
    let mut table =
        TextTable::new([("KEY", Align::Left), ("SUBSCRIPTIONS", Align::Right), ("CONFIGURED", Align::Left)]);
    for key in &answer.view.keys {
        let configured = if key.configured == Some(false) { "NO" } else { "yes" };
        let name = safe::line(key.key.as_deref().unwrap_or("-"));
        table.row([name, count(key.subscriptions), configured.to_owned()]);
    }
    out.table(&table)?;
    if answer.view.keys.iter().any(|key| key.configured == Some(false)) {
        out.complain(
            "a key that is still used is not configured: put its file into `previous_vapid_key_files`, or let those \
             browsers subscribe again",
        );
        return Ok(Exit::Bad);
    }
    Ok(Exit::Ok)
}

/// The ids of an endpoint's stored subscriptions.
fn ids(ids: &[String]) -> String {
    if ids.is_empty() { "-".to_owned() } else { safe::short(&ids.join(", "), ID_CHARS) }
}

/// Prints one endpoint as a table with one row.
pub fn write(
    answer: &ApiAnswer<SubscriptionView>,
    session: &Session,
    out: &mut Output,
) -> Result<Exit, Failed> {
    if out.is_json() {
        out.json(&answer.json)?;
    } else {
        write_rows(std::slice::from_ref(&answer.view), session, out)?;
    }
    Ok(Exit::Ok)
}

fn write_rows(rows: &[SubscriptionView], session: &Session, out: &mut Output) -> Result<(), Failed> {
    if rows.is_empty() {
        return Ok(());
    }
    let mut table = TextTable::new([
        ("ENDPOINT", Align::Left),
        ("ID", Align::Left),
        ("STATE", Align::Left),
        ("STATUS", Align::Right),
        ("SINCE", Align::Left),
        ("BY", Align::Left),
        ("REASON", Align::Left),
    ]);
    for row in rows {
        let by = row.actor.as_deref().or(row.cause.as_deref());
        table.row([
            row.endpoint_hash.clone(),
            ids(&row.ids),
            row.state.clone(),
            row.status.map_or_else(|| "-".to_owned(), |status| status.to_string()),
            row.at.map_or_else(|| "-".to_owned(), |at| age::since(session.now(), at.0)),
            safe::short(by.unwrap_or("-"), ID_CHARS),
            safe::short(row.reason.as_deref().unwrap_or("-"), REASON_CHARS),
        ]);
    }
    out.table(&table)
}
