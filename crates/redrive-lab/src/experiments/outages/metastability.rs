//! The metastability map: which triggers leave a downstream overloaded for good, by retry policy.
//!
//! The downstream serves calls in order, at a fixed rate. If a call exceeds the client's timeout, the client gives
//! up, but the call is still served later. This wasted work sustains the overload after its cause is gone.

use std::time::Duration;

use redrive::{BreakerSettings, Policy};
use redrive_core::Ratio;
use serde::Deserialize;

use super::super::fault::LabError;
use super::super::setup::{ExperimentSetup, built, complete, tiers};
use crate::results::{Column, Curve, HeatMap, HeatPanel, Outcome, Plot, Scale, Unit, VariantResult};
use crate::scenario::{Scenario, Share, Span, Variant};
use crate::testbed::simulated::{self, Reply, Responder};
use crate::testbed::{Audit, HandlerAnswer, Load, Stage, Subject, Trace};

/// Minimum goodput at the end, as a share of the arrivals, to count as recovered.
const RECOVERED: f64 = 0.9;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct MetastabilityParameters {
    rate: f64,
    /// Normal traffic as a share of the capacity.
    utilisation: f64,
    timeout: Span,
    before: Span,
    after: Span,
    /// Length of the final period over which goodput is measured.
    judged: Span,
    /// Depths (percent of capacity taken away) and lengths of the triggers.
    depths: Vec<u32>,
    lengths: Vec<Span>,
    policy: String,
    retries: u32,
    tiers: Vec<Span>,
    budget: Share,
    /// The breaker's initial call limit after the outage, as a multiple of the earlier rate; 0 means no limit.
    reload: f64,
    permits: u32,
    /// Share of the messages that are diverted once the trigger ends, with all their calls.
    taken_away: Share,
}

impl MetastabilityParameters {
    /// Whether this message is diverted.
    fn is_taken_away(&self, number: u64) -> bool {
        number % 100 < self.taken_away.0.basis_points() / 100
    }
}

/// A temporary reduction of capacity.
#[derive(Clone, Copy, Debug)]
struct Trigger {
    taken: f64,
    from_ms: f64,
    to_ms: f64,
}

/// Serves calls in order.
struct ModelServer<'a> {
    parameters: &'a MetastabilityParameters,
    per_ms: f64,
    timeout_ms: f64,
    trigger: Trigger,
    free_ms: f64,
}

impl ModelServer<'_> {
    /// When a call that begins at `begun_ms` is done.
    fn done_ms(&self, begun_ms: f64) -> f64 {
        let Trigger { taken, from_ms, to_ms } = self.trigger;
        let is_triggered = (from_ms..to_ms).contains(&begun_ms);
        let per_ms = if is_triggered { self.per_ms * (1.0 - taken) } else { self.per_ms };
        if per_ms < 1e-9 { to_ms + 1.0 / self.per_ms } else { begun_ms + 1.0 / per_ms }
    }
}

impl Responder for ModelServer<'_> {
    fn call(&mut self, number: u64, _call: u16, at: Duration) -> Reply {
        let now_ms = at.as_secs_f64() * 1000.0;
        if now_ms >= self.trigger.to_ms && self.parameters.is_taken_away(number) {
            // Diverted: served elsewhere, at no cost to this downstream.
            return Reply { answer: HandlerAnswer::Success, takes_ms: 0 };
        }
        self.free_ms = self.done_ms(self.free_ms.max(now_ms));
        let takes_ms = self.free_ms - now_ms;
        if takes_ms <= self.timeout_ms {
            Reply { answer: HandlerAnswer::Success, takes_ms: takes_ms.ceil() as u64 }
        } else {
            Reply { answer: HandlerAnswer::Transient, takes_ms: self.timeout_ms as u64 }
        }
    }
}

/// One cell of the map.
struct Cell {
    depth: u32,
    length: Duration,
    goodput: f64,
    audit: Audit,
    /// Applied messages relative to the arrivals, over time.
    curve: Vec<(f64, f64)>,
}

