//! A replay job that is killed again and again, and the check that it still delivered each letter once.
//!
//! The victim appends a line to a file outside the store for every call of its handler, and on each opening a line with
//! the deliveries that, according to the store, were running when the previous process died. The check trusts the
//! calls; it uses the store's statement only to tell an allowed repeat from a forbidden one.

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::fmt;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use redrive::internal::engine::StoreOptions;
use redrive::internal::replay::stop::{CANARY_DEFAULT, STOP_AT_DEFAULT};
use redrive::letters::Selection;
use redrive::replay::{Plan, PlanOptions, ReplaySpec, ReplayState, Replays};
use redrive::{
    Embedded, Failure, GuardSettings, LetterState, Message, Pipeline, PipelineHandle, Policy, Redrive,
};

use crate::plan;

/// The pipeline of the letters.
pub const PIPELINE: &str = "orders";
/// Deliveries that may run concurrently.
pub const CONCURRENCY: u32 = 8;
const DEDUP: Duration = Duration::from_hours(24);

/// Returns the options with which the store of the pipeline is opened.
pub fn options() -> StoreOptions {
    StoreOptions { dedup: Some(DEDUP), ..StoreOptions::default() }
}

type Failed = Box<dyn Error + Send + Sync>;

fn pipeline() -> Pipeline {
    // A message that is often running at random kills might be quarantined, which is not tested here.
    let policy = Policy::fixed("1ms").retries(0).jitter("none").crash(100, "5m");
    let pipeline = Pipeline::new(PIPELINE).policy(policy).concurrency(CONCURRENCY).dedup(DEDUP);
    // All of the messages are supposed to die.
    pipeline.guard(GuardSettings::off())
}

fn build(embedded: &Embedded, pipeline: Pipeline) -> Result<(Redrive, PipelineHandle), Failed> {
    let redrive = Redrive::builder().engine(embedded.clone()).pipeline(pipeline).build()?;
    let handle = redrive.pipeline(PIPELINE).ok_or("the pipeline is missing")?;
    Ok((redrive, handle))
}

/// Every tenth letter dies again when it is replayed, and now and then so many in a row that the job is stopped. They
/// are open then, and only the job's own record keeps a resumed job from replaying them again.
pub fn dies_again(message: &Message) -> bool {
    let number: u64 = message.id().trim_start_matches("m-").parse().unwrap_or_default();
    number % 10 == 3 || number % 250 >= 200
}

/// Creates `count` dead letters, numbered from 0, of messages `m-0`, `m-1` …
pub async fn seed(dir: &Path, count: u64) -> Result<(), Failed> {
    let embedded = Embedded::open_with(dir, plan::tuning())?;
    let refuse = |_: Message| async { Err::<(), _>(Failure::permanent("422 refused")) };
    let (redrive, handle) = build(&embedded, pipeline().handler_fn(refuse))?;
    handle.ingest((0..count).map(|number| plan::message(&format!("m-{number}"), None))).await?;
    let all_dead = async {
        while !matches!(handle.counts().await, Ok(counts) if counts.letters_open == count) {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    redrive.run_until(all_dead).await?;
    Ok(())
}

/// Replays all letters as one job, or resumes the existing job; returns when it is done.
pub async fn replay(dir: &Path, log_path: &Path, rate: f64) -> Result<(), Failed> {
    let embedded = Embedded::open_with(dir, plan::tuning())?;
    let log = Arc::new(File::options().create(true).append(true).open(log_path)?);
    let calls = Arc::clone(&log);
    let handler = move |message: Message| {
        // One write, so that lines of concurrent calls do not mix.
        let said = (&*calls).write_all(format!("call {}\n", message.id()).as_bytes());
        let takes = Duration::from_micros(u64::from(message.wire()[message.wire().len() - 1]) * 10);
        async move {
            said.map_err(Failure::permanent)?;
            tokio::time::sleep(takes).await;
            if dies_again(&message) { Err(Failure::permanent("422 refused again")) } else { Ok(()) }
        }
    };
    let (redrive, handle) = build(&embedded, pipeline().handler_fn(handler))?;
    // A handler may have returned just before the process was killed, when that was not durable yet.
    let report = embedded.report(PIPELINE).unwrap_or_default();
    let unsettled = report.started.iter().chain(&report.returned);
    let unsettled: Vec<String> = unsettled.map(|mark| mark.seq.to_string()).collect();
    (&*log).write_all(format!("open {}\n", unsettled.join(",")).as_bytes())?;

    let replays = Replays::open(Some(dir))?;
    let mut job = Ok(());
    let stops = stops(log_path);
    redrive.run_until(async { job = carry_out(&replays, &handle, rate, &stops).await }).await?;
    job
}

/// Returns the file with a line for each time that the job was stopped for failures.
pub fn stops(log: &Path) -> PathBuf {
    log.with_extension("stops")
}

async fn carry_out(
    replays: &Replays,
    handle: &PipelineHandle,
    rate: f64,
    stops: &Path,
) -> Result<(), Failed> {
    if replays.list().is_empty() {
        let plan = Plan::make(handle, &Selection::all(LetterState::Open), PlanOptions::default()).await?;
        let spec = ReplaySpec {
            rate: Some(rate),
            canary: CANARY_DEFAULT,
            stop_at: Some(STOP_AT_DEFAULT),
            selection: "all".into(),
            ..ReplaySpec::default()
        };
        replays.start_planned(handle, spec, plan, "test").await?;
    }
    replays.attach(handle)?;
    loop {
        let views = replays.list();
        match views.as_slice() {
            [job] if job.state == ReplayState::Done => return Ok(()),
            [job] if job.state == ReplayState::Running => tokio::time::sleep(Duration::from_millis(2)).await,
            [job] if job.state == ReplayState::Stopped => {
                let mut stops = File::options().create(true).append(true).open(stops)?;
                writeln!(stops, "{}", job.note.as_deref().unwrap_or_default())?;
                replays.resume(&job.id).await?;
            }
            other => return Err(format!("one running job is expected, there is {other:?}").into()),
        }
    }
}

/// A summary of the calls of all runs.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct CallRecords {
    pub letters: u64,
    pub calls: u64,
    /// Repeated calls of a letter; each earlier call was interrupted by a kill.
    pub repeats: u64,
    pub runs: u64,
}

impl fmt::Display for CallRecords {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { letters, calls, repeats, runs } = self;
        write!(
            f,
            "{letters} letters, {calls} calls in {runs} runs; {repeats} repeated, each of them in flight at a kill"
        )
    }
}

