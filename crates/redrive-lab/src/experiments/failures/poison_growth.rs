//! Poison against triage: the share of poison from which dead letters grow without bound.

use std::time::Duration;

use redrive_core::forecast::{Forecast, Shares};
use serde::Deserialize;

use super::super::fault::LabError;
use super::super::setup::{ExperimentSetup, built, complete, unprotected};
use crate::fate::Rates;
use crate::results::{Bound, Column, Curve, ForecastLine, Outcome, Plot, Scale, Unit, VariantResult};
use crate::scenario::{Scenario, Share, Span};
use crate::testbed::{Fates, Load, Subject, Trace};

/// Number of points on a curve.
const STEPS: u32 = 120;
/// Letters per second that count as growth; less may be a short gap in triage.
const GROWS: f64 = 0.05;
/// Curves with at most this share of poison get a separate plot, which shows the point of divergence.
const LITTLE_POISON: f64 = 0.01;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct PoisonGrowthParameters {
    rate: f64,
    arrive_for: Span,
    tiers: Vec<Span>,
    transient: Share,
    poison: Share,
    /// Letters that people close per second.
    triage: f64,
    concurrency: u32,
}

pub fn run(scenario: &Scenario, setup: &ExperimentSetup<'_>) -> Result<Outcome, LabError> {
    let each = setup.each(scenario, |variant, stage| {
        let p: &PoisonGrowthParameters = &variant.parameters;
        let rates = Rates { poison: p.poison.0, transient: p.transient.0 };
        let load = Load {
            fates: Fates::Rates(rates),
            triage_per_second: Some(p.triage),
            gather: (p.arrive_for.0 / 1_000).min(Duration::from_millis(100)),
            ..Load::steady(setup.seed, p.rate, p.arrive_for.0)
        };
        let policy = built(&unprotected(&p.tiers))?;
        let forecast = policy.forecast();
        let waiting = forecast.waiting_max;
        let trace = setup.play(scenario, &load, &Subject::plain(policy, p.concurrency), stage)?;
        let Some(trace) = trace else { return Ok(None) };
        let shares = Shares { transient: p.transient.0.as_f64(), failing_twice: 1.0 / 3.0, poison: 0.0 };
        let divergence = forecast.divergence(shares, p.rate, p.triage).unwrap_or(f64::NAN);
        let result = measure(&variant.name, &trace, p, waiting);
        // Three standard deviations of the number of letters in the measured time: with few letters the result varies
        // more.
        let letters = p.triage * p.arrive_for.0.saturating_sub(waiting).as_secs_f64() / 2.0;
        let by = divergence * 3.0 / letters.sqrt();
        let growth = growth(&forecast, p, &variant.name, &result);
        let curves = LetterCurves::of(&variant.name, &trace, p.poison.0.as_f64());
        Ok(Some((result, (curves, (divergence, by), growth))))
    })?;
    let (variants, rest, is_partial) = complete(each);
    let mut outcome = Outcome { columns: columns(), is_partial, ..Outcome::default() };
    let (mut curves, mut divergences, mut growths) = (Vec::new(), Vec::new(), Vec::new());
    for (of_variant, divergence, growth) in rest {
        curves.push(of_variant);
        divergences.push(divergence);
        growths.push(growth);
    }
    if let (Some(found), Some((forecast, by))) = (found(&variants), divergences.first()) {
        let what = "share of poison from which on open letters grow for ever";
        outcome.forecasts.push(ForecastLine::new(what, Unit::Share, *forecast, found, Bound::About(*by)));
        outcome.notes.extend(bracket(&variants, found));
    }
    outcome.forecasts.extend(growths);
    outcome.plots = plots(&curves);
    outcome.variants = variants;
    Ok(outcome)
}

/// Compares the forecast of dead letters per second, minus triage, with the measured growth.
fn growth(
    forecast: &Forecast,
    p: &PoisonGrowthParameters,
    name: &str,
    result: &VariantResult,
) -> ForecastLine {
    let (transient, poison) = (p.transient.0.as_f64(), p.poison.0.as_f64());
    let arrive = forecast.load(Shares { transient, failing_twice: 1.0 / 3.0, poison }).dead * p.rate;
    let expected = (arrive - p.triage).max(0.0);
    // Three standard deviations of the number of letters in the measured time, plus one letter at either end.
    let seconds = p.arrive_for.0.saturating_sub(forecast.waiting_max).as_secs_f64() / 2.0;
    let by = (3.0 * (arrive * seconds).sqrt() + 2.0) / seconds;
    let what = format!("growth of open letters at {name}");
    ForecastLine::new(&what, Unit::PerSecond, expected, result.get("growth_per_second"), Bound::About(by))
}

/// The curves of one variant's letters over time.
struct LetterCurves {
    poison: f64,
    arrival: Curve,
    total: Curve,
    open: Curve,
}

