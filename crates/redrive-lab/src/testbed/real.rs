//! A run on the real clock: the library with the embedded engine, a sync before every acknowledgement, and a handler
//! that simulates the downstream.

use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use redrive::internal::engine::IngestError;
use redrive::{Embedded, NewMessage, PipelineHandle, Redrive};
use tokio::sync::oneshot;
use tokio::task::JoinSet;

use super::call_log::CallLog;
use super::letters::listed;
use super::load::Load;
use super::played::{Error, Played};
use super::recorder::Recorder;
use super::scratch::Scratch;
use super::stage::Stage;
use super::subject::Subject;
use super::trace::{EngineCounts, RunEnd, Trace};

/// Messages per ingest call, and maximum number of concurrent calls.
const BATCH: u64 = 1_000;
const CALLS_MAX: usize = 64;
/// How soon a refused batch is offered again.
const AGAIN: Duration = Duration::from_millis(2);

/// The name of the pipeline that takes the place of a partition.
fn name(lane: u32) -> String {
    format!("orders-{lane}")
}

/// Runs the load; `None` if interrupted.
pub fn run(load: &Load, subject: &Subject, stage: Stage<'_>) -> Result<Option<Trace>, Error> {
    let recorder = Arc::new(Recorder::new(load.messages(), load.ends()));
    let end = run_with(load, subject, recorder.clone(), stage)?;
    Ok(end.map(|end| Trace::of_run(load, &recorder, end)))
}

/// Runs the load with the given log; `None` if interrupted.
pub fn run_with(
    load: &Load,
    subject: &Subject,
    log: Arc<dyn CallLog>,
    stage: Stage<'_>,
) -> Result<Option<RunEnd>, Error> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(play(load, subject, log, stage))
}

async fn play(
    load: &Load,
    subject: &Subject,
    log: Arc<dyn CallLog>,
    stage: Stage<'_>,
) -> Result<Option<RunEnd>, Error> {
    let scratch = Scratch::new()?;
    let played = Played::new(load, log);
    let mut builder = Redrive::builder().engine(Embedded::open(scratch.path())?);
    let lanes = load.lanes.max(1);
    for lane in 0..lanes {
        builder = builder.pipeline(played.pipeline(&name(lane), subject.concurrency, subject));
    }
    let redrive = builder.build()?;
    let handles = (0..lanes)
        .map(|lane| redrive.pipeline(&name(lane)).ok_or("a pipeline that was built is missing"))
        .collect::<Result<Vec<_>, _>>()?;
    let (stop, stopped) = oneshot::channel::<()>();
    let running = tokio::spawn(async move { redrive.run_until(stopped).await });
    let watching = (played.triage(&handles), played.watch_metrics(&handles));
    let whole = arrive(&played, &handles, stage).await? && played.follow(stage).await;
    let ran_for = played.elapsed();
    drop(watching);
    let engine = played.come_to_rest(&handles, async |handles| counts(&played, handles).await).await?;
    let letters = listed(&handles, None, load.seed).await?;
    let _ = stop.send(());
    running.await??;
    Ok(whole.then(|| played.end(engine, letters, ran_for)))
}

/// Sums the engines' counts. `None` until every letter was announced to a hook, which happens shortly after it is
/// stored.
async fn counts(played: &Played, handles: &[PipelineHandle]) -> Result<Option<EngineCounts>, Error> {
    let mut sum = EngineCounts::default();
    for handle in handles {
        let counts = handle.counts().await?;
        sum.accepted += counts.accepted;
        sum.pending += counts.pending();
        sum.letters += counts.letters_open
            + counts.letters_replaying
            + counts.letters_succeeded
            + counts.letters_discarded;
    }
    Ok((played.log.dead() >= sum.letters).then_some(sum))
}

