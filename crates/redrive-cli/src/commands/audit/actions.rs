//! `redrive audit --actions`: the action log.

use redrive_api::ActionView;
use serde::Deserialize as _;
use serde_json::Value;

use crate::client::Session;
use crate::commands::dlq::moment;
use crate::exit::{Exit, Failed};
use crate::output::{Align, Output, TextTable, count, instant, safe};

/// The maximum number of actions to request.
const LIMIT: u32 = 10_000;
const NOTE_CHARS: usize = 100;

pub async fn run(
    pipeline: &str,
    since: Option<&str>,
    session: &Session,
    out: &mut Output,
) -> Result<Exit, Failed> {
    let since = since.map(|since| moment(since, session.now())).transpose()?;
    session.api.pipeline(pipeline).await?;
    let all = session.api.actions(Some(pipeline), since.as_deref(), LIMIT).await?.view.actions;
    let full = all.len() >= LIMIT as usize;
    let mut shown = Vec::new();
    for json in all {
        let view = ActionView::deserialize(&json).map_err(|error| session.strange(&error))?;
        // An action without a pipeline concerns all of them.
        if view.pipeline.as_deref().is_none_or(|name| name == pipeline) {
            shown.push((json, view));
        }
    }
    write(&shown, out)?;
    if full {
        out.complain(&format!(
            "warning: {} actions are the most that are shown; give --since",
            count(LIMIT.into())
        ));
    }
    Ok(Exit::Ok)
}

fn write(actions: &[(Value, ActionView)], out: &mut Output) -> Result<(), Failed> {
    if out.is_json() {
        return actions.iter().try_for_each(|(json, _)| out.json(json));
    }
    if actions.is_empty() {
        return out.line("no actions");
    }
    let mut table = TextTable::new([
        ("AT", Align::Left),
        ("ACTOR", Align::Left),
        ("ACTION", Align::Left),
        ("ID", Align::Left),
        ("LETTERS", Align::Right),
        ("NOTE", Align::Left),
    ]);
    let dash = || "-".to_owned();
    for (_, action) in actions {
        table.row([
            instant::print(action.at.0),
            safe::short(&action.actor, 40),
            action.action.clone(),
            action.id.clone().unwrap_or_else(dash),
            action.letters.map_or_else(dash, count),
            note(action),
        ]);
    }
    out.table(&table)
}

/// The note of an action, after the number of subscriptions it concerned.
fn note(action: &ActionView) -> String {
    let about = action.subscriptions.filter(|about| *about > 0);
    let about = about.map(|about| {
        if about == 1 { "1 subscription".to_owned() } else { format!("{} subscriptions", count(about)) }
    });
    let about = about.or_else(|| action.unfinished.map(|_| "not finished".to_owned()));
    let said =
        action.note.as_deref().filter(|note| !note.is_empty()).map(|note| safe::short(note, NOTE_CHARS));
    about.into_iter().chain(said).collect::<Vec<_>>().join(": ")
}