pub fn run(scenario: &Scenario, setup: &ExperimentSetup<'_>) -> Result<Outcome, LabError> {
    let each = setup.each(scenario, |variant, stage| {
        let Some(cells) = map(variant, setup, stage)? else { return Ok(None) };
        let (result, curve) = measure(variant, &cells);
        Ok(Some((result, (curve, text(variant, &cells), panel(variant, &cells)))))
    })?;
    let (variants, rest, is_partial) = complete(each);
    let (mut curves, mut notes, mut panels) = (Vec::new(), Vec::new(), Vec::new());
    for (curve, note, panel) in rest {
        curves.push(curve);
        notes.push(note);
        panels.push(panel);
    }
    notes.extend(attribution(&variants));
    let heat_maps = vec![heat_map(scenario, setup, panels)?];
    let title = "Goodput through the published trigger";
    let plot = Plot::new("goodput", title, "seconds", "served, share of the arrivals", curves);
    let plots = vec![plot.y_scale(Scale::Share)];
    let columns = vec![
        Column::new("cells", "cells", Unit::Count),
        Column::new("recovered", "recovered", Unit::Count),
        Column::new("not recovered", "not_recovered", Unit::Count),
        Column::new("lowest goodput at the end", "goodput_min", Unit::Share),
        Column::new("after 10 s at −80 %", "goodput_published", Unit::Share),
    ];
    Ok(Outcome { columns, variants, plots, heat_maps, notes, is_partial, ..Outcome::default() })
}

fn subject(p: &MetastabilityParameters) -> Result<Subject, LabError> {
    let at_once = Policy::fixed("1ms").retries(p.retries).jitter("none").outage_gate(false);
    let spread = tiers(&p.tiers);
    let policy = match p.policy.as_str() {
        "naive" => at_once,
        "backoff" => spread.jitter("full").outage_gate(false),
        "budget" => at_once.share_of_successes(p.budget.0).on_exhausted("dead_letter"),
        "redrive" => spread.jitter("equal"),
        "redrive with a budget" => spread.jitter("equal").share_of_successes(p.budget.0),
        other => return Err(LabError::Run(format!("there is no policy `{other}`"))),
    };
    let breaker = if p.policy.starts_with("redrive") {
        let reload = Ratio::percent((p.reload * 100.0).round() as u16);
        BreakerSettings { reload, ..BreakerSettings::default() }
    } else {
        BreakerSettings::off()
    };
    Ok(Subject { breaker, ..Subject::plain(built(&policy)?, p.permits) })
}

/// Returns `None` if interrupted.
fn map(
    variant: &Variant<MetastabilityParameters>,
    setup: &ExperimentSetup<'_>,
    stage: Stage<'_>,
) -> Result<Option<Vec<Cell>>, LabError> {
    let p = &variant.parameters;
    let subject = subject(p)?;
    let all = p.depths.len() * p.lengths.len();
    let mut cells = Vec::new();
    for depth in &p.depths {
        for length in &p.lengths {
            stage.share(cells.len() as f64 / all as f64);
            let Some(trace) = play(p, *depth, length.0, &subject, setup)? else { return Ok(None) };
            let goodput = goodput(&trace, p);
            let curve = served(&trace);
            cells.push(Cell { depth: *depth, length: length.0, goodput, audit: trace.audit, curve });
        }
    }
    Ok(Some(cells))
}

fn play(
    p: &MetastabilityParameters,
    depth: u32,
    length: Duration,
    subject: &Subject,
    setup: &ExperimentSetup<'_>,
) -> Result<Option<Trace>, LabError> {
    let load = Load::steady(setup.seed, p.rate, p.before.0 + length + p.after.0);
    let ms = |span: Duration| span.as_secs_f64() * 1000.0;
    let trigger = Trigger {
        taken: Ratio::percent(depth.min(100) as u16).as_f64(),
        from_ms: ms(p.before.0),
        to_ms: ms(p.before.0 + length),
    };
    let mut server = ModelServer {
        parameters: p,
        per_ms: p.rate / p.utilisation / 1000.0,
        timeout_ms: ms(p.timeout.0),
        trigger,
        free_ms: 0.0,
    };
    // A cell takes a moment, so checking for ^C between cells is enough.
    let stage = Stage::of(setup.watch, "", 0, 1);
    if stage.is_interrupted() {
        return Ok(None);
    }
    let played =
        simulated::run_with(&load, subject, &mut server, Stage::of(&crate::testbed::Silent, "", 0, 1));
    played.map_err(|error| LabError::Run(error.to_string()))
}