/// Checks that every letter was called once, except for calls that were in flight when their process was killed.
pub fn check_calls(log: &Path, letters: u64) -> Result<CallRecords, String> {
    let text = fs::read_to_string(log).map_err(|error| error.to_string())?;
    let mut in_flight: Vec<BTreeSet<u64>> = Vec::new();
    let mut calls: BTreeMap<u64, Vec<usize>> = BTreeMap::new();
    let number = |text: &str| text.parse::<u64>().map_err(|_| format!("`{text}` is no number"));
    for line in text.lines() {
        if let Some(marks) = line.strip_prefix("open ") {
            let marks = marks.split(',').filter(|mark| !mark.is_empty()).map(number);
            in_flight.push(marks.collect::<Result<_, _>>()?);
        } else if let Some(id) = line.strip_prefix("call m-") {
            calls.entry(number(id)?).or_default().push(in_flight.len());
        } else {
            return Err(format!("`{line}` is no line of the victim"));
        }
    }
    let mut told = CallRecords { letters, runs: in_flight.len() as u64, ..CallRecords::default() };
    for letter in 0..letters {
        let Some(runs) = calls.remove(&letter) else { return Err(format!("m-{letter} was never delivered")) };
        told.calls += runs.len() as u64;
        told.repeats += runs.len() as u64 - 1;
        for pair in runs.windows(2) {
            // Runs are counted from 1, so this is the line of the opening after the earlier call.
            let was_in_flight = in_flight.get(pair[0]).is_some_and(|marks| marks.contains(&letter));
            if pair[0] == pair[1] || !was_in_flight {
                return Err(format!(
                    "m-{letter} was delivered in runs {runs:?}, but was not in flight in between"
                ));
            }
        }
    }
    match calls.keys().next() {
        Some(stranger) => Err(format!("m-{stranger} is no letter of this job")),
        None => Ok(told),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, letters: u64) -> Result<CallRecords, String> {
        let scratch = crate::verify::Scratch::new().expect("a scratch directory");
        let log = scratch.0.join("log");
        fs::write(&log, text).expect("it can be written");
        check_calls(&log, letters)
    }

    #[test]
    fn a_repeat_is_allowed_only_for_what_was_in_flight() {
        let told = check("open \ncall m-0\ncall m-1\nopen 1\ncall m-1\n", 2).expect("it is as it should be");
        assert_eq!((told.calls, told.repeats, told.runs), (3, 1, 2));
        assert!(check("open \ncall m-0\ncall m-1\nopen 0\ncall m-1\n", 2).is_err(), "it was not in flight");
        assert!(check("open \ncall m-0\ncall m-0\n", 1).is_err(), "twice in one run");
        assert!(check("open \ncall m-0\n", 2).is_err(), "never delivered");
        assert!(check("open \ncall m-0\ncall m-7\n", 1).is_err(), "not of the job");
    }
}
