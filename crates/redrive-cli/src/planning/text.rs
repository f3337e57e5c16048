//! The text of the figures.

use std::fmt::Write as _;
use std::time::Duration;

use redrive_core::duration::rough;
use redrive_core::forecast_budget::BudgetForecast;
use redrive_core::forecast_outage::Reload;
use redrive_core::policy::{BudgetRate, OnExhausted};
use redrive_core::{BreakerSettings, RecoveryForecast};

use super::figures::{BudgetFigures, DeadFigures, JitterFigures, PipelineFigures, Questions};
use crate::config::PipelineConfig;
use crate::output::{bytes, count, percent, rate};

/// The column where the remark of a report's head begins.
const HEAD_WIDTH: usize = 77;

/// The lines about one pipeline.
pub fn lines(pipeline: &PipelineConfig, figures: &PipelineFigures, questions: &Questions) -> Vec<String> {
    let mut lines = vec![head(pipeline)];
    let mut put = |label: &str, text: String| lines.push(format!("  {label:<19} {text}"));
    for line in figures.forecast.to_string().lines() {
        let (label, text) = line.split_at_checked(20).unwrap_or((line, ""));
        put(label.trim_end(), text.to_owned());
    }
    if let Some(load) = &figures.load {
        let doubled = figures
            .amplification_doubled
            .map(|(transient, at)| format!("   ({at:.2} at {:.0} % transient)", transient * 100.0));
        put(
            "amplification",
            format!("{:.2} records per message{}", load.amplification, doubled.unwrap_or_default()),
        );
    }
    if !figures.steps.is_empty() {
        let steps: Vec<String> = figures
            .steps
            .iter()
            .map(|(delay, per_second)| format!("{delay} {}", rate(*per_second)))
            .collect();
        put("tier load", steps.join(" · "));
    }
    let outage = spaced(questions.outage);
    put(&format!("a {outage} outage"), outage_text(figures));
    let gate = figures.outage_gate;
    let reload = figures.outages.iter().map(|jitter| reload_text(jitter, gate)).collect::<Vec<_>>();
    let mut reload = reload.into_iter();
    if let Some(first) = reload.next() {
        put("reload after it", format!("(breaker off)  {first}"));
    }
    for more in reload {
        put("", format!("               {more}"));
    }
    if let Some(budget) = &figures.budget {
        for (i, text) in budget_text(budget, questions).into_iter().enumerate() {
            put(if i == 0 { "retry budget" } else { "" }, text);
        }
    }
    if let Some(dead) = figures.dead {
        for (i, text) in dead_text(dead, questions).into_iter().enumerate() {
            put(if i == 0 { "dead letters" } else { "" }, text);
        }
    }
    put("breaker", breaker_text(&pipeline.breaker));
    if let Some(recovery) = pipeline.breaker.recovery(questions.outage) {
        put("", recovery_text(&pipeline.breaker, &recovery, questions));
    }
    for warning in &figures.warnings {
        put("note", warning.clone());
    }
    for answer in &figures.slos {
        lines.push(answer.text.clone());
    }
    lines
}

/// When it opens in a full outage after healthy traffic: once the share of the window has failed.
fn breaker_text(breaker: &BreakerSettings) -> String {
    if !breaker.enabled {
        return "off".to_owned();
    }
    let fast = &breaker.fast;
    let opens = fast.failures.of_ms(fast.window.as_millis() as u64);
    format!(
        "opens about {} into a full outage ({} of at least {} messages within {}); the figures above are without it",
        rough(std::time::Duration::from_millis(opens)),
        fast.failures,
        fast.min,
        rough(fast.window)
    )
}

fn recovery_text(breaker: &BreakerSettings, recovery: &RecoveryForecast, questions: &Questions) -> String {
    format!(
        "after a {} outage it closes {} later; what it held comes back at {:.1} × the usual rate, 0.5 × more every 30s up to {:.1} ×, and is gone in {}",
        spaced(questions.outage),
        rough(recovery.closes),
        breaker.reload.as_f64(),
        recovery.peak,
        rough(recovery.gone)
    )
}

fn head(pipeline: &PipelineConfig) -> String {
    let edits = pipeline.edits();
    let edited = if edits.is_empty() { String::new() } else { format!(", edited: {}", edits.join(", ")) };
    let head = format!("pipeline {}", pipeline.name);
    format!("{head:<HEAD_WIDTH$}(profile {}{edited})", pipeline.profile().name)
}

/// The configured pipeline first. The outage gate keeps all messages alive up to `hold_max`; the effect of the attempts
/// alone is for comparison.
fn outage_text(figures: &PipelineFigures) -> String {
    let Some(own) = figures.outages.first() else { return String::new() };
    let worst = figures.outages.iter().skip(1).max_by(|a, b| a.dead.total_cmp(&b.dead));
    let of = |figures: &JitterFigures| format!("{} (jitter {})", percent(figures.dead), figures.jitter);
    let mut text = match (figures.outage_gate, figures.dead_in_outage()) {
        (false, _) => format!("dead-lettered during the outage: {}, since outage_gate is off", of(own)),
        (true, Some(_)) => {
            format!("dead-lettered during the outage: none (outage_gate on); with it off: {}", of(own))
        }
        (true, None) => format!(
            "dead-lettered during the outage: only messages past hold_max or their ttl (outage_gate on); with it off: {}",
            of(own)
        ),
    };
    if let Some(worst) = worst.filter(|worst| worst.dead > own.dead) {
        let _ = write!(text, " · {}", of(worst));
    }
    text
}

