//! One run: faults on, then faults off; and the report of a run that broke an invariant.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

use redrive_core::Reason;

use super::checkers::{self, Broken, Check};
use super::plan::Plan;
use super::witness::{Record, State};
use super::world::World;
use crate::engine::conformance::seeds_from_env;
use crate::engine::{LetterState, Query};

/// Steps that the report of a run shows.
const SHOWN_MAX: usize = 60;
/// Far more than any second phase needs.
const ROUNDS_MAX: u32 = 200_000;

/// The clock steps by at most 30 s, and rarely.
const CLOCK_SET_BACK_MAX: Duration = Duration::from_mins(30);

/// The result of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    pub steps: u64,
    pub messages: u64,
    pub succeeded: u64,
    pub dead: u64,
    pub true_ms: u64,
    /// Crashes and restarts of the process.
    pub crashes: u64,
    pub replays: u64,
    /// Dead letters by reason, replayed ones included.
    pub reasons: BTreeMap<Reason, u64>,
}

/// A run that broke an invariant.
#[derive(Clone, Debug)]
pub struct BrokenInvariant {
    pub plan: Plan,
    pub broken: Broken,
    pub last_steps: Vec<String>,
}

impl fmt::Display for BrokenInvariant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { plan, broken, last_steps } = self;
        writeln!(f, "checker `{}`: {}", broken.checker, broken.detail)?;
        writeln!(f, "seed {}, from which follows {plan:#?}", plan.seed)?;
        writeln!(f, "{}", plan.policy.forecast())?;
        writeln!(f, "the last steps, by true time in ms:")?;
        last_steps.iter().try_for_each(|step| writeln!(f, "  {step}"))?;
        write!(f, "again: REDRIVE_SEED={} cargo test -p redrive --test simulation", plan.seed)
    }
}

/// Runs one seed.
pub fn run(seed: u64) -> Result<Summary, Box<BrokenInvariant>> {
    let plan = Plan::from_seed(seed);
    let mut world = World::new(plan.clone());
    let outcome = faults_on(&mut world).and_then(|()| faults_off(&mut world));
    let count =
        |wanted: fn(&Record) -> bool| world.witness.records.values().filter(|r| wanted(r)).count() as u64;
    match outcome {
        Ok(()) => Ok(Summary {
            steps: world.trace.len() as u64,
            messages: world.witness.records.len() as u64,
            succeeded: count(|r| r.state == State::Done),
            dead: count(|r| r.state != State::Done),
            true_ms: world.true_ms,
            crashes: world.witness.crashes,
            replays: world.witness.records.values().map(|r| u64::from(r.replays)).sum(),
            reasons: world.witness.reasons,
        }),
        Err(broken) => {
            let from = world.trace.len().saturating_sub(SHOWN_MAX);
            let last_steps =
                world.trace[from..].iter().map(|(at, step)| format!("{at:>9} {step:?}")).collect();
            Err(Box::new(BrokenInvariant { plan, broken, last_steps }))
        }
    }
}

/// Any step may follow any other, and the process may die between any two.
fn faults_on(world: &mut World) -> Check {
    let plan = world.plan.clone();
    let faults = plan.faults;
    for _ in 0..plan.steps {
        match world.rng.below(1_000) {
            n if n < faults.crash => world.crash()?,
            n if (50..50 + faults.restart).contains(&n) => world.restart()?,
            n if (100..100 + faults.clock).contains(&n) => world.step_clock(),
            n if (150..150 + faults.pause).contains(&n) => {
                let closed = world.rng.chance(40);
                world.pause(closed);
            }
            n if (200..200 + faults.operator).contains(&n) => world.operate()?,
            n if (300..300 + faults.late_answer).contains(&n) => world.late_answer()?,
            n => ordinary(world, n % 6)?,
        }
        world.check()?;
    }
    Ok(())
}

fn ordinary(world: &mut World, which: u64) -> Check {
    match which {
        0 if world.offered < world.plan.messages => world.ingest(),
        0 | 1 => world.take().map(drop),
        2 => world.end_one(),
        3 => world.give().map(drop),
        4 => world.poll(),
        _ => {
            // Usually advance to the next event, sometimes to a moment before or after it.
            let next = world.next_event_in().unwrap_or(0);
            let ms = match world.rng.below(10) {
                0 => world.rng.below(200),
                1 => next + world.rng.below(5_000),
                2 => next / 2,
                _ => next,
            };
            world.advance(ms);
            Ok(())
        }
    }
}

