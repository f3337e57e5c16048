//! Describes the state and the end of a replay job.

use std::time::Duration;

use redrive::Time;
use redrive_api::{HeldLetters, JobState, ReplayJob};

use super::plan::plural;
use crate::client::ApiAnswer;
use crate::exit::{Exit, Failed};
use crate::output::{Output, count, instant, safe};

/// Prefix for a job that had already ended. Its duration is no longer known.
pub(super) const DONE_ALREADY: &str = "done already   … ";

/// How many letters the job has processed.
pub(super) fn reached(job: &ReplayJob) -> u64 {
    (job.succeeded + job.dead_again + job.forgotten + job.skipped).min(job.total)
}

/// The outcome of every letter of the selection; the numbers after the first add up to it.
pub(in crate::commands::dlq) fn sum(job: &ReplayJob) -> String {
    let mut parts = vec![
        format!("letters {}", count(job.total)),
        format!("succeeded {}", count(job.succeeded)),
        format!("dead again {}", count(job.dead_again)),
        format!("under way {}", count(job.under_way)),
        format!("skipped {}", count(job.skipped)),
        format!("untouched {}", count(job.untouched)),
    ];
    if job.forgotten > 0 {
        parts.push(format!("resolved and removed {}", count(job.forgotten)));
    }
    parts.join("   ")
}

/// Why letters of a job are held, as in `no call has succeeded since 12:01:07Z`.
pub(super) fn held_because(held: &HeldLetters, now: Time) -> String {
    match (held.because.as_str(), &held.last_success) {
        ("paused", _) => "the pipeline is paused".to_owned(),
        ("retry_after", _) => "the receiver asked to wait (Retry-After)".to_owned(),
        ("breaker_open", _) => "the breaker is open".to_owned(),
        ("no_success", Some(at)) if instant::date(at.0) == instant::date(now) => {
            format!("no call has succeeded since {}", instant::clock(at.0))
        }
        ("no_success", Some(at)) => format!("no call has succeeded since {}", instant::date_and_clock(at.0)),
        ("no_success", None) => "no call has succeeded so far".to_owned(),
        _ => "the receiver cannot be reached or limits calls, or the retry budget is used up".to_owned(),
    }
}

/// `10 held: no call has succeeded since 12:01:07Z`, if any letters are held.
pub(in crate::commands::dlq) fn held(job: &ReplayJob, now: Time) -> Option<String> {
    let held = job.held.as_ref()?;
    Some(format!("{} held: {}", count(held.letters), held_because(held, now)))
}

/// What to do about the letters that a job left untouched.
pub(in crate::commands::dlq) fn untouched_line(job: &ReplayJob) -> Option<String> {
    let one = job.under_way == 1;
    let under_way = match job.state {
        _ if job.under_way == 0 => String::new(),
        // Their calls may still be waiting to start; an abort takes those back.
        JobState::Aborted => format!(
            " {} put back {} taken back if {} not started; `redrive dlq replays show {}` shows how {} ended.",
            plural(job.under_way, "that was", "that were"),
            if one { "is" } else { "are" },
            if one { "it has" } else { "they have" },
            job.id,
            if one { "it" } else { "they" }
        ),
        _ => format!(
            " {} put back {} still being delivered.",
            plural(job.under_way, "that was", "that were"),
            if one { "is" } else { "are" }
        ),
    };
    let untouched = untouched(job);
    match job.state {
        JobState::Aborted | JobState::Failed => {
            Some(format!("  {untouched}{}.{under_way}", still_open(job.untouched)))
        }
        JobState::Stopped => {
            Some(format!("  {untouched}; resume with: redrive dlq replay --resume {}", job.id))
        }
        JobState::Running | JobState::Paused | JobState::Done => None,
    }
}

/// `1 letter untouched`.
fn untouched(job: &ReplayJob) -> String {
    format!("{} untouched", plural(job.untouched, "letter", "letters"))
}

/// Letters that a job left untouched may have been discarded, edited or replayed by another job since.
fn still_open(letters: u64) -> &'static str {
    match letters {
        0 => "",
        1 => "; open unless it was changed meanwhile",
        _ => "; open unless they were changed meanwhile",
    }
}