impl LetterCurves {
    fn of(name: &str, trace: &Trace, poison: f64) -> Self {
        let step = trace.load.arrive_for / STEPS;
        let total = trace.letters(step);
        let came = |pair: &[(f64, f64)]| (pair[1].0, (pair[1].1 - pair[0].1) / step.as_secs_f64());
        let arrival = total.windows(2).map(came).collect();
        let open = Curve::new(name, trace.open_letters(step));
        Self { poison, arrival: Curve::new(name, arrival), total: Curve::new(name, total), open }
    }
}

fn plots(curves: &[LetterCurves]) -> Vec<Plot> {
    let little: Vec<&LetterCurves> = curves.iter().filter(|of| of.poison <= LITTLE_POISON).collect();
    let all: Vec<&LetterCurves> = curves.iter().collect();
    let plot =
        |name: &str, title: &str, y: &str, of: &[&LetterCurves], which: fn(&LetterCurves) -> &Curve| {
            Plot::new(name, title, "seconds", y, of.iter().map(|of| which(of).clone()).collect())
        };
    let (letters, open) = ("letters", "open letters");
    vec![
        plot("open-letters", "Open dead letters over time", open, &all, |of| &of.open),
        plot("open-letters-little", "Open dead letters over time, up to 1 % poison", open, &little, |of| {
            &of.open
        }),
        plot("arrival", "Arrival of dead letters over time", "letters per second", &all, |of| &of.arrival)
            .y_scale(Scale::Log(0.1)),
        plot("total", "Dead letters since the beginning, closed ones included", letters, &all, |of| {
            &of.total
        }),
    ]
}

fn columns() -> Vec<Column> {
    vec![
        Column::new("arrival of letters", "arrival_per_second", Unit::PerSecond),
        Column::new("of poison × input", "arrival_ratio", Unit::Share),
        Column::new("closed by people", "triage_per_second", Unit::PerSecond),
        Column::new("growth", "growth_per_second", Unit::PerSecond),
        Column::new("open at the end", "open_end", Unit::Count),
    ]
}

/// Measures the second half of the time in which letters arrive: the first letters appear only after the tiers.
fn measure(name: &str, trace: &Trace, p: &PoisonGrowthParameters, waiting: Duration) -> VariantResult {
    let end = trace.load.arrive_for;
    let from = waiting + end.saturating_sub(waiting) / 2;
    let seconds = end.saturating_sub(from).as_secs_f64();
    let open = trace.open_letters(end / STEPS);
    let open_at = |at: Duration| {
        let point = open.iter().take_while(|point| point.0 <= at.as_secs_f64() + 1e-6).last();
        point.map_or(0.0, |point| point.1)
    };
    let arrival = trace.deaths_per_second(from, end);
    let span = from.as_millis() as u32..end.as_millis() as u32;
    let closed = trace.triaged_ms.iter().filter(|at| span.contains(at)).count() as f64 / seconds;
    // The poison that died in this time if it took exactly `waiting`.
    let poison = trace
        .arrived()
        .filter(|(number, record)| {
            let died_ms = record.arrived_ms + waiting.as_millis() as u32;
            span.contains(&died_ms) && trace.load.fate(*number) == crate::fate::Fate::Poison
        })
        .count() as f64;
    VariantResult::new(name, Some(trace.audit))
        // The drawn share, not the requested one.
        .with("poison", poison / (p.rate * seconds))
        .with("arrival_per_second", arrival)
        .with("arrival_ratio", arrival * seconds / poison)
        .with("triage_per_second", closed)
        .with("growth_per_second", arrival - closed)
        .with("open_end", open_at(end))
}

/// The two variants between which growth begins.
fn bracket(variants: &[VariantResult], found: f64) -> Option<String> {
    let grows = |variant: &&VariantResult| variant.get("growth_per_second") > GROWS;
    let below = variants.iter().rfind(|variant| !grows(variant))?;
    let above = variants.iter().find(grows)?;
    Some(format!(
        "{} does not grow, {} does; the line through the two that grow least crosses zero at {}. The two variants are measured; \
         the line is arithmetic on their figures.",
        below.name,
        above.name,
        Unit::Share.text(found)
    ))
}

/// The share of poison at which growth would be zero, extrapolated from the two variants that grow least.
fn found(variants: &[VariantResult]) -> Option<f64> {
    let mut growing: Vec<(f64, f64)> = variants
        .iter()
        .map(|variant| (variant.get("poison"), variant.get("growth_per_second")))
        .filter(|(_, growth)| *growth > GROWS)
        .collect();
    growing.sort_by(|a, b| a.0.total_cmp(&b.0));
    let [(poison, growth), (more_poison, more_growth)] = growing.get(..2)?.try_into().ok()?;
    Some(poison - growth * (more_poison - poison) / (more_growth - growth))
}
