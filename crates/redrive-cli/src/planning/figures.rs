//! The figures of one pipeline. Every number comes from redrive-core: its forecast, or its `decide` over many messages.

use std::time::Duration;

use bytes::BytesMut;
use redrive::internal::engine::embedded::frame::frame_len;
use redrive::internal::engine::embedded::record::{Stored, Was};
use redrive::internal::engine::{Attempt, Grouping, History, LetterState};
use redrive_core::duration::print;
use redrive_core::forecast::{RetryLoad, Shares};
use redrive_core::forecast_budget::{BudgetForecast, dead_in_outage};
use redrive_core::forecast_outage::Reload;
use redrive_core::policy::{BudgetRate, OnExhausted};
use redrive_core::{
    Class, FailureKind, Forecast, Jitter, Message, Meta, Policy, PolicySettings, Reason, Schedule, Time,
};
use serde_json::{Value, json};

use super::assume::Assumed;
use super::slo::{Slo, SloResult};
use crate::config::PipelineConfig;

/// The questions that `check` answers.
#[derive(Clone, Debug)]
pub struct Questions {
    pub rate: Option<f64>,
    pub assumed: Option<Assumed>,
    pub triage: Option<f64>,
    pub outage: Duration,
    pub message_bytes: usize,
    pub slos: Vec<Slo>,
}

/// All figures about one pipeline.
#[derive(Clone, Debug)]
pub struct PipelineFigures {
    pub forecast: Forecast,
    pub load: Option<RetryLoad>,
    /// The amplification if twice as many messages failed at first.
    pub amplification_doubled: Option<(f64, f64)>,
    /// Retries per second in each step: its delay and its rate.
    pub steps: Vec<(String, f64)>,
    /// The jitters to compare, the configured one first; all without the outage gate.
    pub outages: Vec<JitterFigures>,
    pub outage_gate: bool,
    /// Whether an outage of that length ends before the gate gives up the first message.
    outlasts_outage: bool,
    pub budget: Option<BudgetFigures>,
    pub dead: Option<DeadFigures>,
    pub slos: Vec<SloResult>,
    pub warnings: Vec<String>,
}

#[derive(Clone, Debug)]
pub struct JitterFigures {
    pub jitter: Jitter,
    pub dead: f64,
    pub wasted: f64,
    pub reload: Reload,
}

/// The effect of the retry budget.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BudgetFigures {
    pub rate: BudgetRate,
    pub on_exhausted: OnExhausted,
    pub outage_gate: bool,
    /// In a healthy sink, if rate and failures are known.
    pub healthy: Option<BudgetForecast>,
    /// Share of the messages of an outage that it dead-letters, if the rate is known.
    pub dead_in_outage: Option<f64>,
}

/// Dead letters over time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DeadFigures {
    pub per_second: f64,
    /// The growth after triage; negative if people keep up.
    pub growth_per_second: f64,
    pub letter_bytes: usize,
    /// The share of poison above which letters pile up; `None` without triage, or if they do without any poison.
    pub diverges_above: Option<f64>,
    pub triage: Option<f64>,
}

const DAY_S: f64 = 86_400.0;

impl PipelineFigures {
    pub fn of(pipeline: &PipelineConfig, questions: &Questions) -> Self {
        let policy = &pipeline.policy;
        let forecast = policy.forecast();
        let shares = questions.assumed.map(|assumed| assumed.shares);
        let load = shares.map(|shares| forecast.load(shares));
        let amplification_doubled = shares.and_then(|shares| {
            let transient = (shares.transient * 2.0).min(1.0 - shares.poison);
            let doubled = Shares { transient, ..shares };
            (transient > shares.transient).then(|| (transient, forecast.load(doubled).amplification))
        });
        let steps = match (&load, questions.rate) {
            (Some(load), Some(rate)) => steps(policy, load, rate),
            _ => Vec::new(),
        };
        let budget = policy.budget().map(|rate| BudgetFigures {
            rate,
            on_exhausted: policy.on_exhausted(),
            outage_gate: policy.outage_gate(),
            healthy: shares
                .zip(questions.rate)
                .and_then(|(shares, rate)| BudgetForecast::of(policy, shares, rate)),
            dead_in_outage: questions.rate.map(|rate| dead_in_outage(policy, questions.outage, rate)),
        });
        let dead = shares.zip(questions.rate).map(|(shares, rate)| {
            let healthy = budget.and_then(|budget| budget.healthy);
            let all = healthy.map(|healthy| healthy.dead + healthy.used_up);
            let per_second = all.unwrap_or_else(|| forecast.load(shares).dead) * rate;
            // Letters from the budget need triage too.
            let for_budget = healthy.map_or(0.0, |healthy| healthy.dead) * rate;
            let triage = questions.triage;
            DeadFigures {
                per_second,
                growth_per_second: per_second - triage.unwrap_or(0.0),
                letter_bytes: letter_bytes(policy, questions.message_bytes),
                diverges_above: triage
                    .and_then(|triage| forecast.divergence(shares, rate, triage - for_budget)),
                triage,
            }
        });
        Self {
            forecast,
            load,
            amplification_doubled,
            steps,
            outages: outages(&pipeline.settings, policy, questions.outage),
            outage_gate: policy.outage_gate(),
            outlasts_outage: questions.outage < policy.ttl().unwrap_or(Duration::MAX).min(policy.hold_max()),
            budget,
            dead,
            slos: questions.slos.iter().map(|slo| slo.ask(policy)).collect(),
            warnings: policy.warnings().iter().map(ToString::to_string).collect(),
        }
    }

