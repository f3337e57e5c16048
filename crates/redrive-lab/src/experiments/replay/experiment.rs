//! Dead letters, a fix, `replay --all`: does every effect happen exactly once, even for messages that were half
//! applied before?

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering::Relaxed};
use std::time::{Duration, Instant};

use redrive::letters::Selection;
use redrive::replay::{Ambiguous, PlanOptions, ReplaySpec, Replays};
use redrive::{BreakerSettings, Failure, GuardSettings, LetterState, Message, Pipeline, PipelineHandle};
use redrive_core::Ratio;
use serde::Deserialize;
use tokio::sync::oneshot;

use super::super::fault::LabError;
use super::super::setup::{ExperimentSetup, built, complete, tiers};
use super::engine::ReplayEngine;
use super::store::{Effects, Store};
use crate::fate::{Fate, Rates};
use crate::results::{Column, Curve, Outcome, Plot, Scale, Unit, VariantResult};
use crate::scenario::{Scenario, Share, Span, Variant};
use crate::seed;
use crate::testbed::letters::listed;
use crate::testbed::trace::EngineCounts;
use crate::testbed::{Audit, Fates, IdFacts, LetterSet, Load, Stage};

type Error = Box<dyn std::error::Error + Send + Sync>;

const LOOK: Duration = Duration::from_millis(10);
/// Far longer than any step of a run takes.
const STEP_MAX: Duration = Duration::from_mins(5);
/// Far longer than the engine's figures lag behind.
const FIGURES_MAX: Duration = Duration::from_secs(10);
/// Salt for drawing which messages are half applied.
const SALT: u64 = 5;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ReplayParameters {
    messages: u64,
    tiers: Vec<Span>,
    transient: Share,
    poison: Share,
    /// Share of the poison whose effect happens before the call fails.
    half_applied: Share,
    /// Whether the downstream checks its ledger first.
    ledger: bool,
    concurrency: u32,
    /// Without it there is no replay, to break the claim.
    #[serde(default = "yes")]
    replays: bool,
    /// Letters that the final list leaves out, to break the audit.
    #[serde(default)]
    hidden_letters: usize,
}

const fn yes() -> bool {
    true
}

/// The simulated handler.
struct FixableHandler {
    load: Load,
    half_applied: Ratio,
    effects: Effects,
    is_fixed: AtomicBool,
    attempts: Vec<AtomicU8>,
    succeeded: Vec<AtomicU8>,
}

impl FixableHandler {
    /// The number of messages that have succeeded.
    fn done(&self) -> u64 {
        self.succeeded.iter().filter(|count| count.load(Relaxed) > 0).count() as u64
    }

    async fn handle(self: Arc<Self>, id: String, number: u64) -> Result<(), Failure> {
        let slot = number as usize;
        let attempt = self.attempts[slot].fetch_add(1, Relaxed).saturating_add(1);
        let fate = self.load.fate(number);
        let is_bad = fate == Fate::Poison && !self.is_fixed.load(Relaxed);
        if is_bad {
            let drawn = seed::draw(self.load.seed, &id, SALT) % 10_000;
            if drawn < self.half_applied.basis_points() {
                self.effects.apply(&id, number).await?;
                // The effect has happened, but the caller cannot know.
                return Err(Failure::permanent("the answer was cut off").ambiguous());
            }
            return Err(Failure::permanent("422 no such product"));
        }
        if fate != Fate::Poison && fate.fails(attempt) {
            return Err(Failure::transient("503 service unavailable"));
        }
        self.effects.apply(&id, number).await?;
        self.succeeded[slot].fetch_add(1, Relaxed);
        Ok(())
    }
}

/// Results of the steps of one run.
#[derive(Debug)]
struct Steps {
    letters: u64,
    /// Letters with an ambiguous attempt.
    ambiguous: u64,
    replayed: u64,
    again: u64,
    replay_seconds: f64,
    remaining: u64,
    /// Messages with a letter before the fix, read back from storage.
    found: Vec<u64>,
    /// Messages with an open letter at the end.
    open: Vec<u64>,
    engine: EngineCounts,
}

