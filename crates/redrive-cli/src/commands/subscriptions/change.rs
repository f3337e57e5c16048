//! Changes of subscriptions: flags, purges, undo, and stored subscriptions.

use std::io::Read as _;

use redrive_api::{NamedSubscription, NewSubscription, UndoSubscription};
use serde_json::Value;

use super::{NamedEndpoint, list};
use crate::client::Session;
use crate::exit::{Exit, Failed};
use crate::output::{Output, count, safe};

/// A subscription is never larger.
const INPUT_BYTES_MAX: u64 = 64 * 1024;

#[derive(Debug, clap::Args)]
pub struct MarkArgs {
    /// The pipeline
    pub pipeline: String,
    /// A hash as in hmac-sha256:5bdcc146bf60754e, or the id of a stored subscription
    #[arg(value_name = "HASH|ID")]
    pub id: String,
    /// Reason, recorded with your name
    #[arg(long)]
    pub reason: String,
}

#[derive(Debug, clap::Args)]
pub struct UndoArgs {
    /// The pipeline
    pub pipeline: String,
    /// A hash, or the id of a stored subscription
    #[arg(value_name = "HASH|ID", required_unless_present = "since", conflicts_with = "since")]
    pub id: Option<String>,
    /// All purges since: 1h ago, or an RFC 3339 time
    #[arg(long, allow_hyphen_values = true, value_name = "AGE|TIME")]
    pub since: Option<String>,
}

#[derive(Debug, clap::Args)]
pub struct RegisterArgs {
    /// The pipeline
    pub pipeline: String,
    /// The id that messages name, as in user-5512/phone
    pub id: String,
    /// The subscription as the browser gave it; `-`, or nothing, reads it from the standard input
    #[arg(value_name = "JSON", default_value = "-")]
    pub subscription: String,
}

/// Flags or purges an endpoint; `word` is `flag` or `purge`.
pub async fn mark(args: &MarkArgs, word: &str, session: &Session, out: &mut Output) -> Result<Exit, Failed> {
    let endpoint = NamedSubscription { id: args.id.clone(), reason: Some(args.reason.clone()) };
    list::write(&session.api.subscription_mark(&args.pipeline, word, &endpoint).await?, session, out)
}

pub async fn undo(args: &UndoArgs, session: &Session, out: &mut Output) -> Result<Exit, Failed> {
    let undo = match &args.id {
        Some(id) => UndoSubscription { id: Some(id.clone()), since: None },
        None => UndoSubscription { id: None, since: args.since.clone() },
    };
    let answer = session.api.subscription_undo(&args.pipeline, &undo).await?;
    if out.is_json() {
        out.json(&answer.json)?;
    } else {
        out.line(&format!("undone {}", count(answer.view.undone)))?;
    }
    Ok(Exit::Ok)
}

pub async fn resume(pipeline: &str, session: &Session, out: &mut Output) -> Result<Exit, Failed> {
    let answer = session.api.subscription_resume(pipeline).await?;
    if out.is_json() {
        out.json(&answer.json)?;
    } else {
        out.line("purging resumed")?;
    }
    Ok(Exit::Ok)
}

pub async fn register(args: &RegisterArgs, session: &Session, out: &mut Output) -> Result<Exit, Failed> {
    let text = if args.subscription == "-" { read_input()? } else { args.subscription.clone() };
    let subscription: Value = serde_json::from_str(&text).map_err(|error| {
        Failed::usage(format!(
            "the subscription is not JSON at line {} column {}",
            error.line(),
            error.column()
        ))
    })?;
    let subscription = NewSubscription { id: args.id.clone(), subscription };
    list::write(&session.api.subscription_register(&args.pipeline, &subscription).await?, session, out)
}

pub async fn remove(args: &NamedEndpoint, session: &Session, out: &mut Output) -> Result<Exit, Failed> {
    let subscription = NamedSubscription { id: args.id.clone(), reason: None };
    let answer = session.api.subscription_remove(&args.pipeline, &subscription).await?;
    if out.is_json() {
        out.json(&answer.json)?;
    } else {
        out.line(&format!("removed {}", safe::line(&answer.view.removed)))?;
    }
    Ok(Exit::Ok)
}

fn read_input() -> Result<String, Failed> {
    let mut text = String::new();
    let read = std::io::stdin().take(INPUT_BYTES_MAX).read_to_string(&mut text);
    read.map_err(|error| Failed::usage(format!("the standard input cannot be read: {error}")))?;
    Ok(text)
}