pub(super) fn tally(job: &ReplayJob) -> String {
    let some = |name: &str, number: u64| {
        if number > 0 { format!("   {name} {}", count(number)) } else { String::new() }
    };
    let (skipped, under_way) = (some("skipped", job.skipped), some("under way", job.under_way));
    let twice = match job.sent_twice_max {
        None => String::new(),
        Some(0) => "   sent twice 0".to_owned(),
        Some(most) => format!("   sent twice at most {}", count(most)),
    };
    format!(
        "{}/{}   succeeded {}   dead again {}{under_way}{skipped}{twice}",
        count(reached(job)),
        count(job.total),
        count(job.succeeded),
        count(job.dead_again)
    )
}

/// `canary 10/10 … `, if some letters were replayed first and others followed.
fn canary(job: &ReplayJob) -> String {
    match job.canary {
        Some(canary) if canary.letters < job.total => {
            format!("canary {}/{} … ", count(canary.succeeded), count(canary.letters))
        }
        _ => String::new(),
    }
}

/// Why a job was stopped, in sentences.
fn stopped(job: &ReplayJob) -> String {
    let why = job.note.as_deref().unwrap_or("too many letters died again").trim_end_matches('.');
    let breaker = job.breaker.as_deref().map(|state| {
        format!(" Breaker {}: {}.", safe::line(&job.pipeline), safe::line(&state.replace('_', " ")))
    });
    format!("✗ stopped: {}. {}.{}", safe::line(why), untouched(job), breaker.unwrap_or_default())
}

/// Prints the last line, and returns whether all is well.
pub(super) fn report(
    job: &ApiAnswer<ReplayJob>,
    prefix: &str,
    took: Duration,
    now: Time,
    out: &mut Output,
) -> Result<Exit, Failed> {
    let view = &job.view;
    // A job that requeued nothing has not done what was requested.
    let idle = view.published == 0 && view.skipped > 0;
    let good = view.state == JobState::Done && view.dead_again == 0 && !idle;
    let exit = if good { Exit::Ok } else { Exit::Bad };
    if out.is_json() {
        out.json(&job.json)?;
        return Ok(exit);
    }
    // A resumed job has been running for longer than this command.
    let took = if prefix.is_empty() { took } else { now.since(view.created.0) };
    let took = if prefix == DONE_ALREADY { String::new() } else { format!("   {:.1} s", took.as_secs_f64()) };
    let prefix = if prefix.is_empty() { canary(view) } else { prefix.to_owned() };
    if view.state == JobState::Stopped {
        let (reached, total) = (count(reached(view)), count(view.total));
        out.line(&format!("replay {}  {prefix}{reached}/{total}  {}", view.id, stopped(view)))?;
        out.line(&format!("  resume with: redrive dlq replay --resume {}", view.id))?;
        out.note(&format!("  {}", sum(view)));
        return Ok(exit);
    }
    out.line(&format!("replay {}  {prefix}{}{took}", view.id, tally(view)))?;
    let untouched = untouched(view);
    match view.state {
        JobState::Failed => {
            let why = view.note.as_deref().unwrap_or("it could not continue").trim_end_matches('.');
            out.line(&format!(
                "  ✗ failed: {}. {untouched}{}.",
                safe::line(why),
                still_open(view.untouched)
            ))?;
            if view.untouched > 0 {
                out.line("  replay what is open again when the cause is gone")?;
            }
        }
        JobState::Paused => {
            out.line(&format!("  paused. {untouched}."))?;
            out.line(&format!("  resume with: redrive dlq replay --resume {}", view.id))?;
        }
        JobState::Aborted => {
            out.line(&format!("  ✗ aborted. {}", sum(view)))?;
        }
        JobState::Done | JobState::Running | JobState::Stopped => {}
    }
    if view.skipped > 0 {
        out.note(
            "  skipped: no longer open, in another replay, damaged, or replayed three times before (--force takes those)",
        );
    }
    if view.state == JobState::Done && view.dead_again > 0 {
        out.note(&format!("  look at them with: redrive dlq inspect {}", view.pipeline));
    }
    Ok(exit)
}