pub fn run(scenario: &Scenario, setup: &ExperimentSetup<'_>) -> Result<Outcome, LabError> {
    let place = setup.postgres.map_or("a set in memory", |_| "PostgreSQL, id and effect in one transaction");
    let each = setup.each(scenario, |variant: &Variant<ReplayParameters>, stage| {
        let engine = ReplayEngine::new(setup.engine).map_err(|error| LabError::Run(error.to_string()))?;
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
        let runtime = runtime.map_err(|error| LabError::Run(error.to_string()))?;
        let played = runtime.block_on(play(variant, setup, &engine, stage));
        drop(runtime);
        played.map_err(|error| LabError::Run(error.to_string()))
    })?;
    let (variants, rest, is_partial) = complete(each);
    let (curves, sql): (Vec<Curve>, Vec<Vec<String>>) = rest.into_iter().unzip();
    let mut notes = vec![format!("Effects are stored in: {place}.")];
    notes.extend(sql.into_iter().flatten());
    let columns = vec![
        Column::new("dead letters", "letters", Unit::Count),
        Column::new("of these with an unknown end", "ambiguous", Unit::Count),
        Column::new("replayed", "replayed", Unit::Count),
        Column::new("replayed by a second --all", "again", Unit::Count),
        Column::new("remaining", "remaining", Unit::Count),
        Column::new("effects", "effects", Unit::Count),
        Column::new("ids with two effects", "twice", Unit::Count),
        Column::new("ids without one", "missing", Unit::Count),
        Column::new("replay took", "replay_seconds", Unit::Seconds),
    ];
    let title = "Effects per id";
    let plots =
        vec![Plot::new("effects", title, "effects of one id", "ids", curves).y_scale(Scale::Log(1.0))];
    Ok(Outcome { columns, variants, plots, notes, is_partial, ..Outcome::default() })
}

async fn play(
    variant: &Variant<ReplayParameters>,
    setup: &ExperimentSetup<'_>,
    engine: &ReplayEngine<'_>,
    stage: Stage<'_>,
) -> Result<Option<(VariantResult, (Curve, Vec<String>))>, Error> {
    let p = &variant.parameters;
    let rates = Rates { poison: p.poison.0, transient: p.transient.0 };
    // Only ids and fates of the load are used: all messages are offered at once.
    let load = Load {
        fates: Fates::Rates(rates),
        ..Load::steady(setup.seed, p.messages as f64, Duration::from_secs(1))
    };
    let store = Store::open(setup.postgres, p.messages, p.ledger).await?;
    let zeros = || (0..p.messages).map(|_| AtomicU8::new(0)).collect();
    let downstream = Arc::new(FixableHandler {
        load,
        half_applied: p.half_applied.0,
        effects: store.effects(),
        is_fixed: AtomicBool::new(false),
        attempts: zeros(),
        succeeded: zeros(),
    });
    let called = Arc::clone(&downstream);
    let policy = built(&tiers(&p.tiers).jitter("none").outage_gate(false))?;
    let pipeline = Pipeline::new(engine.name())
        .policy(policy.clone())
        .breaker(BreakerSettings::off())
        .guard(GuardSettings::off())
        .concurrency(p.concurrency)
        .handler(move |message: &Message| {
            let number = seed::parse(message.id()).map_or(0, |(_, number)| number);
            Arc::clone(&called).handle(message.id().to_owned(), number)
        });
    let redrive = engine.build(pipeline, &policy)?;
    let handle = redrive.pipeline(engine.name()).ok_or("a pipeline that was built is missing")?;
    let (stop, stopped) = oneshot::channel::<()>();
    let running = tokio::spawn(async move { redrive.run_until(stopped).await });
    let steps = walk(p, &downstream, engine, &handle, stage).await;
    let _ = stop.send(());
    running.await??;
    let Some(steps) = steps? else { return Ok(None) };
    let counts = store.counts().await?;
    let sql = store.close().await?;
    let applied = |wanted: fn(u8) -> bool| counts.iter().filter(|count| wanted(**count)).count() as u64;
    let audit = audit(&downstream, &steps);
    let result = VariantResult::new(&variant.name, Some(audit))
        .with("letters", steps.letters as f64)
        .with("ambiguous", steps.ambiguous as f64)
        .with("replayed", steps.replayed as f64)
        .with("again", steps.again as f64)
        .with("remaining", steps.remaining as f64)
        .with("effects", counts.iter().map(|count| f64::from(*count)).sum())
        .with("twice", applied(|count| count > 1) as f64)
        .with("missing", applied(|count| count == 0) as f64)
        .with("replay_seconds", steps.replay_seconds);
    let mut bars: Vec<(f64, f64)> = (0..=3_u8).map(|n| (f64::from(n), 0.0)).collect();
    for count in &counts {
        bars[usize::from(*count).min(3)].1 += 1.0;
    }
    Ok(Some((result, (Curve::new(&variant.name, bars), sql))))
}

