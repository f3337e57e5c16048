//! A downstream that is down for a minute: the wave of calls afterwards, and what flattens it.

use std::time::Duration;

use redrive::{BreakerSettings, FailureKind, Policy, Time};
use redrive_core::breaker::{Breaker, Sign};
use redrive_core::{OutageForecast, Ratio};
use serde::Deserialize;

use super::super::fault::LabError;
use super::super::setup::{ExperimentSetup, built, complete, tiers};
use crate::results::{Bound, Column, Curve, ForecastLine, Outcome, Plot, Scale, Unit, VariantResult};
use crate::scenario::{Scenario, Span, Variant};
use crate::testbed::{Burst, Load, Outage, Subject, Trace};

/// On Kafka, messages are produced in batches of this length; calls are counted per second.
const GATHER: Duration = Duration::from_millis(100);
/// Load above this multiple of normal counts as raised.
const RAISED: f64 = 1.1;
/// Sample size of the forecast.
const FORECAST_MESSAGES: u32 = 50_000;
/// From this multiple of the normal need on, permits do not delay calls.
const MANY_PERMITS: f64 = 100.0;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RetryStormParameters {
    rate: f64,
    before: Span,
    outage: Span,
    after: Span,
    tiers: Vec<Span>,
    jitter: String,
    /// Also turns on the outage gate.
    breaker: bool,
    /// The breaker's initial call limit after the outage, as a multiple of the earlier rate; 0 means no limit.
    reload: f64,
    /// Messages that arrive the moment the outage begins, in seconds of the normal rate.
    burst: u64,
    latency: Span,
    /// Concurrent calls, as a multiple of what the normal rate needs.
    permits: f64,
    /// How long a call hangs during the outage before its caller gives up; at 0 it fails at once.
    hangs: Span,
    /// Divides every time span, including those of the breaker, for a quick run on the real clock.
    speed: f64,
}

impl RetryStormParameters {
    fn faster(&self) -> Self {
        let faster = |span: &Span| span.faster(self.speed);
        Self {
            before: faster(&self.before),
            outage: faster(&self.outage),
            after: faster(&self.after),
            hangs: faster(&self.hangs),
            tiers: self.tiers.iter().map(faster).collect(),
            jitter: self.jitter.clone(),
            ..*self
        }
    }

    fn load(&self, seed: u64) -> Load {
        let hangs = Some(self.hangs.0).filter(|hangs| !hangs.is_zero());
        let outage = Outage { at: self.before.0, lasts: self.outage.0, hangs };
        let arrive_for = outage.end() + self.after.0;
        let messages = (self.burst as f64 * self.rate) as u64;
        let burst = (messages > 0).then_some(Burst { at: outage.at, messages });
        Load {
            outage: Some(outage),
            burst,
            latency: self.latency.0,
            gather: GATHER.div_f64(self.speed),
            follow: Duration::from_mins(10),
            ..Load::steady(seed, self.rate, arrive_for)
        }
    }

    fn policy(&self) -> Result<Policy, LabError> {
        built(&tiers(&self.tiers).jitter(self.jitter.as_str()).outage_gate(self.breaker))
    }

    fn breaker(&self) -> BreakerSettings {
        if !self.breaker {
            return BreakerSettings::off();
        }
        let reload = Ratio::percent((self.reload * 100.0).round() as u16);
        let mut breaker = BreakerSettings { reload, ..BreakerSettings::default() };
        let spans = [
            &mut breaker.fast.window,
            &mut breaker.slow.window,
            &mut breaker.cooldown,
            &mut breaker.cooldown_max,
        ];
        spans.into_iter().for_each(|span| *span = span.div_f64(self.speed));
        breaker
    }

    fn subject(&self) -> Result<Subject, LabError> {
        let breaker = self.breaker();
        let concurrency = (self.rate * self.latency.0.as_secs_f64() * self.permits).ceil().max(1.0) as u32;
        Ok(Subject { breaker, ..Subject::plain(self.policy()?, concurrency) })
    }

    /// Whether only the schedule and its jitter shape the wave, as in the forecast.
    fn is_raw(&self) -> bool {
        !self.breaker && self.burst == 0 && self.permits > MANY_PERMITS && self.hangs.0.is_zero()
    }
}