    /// Share of the messages of an outage that are dead before it ends, as configured. `None` if that depends on when
    /// they arrived: the gate holds them, but not for that long.
    pub fn dead_in_outage(&self) -> Option<f64> {
        match (self.outage_gate, self.outlasts_outage) {
            (true, true) => Some(0.0),
            (true, false) => None,
            (false, _) => self.outages.first().map(|own| own.dead),
        }
    }

    pub fn to_json(&self, name: &str, questions: &Questions) -> Value {
        let forecast = &self.forecast;
        let outages: Vec<Value> = self
            .outages
            .iter()
            .map(|figures| {
                let reload = &figures.reload;
                json!({
                    "jitter": figures.jitter.to_string(),
                    "dead_share": figures.dead,
                    "attempts_wasted_per_message": figures.wasted,
                    "reload_peak": reload.peak,
                    "reload_peak_seconds": reload.peak_for.as_secs_f64(),
                    "reload_raised_seconds": reload.raised_for.as_secs_f64(),
                    "echo": reload.echo.map(|echo| json!({
                        "peak": echo.peak,
                        "begins_seconds": echo.begins.as_secs_f64(),
                        "lasts_seconds": echo.lasts.as_secs_f64(),
                    })),
                })
            })
            .collect();
        let slos: Vec<Value> = self
            .slos
            .iter()
            .map(|answer| {
                json!({
                    "slo": answer.slo.to_string(),
                    "met": answer.met,
                    "recovery_seconds": answer.recovery.map(|recovery| recovery.as_secs_f64()),
                    "dead_share": answer.dead,
                    "instead": answer.instead.as_ref().map(|tiers| tiers.iter().map(|t| print(*t)).collect::<Vec<_>>()),
                })
            })
            .collect();
        json!({
            "pipeline": name,
            "attempts": forecast.attempts,
            "attempts_max": forecast.attempts_max,
            "retries": forecast.attempts.saturating_sub(1),
            "waiting_min_seconds": forecast.waiting_min.as_secs_f64(),
            "waiting_max_seconds": forecast.waiting_max.as_secs_f64(),
            "dead_letter_max_seconds": forecast.dead_letter_max().as_secs_f64(),
            "timeout_seconds": forecast.timeout.as_secs_f64(),
            "hold_max_seconds": forecast.hold_max.as_secs_f64(),
            "ttl_seconds": forecast.ttl.map(|ttl| ttl.as_secs_f64()),
            "uncounted_calls_max": forecast.uncounted_max,
            "calls_max": forecast.calls_max,
            "terminal_max_seconds": forecast.terminal_max.as_secs_f64(),
            "terminal_max_with_retry_after_seconds": forecast.terminal_max_with_retry_after.as_secs_f64(),
            "amplification": self.load.as_ref().map(|load| load.amplification),
            "amplification_at_twice_the_transient": self.amplification_doubled.map(|(_, at)| at),
            "retry_shares": self.load.as_ref().map(|load| load.retries.clone()),
            "dead_share": self.load.as_ref().map(|load| load.dead),
            "steps": self.steps.iter().map(|(delay, rate)| json!({"delay": delay, "per_second": rate})).collect::<Vec<_>>(),
            "outage": {
                "seconds": questions.outage.as_secs_f64(),
                "outage_gate": self.outage_gate,
                "dead_share": self.dead_in_outage(),
                // Without the outage gate.
                "jitters": outages,
            },
            "budget": self.budget.map(|budget| json!({
                "wanted_per_minute": budget.healthy.map(|healthy| healthy.wanted_per_minute),
                "made_per_minute": budget.healthy.map(|healthy| healthy.made_per_minute),
                "dead_share": budget.healthy.map(|healthy| healthy.dead),
                "put_off_per_second": budget.healthy.map(|healthy| healthy.put_off_per_second),
                "dead_share_in_outage": budget.dead_in_outage,
            })),
            "dead_letters": self.dead.map(|dead| json!({
                "per_second": dead.per_second,
                "growth_per_second": dead.growth_per_second,
                "growth_per_day": dead.per_day(),
                "bytes_per_letter": dead.letter_bytes,
                "bytes_per_day": dead.bytes_per_day(),
                "triage_per_second": dead.triage,
                "diverges_above_poison_share": dead.diverges_above,
            })),
            "slos": slos,
            "warnings": self.warnings,
        })
    }
}

