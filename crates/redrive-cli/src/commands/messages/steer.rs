//! Makes messages due or cancels them: one by one, each durable before the next.

use redrive_api::ListedMessage;
use serde::Deserialize as _;
use serde_json::json;

use super::MessageStateArg;
use super::list::gather;
use crate::client::{ClientFault, Session};
use crate::commands::dlq::expression;
use crate::exit::{Exit, Failed};
use crate::output::{Output, count, safe};

/// The maximum number of messages per command.
const MESSAGES_MAX: u32 = 10_000;

/// What to do, in the words of the API and of the output.
#[derive(Clone, Copy, Debug)]
pub struct Doing {
    word: &'static str,
    done: &'static str,
}

pub const RETRY: Doing = Doing { word: "retry", done: "due now" };
pub const CANCEL: Doing = Doing { word: "cancel", done: "cancelled" };

#[derive(Debug, clap::Args)]
pub struct SteerArgs {
    /// The messages' ids, or the numbers they are listed with, as in orders/17
    #[arg(value_name = "ID", required_unless_present_any = ["filter", "state"], conflicts_with_all = ["filter", "state"])]
    pub ids: Vec<String>,
    /// Messages that match, as in `tenant:acme attempts:>=3`; needs --yes
    #[arg(long, value_name = "EXPR", allow_hyphen_values = true, value_parser = expression)]
    pub filter: Option<String>,
    /// Messages in this state; needs --yes
    #[arg(long, value_enum)]
    pub state: Option<MessageStateArg>,
    /// Yes, all that match; without it they are only counted
    #[arg(long)]
    pub yes: bool,
}

pub async fn run(
    pipeline: &str,
    args: &SteerArgs,
    doing: Doing,
    session: &Session,
    out: &mut Output,
) -> Result<Exit, Failed> {
    let ids = if args.ids.is_empty() { selected(pipeline, args, session).await? } else { args.ids.clone() };
    if args.ids.is_empty() && !args.yes {
        if out.is_json() {
            out.json(&json!({ "would_change": ids.len() }))?;
        } else {
            out.line(&format!("would change {}", count(ids.len() as u64)))?;
            out.note("  nothing was changed: give --yes to do it");
        }
        return Ok(Exit::Ok);
    }
    let (mut changed, mut refused) = (0_u64, 0_u64);
    for id in &ids {
        match session.api.steer(pipeline, id, doing.word).await {
            Ok(steered) => {
                changed += 1;
                if out.is_json() {
                    out.json(&steered.json)?;
                } else {
                    let letter = steered.view.letter.map(|letter| format!(" as letter {letter}"));
                    out.line(&format!("{}   {}{}", safe::line(id), doing.done, letter.unwrap_or_default()))?;
                }
            }
            // For a single message the refusal is the answer; for several, one that cannot be changed must not stop the
            // others.
            Err(fault) if ids.len() > 1 && is_about_the_message(&fault) => {
                refused += 1;
                if out.is_json() {
                    out.json(&json!({ "id": id, "error": fault.to_string() }))?;
                } else {
                    out.line(&format!("{}   not changed: {fault}", safe::line(id)))?;
                }
            }
            Err(fault) => return Err(fault.into()),
        }
    }
    if ids.len() != 1 && !out.is_json() {
        out.line(&format!("{} {}   not changed {}", doing.done, count(changed), count(refused)))?;
    }
    Ok(if refused > 0 { Exit::Bad } else { Exit::Ok })
}

/// The ids of the messages that match now.
async fn selected(pipeline: &str, args: &SteerArgs, session: &Session) -> Result<Vec<String>, Failed> {
    let listed = gather(pipeline, args.state, args.filter.as_deref(), MESSAGES_MAX, session).await?;
    if listed.next.is_some() {
        return Err(Failed::usage(format!("more than {} messages match", count(MESSAGES_MAX.into())))
            .hint("narrow it down with --filter, for example by age or key"));
    }
    let id = |message| ListedMessage::deserialize(message).map(|message| message.id);
    let ids: Result<Vec<String>, _> = listed.messages.iter().map(id).collect();
    Ok(ids.map_err(|error| session.strange(&error))?)
}

fn is_about_the_message(fault: &ClientFault) -> bool {
    matches!(fault, ClientFault::Refused(refused) if matches!(refused.status, 404 | 409))
}
