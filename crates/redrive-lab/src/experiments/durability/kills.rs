//! `kill -9` under load: how many calls are repeated, and whether anything is lost.

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde::Deserialize;

use super::super::fault::LabError;
use super::super::setup::{ExperimentSetup, LabEngine, complete};
use super::kills_kafka;
use crate::results::{Column, Curve, Outcome, Plot, Scale, Unit, VariantResult};
use crate::scenario::{Scenario, Span, Variant};
use crate::testbed::trace::EngineCounts;
use crate::testbed::victim::{self, VictimOrder};
use crate::testbed::{Audit, Scratch, Stage};

pub(super) const LOOK: Duration = Duration::from_millis(2);
/// Far longer than a process should live.
pub(super) const LIFE_MAX: Duration = Duration::from_mins(10);

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct KillParameters {
    pub(super) rate: f64,
    pub(super) kills: u32,
    /// A process is killed once it has finished as many calls as messages arrive in this time.
    pub(super) life: Span,
    /// Latency of a call.
    pub(super) latency: Span,
    pub(super) concurrency: u32,
    pub(super) durable: bool,
    /// Every process starts without the state of the previous one, to break the claim.
    #[serde(default)]
    pub(super) forgets: bool,
}

impl KillParameters {
    /// Number of calls after which a process is killed.
    pub(super) fn calls_per_life(&self) -> u64 {
        (self.rate * self.life.0.as_secs_f64()).ceil() as u64
    }
}

pub fn run(scenario: &Scenario, setup: &ExperimentSetup<'_>) -> Result<Outcome, LabError> {
    let each = setup.each(scenario, |variant, stage| {
        let played = match setup.engine {
            LabEngine::Embedded => play(variant, setup, stage),
            LabEngine::Kafka(brokers) => kills_kafka::play(&variant.parameters, brokers, setup, stage),
        };
        let played = played.map_err(|error| LabError::Run(error.to_string()))?;
        played.map(|order| measure(variant, &order)).transpose()
    })?;
    let (variants, curves, is_partial) = complete(each);
    let title = "Calls that were repeated, kill by kill";
    let plots = vec![Plot::new("repeats", title, "kill", "repeated calls", curves).y_scale(Scale::Log(1.0))];
    Ok(Outcome { columns: columns(), variants, plots, is_partial, ..Outcome::default() })
}

fn columns() -> Vec<Column> {
    vec![
        Column::new("kills", "kills", Unit::Count),
        Column::new("messages", "produced", Unit::Count),
        Column::new("lost", "lost", Unit::Count),
        Column::new("repeated calls", "repeats", Unit::Count),
        Column::new("per kill", "repeats_per_kill", Unit::Count),
        Column::new("most of one kill", "repeats_max", Unit::Count),
        Column::new("per kill, of a second's calls", "repeats_share", Unit::Share),
    ]
}

/// Runs and kills processes, then runs a last one to its end; `None` if interrupted.
fn play(
    variant: &Variant<KillParameters>,
    setup: &ExperimentSetup<'_>,
    stage: Stage<'_>,
) -> Result<Option<(VictimOrder, Scratch)>, crate::testbed::Error> {
    let p = &variant.parameters;
    let scratch = Scratch::new()?;
    let calls_per_life = p.calls_per_life();
    let mut order = VictimOrder {
        dir: scratch.path().to_owned(),
        seed: setup.seed,
        rate: p.rate,
        // Leaves work for the last process.
        messages: calls_per_life * (u64::from(p.kills) + 2),
        concurrency: p.concurrency,
        latency_ms: p.latency.0.as_millis() as u64,
        durable: p.durable,
        forgets: p.forgets,
        life: 0,
        kafka: None,
    };
    for life in 0..=p.kills {
        order.life = life;
        stage.share(f64::from(life) / f64::from(p.kills + 1));
        let mut victim = Victim::start(setup.victim, &order)?;
        let (done, began) = (order.done(life), Instant::now());
        loop {
            if stage.is_interrupted() {
                return Ok(None);
            }
            if began.elapsed() > LIFE_MAX {
                return Err("a life has lasted ten minutes".into());
            }
            let is_last = life == p.kills;
            if !is_last && victim::count(&done) >= calls_per_life {
                break;
            }
            if let Some(ended) = victim.0.try_wait()? {
                if is_last && ended.success() {
                    break;
                }
                return Err(format!("the process that was to be killed has ended: {ended}").into());
            }
            std::thread::sleep(LOOK);
        }
    }
    Ok(Some((order, scratch)))
}

/// The child process; killed on drop.
pub(super) struct Victim(pub(super) Child);

impl Victim {
    pub(super) fn start(command: &[String], order: &VictimOrder) -> Result<Self, crate::testbed::Error> {
        let (program, arguments) = command.split_first().ok_or("there is no program to kill")?;
        let order = serde_json::to_string(order)?;
        let started = Command::new(program).args(arguments).arg(order).stdin(Stdio::null()).spawn()?;
        Ok(Self(started))
    }
}

impl Drop for Victim {
    fn drop(&mut self) {
        // SIGKILL. An error means that the process has already ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Audits by id, from the files that survived.
fn measure(
    variant: &Variant<KillParameters>,
    (order, _scratch): &(VictimOrder, Scratch),
) -> Result<(VariantResult, Curve), LabError> {
    let fault = |error: std::io::Error| LabError::Run(error.to_string());
    let mut calls = vec![0_u8; order.messages as usize];
    let mut repeats: Vec<u64> = Vec::new();
    for life in 0..=order.life {
        let mut again = 0;
        for number in victim::numbers(&order.done(life)).map_err(fault)? {
            if let Some(calls) = calls.get_mut(number as usize) {
                again += u64::from(*calls > 0);
                *calls = calls.saturating_add(1);
            }
        }
        repeats.push(again);
    }
    let counts = std::fs::read(order.counts()).map_err(fault)?;
    let engine: EngineCounts =
        serde_json::from_slice(&counts).map_err(|error| LabError::Run(error.to_string()))?;
    let succeeded = calls.iter().filter(|calls| **calls > 0).count() as u64;
    // Counts ids: to a receiver that deduplicates by id, a repeated call has no second effect.
    let audit = Audit {
        produced: order.messages,
        succeeded,
        pending: order.messages - succeeded,
        engine_accepted: engine.accepted,
        engine_pending: engine.pending,
        engine_letters: engine.letters,
        ..Audit::default()
    };
    let (all, kills) = (repeats.iter().sum::<u64>() as f64, f64::from(order.life.max(1)));
    let result = VariantResult::new(&variant.name, Some(audit))
        .with("kills", f64::from(order.life))
        .with("produced", order.messages as f64)
        .with("lost", audit.pending as f64)
        .with("repeats", all)
        .with("repeats_per_kill", all / kills)
        .with("repeats_max", repeats.iter().copied().max().unwrap_or(0) as f64)
        .with("repeats_share", all / kills / order.rate);
    let points = repeats.iter().enumerate().skip(1).map(|(life, again)| (life as f64, *again as f64));
    Ok((result, Curve::new(&variant.name, points.collect())))
}