/// Audits by id: which messages succeeded according to the downstream, which have an open letter according to the
/// list, and whether exactly the poison had a letter before the fix.
fn audit(downstream: &FixableHandler, steps: &Steps) -> Audit {
    let messages = downstream.succeeded.len() as u64;
    let (found, open) = (LetterSet::new(messages, &steps.found), LetterSet::new(messages, &steps.open));
    let ids = (0..).zip(&downstream.succeeded).map(|(number, count)| IdFacts {
        arrived: true,
        succeeded: count.load(Relaxed) > 0,
        twice: count.load(Relaxed) > 1,
        announced: open.has(number),
    });
    let mut audit = Audit::by_id(ids, &open, steps.engine);
    audit.letters_twice += found.twice;
    audit.letters_strange += found.strange;
    for number in 0..messages {
        let is_poison = downstream.load.fate(number) == Fate::Poison;
        audit.announced_only += u64::from(is_poison && !found.has(number));
        audit.unannounced += u64::from(!is_poison && found.has(number));
    }
    audit
}

/// Fill, fix, replay all, replay all again. Returns `None` if interrupted.
async fn walk(
    p: &ReplayParameters,
    downstream: &FixableHandler,
    engine: &ReplayEngine<'_>,
    handle: &PipelineHandle,
    stage: Stage<'_>,
) -> Result<Option<Steps>, Error> {
    let go_on = |first: u64| {
        stage.share(0.3 * first as f64 / p.messages as f64);
        !stage.is_interrupted()
    };
    if !engine.feed(handle, &downstream.load, 0..p.messages, go_on).await? {
        return Ok(None);
    }
    // The engine does not count messages that wait in topics.
    let counts_all = handle.takes_messages();
    let has_ended = |counts: &redrive::Counts| {
        downstream.done() + counts.letters_open >= p.messages && (!counts_all || counts.pending() == 0)
    };
    let letters = until(handle, stage, has_ended).await?.letters_open;
    stage.share(0.6);
    let found = engine.letters(handle, downstream.load.seed).await?;
    downstream.is_fixed.store(true, Relaxed);
    let replays = Replays::open(None)?;
    // Like `redrive dlq replay --all --ambiguous ok`.
    let all = Selection::all(LetterState::Open);
    let options = PlanOptions { ambiguous: Ambiguous::Ok, ..PlanOptions::default() };
    let plan = replays.plan(handle, &all, options).await?;
    let (ambiguous, began) = (plan.ambiguous, Instant::now());
    let mut replayed = 0;
    if p.replays {
        let job = replays.start_planned(handle, ReplaySpec::default(), plan, "lab").await?;
        let is_over = || replays.get(&job.id).is_none_or(|job| job.state.is_over());
        until(handle, stage, |counts| is_over() && counts.letters_replaying == 0).await?;
        replayed = replays.get(&job.id).map_or(0, |job| job.published);
    }
    let replay_seconds = began.elapsed().as_secs_f64();
    let again = replays.plan(handle, &all, options).await?.ids.len() as u64;
    let counts = until(handle, stage, has_ended).await?;
    stage.share(1.0);
    let remaining = counts.letters_open;
    let (accepted, pending) = if counts_all {
        (counts.accepted, counts.pending())
    } else {
        (p.messages, not_over(handle, p.messages + replayed).await)
    };
    let mut open =
        listed(std::slice::from_ref(handle), Some(LetterState::Open), downstream.load.seed).await?;
    open.truncate(open.len().saturating_sub(p.hidden_letters));
    let engine = EngineCounts { accepted, pending, letters: remaining };
    let steps = Steps { letters, ambiguous, replayed, again, replay_seconds, remaining, found, open, engine };
    Ok((!stage.is_interrupted()).then_some(steps))
}

/// How many of the `entered` messages have not ended by the engine's figures, for Kafka, where the engine does not
/// count messages in topics. The figures are published every 50 ms.
async fn not_over(handle: &PipelineHandle, entered: u64) -> u64 {
    let began = Instant::now();
    loop {
        let figures = handle.figures();
        let left = entered.saturating_sub(figures.succeeded + figures.dead.total());
        if left == 0 || began.elapsed() > FIGURES_MAX {
            return left;
        }
        tokio::time::sleep(LOOK).await;
    }
}

async fn until(
    handle: &PipelineHandle,
    stage: Stage<'_>,
    is: impl Fn(&redrive::Counts) -> bool,
) -> Result<redrive::Counts, Error> {
    let began = Instant::now();
    loop {
        let counts = handle.counts().await?;
        if is(&counts) || stage.is_interrupted() {
            return Ok(counts);
        }
        if began.elapsed() > STEP_MAX {
            return Err(format!("{} messages are pending after five minutes", counts.pending()).into());
        }
        tokio::time::sleep(LOOK).await;
    }
}
