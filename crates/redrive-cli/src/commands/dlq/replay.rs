//! `redrive dlq replay`: starts a job, or finds one again, and follows it to its end.

use std::time::{Duration, Instant};

use redrive::Time;
use serde_json::{Map, Value, json};

use super::Selection;
use crate::client::answers::{Answer, DryReplay, ReplayState, ReplayView};
use crate::client::{ClientFault, Session};
use crate::exit::{Exit, Failed};
use crate::output::{Output, age, count, instant, rate, safe};

/// How often the job is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// How long a processor may be away before we stop following: long enough for a restart.
const AWAY_MAX: Duration = Duration::from_mins(1);

#[derive(Debug, clap::Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of the command line")]
pub struct Args {
    /// The pipeline; not needed with --resume or --abort
    #[arg(required_unless_present_any = ["resume", "abort"])]
    pub pipeline: Option<String>,
    #[command(flatten)]
    pub selection: Selection,
    /// Count what would be replayed, and change nothing
    #[arg(long)]
    pub dry_run: bool,
    /// The pace: 20/s, 600/m; as fast as the pipeline takes them unless given
    #[arg(long, value_name = "RATE", value_parser = redrive_core::rate::parse)]
    pub rate: Option<f64>,
    /// Replay also letters that were replayed three times already
    #[arg(long)]
    pub force: bool,
    /// Where the letters go: the pipeline's own replay topic, or the topic they came from, which others read too
    #[arg(long, value_name = "WHERE")]
    pub to: Option<To>,
    /// Also if other consumer groups get the letters again
    #[arg(long, requires = "to")]
    pub yes: bool,
    /// Go on with a job that was paused, or follow one that runs
    #[arg(long, value_name = "REPLAY", conflicts_with_all = ["filter", "ids", "since", "all", "dry_run", "rate", "force", "to"])]
    pub resume: Option<String>,
    /// End a job; letters it has not reached stay open
    #[arg(long, value_name = "REPLAY", conflicts_with_all = ["resume", "filter", "ids", "since", "all", "dry_run", "rate", "force", "to", "detach"])]
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

pub async fn run(args: &Args, session: &Session, out: &mut Output) -> Result<Exit, Failed> {
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
            Some(job) => (job, String::new()),
            None => return Ok(Exit::Ok),
        },
    };
    if args.detach {
        return detach(&job, out);
    }
    follow(job, &prefix, session, out).await
}

/// Starts a job; a dry run says what it would be and starts nothing.
async fn start(
    args: &Args,
    session: &Session,
    out: &mut Output,
) -> Result<Option<Answer<ReplayView>>, Failed> {
    let mut body: Map<String, Value> = args.selection.fields("replay", session.now())?;
    body.insert("pipeline".into(), json!(args.pipeline));
    body.insert("rate".into(), json!(args.rate));
    body.insert("force".into(), json!(args.force));
    if let Some(to) = args.to {
        body.insert("to".into(), json!(to.name()));
    }
    body.insert("dry_run".into(), json!(true));
    if args.dry_run {
        let dry = session.api.replay_dry(body.into()).await?;
        if out.is_json() {
            out.json(&dry.json)?;
        } else {
            out.line(&would(&dry.view))?;
            if let Some(groups) = &dry.view.other_groups {
                out.line(&others(groups))?;
            }
        }
        return Ok(None);
    }
    if args.to == Some(To::Source) {
        let dry = session.api.replay_dry(body.clone().into()).await?;
        let groups = dry.view.other_groups.unwrap_or_default();
        if !args.yes {
            let hint = "give --yes if that is meant; without --to source only this pipeline gets them";
            return Err(Failed::usage(others(&groups)).hint(hint));
        }
        out.note(&others(&groups));
    }
    body.insert("dry_run".into(), json!(false));
    Ok(Some(session.api.replay_start(body.into()).await?))
}

/// Who gets the letters besides this pipeline.
fn others(groups: &[String]) -> String {
    if groups.is_empty() {
        return "onto the source topic: no other consumer group reads it now, but whoever reads it later gets the letters \
                again"
            .to_owned();
    }
    let names: Vec<String> = groups.iter().map(|group| safe::line(group)).collect();
    let (count, names) = (count(groups.len() as u64), names.join(", "));
    format!("onto the source topic: {count} other consumer groups get the letters again: {names}")
}

