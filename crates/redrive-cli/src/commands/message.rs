//! `redrive message`: one message by its id, with the result of each attempt.

use redrive_api::{Instant, MessageView};
use serde_json::{Value, json};

use crate::args::Global;
use crate::client::{Session, with_api};
use crate::commands::dlq::timeline;
use crate::exit::{Exit, Failed};
use crate::output::{Output, age, count, instant, safe};

#[derive(Debug, clap::Args)]
pub struct MessageArgs {
    /// The message's id, or the number it is listed with, as in orders/17
    pub id: String,
    /// Look in this pipeline only; default: in all
    #[arg(long, value_name = "PIPELINE")]
    pub pipeline: Option<String>,
}

pub fn run(args: &MessageArgs, global: &Global, out: &mut Output) -> Result<Exit, Failed> {
    with_api(global, out, async |session, out| show(args, session, out).await)
}

async fn show(args: &MessageArgs, session: &Session, out: &mut Output) -> Result<Exit, Failed> {
    let pipelines = match &args.pipeline {
        Some(name) => vec![name.clone()],
        None => session.api.pipelines().await?.view.pipelines.into_iter().map(|p| p.name).collect(),
    };
    let (mut found, mut missing) = (0, None);
    for pipeline in &pipelines {
        match session.api.message(pipeline, &args.id).await {
            Ok(mut answer) => {
                found += 1;
                if out.is_json() {
                    if let Value::Object(fields) = &mut answer.json {
                        fields.insert("pipeline".to_owned(), json!(pipeline));
                    }
                    out.json(&answer.json)?;
                } else {
                    for line in lines(pipeline, &answer.view, session) {
                        out.line(&line)?;
                    }
                }
            }
            Err(fault) if fault.is_not_found() => missing = Some(fault),
            Err(fault) => return Err(fault.into()),
        }
    }
    match missing {
        _ if found > 0 => Ok(Exit::Ok),
        Some(fault) if pipelines.len() == 1 => Err(fault.into()),
        _ => Err(Failed::usage(format!("no pipeline knows a message `{}`", safe::line(&args.id))).hint(
            "ids are remembered for the pipeline's `dedup` time, and dead letters until they are discarded",
        )),
    }
}

fn lines(pipeline: &str, message: &MessageView, session: &Session) -> Vec<String> {
    let mut first = vec![
        format!("message  {}", safe::line(&message.id)),
        format!("pipeline {pipeline}"),
        format!("state {}", message.state),
    ];
    first.extend(message.attempts.map(|attempts| format!("attempts {}", count(attempts.into()))));
    first.extend(message.due.map(|due| format!("due {}", when(due, session))));
    first.extend(message.deadline.map(|deadline| format!("deadline {}", instant::print(deadline.0))));
    let mut lines = vec![first.join("   ")];
    if let Some(id) = &message.continued_as {
        lines.push(format!("edited   continued as {}", safe::line(id)));
    }
    if let Some(id) = &message.accepted_as {
        lines.push(format!("edited   accepted as {}", safe::line(id)));
    }
    if let Some(letter) = &message.letter {
        let reason = message.reason.as_deref().map(|reason| format!("   reason {reason}"));
        lines.push(format!("letter   {letter}{}", reason.unwrap_or_default()));
    }
    lines.extend(timeline(&message.history, message.state == "erased"));
    lines
}

/// `in 5m (2026-11-15T21:40:05.120Z)`.
fn when(at: Instant, session: &Session) -> String {
    let (now, at) = (session.now(), at.0);
    let span = if at > now {
        format!("in {}", age::age(at.since(now)))
    } else {
        format!("{} ago", age::since(now, at))
    };
    format!("{span} ({})", instant::print(at))
}