/// Messages applied per second at the end, divided by the arrival rate; excludes diverted messages.
fn goodput(trace: &Trace, p: &MetastabilityParameters) -> f64 {
    let judged = p.judged.0;
    let end = trace.load.arrive_for.as_millis() as u32;
    let from = end.saturating_sub(judged.as_millis() as u32);
    let span = from..end;
    let kept = trace.arrived().filter(|(number, _)| !p.is_taken_away(*number));
    let applied = kept.filter(|(_, r)| r.has_succeeded() && span.contains(&r.ended_ms)).count();
    let arriving = trace.load.per_second * (1.0 - p.taken_away.0.as_f64());
    applied as f64 / judged.as_secs_f64() / arriving
}

fn served(trace: &Trace) -> Vec<(f64, f64)> {
    let mut seconds = vec![0.0_f64; trace.load.arrive_for.as_secs() as usize + 1];
    for (_, record) in trace.arrived().filter(|(_, record)| record.has_succeeded()) {
        if let Some(second) = seconds.get_mut(record.ended_ms as usize / 1000) {
            *second += 1.0;
        }
    }
    seconds.pop();
    let share = |(s, count): (usize, f64)| (s as f64, count / trace.load.per_second);
    seconds.into_iter().enumerate().map(share).collect()
}

fn measure(variant: &Variant<MetastabilityParameters>, cells: &[Cell]) -> (VariantResult, Curve) {
    let recovered = cells.iter().filter(|cell| cell.goodput >= RECOVERED).count();
    let lowest = cells.iter().map(|cell| cell.goodput).fold(f64::INFINITY, f64::min);
    let audit = cells.iter().fold(Audit::default(), |sum, cell| sum.plus(&cell.audit));
    let published = cells.iter().find(|cell| cell.depth == 80 && cell.length == Duration::from_secs(10));
    let mut result = VariantResult::new(&variant.name, Some(audit))
        .with("cells", cells.len() as f64)
        .with("recovered", recovered as f64)
        .with("not_recovered", (cells.len() - recovered) as f64)
        .with("goodput_min", lowest)
        .with("goodput_published", published.map_or(f64::NAN, |cell| cell.goodput));
    for cell in cells {
        let name = format!("goodput_{}_percent_{}_s", cell.depth, cell.length.as_secs());
        result = result.with(&name, cell.goodput);
    }
    let shown = published.or(cells.last()).map(|cell| cell.curve.clone()).unwrap_or_default();
    (result, Curve::new(&variant.name, shown))
}

/// Goodput by depth and length.
fn panel(variant: &Variant<MetastabilityParameters>, cells: &[Cell]) -> HeatPanel {
    let each = variant.parameters.lengths.len().max(1);
    let values = cells.chunks(each).map(|row| row.iter().map(|cell| cell.goodput).collect()).collect();
    HeatPanel { name: variant.name.clone(), values }
}

/// Combines the panels; all variants have the same grid.
fn heat_map(
    scenario: &Scenario,
    setup: &ExperimentSetup<'_>,
    panels: Vec<HeatPanel>,
) -> Result<HeatMap, LabError> {
    let variants = scenario.variants::<MetastabilityParameters>(setup.size)?;
    let grid = variants.first().map(|first| &first.parameters);
    let rows = grid.map_or_else(Vec::new, |p| p.depths.iter().map(|depth| format!("−{depth} %")).collect());
    let columns = grid.map_or_else(Vec::new, |p| {
        p.lengths.iter().map(|length| format!("{} s", length.0.as_secs())).collect()
    });
    let title = "Goodput at the end, by capacity that was taken away (rows) and for how long (columns)";
    Ok(HeatMap { name: "map".to_owned(), title: title.to_owned(), rows, columns, panels })
}