fn would(dry: &DryReplay) -> String {
    let pace = match dry.rate {
        None => "as fast as the pipeline takes them".to_owned(),
        Some(pace) => {
            let seconds = dry.about_seconds.unwrap_or(dry.would_replay as f64 / pace);
            format!("at {} ≈ {}", rate(pace), about(seconds))
        }
    };
    let skips: u64 = dry.skips.values().sum();
    let often = if dry.skips.contains_key("too_often") {
        "; replayed three times before, --force takes those"
    } else {
        ""
    };
    let skips = if skips > 0 { format!("   would skip {}{often}", count(skips)) } else { String::new() };
    format!("would replay {} (frozen)   {pace}{skips}", count(dry.would_replay))
}

/// `15 s`, `4m`, `3h 02m`.
fn about(seconds: f64) -> String {
    if seconds < 120.0 {
        format!("{:.0} s", seconds.ceil())
    } else {
        age::age(Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX))
    }
}

/// Finds a job again. One that runs is only followed: it goes on by itself after a restart.
async fn resume(id: &str, session: &Session) -> Result<(Answer<ReplayView>, String), Failed> {
    let mut job = session.api.replay(id).await?;
    match job.view.state {
        ReplayState::Running | ReplayState::Paused | ReplayState::Done => {}
        state @ (ReplayState::Aborted | ReplayState::Stopped) => {
            let message =
                format!("replay {} is {} and does not go on: {}", job.view.id, state.name(), sum(&job.view));
            let open = job.view.untouched + job.view.dead_again;
            let hint = format!(
                "{} of its letters are open: replay them with a new job, redrive dlq replay {} …",
                count(open),
                job.view.pipeline
            );
            let failed = Failed::new(Exit::Bad, message);
            return Err(if open > 0 { failed.hint(hint) } else { failed });
        }
    }
    if job.view.state == ReplayState::Paused {
        job = session.api.replay_resume(id).await?;
    }
    if job.view.state == ReplayState::Done {
        return Ok((job, "done already   … ".to_owned()));
    }
    let frozen = job.view.created.map(|at| format!(" (frozen at {})", instant::clock(at.0)));
    let prefix = format!(
        "resumed at {} of {}{}   … ",
        count(job.view.published),
        count(job.view.total),
        frozen.unwrap_or_default()
    );
    Ok((job, prefix))
}

fn detach(job: &Answer<ReplayView>, out: &mut Output) -> Result<Exit, Failed> {
    if out.is_json() {
        out.json(&job.json)?;
        return Ok(Exit::Ok);
    }
    let pace = job.view.rate.map(|pace| format!(" at {}", rate(pace))).unwrap_or_default();
    out.line(&format!("replay {}  started: {} letters{pace}", job.view.id, count(job.view.total)))?;
    out.note(&format!("  follow it with: redrive dlq replay --resume {}", job.view.id));
    Ok(Exit::Ok)
}