pub fn run(scenario: &Scenario, setup: &ExperimentSetup<'_>) -> Result<Outcome, LabError> {
    let each = setup.each(scenario, |variant: &Variant<RetryStormParameters>, stage| {
        let parameters = &variant.parameters.faster();
        let (load, subject) = (parameters.load(setup.seed), parameters.subject()?);
        let Some(trace) = setup.play(scenario, &load, &subject, stage)? else { return Ok(None) };
        let (result, curve) = measure(&variant.name, &trace);
        let mut forecasts =
            if parameters.is_raw() { forecast(&subject.policy, parameters, &result) } else { Vec::new() };
        forecasts.extend(breaker_opens(&variant.name, parameters, &subject.breaker, &result));
        forecasts.extend(breaker_closes(&variant.name, parameters, &subject.breaker, &result));
        Ok(Some((result, (curve, forecasts))))
    })?;
    let (variants, rest, is_partial) = complete(each);
    let (curves, forecasts): (Vec<Curve>, Vec<Vec<ForecastLine>>) = rest.into_iter().unzip();
    let (burst, others): (Vec<Curve>, Vec<Curve>) =
        curves.into_iter().partition(|curve| curve.name.starts_with("burst"));
    let (hang, steady) = others.into_iter().partition(|curve: &Curve| curve.name.starts_with("hang"));
    let plot = |name: &str, title: &str, curves: Vec<Curve>| {
        Plot::new(name, title, "seconds since the downstream is back", "calls per second, × normal", curves)
            .y_scale(Scale::Log(0.1))
    };
    let plots = vec![
        plot("steady", "Steady arrivals that fail at once: calls after the outage", steady),
        plot("burst", "A burst that fails together: calls after the outage", burst),
        plot("hang", "Calls that hang until their timeout: calls after the outage", hang),
    ];
    let forecasts = forecasts.into_iter().flatten().collect();
    let notes =
        ["steady", "burst", "hang"].iter().filter_map(|arrivals| bound_of_the_wave(&variants, arrivals));
    let notes = notes.collect();
    Ok(Outcome { columns: columns(), variants, forecasts, plots, notes, is_partial, ..Outcome::default() })
}

/// Compares the peak of the wave across protections.
fn bound_of_the_wave(variants: &[VariantResult], arrivals: &str) -> Option<String> {
    let peak = |of: &str| {
        let name = format!("{arrivals}, {of}");
        variants.iter().find(|variant| variant.name == name).map(|variant| variant.get("peak"))
    };
    let (none, equal, full) = (peak("jitter none")?, peak("jitter equal")?, peak("jitter full")?);
    let (permits, breaker) = (peak("equal, permits for 2 ×")?, peak("equal, breaker")?);
    let also =
        |of: &str, what: &str| peak(of).map_or_else(String::new, |peak| format!(", {what} {peak:.1} ×"));
    let unlimited = also("equal, breaker, reload = 0", "without its limit on calls per second");
    let both = also("equal, breaker, permits for 2 ×", "both");
    Some(format!(
        "Peak, {arrivals}: jitter none {none:.1} ×, equal {equal:.1} ×, full {full:.1} ×; with equal jitter, breaker \
         {breaker:.1} ×{unlimited}, permits alone {permits:.1} ×{both}."
    ))
}

fn columns() -> Vec<Column> {
    vec![
        Column::new("peak reload", "peak_per_second", Unit::PerSecond),
        Column::new("× normal", "peak", Unit::Times),
        Column::new("dead for the outage", "dead_share", Unit::Share),
        Column::new("attempts wasted", "wasted", Unit::Count),
        Column::new("per message", "wasted_per_message", Unit::Times),
        Column::new("time to normal", "to_normal_seconds", Unit::Seconds),
        Column::new("breaker opened", "breaker_opened", Unit::Count),
        Column::new("so long into the outage", "breaker_opens_seconds", Unit::Seconds),
    ]
}

fn measure(name: &str, trace: &Trace) -> (VariantResult, Curve) {
    let load = &trace.load;
    let outage = load.outage.unwrap_or(Outage::refusing(Duration::ZERO, Duration::ZERO));
    let (begins, ends) = (outage.at.as_secs() as usize, outage.end().as_secs() as usize);
    let calls: Vec<f64> = trace.calls_per_second().into_iter().map(|(_, calls)| calls).collect();
    let before = &calls[begins / 2..begins.min(calls.len())];
    let normal = before.iter().sum::<f64>() / before.len().max(1) as f64;
    // Only while messages arrive; afterwards the load is below normal.
    let arriving = (load.arrive_for.as_secs() as usize).min(calls.len());
    let after = &calls[ends.min(arriving)..arriving];
    let level = if load.burst.is_some() || outage.hangs.is_some() { after.to_vec() } else { smooth(after) };
    let peak = level.iter().copied().fold(0.0, f64::max);
    let raised = smooth(after).iter().rposition(|calls| *calls > normal * RAISED).map_or(0, |last| last + 1);
    let span = (outage.at.as_millis() as u32)..(outage.end().as_millis() as u32);
    let in_outage: Vec<_> = trace.arrived().filter(|(_, r)| span.contains(&r.arrived_ms)).collect();
    let dead = in_outage.iter().filter(|(_, record)| record.is_dead()).count() as f64;
    let arrived = in_outage.len().max(1) as f64;
    let wasted = trace.failed_calls() as f64;
    let opened = trace.breaker_first_ms.map_or(f64::NAN, |at| f64::from(at) / 1000.0);
    let result = VariantResult::new(name, Some(trace.audit))
        .with("peak_per_second", peak)
        .with("peak", peak / normal)
        .with("dead_share", dead / arrived)
        .with("wasted", wasted)
        .with("wasted_per_message", wasted / arrived)
        .with("to_normal_seconds", raised as f64)
        .with("breaker_opened", f64::from(trace.breaker_opened))
        .with("breaker_opens_seconds", opened - outage.at.as_secs_f64());
    let points = after.iter().enumerate().map(|(s, calls)| (s as f64, calls / normal)).collect();
    (result, Curve::new(name, points))
}

