//! Twenty minutes at 50,000 messages per second: throughput, lag and memory over time, and an audit of every id.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use redrive_core::forecast::Shares;
use serde::Deserialize;

use super::super::fault::LabError;
use super::super::setup::{ExperimentSetup, built, complete, mode, tier_lines, unprotected};
use crate::fate::Rates;
use crate::results::{Bound, Column, Curve, ForecastLine, Outcome, Plot, Unit, VariantResult};
use crate::scenario::{Scenario, Share, Span};
use crate::testbed::{ByteLog, CallLog, Fates, Load, RunEnd, Subject};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct SoakParameters {
    rate: f64,
    arrive_for: Span,
    /// How long messages may take after the last arrival.
    follow: Span,
    tiers: Vec<Span>,
    transient: Share,
    poison: Share,
    partitions: u32,
    /// Concurrent calls per partition.
    concurrency: u32,
    /// `blocking` breaks the claim.
    #[serde(default)]
    mode: String,
    /// Bytes that the handler leaks per call, to break the claim.
    #[serde(default)]
    leaks: usize,
}

/// Leaks memory on every call.
#[derive(Debug)]
struct LeakyLog {
    log: Arc<ByteLog>,
    bytes: usize,
    kept: Mutex<Vec<Vec<u8>>>,
}

impl CallLog for LeakyLog {
    fn arrived(&self, number: u64, at: Duration) {
        self.log.arrived(number, at);
    }

    fn called(&self, number: u64, at: Duration) -> u16 {
        // Memory counts as resident only after it is written.
        self.kept.lock().unwrap_or_else(PoisonError::into_inner).push(vec![1; self.bytes]);
        self.log.called(number, at)
    }

    fn failed(&self, at: Duration) {
        self.log.failed(at);
    }

    fn succeeded(&self, number: u64, at: Duration) {
        self.log.succeeded(number, at);
    }

    fn died(&self, number: u64, at: Duration) {
        self.log.died(number, at);
    }

    fn started(&self) -> u64 {
        self.log.started()
    }

    fn ended(&self) -> u64 {
        self.log.ended()
    }

    fn dead(&self) -> u64 {
        self.log.dead()
    }
}

/// Curves for the plots.
struct SoakCurves {
    first_calls: Curve,
    calls: Curve,
    lag: Curve,
    memory: Curve,
}

pub fn run(scenario: &Scenario, setup: &ExperimentSetup<'_>) -> Result<Outcome, LabError> {
    let each = setup.each(scenario, |variant, stage| {
        let p: &SoakParameters = &variant.parameters;
        let load = Load {
            fates: Fates::Rates(Rates { poison: p.poison.0, transient: p.transient.0 }),
            lanes: p.partitions,
            follow: p.follow.0,
            ..Load::steady(setup.seed, p.rate, p.arrive_for.0)
        };
        let policy = built(&unprotected(&p.tiers).mode(mode(&p.mode)))?;
        let shares = Shares {
            transient: p.transient.0.as_f64(),
            failing_twice: 1.0 / 3.0,
            poison: p.poison.0.as_f64(),
        };
        let forecast = policy.forecast().load(shares);
        let log = Arc::new(ByteLog::new(&load));
        let subject = Subject::plain(policy, p.concurrency);
        let calls: Arc<dyn CallLog> = match p.leaks {
            0 => log.clone(),
            bytes => Arc::new(LeakyLog { log: log.clone(), bytes, kept: Mutex::default() }),
        };
        let Some(end) = setup.play_with(&load, &subject, calls, stage)? else { return Ok(None) };
        let (result, curves) = measure(&variant.name, &log, &end);
        // Random fates vary around the shares.
        let by = 3.0 * (3.0 / load.messages().max(1) as f64).sqrt();
        let measured = result.get("amplification");
        let what = format!("records per message, {}", variant.name);
        let line = ForecastLine::new(&what, Unit::Times, forecast.amplification, measured, Bound::About(by));
        // Only a broker counts the records of a tier; the byte log has the calls of all tiers together.
        let tiers: Vec<f64> =
            end.tier_records.iter().map(|records| *records as f64 / load.messages() as f64).collect();
        let tiers = tier_lines(&variant.name, &forecast, &tiers, load.messages());
        let lines: Vec<ForecastLine> = std::iter::once(line).chain(tiers).collect();
        let note = format!("{}: the audit takes one byte per id, {} kB.", variant.name, log.bytes() / 1000);
        Ok(Some((result, (curves, lines, note))))
    })?;
    let (variants, rest, is_partial) = complete(each);
    let mut outcome = Outcome { columns: columns(), variants, is_partial, ..Outcome::default() };
    let (mut throughput, mut lag, mut memory) = (Vec::new(), Vec::new(), Vec::new());
    for (curves, lines, note) in rest {
        outcome.forecasts.extend(lines);
        outcome.notes.push(note);
        throughput.extend([curves.first_calls, curves.calls]);
        lag.push(curves.lag);
        memory.push(curves.memory);
    }
    outcome.plots = vec![
        Plot::new("throughput", "First attempts and all calls", "seconds", "per second", throughput),
        Plot::new("lag", "Messages without a first attempt", "seconds", "messages", lag),
        Plot::new("memory", "Memory of the process, load and audit included", "seconds", "MB", memory),
    ];
    Ok(outcome)
}