/// Offers messages when they are due, whether or not earlier ones were answered. Returns `false` if interrupted.
async fn arrive(played: &Played, handles: &[PipelineHandle], stage: Stage<'_>) -> Result<bool, Error> {
    let load = &played.load;
    let mut answers: JoinSet<Result<(), IngestError>> = JoinSet::new();
    let mut tick = tokio::time::interval(load.tick());
    let (mut sent, mut burst) = (0, load.burst);
    while !load.is_offered(played.elapsed(), sent) || burst.is_some() {
        tick.tick().await;
        let at = played.elapsed();
        stage.at(at, load.ends());
        if stage.is_interrupted() {
            return Ok(false);
        }
        let paced = sent..load.due(at, sent, played.log.started());
        sent = paced.end;
        let bursting = if burst.is_some_and(|burst| burst.at <= at) {
            burst = None;
            load.paced()..load.messages()
        } else {
            0..0
        };
        for numbers in [paced, bursting] {
            for first in numbers.clone().step_by(BATCH as usize) {
                let batch = first..(first + BATCH).min(numbers.end);
                offer(played, handles, batch, &mut answers).await?;
            }
        }
        while let Some(answered) = answers.try_join_next() {
            answered??;
        }
    }
    while let Some(answered) = answers.join_next().await {
        answered??;
    }
    played.offered(sent + load.burst.map_or(0, |burst| burst.messages));
    Ok(true)
}

async fn offer(
    played: &Played,
    handles: &[PipelineHandle],
    numbers: std::ops::Range<u64>,
    answers: &mut JoinSet<Result<(), IngestError>>,
) -> Result<(), Error> {
    for (lane, handle) in handles.iter().enumerate() {
        let now = handle.now();
        let mine = numbers.clone().filter(|number| played.load.lane(*number) as usize == lane);
        let messages: Vec<NewMessage> = mine
            .map(|number| {
                played.log.arrived(number, played.elapsed());
                NewMessage { message: played.load.message(number, played.payload(number), now), due: None }
            })
            .collect();
        if messages.is_empty() {
            continue;
        }
        if answers.len() >= CALLS_MAX
            && let Some(answered) = answers.join_next().await
        {
            answered??;
        }
        let handle = handle.clone();
        let mut call = Box::pin(async move {
            loop {
                match handle.ingest(messages.iter().cloned()).await {
                    Err(IngestError::Busy) => tokio::time::sleep(AGAIN).await,
                    answer => return answer.map(drop),
                }
            }
        });
        // Polled once here and finished in a task: on a busy machine tasks start in any order, and a later message of
        // a key could overtake an earlier one.
        match std::future::poll_fn(|context| Poll::Ready(call.as_mut().poll(context))).await {
            Poll::Ready(answer) => answer?,
            Poll::Pending => drop(answers.spawn(call)),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use redrive::Policy;

    use super::super::load::Fates;
    use super::super::stage::Silent;
    use super::*;
    use crate::fate::Rates;

    #[test]
    fn a_short_run_on_the_embedded_engine_balances_and_ends_as_the_fates_say() {
        let tiers = Policy::tiers(["50ms", "100ms"]).jitter("none").classify(false).outage_gate(false);
        let load = Load {
            fates: Fates::Rates(Rates::WORKLOAD),
            lanes: 2,
            follow: Duration::from_secs(30),
            ..Load::steady(7, 400.0, Duration::from_millis(500))
        };
        let subject = Subject::plain(tiers.build().unwrap(), 16);
        let trace = run(&load, &subject, Stage::of(&Silent, "test", 0, 1)).unwrap().unwrap();
        assert!(trace.audit.balances(), "{}", trace.audit);
        assert_eq!((trace.audit.produced, trace.audit.pending), (200, 0));
        for (number, record) in trace.arrived() {
            assert_eq!(record.is_dead(), load.fate(number) == crate::fate::Fate::Poison, "{number}");
        }
    }

    #[test]
    fn people_close_letters_at_their_own_rate_and_the_audit_counts_them_as_dead() {
        let tiers = Policy::tiers(["50ms"]).jitter("none").classify(false).outage_gate(false);
        let load = Load {
            fates: Fates::Rates(Rates { poison: redrive_core::Ratio::percent(50), ..Rates::NONE }),
            triage_per_second: Some(5.0),
            ..Load::steady(7, 100.0, Duration::from_secs(3))
        };
        let subject = Subject::plain(tiers.build().unwrap(), 16);
        let trace = run(&load, &subject, Stage::of(&Silent, "test", 0, 1)).unwrap().unwrap();
        assert!(trace.audit.balances(), "{}", trace.audit);
        // At most the triage rate; a busy machine may close fewer. About fifty messages die per second.
        let closed = trace.triaged_ms.len();
        assert!((1..=15).contains(&closed), "{closed}");
        assert!(trace.audit.dead > 15 + closed as u64, "{}", trace.audit);
    }
}