/// No faults are injected: every message must become terminal in time.
fn faults_off(world: &mut World) -> Check {
    world.faults = false;
    world.pause(false);
    let (started_ms, bound) = (world.true_ms, bound(world));
    for _ in 0..ROUNDS_MAX {
        while world.next_end().is_some_and(|at| at <= world.true_ms) {
            world.end_one()?;
        }
        world.give()?;
        world.poll()?;
        let came = world.take()?;
        let settled = world.give()?;
        world.poll()?;
        world.check()?;
        if world.witness.records.values().all(Record::is_terminal) {
            return at_rest(world);
        }
        // The messages taken may have been settled without a start, and then there is room again at once.
        let next = if came + settled > 0 { Some(0) } else { world.next_event_in() };
        let spent = Duration::from_millis(world.true_ms - started_ms);
        checkers::liveness(&world.witness, next.is_none(), spent, bound)?;
        world.advance(next.unwrap_or(0));
    }
    checkers::liveness(&world.witness, true, Duration::ZERO, bound)
}

/// The forecast's bound for one message, times the longest line it may wait in, plus the time by which the clock was
/// set back, plus the time that all calls need with the available permits.
fn bound(world: &World) -> Duration {
    let policy = &world.plan.policy;
    let forecast = policy.forecast();
    let pending: Vec<&Record> = world.witness.records.values().filter(|r| !r.is_terminal()).collect();
    let messages = pending.len().max(1) as u32;
    let calls = u32::try_from(forecast.calls_max).unwrap_or(u32::MAX);
    let calling = forecast.timeout.saturating_mul(calls);
    // The forecast's bound includes the TTL, but a replay lifts the deadline, so a replayed message has the bound
    // without a TTL.
    let asked = policy.retry_after_max().max(policy.longest_delay()).saturating_mul(2);
    let without_ttl = asked.saturating_mul(forecast.attempts_max) + forecast.hold_max + calling;
    let replayed = pending.iter().any(|record| record.replays > 0);
    let one = if replayed { without_ttl } else { forecast.terminal_max_with_retry_after };
    let delayed_at_most = Duration::from_secs(20);
    // Each call may be a failing probe that keeps the breaker open for another round.
    let breaker = &world.plan.protection.breaker;
    let open = if breaker.enabled { breaker.cooldown_max.saturating_mul(calls) } else { Duration::ZERO };
    (one + delayed_at_most + calling + open).saturating_mul(messages) + CLOCK_SET_BACK_MAX
}

/// At rest: the engine lists exactly the letters that the witness recorded, and the effects match.
fn at_rest(world: &mut World) -> Check {
    let shown = world
        .engine
        .letters(None, None, usize::MAX)
        .map_err(|error| Broken { checker: "conservation", detail: error.to_string() })?;
    let shown: BTreeSet<(u64, LetterState)> = shown.iter().map(|letter| (letter.id, letter.state)).collect();
    let expected: BTreeSet<(u64, LetterState)> = (world.witness.records.iter())
        .filter_map(|(seq, record)| match record.state {
            State::Letter(state) => Some((*seq, state)),
            State::Done if record.replays > 0 => Some((*seq, LetterState::Succeeded)),
            _ => None,
        })
        .collect();
    if shown != expected {
        let detail = format!("letters are {shown:?}, the witness saw {expected:?}");
        return Err(Broken { checker: "conservation", detail });
    }
    checkers::effect_once_at_rest(&world.witness, &world.downstream)
}

/// Runs seeds `0..count`, or the one in `REDRIVE_SEED`; panics at the first failure.
pub fn check_seeds(count: u64) -> Summary {
    let seeds = seeds_from_env("REDRIVE_SEED").map_or(0..count, |seed| seed..seed + 1);
    let mut total = Summary::default();
    for seed in seeds {
        let summary = run(seed).unwrap_or_else(|failure| panic!("{failure}"));
        total.steps += summary.steps;
        total.messages += summary.messages;
        total.succeeded += summary.succeeded;
        total.dead += summary.dead;
        total.true_ms += summary.true_ms;
        total.crashes += summary.crashes;
        total.replays += summary.replays;
        for (reason, count) in summary.reasons {
            *total.reasons.entry(reason).or_default() += count;
        }
    }
    total
}