fn columns() -> Vec<Column> {
    vec![
        Column::new("messages", "produced", Unit::Count),
        Column::new("first attempts", "first_attempts_per_second", Unit::PerSecond),
        Column::new("lowest second", "first_attempts_min", Unit::PerSecond),
        Column::new("lag, most", "lag_max", Unit::Count),
        Column::new("at the end", "lag_end", Unit::Count),
        Column::new("wait for the first attempt p99", "wait_p99_ms", Unit::Milliseconds),
        Column::new("records per message", "amplification", Unit::Times),
        Column::new("memory, most", "memory_bytes", Unit::Bytes),
        Column::new("last quarter against second", "memory_growth", Unit::Times),
    ]
}

fn measure(name: &str, log: &ByteLog, end: &RunEnd) -> (VariantResult, SoakCurves) {
    let audit = log.audit(end.engine, &end.letters);
    let (first_calls, lag, memory) = (log.first_calls(), log.lag(), log.memory_mb());
    let produced = audit.produced.max(1) as f64;
    let seconds = first_calls.len().max(1) as f64;
    // Skip the first second, in which connections and caches are set up.
    let settled = first_calls.get(1..).filter(|rest| !rest.is_empty()).unwrap_or(&first_calls);
    let quarter = |n: usize| highest(&memory[memory.len() * n / 4..memory.len() * (n + 1) / 4]);
    let at_end = lag.last().map_or(0.0, |point| point.1);
    let records = end.broker_records.unwrap_or(log.total_calls() + audit.dead) as f64;
    let result = VariantResult::new(name, Some(audit))
        .with("produced", audit.produced as f64)
        .with("ended_share", (audit.succeeded + audit.dead) as f64 / produced)
        .with("first_attempts_per_second", sum(&first_calls) / seconds)
        .with("first_attempts_min", settled.iter().map(|point| point.1).fold(f64::INFINITY, f64::min))
        .with("lag_max", highest(&lag))
        .with("lag_end", at_end)
        .with("lag_end_share", at_end / produced)
        .with("wait_p99_ms", log.waited_ms(0.99))
        .with("amplification", records / produced)
        .with("memory_bytes", highest(&memory) * 1e6)
        .with("memory_growth", quarter(3) / quarter(1));
    let curves = SoakCurves {
        first_calls: Curve::new("first attempts", first_calls),
        calls: Curve::new("all calls", log.calls()),
        lag: Curve::new("lag", lag),
        memory: Curve::new("memory", memory),
    };
    (result, curves)
}

fn highest(series: &[(f64, f64)]) -> f64 {
    series.iter().map(|point| point.1).fold(f64::NAN, f64::max)
}

fn sum(series: &[(f64, f64)]) -> f64 {
    series.iter().map(|point| point.1).sum()
}
