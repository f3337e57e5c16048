//! `redrive dlq replay`: starts a job or resumes one, and follows it to its end.

mod plan;
pub(super) mod report;

use std::time::{Duration, Instant};

use redrive::internal::letters::select::SELECTION_MAX;
use redrive::internal::replay::pace::RATE_MAX;
use redrive::replay::ReplayError;
use redrive_api::{JobState, NotOpenLetter, ReplayForecast, ReplayJob, StartReplay};
use redrive_core::Ratio;
use serde_json::json;

use self::plan::{details, later_successes, others, plural, superseded, would};
use self::report::{DONE_ALREADY, held, held_because, reached, report, sum, tally, untouched_line};
use super::Selection;
use super::selection::say_not_open;
use crate::args::whole;
use crate::client::{ApiAnswer, ClientFault, Session};
use crate::exit::{Exit, Failed};
use crate::output::{Output, count, instant, rate, safe};

/// How often the job is polled.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// How long a processor may be unreachable before following stops: long enough for a restart.
const AWAY_MAX: Duration = Duration::from_mins(1);

#[derive(Debug, clap::Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of the command line")]
pub struct ReplayArgs {
    /// The pipeline; not needed with --resume or --abort
    #[arg(required_unless_present_any = ["resume", "abort"])]
    pub pipeline: Option<String>,
    #[command(flatten)]
    pub selection: Selection,
    /// Show the plan, and change nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Show the plan with this list, and change nothing
    #[arg(long, value_name = "LIST")]
    pub show: Option<Show>,
    /// The pace: 20/s, 600/m; default: as fast as the pipeline takes them
    #[arg(long, allow_hyphen_values = true, value_name = "RATE", value_parser = pace)]
    pub rate: Option<f64>,
    /// Replay this many first, and the rest only once these have succeeded; default: 10, 0 for none
    #[arg(long, allow_hyphen_values = true, value_name = "N", value_parser = canary)]
    pub canary: Option<u64>,
    /// Stop when more than this share of the last 50 letters died again; default: 20%, off for never
    #[arg(long, allow_hyphen_values = true, value_name = "SHARE", value_parser = share)]
    pub stop_at: Option<String>,
    /// What to do with letters that have an attempt whose end is unknown: the receiver may have acted on it
    #[arg(long, value_name = "DECISION")]
    pub ambiguous: Option<Ambiguous>,
    /// Replay also letters that were first attempted before the pipeline's `ledger_horizon`
    #[arg(long)]
    pub beyond_ledger: bool,
    /// Leave letters open whose key has had a later success
    #[arg(long)]
    pub skip_superseded: bool,
    /// Take no more letters of one tenant than this, with those that wait in other replays; the others stay open
    #[arg(long, value_name = "N", allow_hyphen_values = true, value_parser = whole::<u64>(1, SELECTION_MAX as u64))]
    pub tenant_max: Option<u64>,
    /// Replay also letters that were replayed three times already
    #[arg(long)]
    pub force: bool,
    /// Where the letters go: the pipeline's own replay topic, or the topic they came from, which others read too
    #[arg(long, value_name = "WHERE")]
    pub to: Option<To>,
    /// Proceed even if other consumer groups will receive the letters again
    #[arg(long, requires = "to")]
    pub yes: bool,
    /// Resume a job that was paused or stopped, or follow one that runs
    #[arg(long, value_name = "REPLAY", conflicts_with_all = ["filter", "ids", "since", "all", "dry_run", "show", "rate", "canary", "stop_at", "ambiguous", "beyond_ledger", "skip_superseded", "tenant_max", "force", "to"])]
    pub resume: Option<String>,
    /// End a job; letters it has not reached stay open
    #[arg(long, value_name = "REPLAY", conflicts_with_all = ["resume", "filter", "ids", "since", "all", "dry_run", "show", "rate", "canary", "stop_at", "ambiguous", "beyond_ledger", "skip_superseded", "tenant_max", "force", "to", "detach"])]
    pub abort: Option<String>,
    /// Start the job and do not wait for it
    #[arg(long)]
    pub detach: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum To {
    Pipeline,
    Source,
}

impl To {
    const fn name(self) -> &'static str {
        match self {
            Self::Pipeline => "pipeline",
            Self::Source => "source",
        }
    }
}