/// Looks at the job until it has ended. ^C ends only the looking.
async fn follow(
    mut job: Answer<ReplayView>,
    prefix: &str,
    session: &Session,
    out: &mut Output,
) -> Result<Exit, Failed> {
    let id = job.view.id.clone();
    let begun = Instant::now();
    let mut bar = out.progress(&format!("replay {id}"), job.view.total);
    let mut away_since: Option<Instant> = None;
    let mut interrupt = std::pin::pin!(tokio::signal::ctrl_c());
    while !has_ended(&job.view) {
        bar.at(reached(&job.view));
        tokio::select! {
            _ = &mut interrupt => {
                drop(bar);
                out.complain(&format!(
                    "detached: replay {id} goes on in the processor ({})\n  follow it with: redrive dlq replay --resume {id}\n  end it with:    redrive dlq replay --abort {id}",
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
    report(&job, prefix, begun.elapsed(), session.now(), out)
}

fn gave_up(fault: ClientFault, id: &str) -> Failed {
    let failed = Failed::from(fault);
    failed.hint(format!("replay {id} is kept and goes on when the processor is back; follow it with: redrive dlq replay --resume {id}"))
}

fn has_ended(job: &ReplayView) -> bool {
    match job.state {
        ReplayState::Running => false,
        ReplayState::Paused | ReplayState::Done | ReplayState::Aborted | ReplayState::Stopped => true,
    }
}

/// How many letters the job is through with.
fn reached(job: &ReplayView) -> u64 {
    (job.succeeded + job.dead_again + job.forgotten + job.skipped).min(job.total)
}

/// What became of every letter of the selection; the numbers behind the first add up to it.
pub(super) fn sum(job: &ReplayView) -> String {
    let mut parts = vec![
        format!("letters {}", count(job.total)),
        format!("succeeded {}", count(job.succeeded)),
        format!("dead again {}", count(job.dead_again)),
        format!("under way {}", count(job.under_way)),
        format!("skipped {}", count(job.skipped)),
        format!("untouched {}", count(job.untouched)),
    ];
    if job.forgotten > 0 {
        parts.push(format!("closed and forgotten {}", count(job.forgotten)));
    }
    parts.join("   ")
}

/// What to do about letters that a job has left.
pub(super) fn untouched_line(job: &ReplayView) -> Option<String> {
    let is_over = matches!(job.state, ReplayState::Aborted | ReplayState::Stopped);
    let under_way = if job.under_way > 0 {
        format!(" {} that were put back are still being delivered.", count(job.under_way))
    } else {
        String::new()
    };
    is_over.then(|| format!("  {} letters untouched; they are still open.{under_way}", count(job.untouched)))
}

fn tally(job: &ReplayView) -> String {
    let some = |name: &str, number: u64| {
        if number > 0 { format!("   {name} {}", count(number)) } else { String::new() }
    };
    let (skipped, under_way) = (some("skipped", job.skipped), some("under way", job.under_way));
    format!(
        "{}/{}   succeeded {}   dead again {}{under_way}{skipped}",
        count(reached(job)),
        count(job.total),
        count(job.succeeded),
        count(job.dead_again)
    )
}

/// The last line, and whether all is well.
fn report(
    job: &Answer<ReplayView>,
    prefix: &str,
    took: Duration,
    now: Time,
    out: &mut Output,
) -> Result<Exit, Failed> {
    let view = &job.view;
    // A job that put nothing back has not done what it was asked for.
    let idle = view.published == 0 && view.skipped > 0;
    let good = view.state == ReplayState::Done && view.dead_again == 0 && !idle;
    let exit = if good { Exit::Ok } else { Exit::Bad };
    if out.is_json() {
        out.json(&job.json)?;
        return Ok(exit);
    }
    let took = match view.created {
        // A job that was found again has been going for longer than we have been looking.
        Some(at) if !prefix.is_empty() => now.since(at.0),
        _ => took,
    };
    out.line(&format!("replay {}  {prefix}{}   {:.1} s", view.id, tally(view), took.as_secs_f64()))?;
    let untouched = count(view.untouched);
    match view.state {
        ReplayState::Stopped => {
            let why = view.note.as_deref().unwrap_or("it could not go on").trim_end_matches('.');
            out.line(&format!("  ✗ stopped: {}. {untouched} letters untouched.", safe::line(why)))?;
            out.line("  they are still open: replay them again when the cause is gone")?;
        }
        ReplayState::Paused => {
            out.line(&format!("  paused. {untouched} letters untouched."))?;
            out.line(&format!("  resume with: redrive dlq replay --resume {}", view.id))?;
        }
        ReplayState::Aborted => {
            out.line(&format!("  ✗ aborted. {}", sum(view)))?;
        }
        ReplayState::Done | ReplayState::Running => {}
    }
    if view.skipped > 0 {
        out.note(
            "  skipped: no longer open, in another replay, damaged, or replayed three times before (--force takes those)",
        );
    }
    if view.state == ReplayState::Done && view.dead_again > 0 {
        out.note(&format!("  look at them with: redrive dlq inspect {}", view.pipeline));
    }
    Ok(exit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dry_run_says_how_long_it_would_take() {
        let dry = DryReplay {
            would_replay: 300,
            rate: Some(20.0),
            about_seconds: Some(15.0),
            ..DryReplay::default()
        };
        assert_eq!(would(&dry), "would replay 300 (frozen)   at 20/s ≈ 15 s");
        let dry = DryReplay { would_replay: 40_000, rate: Some(20.0), ..DryReplay::default() };
        assert_eq!(would(&dry), "would replay 40,000 (frozen)   at 20/s ≈ 33m");
        let dry = DryReplay { would_replay: 1, ..DryReplay::default() };
        assert_eq!(would(&dry), "would replay 1 (frozen)   as fast as the pipeline takes them");
    }
}
