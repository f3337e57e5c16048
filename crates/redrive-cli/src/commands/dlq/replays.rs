//! `redrive dlq replays`: lists the jobs, and pauses, resumes or ends one.

use redrive_api::ReplayJob;
use serde::Deserialize as _;

use super::replay::report::{held, sum, untouched_line};
use crate::client::{ApiAnswer, Session};
use crate::exit::{Exit, Failed};
use crate::output::{Align, Output, TextTable, age, count, instant, rate, safe};

/// How much of a selection a table shows.
const SELECTION_CHARS: usize = 40;

#[derive(Debug, clap::Args)]
pub struct ReplaysArgs {
    #[command(subcommand)]
    pub action: Option<ReplaysAction>,
    #[command(flatten)]
    pub list: ReplayListArgs,
}

#[derive(Debug, clap::Args)]
pub struct ReplayListArgs {
    /// Jobs of this pipeline only
    #[arg(long, value_name = "PIPELINE")]
    pub pipeline: Option<String>,
}

#[derive(Debug, clap::Subcommand)]
pub enum ReplaysAction {
    /// List the jobs, the latest first
    List(ReplayListArgs),
    /// Show one job
    Show(Job),
    /// Requeue no more letters until it is resumed; those already requeued continue
    Pause(Job),
    /// Resume a job that was paused or stopped
    Resume(Job),
    /// Abort a job; letters it has not reached stay open
    Abort(Job),
}

#[derive(Debug, clap::Args)]
pub struct Job {
    /// The job, as in r-31
    pub replay: String,
}

pub async fn run(args: &ReplaysArgs, session: &Session, out: &mut Output) -> Result<Exit, Failed> {
    let api = &session.api;
    let job = match &args.action {
        None => return list(&args.list, session, out).await,
        Some(ReplaysAction::List(args)) => return list(args, session, out).await,
        Some(ReplaysAction::Show(job)) => api.replay(&job.replay).await?,
        Some(ReplaysAction::Pause(job)) => api.replay_pause(&job.replay).await?,
        Some(ReplaysAction::Resume(job)) => api.replay_resume(&job.replay).await?,
        Some(ReplaysAction::Abort(job)) => api.replay_abort(&job.replay).await?,
    };
    show(&job, session, out)?;
    Ok(Exit::Ok)
}

async fn list(args: &ReplayListArgs, session: &Session, out: &mut Output) -> Result<Exit, Failed> {
    let pipeline = args.pipeline.as_deref();
    let answer = session.api.replays().await?;
    let views: Result<Vec<ReplayJob>, _> = answer.view.replays.iter().map(ReplayJob::deserialize).collect();
    let views = views.map_err(|error| session.strange(&error))?;
    let jobs = answer.view.replays.iter().zip(&views);
    let mut jobs = jobs.filter(|(_, job)| pipeline.is_none_or(|name| name == job.pipeline)).peekable();
    if let Some(pipeline) = pipeline.filter(|_| jobs.peek().is_none()) {
        // Jobs of a removed pipeline are still listed. A name that neither a pipeline nor a job has is a typo.
        let asked = session.api.pipeline(pipeline).await;
        if let Err(fault) = asked.map(drop)
            && fault.is_not_found()
        {
            return Err(fault.into());
        }
    }
    if out.is_json() {
        for (json, _) in jobs {
            out.json(json)?;
        }
        return Ok(Exit::Ok);
    }
    if jobs.peek().is_none() {
        out.line("no replays")?;
        return Ok(Exit::Ok);
    }
    let mut table = TextTable::new([
        ("REPLAY", Align::Left),
        ("PIPELINE", Align::Left),
        ("STATE", Align::Left),
        ("LETTERS", Align::Right),
        ("SUCCEEDED", Align::Right),
        ("DEAD AGAIN", Align::Right),
        ("UNDER WAY", Align::Right),
        ("SKIPPED", Align::Right),
        ("UNTOUCHED", Align::Right),
        ("AGE", Align::Left),
        ("BY", Align::Left),
        ("SELECTION", Align::Left),
    ]);
    let now = session.now();
    for (_, job) in jobs {
        table.row([
            job.id.clone(),
            job.pipeline.clone(),
            job.state.name().to_owned(),
            count(job.total),
            count(job.succeeded),
            count(job.dead_again),
            count(job.under_way),
            count(job.skipped),
            count(job.untouched),
            age::since(now, job.created.0),
            safe::line(&job.actor),
            safe::short(&job.selection, SELECTION_CHARS),
        ]);
    }
    out.table(&table)?;
    Ok(Exit::Ok)
}

fn show(job: &ApiAnswer<ReplayJob>, session: &Session, out: &mut Output) -> Result<(), Failed> {
    if out.is_json() {
        return out.json(&job.json);
    }
    let view = &job.view;
    let pace = view.rate.map(|pace| format!("   at {}", rate(pace))).unwrap_or_default();
    let (age, begun) = (age::since(session.now(), view.created.0), instant::print(view.created.0));
    out.line(&format!(
        "replay {}   {}   pipeline {}{pace}   begun {age} ago ({begun})   by {}",
        view.id,
        view.state.name(),
        view.pipeline,
        safe::line(&view.actor)
    ))?;
    out.line(&format!("  {}", sum(view)))?;
    held(view, session.now()).map_or(Ok(()), |held| out.line(&format!("  {held}")))?;
    out.line(&format!("  selection {}", safe::line(&view.selection)))?;
    if let Some(note) = &view.note {
        out.line(&format!("  note {}", safe::line(note)))?;
    }
    untouched_line(view).map_or(Ok(()), |line| out.line(&line))
}