/// The mean of each second and its neighbours: random delays make single seconds a little too high.
fn smooth(load: &[f64]) -> Vec<f64> {
    let mean = |i: usize| {
        let near = &load[i.saturating_sub(1)..(i + 2).min(load.len())];
        near.iter().sum::<f64>() / near.len() as f64
    };
    (0..load.len()).map(mean).collect()
}

/// The forecast of `check` for the same outage, without breaker and outage gate.
fn forecast(policy: &Policy, parameters: &RetryStormParameters, result: &VariantResult) -> Vec<ForecastLine> {
    let forecast = OutageForecast::of(policy, parameters.outage.0, FORECAST_MESSAGES);
    // With few messages the result varies more.
    let scatter = (1000.0 / parameters.rate).sqrt();
    let line = |what: &str, unit, forecast: f64, figure: &str, by: f64| {
        let what = format!("{what}, jitter {}", parameters.jitter);
        ForecastLine::new(&what, unit, forecast, result.get(figure), Bound::About(by * scatter))
    };
    vec![
        line("peak reload", Unit::Times, forecast.reload.peak, "peak", 0.25),
        line("dead before the end of the outage", Unit::Share, forecast.dead, "dead_share", 0.006),
        line("attempts wasted per message", Unit::Times, forecast.wasted, "wasted_per_message", 0.06),
    ]
}

/// Computes when the breaker opens by its own rule, fed with the first attempts of this load: good before the outage,
/// failing during it, each counted when its call ends. `None` without a breaker, or where permits delay calls: when
/// there are few, or hanging calls use them up.
fn breaker_opens(
    name: &str,
    parameters: &RetryStormParameters,
    settings: &BreakerSettings,
    result: &VariantResult,
) -> Option<ForecastLine> {
    if !settings.enabled || !parameters.hangs.0.is_zero() || parameters.permits < MANY_PERMITS {
        return None;
    }
    let load = parameters.load(0);
    let outage = load.outage?;
    let mut breaker = Breaker::new(settings.clone());
    let mut opens = |number: u64, begins_ms: u64| {
        let ends = Duration::from_millis(begins_ms) + load.latency;
        let fails = outage.contains(Duration::from_millis(begins_ms));
        let sign = if fails { Sign::Bad(FailureKind::Status(503)) } else { Sign::Good };
        breaker.first_attempt(number, sign, Time::from_millis(ends.as_millis() as u64)).map(|_| ends)
    };
    let burst_at = load.burst.map(|burst| burst.at.as_millis() as u64);
    let mut opened = None;
    for number in 0..load.paced() {
        let at = load.arrives_ms(number);
        if burst_at.is_some_and(|burst| burst <= at) && opened.is_none() {
            opened = (load.paced()..load.messages()).find_map(|number| opens(number, at));
        }
        opened = opened.or_else(|| opens(number, at));
        if opened.is_some() {
            break;
        }
    }
    let forecast = opened?.saturating_sub(outage.at).as_secs_f64();
    let what = format!("breaker opens so long into the outage, by its own rule: {name}");
    let by = Bound::About(1.0 / parameters.speed.sqrt());
    Some(ForecastLine::new(&what, Unit::Seconds, forecast, result.get("breaker_opens_seconds"), by))
}

/// The forecast of `check` for the peak that the breaker lets through. `None` where something else limits or adds to
/// it.
fn breaker_closes(
    name: &str,
    parameters: &RetryStormParameters,
    settings: &BreakerSettings,
    result: &VariantResult,
) -> Option<ForecastLine> {
    let is_plain = parameters.burst == 0 && parameters.hangs.0.is_zero() && parameters.speed <= 1.0;
    if !is_plain || parameters.permits < MANY_PERMITS {
        return None;
    }
    let recovery = settings.recovery(parameters.outage.0)?;
    let scatter = (1000.0 / parameters.rate).sqrt();
    let what = format!("highest load after the outage: {name}");
    let by = Bound::About(0.25 * scatter);
    Some(ForecastLine::new(&what, Unit::Times, recovery.peak, result.get("peak"), by))
}
