//! `redrive status`: the live state of one pipeline or of all, once or every second.

mod condition;
mod endpoints;
mod health;
mod key;
#[cfg(feature = "kafka")]
mod members;
mod watch;

use redrive::Time;
use redrive_api::{Instant, PipelineView, Recent};
use serde_json::Value;

use crate::args::Global;
use crate::client::{ClientFault, Session, with_api};
use crate::exit::{Exit, Failed};
use crate::output::{Output, Style, age, count};

#[derive(Debug, clap::Args)]
pub struct StatusArgs {
    /// The pipeline; default: all
    pub pipeline: Option<String>,
    /// Print a line every second until ^C
    #[arg(long)]
    pub watch: bool,
    /// Show what the messages of this key wait behind, where `ordering` is key
    #[arg(long, value_name = "KEY", requires = "pipeline", conflicts_with = "watch")]
    pub key: Option<String>,
    /// Show the processes of the Kafka group, with their partitions; needs the configuration, not a processor
    #[arg(long, requires = "pipeline", conflicts_with_all = ["watch", "key"])]
    pub members: bool,
}

pub fn run(args: &StatusArgs, global: &Global, out: &mut Output) -> Result<Exit, Failed> {
    if let (Some(pipeline), true) = (&args.pipeline, args.members) {
        return show_members(pipeline, global, out);
    }
    with_api(global, out, async |session, out| {
        if let (Some(pipeline), Some(key)) = (&args.pipeline, &args.key) {
            return key::run(pipeline, key, session, out).await;
        }
        if args.watch {
            return watch::run(args.pipeline.as_deref(), session, out).await;
        }
        let found = look(args.pipeline.as_deref(), session).await?;
        if found.is_empty() {
            out.note("the processor has no pipelines");
        }
        for (json, view) in &found {
            write(json, view, session.now(), out)?;
        }
        Ok(Exit::Ok)
    })
}

#[cfg(feature = "kafka")]
fn show_members(pipeline: &str, global: &Global, out: &mut Output) -> Result<Exit, Failed> {
    members::run(pipeline, global, out)
}

#[cfg(not(feature = "kafka"))]
fn show_members(_: &str, _: &Global, _: &mut Output) -> Result<Exit, Failed> {
    Err(Failed::usage("this build has no Kafka engine").hint("build it with the feature `kafka`"))
}

/// Requests one pipeline, or all.
async fn look(pipeline: Option<&str>, session: &Session) -> Result<Vec<(Value, PipelineView)>, ClientFault> {
    if let Some(name) = pipeline {
        let answer = session.api.pipeline(name).await?;
        return Ok(vec![(answer.json, answer.view)]);
    }
    let mut answer = session.api.pipelines().await?;
    let jsons = answer.json.get_mut("pipelines").and_then(Value::as_array_mut).map(std::mem::take);
    Ok(jsons.unwrap_or_default().into_iter().zip(answer.view.pipelines).collect())
}

/// Prints the current state of a pipeline.
pub fn write(json: &Value, view: &PipelineView, now: Time, out: &mut Output) -> Result<(), Failed> {
    if out.is_json() {
        return out.json(json);
    }
    let paused =
        if view.paused { format!("   {}", out.paint(Style::Warning, "PAUSED")) } else { String::new() };
    let breaker = health::head(view, now).map(|head| format!("   {}", out.paint(Style::Warning, &head)));
    let breaker = breaker.unwrap_or_default();
    match health::standing(view, now).filter(|_| !view.paused) {
        Some(held) => {
            out.line(&format!("pipeline {}{breaker}", view.name))?;
            out.line(&format!("  {held}"))?;
        }
        None => out.line(&format!("pipeline {}{paused}{breaker}   {}", view.name, standing(view, now)))?,
    }
    for line in health::lines(view) {
        out.line(&format!("  {line}"))?;
    }
    for problem in &view.condition.problems {
        let sign = out.paint(Style::Error, "✗");
        out.line(&format!("  {sign} {}: {}", problem.place, problem.problem))?;
    }
    for line in condition::lines(&view.condition) {
        out.line(&format!("  {line}"))?;
    }
    if let Some(target) = &view.target {
        out.line(&format!("  delivers to {target} ({})", view.sink))?;
    }
    out.line(&format!("  {}", done(view)))?;
    recent(view).map_or(Ok(()), |recent| out.line(&format!("  {recent}")))
}

/// The counts of pending messages and letters.
fn standing(view: &PipelineView, now: Time) -> String {
    let oldest =
        |at: Option<Instant>| at.map(|at| format!(" (oldest {})", age::since(now, at.0))).unwrap_or_default();
    let pending = &view.pending;
    let mut parts =
        vec![format!("ready {}", count(pending.ready)), format!("delayed {}", count(pending.delayed))];
    parts.push(format!("held {}", count(pending.held)));
    parts.push(format!("in flight {}", count(pending.in_flight)));
    if pending.key_wait > 0 {
        parts.push(format!("waiting for their key {}", count(pending.key_wait)));
    }
    if view.oldest_pending.is_some() {
        parts.push(format!("oldest pending {}", oldest_age(view.oldest_pending.map(|at| at.0), now)));
    }
    let reading = if view.condition.letters_loading { " (still reading)" } else { "" };
    parts.push(format!("dead {}{}{reading}", count(view.letters.open), oldest(view.oldest_letter)));
    if view.letters.replaying > 0 {
        parts.push(format!("replaying {}", count(view.letters.replaying)));
    }
    parts.join("   ")
}

fn oldest_age(at: Option<Time>, now: Time) -> String {
    at.map_or_else(|| "-".to_owned(), |at| age::since(now, at))
}

/// The counts since the processor started.
fn done(view: &PipelineView) -> String {
    [
        format!("since start: succeeded {}", count(view.succeeded)),
        format!("dead {}", count(view.dead)),
        format!("retried {}", count(view.retried)),
        format!("attempts {}", count(view.attempts)),
    ]
    .join("   ")
}

/// Recent latencies and failures, if there was any work. The time that messages were held is shown separately.
fn recent(view: &PipelineView) -> Option<String> {
    let Recent { window_s, held, failed_replayed, .. } = view.recent;
    let named = |name: &str, ms: Option<f64>| ms.map(|ms| format!("{name} {}", milliseconds(ms)));
    let mut parts: Vec<String> = named("p99", view.recent.end_to_end_p99_ms).into_iter().collect();
    parts.extend(named("late p99", view.recent.late_p99_ms));
    parts.extend(
        named("held p99", view.recent.held_p99_ms).map(|p99| format!("{p99} ({} messages)", count(held))),
    );
    let failed = view.recent.failed.iter();
    let failed: Vec<String> = failed.map(|of| format!("{} × {}", count(of.attempts), of.kind)).collect();
    if !failed.is_empty() {
        let replayed = match failed_replayed {
            0 => String::new(),
            replayed => format!(" ({} of replayed letters)", count(replayed)),
        };
        parts.push(format!("failed attempts {}{replayed}", failed.join(", ")));
    }
    (!parts.is_empty()).then(|| format!("last {} min: {}", window_s / 60, parts.join("   ")))
}

/// `3.2 ms`, `41 ms`, `8.4 s`, `53m`.
fn milliseconds(ms: f64) -> String {
    match ms {
        ..10.0 => format!("{ms:.1} ms"),
        ..1_000.0 => format!("{ms:.0} ms"),
        ..60_000.0 => format!("{:.1} s", ms / 1_000.0),
        _ => age::age(std::time::Duration::from_secs((ms / 1_000.0) as u64)),
    }
}