/// The effect of the budget in a healthy sink, and in an outage.
fn budget_text(budget: &BudgetFigures, questions: &Questions) -> Vec<String> {
    let allowed = match budget.rate {
        BudgetRate::PerMinute(tokens) => format!("{} a minute", count(u64::from(tokens))),
        BudgetRate::ShareOfSuccesses(share) => format!("{share} of the successes"),
    };
    let healthy = match budget.healthy {
        None => format!("{allowed}; add --rate and --assume to see the effect"),
        Some(healthy) if healthy.made_per_minute >= healthy.wanted_per_minute => {
            format!("{allowed}, {:.0} a minute are wanted: enough", healthy.wanted_per_minute)
        }
        Some(BudgetForecast { wanted_per_minute, made_per_minute, dead, put_off_per_second, .. }) => {
            let what = match budget.on_exhausted {
                OnExhausted::DeadLetter => format!(
                    "{} of all messages are dead for it while the sink is well (budget_exhausted), {}",
                    percent(dead),
                    rate(dead * questions.rate.unwrap_or(0.0))
                ),
                OnExhausted::Defer => {
                    format!("{} are deferred and tried again, for up to hold_max", rate(put_off_per_second))
                }
            };
            format!("{allowed}, {made_per_minute:.0} of {wanted_per_minute:.0} that are wanted → {what}")
        }
    };
    let outage = spaced(questions.outage);
    let in_outage = match (budget.outage_gate, budget.on_exhausted, budget.dead_in_outage) {
        (true, ..) | (_, OnExhausted::Defer, _) => format!("in a {outage} outage: none dead for it"),
        (false, _, Some(dead)) => {
            format!("in a {outage} outage: {} dead for it, since outage_gate is off", percent(dead))
        }
        (false, _, None) => {
            format!(
                "in a {outage} outage it dead-letters, since outage_gate is off; add --rate to see how many"
            )
        }
    };
    vec![healthy, in_outage]
}

fn reload_text(figures: &JitterFigures, gate: bool) -> String {
    let Reload { peak, peak_for, raised_for, echo } = &figures.reload;
    let mut text = format!("{} {peak:.1} ×", figures.jitter);
    if !peak_for.is_zero() {
        let _ = write!(text, " for {}", spaced(*peak_for));
    }
    if *raised_for > *peak_for {
        let _ = write!(text, ", raised for {}", spaced(*raised_for));
    }
    if let Some(echo) = echo {
        let (lasts, begins) = (spaced(echo.lasts), rough(echo.begins));
        let _ = write!(text, ", echo {:.1} × for {lasts} {begins} later", echo.peak);
    }
    if figures.dead > 0.0005 {
        let without = if gate { " without outage_gate" } else { "" };
        let _ = write!(text, ", {} dead{without}", percent(figures.dead));
    }
    text
}

fn dead_text(dead: DeadFigures, questions: &Questions) -> Vec<String> {
    let poison = questions.assumed.map_or(0.0, |assumed| assumed.shares.poison);
    let share = format!("{} %", trimmed(poison * 100.0));
    let mut first = format!("{} at {share}", rate(dead.per_second));
    if dead.growth_per_second > 0.0 {
        let _ = write!(
            first,
            " → grows {}, {}/day, {}/day",
            rate(dead.growth_per_second),
            millions(dead.per_day()),
            bytes(dead.bytes_per_day() as u64)
        );
    } else {
        first.push_str(" → people keep up");
    }
    let mut lines = vec![first];
    if let Some(triage) = dead.triage {
        lines.push(match dead.diverges_above {
            Some(above) => {
                format!(
                    "grows without bound above {:.2} % poison with {} triage",
                    above * 100.0,
                    rate(triage)
                )
            }
            None => format!(
                "grows without bound even at 0 % poison: {} triage is slower than letters arrive",
                rate(triage)
            ),
        });
    }
    lines
}

/// `60 s`, as the stories write short spans; longer ones as elsewhere.
fn spaced(span: Duration) -> String {
    let seconds = span.as_secs();
    if (1..=300).contains(&seconds) { format!("{seconds} s") } else { rough(span) }
}

fn trimmed(number: f64) -> String {
    let text = format!("{number:.2}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

fn millions(number: f64) -> String {
    match number {
        n if n >= 1e9 => format!("{:.1} G", n / 1e9),
        n if n >= 1e6 => format!("{:.1} M", n / 1e6),
        n if n >= 1e3 => format!("{:.1} k", n / 1e3),
        n => format!("{n:.0}"),
    }
}