/// Lists that a plan can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Show {
    /// Keys that have had a later success, so that a replay writes old state over new
    Superseded,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Ambiguous {
    /// Replay them with the same message id
    Ok,
    /// Leave them open
    Skip,
}

impl Ambiguous {
    const fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Skip => "skip",
        }
    }
}

/// Parses a rate within the limits of a replay.
fn pace(text: &str) -> Result<f64, String> {
    let rate = redrive_core::rate::parse(text).map_err(|error| error.to_string())?;
    let is_sound = ReplayError::check_asked_rate(Some(rate)).is_ok();
    is_sound.then_some(rate).ok_or_else(|| format!("must be 1/h to {}/s", count(RATE_MAX as u64)))
}

/// Parses a canary size within the limits of a replay.
fn canary(text: &str) -> Result<u64, String> {
    let most = SELECTION_MAX as u64;
    let number: u64 =
        text.parse().map_err(|_| format!("it is not a whole number from 0 to {}", count(most)))?;
    if number > most {
        return Err(format!("a replay has at most {} letters; give a few, such as 10", count(most)));
    }
    Ok(number)
}

/// Parses a share or `off`, and keeps it as typed.
fn share(text: &str) -> Result<String, String> {
    match text.parse::<Ratio>() {
        _ if text == "off" => Ok(text.to_owned()),
        Ok(share) if share <= Ratio::WHOLE => Ok(text.to_owned()),
        Ok(_) => Err("it is more than 100%".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

pub async fn run(args: &ReplayArgs, session: &Session, out: &mut Output) -> Result<Exit, Failed> {
    if let (Some(pipeline), Some(id)) = (&args.pipeline, args.abort.as_ref().or(args.resume.as_ref())) {
        let of = session.api.replay(id).await?.view.pipeline;
        if of != *pipeline {
            let message =
                format!("replay {id} belongs to pipeline `{}`, not to `{pipeline}`", safe::line(&of));
            return Err(Failed::usage(message)
                .hint("nothing was done; leave the pipeline out, or name the right one"));
        }
    }
    if let Some(id) = &args.abort {
        let job = session.api.replay_abort(id).await?;
        return if out.is_json() {
            out.json(&job.json)?;
            Ok(Exit::Ok)
        } else {
            out.line(&format!("replay {id}  aborted: {}", sum(&job.view)))?;
            untouched_line(&job.view).map_or(Ok(()), |line| out.line(&line))?;
            Ok(Exit::Ok)
        };
    }
    let (job, prefix) = match &args.resume {
        Some(id) => resume(id, session).await?,
        None => match start(args, session, out).await? {
            Started::Job(job) => (job, String::new()),
            Started::Planned(exit) => return Ok(exit),
        },
    };
    let not_open = job.view.plan.as_ref().map_or_else(Vec::new, |plan| plan.not_open.clone());
    if !out.is_json() {
        say_not_open(&not_open, "replayed", out)?;
    }
    let exit =
        if args.detach { detach(&job, out)? } else { follow(job, &prefix, &not_open, session, out).await? };
    // Some named letters were not open, so the request was not met in full, however well the others went.
    Ok(if exit == Exit::Ok && !not_open.is_empty() { Exit::Bad } else { exit })
}

/// The result of starting a job.
#[expect(clippy::large_enum_variant, reason = "made once")]
enum Started {
    Job(ApiAnswer<ReplayJob>),
    /// Only the plan was requested.
    Planned(Exit),
}

/// Starts a job; a dry run only forecasts it.
async fn start(args: &ReplayArgs, session: &Session, out: &mut Output) -> Result<Started, Failed> {
    let mut replay = StartReplay {
        pipeline: args.pipeline.clone().unwrap_or_default(),
        rate: args.rate,
        force: args.force,
        to: args.to.map(|to| to.name().to_owned()),
        canary: args.canary,
        stop_at: args.stop_at.clone(),
        ambiguous: args.ambiguous.map(|decision| decision.name().to_owned()),
        beyond_ledger: args.beyond_ledger,
        skip_superseded: args.skip_superseded,
        tenant_max: args.tenant_max,
        dry_run: true,
        ..StartReplay::about(args.selection.letters("replay", session.now())?)
    };
    if args.dry_run || args.show.is_some() {
        let dry = session.api.replay_dry(&replay).await?;
        let pipeline = args.pipeline.as_deref().unwrap_or_default();
        let exit = exit_of_plan(&dry.view);
        if out.is_json() {
            out.json(&dry.json)?;
            args.selection.fail_if_empty(selected(&dry.view), "open letter", pipeline)?;
            return Ok(Started::Planned(exit));
        }
        args.selection.fail_if_empty(selected(&dry.view), "open letter", pipeline)?;
        out.line(&would(&dry.view, pipeline))?;
        for line in details(&dry.view, session.now()) {
            out.line(&line)?;
        }
        say_not_open(&dry.view.not_open, "replayed", out)?;
        if let Some(groups) = &dry.view.other_groups {
            out.line(&others(groups))?;
        }
        if args.show == Some(Show::Superseded) {
            superseded(&dry.view.superseded, out)?;
        }
        return Ok(Started::Planned(exit));
    }
    if args.to == Some(To::Source) {
        let dry = session.api.replay_dry(&replay).await?;
        let groups = dry.view.other_groups.unwrap_or_default();
        if !args.yes {
            let hint = "give --yes if that is meant; without --to source only this pipeline gets them";
            return Err(Failed::usage(others(&groups)).hint(hint));
        }
        out.note(&others(&groups));
    }
    replay.dry_run = false;
    let pipeline = args.pipeline.as_deref().unwrap_or_default();
    let job = session.api.replay_start(&replay).await.map_err(|fault| match &fault {
        ClientFault::Refused(no) if no.refusal.message == ReplayError::Nothing.to_string() => {
            args.selection.no_letter("open letter", pipeline)
        }
        _ => fault.of_change(|| {
            let shows = "`redrive dlq replays list` shows it";
            format!("the replay may have begun: {shows}, `redrive dlq replay --resume ID` follows it")
        }),
    })?;
    if let Some(plan) = &job.view.plan {
        let first = later_successes(plan).map(|line| format!("  {line}"));
        first.into_iter().chain(details(plan, session.now())).for_each(|line| out.note(&line));
    }
    Ok(Started::Job(job))
}

/// The exit code of a dry run: that of the replay, if it would refuse to start or do nothing.
fn exit_of_plan(dry: &ReplayForecast) -> Exit {
    let left_open = dry.ambiguous_skipped + dry.superseded_skipped + dry.beyond_quota;
    match dry.would_replay {
        0 if dry.skips.values().any(|letters| *letters > 0) => Exit::Bad,
        0 if left_open > 0 => Exit::Usage,
        0 if !dry.taken.is_empty() => Exit::Bad,
        _ if dry.not_open.is_empty() => Exit::Ok,
        _ => Exit::Bad,
    }
}

/// Letters that match, whether they would be replayed or not.
fn selected(dry: &ReplayForecast) -> u64 {
    let skips: u64 = dry.skips.values().sum();
    let taken: u64 = dry.taken.iter().map(|one| one.letters).sum();
    dry.would_replay
        + skips
        + taken
        + dry.ambiguous_skipped
        + dry.superseded_skipped
        + dry.beyond_quota
        + dry.not_open.len() as u64
}

/// Resumes a job. One that runs is only followed: it continues by itself after a restart.
async fn resume(id: &str, session: &Session) -> Result<(ApiAnswer<ReplayJob>, String), Failed> {
    let mut job = session.api.replay(id).await?;
    match job.view.state {
        JobState::Running | JobState::Paused | JobState::Stopped | JobState::Done => {}
        state @ (JobState::Aborted | JobState::Failed) => {
            let message = format!(
                "replay {} is {} and cannot be resumed: {}",
                job.view.id,
                state.name(),
                sum(&job.view)
            );
            let open = job.view.untouched + job.view.dead_again;
            let hint = format!(
                "{} open unless changed meanwhile: replay what is open with a new job, redrive dlq replay {} …",
                plural(open, "of its letters is", "of its letters are"),
                job.view.pipeline
            );
            let failed = Failed::new(Exit::Bad, message);
            return Err(if open > 0 { failed.hint(hint) } else { failed });
        }
    }
    if job.view.state == JobState::Done {
        return Ok((job, DONE_ALREADY.to_owned()));
    }
    let reached = job.view.published;
    if matches!(job.view.state, JobState::Paused | JobState::Stopped) {
        job = session.api.replay_resume(id).await?;
    }
    let prefix = format!(
        "resumed at {} of {} (frozen at {})   … ",
        count(reached),
        count(job.view.total),
        instant::clock(job.view.created.0)
    );
    Ok((job, prefix))
}

fn detach(job: &ApiAnswer<ReplayJob>, out: &mut Output) -> Result<Exit, Failed> {
    if out.is_json() {
        out.json(&job.json)?;
        return Ok(Exit::Ok);
    }
    let pace = job.view.rate.map(|pace| format!(" at {}", rate(pace))).unwrap_or_default();
    out.line(&format!(
        "replay {}  started: {}{pace}",
        job.view.id,
        plural(job.view.total, "letter", "letters")
    ))?;
    out.note(&format!("  follow it with: redrive dlq replay --resume {}", job.view.id));
    Ok(Exit::Ok)
}

/// Polls the job until it has ended. ^C ends only the polling.
async fn follow(
    mut job: ApiAnswer<ReplayJob>,
    prefix: &str,
    not_open: &[NotOpenLetter],
    session: &Session,
    out: &mut Output,
) -> Result<Exit, Failed> {
    let id = job.view.id.clone();
    let begun = Instant::now();
    let mut bar = out.progress(&format!("replay {id}"), job.view.total);
    let mut away_since: Option<Instant> = None;
    let mut held_for: Option<String> = None;
    let mut interrupt = std::pin::pin!(tokio::signal::ctrl_c());
    while !has_ended(&job.view) {
        let why = job.view.held.as_ref().map(|held| held_because(held, session.now()));
        if why.is_some() && why != held_for {
            bar.clear();
            out.note(&held(&job.view, session.now()).unwrap_or_default());
            held_for = why;
        }
        bar.remark(job.view.held.as_ref().map(|held| format!("{} held", count(held.letters))));
        bar.at(reached(&job.view));
        tokio::select! {
            _ = &mut interrupt => {
                drop(bar);
                out.complain(&format!(
                    "detached: replay {id} continues in the processor ({})\n  follow it with: redrive dlq replay --resume {id}\n  end it with:    redrive dlq replay --abort {id}",
                    tally(&job.view)
                ));
                return Ok(Exit::Interrupted);
            }
            () = tokio::time::sleep(LOOK_EVERY) => {}
        }
        match session.api.replay(&id).await {
            Ok(now) => (job, away_since) = (now, None),
            Err(fault) if fault.may_pass() => {
                if away_since.is_none() {
                    out.note(&format!("{fault}; waiting for it, the job is kept"));
                }
                if away_since.get_or_insert_with(Instant::now).elapsed() > AWAY_MAX {
                    return Err(gave_up(fault, &id));
                }
            }
            Err(fault) => return Err(fault.into()),
        }
    }
    drop(bar);
    if let Some(json) = job.json.as_object_mut().filter(|_| !not_open.is_empty()) {
        json.insert("not_open".to_owned(), json!(not_open));
    }
    report(&job, prefix, begun.elapsed(), session.now(), out)
}

fn gave_up(fault: ClientFault, id: &str) -> Failed {
    let failed = Failed::from(fault);
    failed.hint(format!("replay {id} is stored and continues when the processor is back; follow it with: redrive dlq replay --resume {id}"))
}

fn has_ended(job: &ReplayJob) -> bool {
    match job.state {
        JobState::Running => false,
        JobState::Paused | JobState::Done | JobState::Aborted | JobState::Stopped | JobState::Failed => true,
    }
}