impl DeadFigures {
    pub fn per_day(&self) -> f64 {
        self.growth_per_second.max(0.0) * DAY_S
    }

    pub fn bytes_per_day(&self) -> f64 {
        self.per_day() * self.letter_bytes as f64
    }
}

/// The load of each delay step; retries beyond the last tier repeat it.
fn steps(policy: &Policy, load: &RetryLoad, rate: f64) -> Vec<(String, f64)> {
    let mut steps: Vec<(String, f64)> = Vec::new();
    for (i, share) in load.retries.iter().enumerate() {
        let n = i as u32 + 1;
        let delay_ms = match policy.schedule() {
            Schedule::Custom(_) => continue,
            schedule => schedule.delay_ms(n, Class::Transient),
        };
        let label = print(Duration::from_millis(delay_ms));
        match steps.last_mut() {
            Some((last, sum)) if *last == label => *sum += share * rate,
            _ => steps.push((label, share * rate)),
        }
    }
    steps
}

/// The configured jitter first, then the ones it is commonly compared with. A jitter that does not fit the schedule is
/// left out.
fn outages(settings: &PolicySettings, policy: &Policy, outage: Duration) -> Vec<JitterFigures> {
    let mut figures = Vec::new();
    for jitter in [policy.jitter(), Jitter::None, Jitter::Equal, Jitter::Full] {
        if figures.iter().any(|known: &JitterFigures| known.jitter == jitter) {
            continue;
        }
        let other = PolicySettings { jitter: Some(jitter.into()), ..settings.clone() };
        let Ok(policy) = other.resolve() else { continue };
        let forecast = policy.outage(outage);
        let (dead, wasted, reload) = (forecast.dead, forecast.wasted, forecast.reload);
        figures.push(JitterFigures { jitter, dead, wasted, reload });
    }
    figures
}

/// The size on disk of a letter for a message of this size, measured with a short error per attempt.
fn letter_bytes(policy: &Policy, message_bytes: usize) -> usize {
    let now = Time::from_millis(1_800_000_000_000);
    let message =
        Message::builder("o-00000000").key("c-0000").payload(vec![b'x'; message_bytes]).created(now).build();
    let Ok(message) = message else { return message_bytes };
    let history = (1..=policy.attempts()).fold(History::default(), |history, number| {
        let error = "503 Service Unavailable".to_owned();
        let class = Class::Transient;
        history.with(&Attempt {
            number,
            at: now,
            took_ms: 100,
            class,
            kind: FailureKind::Status(503),
            code: None,
            counted: true,
            ambiguous: false,
            error,
        })
    });
    let letter = Stored {
        was: Was::Fresh,
        key: None,
        due: None,
        jobs: Vec::new(),
        reason: Some(Reason::MaxRetries),
        state: Some(LetterState::Open),
        dead_at: now.as_millis(),
        moved_from: 0,
        meta: Meta::default(),
        history: history.raw().clone(),
        group: Some(Grouping::default().of(Reason::MaxRetries, history.attempts().last())),
        options: None,
        replaced: Vec::new(),
        wire: message.wire().clone(),
    };
    let mut body = BytesMut::new();
    letter.write(&mut body);
    frame_len(body.len())
}