/// Summarizes the map: the triggers from which it had not recovered when the run ended.
fn text(variant: &Variant<MetastabilityParameters>, cells: &[Cell]) -> String {
    let p = &variant.parameters;
    let of_depth = |depth: &u32| {
        let row: Vec<&Cell> = cells.iter().filter(|cell| cell.depth == *depth).collect();
        let failing = failing_lengths(&row.iter().map(|c| (c.length, c.goodput)).collect::<Vec<_>>())?;
        Some(format!("−{depth} % for {failing}"))
    };
    let failing: Vec<String> = p.depths.iter().filter_map(of_depth).collect();
    if failing.is_empty() {
        return format!("{}: recovers from every trigger of the map.", variant.name);
    }
    let seconds = p.after.0.as_secs();
    format!("{}: not recovered within {seconds} s after {}.", variant.name, failing.join("; after "))
}

/// The lengths in a row whose goodput is too low, shortest first. Says `10 s and longer` only if every longer one
/// fails too.
fn failing_lengths(row: &[(Duration, f64)]) -> Option<String> {
    let is_failing = |(_, goodput): &(Duration, f64)| *goodput < RECOVERED;
    let first = row.iter().position(is_failing)?;
    let rest = &row[first..];
    if rest.len() > 1 && rest.iter().all(is_failing) {
        return Some(format!("{} s and longer", rest[0].0.as_secs()));
    }
    let cells = rest.iter().map(|cell| {
        let verdict = if is_failing(cell) { "" } else { " (recovers)" };
        format!("{} s{verdict}", cell.0.as_secs())
    });
    // Leaves out lengths that recover beyond the last failing one.
    let last = rest.iter().rposition(is_failing).unwrap_or(0);
    Some(cells.take(last + 1).collect::<Vec<_>>().join(", "))
}

/// Which protection the recovery is due to.
fn attribution(variants: &[VariantResult]) -> Option<String> {
    let failing = |name: &str| {
        variants.iter().find(|variant| variant.name == name).map(|variant| variant.get("not_recovered"))
    };
    let permits = failing("naive, 64 permits")?;
    let budget = failing("naive, budget 10 % of successes")?;
    let redrive = failing("Redrive: breaker, ramp, equal jitter, 64 permits")?;
    let unlimited = failing("Redrive, permits without a limit")?;
    let ramp_only = failing("Redrive, reload = 0, permits without a limit")?;
    let budgeted = failing("Redrive, reload = 0, budget 10 % of successes, permits without a limit")?;
    Some(format!(
        "Cells not recovered: naive retries with 64 permits {permits}, naive retries with a budget {budget}, Redrive with 64 \
         permits {redrive}, Redrive without a limit on permits {unlimited}, the same with `reload = 0` {ramp_only}, that with a \
         budget {budgeted}. Either limit is enough: that on concurrent calls, also for naive retries, or that of the breaker on calls \
         per second after an outage. Breaker, ramp and jitter without either are not."
    ))
    .filter(|_| [permits, budget, redrive, unlimited].iter().all(|failing| *failing == 0.0) && ramp_only > 0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression: "and longer" once included cells that had recovered.
    #[test]
    fn and_longer_is_said_only_if_every_longer_trigger_fails() {
        let row = |goodput: [f64; 4]| -> Vec<(Duration, f64)> {
            [5, 10, 20, 60].map(Duration::from_secs).into_iter().zip(goodput).collect()
        };
        assert_eq!(failing_lengths(&row([1.0, 1.0, 1.0, 1.0])), None);
        assert_eq!(failing_lengths(&row([1.0, 0.0, 0.2, 0.0])).unwrap(), "10 s and longer");
        assert_eq!(failing_lengths(&row([1.0, 0.7, 1.0, 1.0])).unwrap(), "10 s");
        assert_eq!(failing_lengths(&row([0.0, 1.0, 0.5, 1.0])).unwrap(), "5 s, 10 s (recovers), 20 s");
        assert_eq!(failing_lengths(&row([1.0, 1.0, 1.0, 0.0])).unwrap(), "60 s");
    }
}
