//! Retry budgets in use elsewhere next to the library's: how much load retries add as more and more calls fail.

use std::collections::VecDeque;

use redrive_core::budget::RetryBudget;
use redrive_core::policy::BudgetRate;
use redrive_core::{Random, SplitMix64, Time};
use serde::Deserialize;

use super::super::fault::LabError;
use super::super::setup::{ExperimentSetup, complete};
use crate::results::{Column, Curve, Outcome, Plot, Scale, Unit, VariantResult};
use crate::scenario::{Scenario, Share};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct BudgetsParameters {
    rate: u64,
    seconds: u64,
    /// Seconds that are not counted, because a bucket starts out full.
    settle_seconds: u64,
    retries: u32,
    budget: String,
    /// For `share`: of the requests or of the successes.
    share: Share,
    /// For `window`: retries per second that are always allowed.
    per_second: f64,
    /// Step between failure rates, in percent.
    step_percent: u64,
}

/// A retry budget.
enum Budget {
    Unlimited,
    /// AWS SDK: a retry costs tokens, a success returns some.
    Tokens {
        left: f64,
        full: f64,
        cost: f64,
    },
    /// Finagle and SRE: retries against requests of the last ten seconds.
    Window {
        share: f64,
        per_second: f64,
        seconds: VecDeque<(u64, u64)>,
    },
    Redrive(RetryBudget),
}

/// Length of the window in seconds.
const WINDOW_S: usize = 10;

impl Budget {
    fn of(p: &BudgetsParameters) -> Result<Self, LabError> {
        Ok(match p.budget.as_str() {
            "none" => Self::Unlimited,
            // A transient retry costs 14 of 500 tokens; a success returns one.
            "aws-sdk" => Self::Tokens { left: 500.0, full: 500.0, cost: 14.0 },
            "window" => {
                let (share, per_second) = (p.share.0.as_f64(), p.per_second);
                Self::Window { share, per_second, seconds: VecDeque::from([(0, 0)]) }
            }
            "redrive" => Self::Redrive(RetryBudget::new(Some(BudgetRate::ShareOfSuccesses(p.share.0)))),
            other => return Err(LabError::Run(format!("there is no budget `{other}`"))),
        })
    }

    fn second_begins(&mut self) {
        if let Self::Window { seconds, .. } = self {
            seconds.push_back((0, 0));
            if seconds.len() > WINDOW_S {
                seconds.pop_front();
            }
        }
    }

    fn requested(&mut self) {
        if let Self::Window { seconds, .. } = self
            && let Some(now) = seconds.back_mut()
        {
            now.0 += 1;
        }
    }

    fn succeeded(&mut self) {
        match self {
            Self::Tokens { left, full, .. } => *left = (*left + 1.0).min(*full),
            Self::Redrive(budget) => budget.succeeded(),
            Self::Unlimited | Self::Window { .. } => {}
        }
    }

    /// Takes the cost of a retry, if the budget allows it.
    fn takes(&mut self, now: Time) -> bool {
        match self {
            Self::Unlimited => true,
            Self::Tokens { left, cost, .. } => {
                let enough = *left >= *cost;
                *left -= if enough { *cost } else { 0.0 };
                enough
            }
            Self::Window { share, per_second, seconds } => {
                let (requests, retries) = seconds.iter().fold((0, 0), |sum, s| (sum.0 + s.0, sum.1 + s.1));
                let allowed = *share * requests as f64 + *per_second * seconds.len() as f64;
                let enough = (retries as f64) < allowed;
                if let Some(now) = seconds.back_mut() {
                    now.1 += u64::from(enough);
                }
                enough
            }
            Self::Redrive(budget) => {
                let enough = !budget.view(now).is_empty();
                if enough {
                    budget.spend(1);
                }
                enough
            }
        }
    }
}

/// Calls per request, and the share of requests that succeeded in the end.
struct CallerLoad {
    amplification: f64,
    served: f64,
}

pub fn run(scenario: &Scenario, setup: &ExperimentSetup<'_>) -> Result<Outcome, LabError> {
    let each = setup.each(scenario, |variant, stage| {
        let p: &BudgetsParameters = &variant.parameters;
        let mut points = Vec::new();
        for percent in (0..=100).step_by(p.step_percent.max(1) as usize) {
            if stage.is_interrupted() {
                return Ok(None);
            }
            stage.share(percent as f64 / 100.0);
            points.push((percent as f64, load(p, percent, setup.seed)?));
        }
        let at = |percent: f64| points.iter().find(|point| point.0 >= percent).map(|point| &point.1);
        let amplification = |percent: f64| at(percent).map_or(f64::NAN, |load| load.amplification);
        let most = points.iter().map(|point| point.1.amplification).fold(0.0, f64::max);
        let result = VariantResult::new(&variant.name, None)
            .with("amplification_10", amplification(10.0))
            .with("amplification_50", amplification(50.0))
            .with("amplification_100", amplification(100.0))
            .with("amplification_max", most)
            .with("served_10", at(10.0).map_or(f64::NAN, |load| load.served))
            .with("served_50", at(50.0).map_or(f64::NAN, |load| load.served));
        let curve = |of: fn(&CallerLoad) -> f64| {
            Curve::new(&variant.name, points.iter().map(|(percent, load)| (*percent, of(load))).collect())
        };
        Ok(Some((result, [curve(|load| load.amplification), curve(|load| load.served)])))
    })?;
    let (variants, curves, is_partial) = complete(each);
    let (load, served) = curves.into_iter().map(|[load, served]| (load, served)).unzip();
    let plots = vec![
        Plot::new("load", "Load on the downstream", "calls that fail, %", "calls per request", load),
        Plot::new("served", "What gets through", "calls that fail, %", "share of the requests", served)
            .y_scale(Scale::Share),
    ];
    Ok(Outcome { columns: columns(), variants, plots, is_partial, ..Outcome::default() })
}

fn columns() -> Vec<Column> {
    vec![
        Column::new("calls per request at 10 % failing", "amplification_10", Unit::Times),
        Column::new("at 50 %", "amplification_50", Unit::Times),
        Column::new("at 100 %", "amplification_100", Unit::Times),
        Column::new("most", "amplification_max", Unit::Times),
        Column::new("served at 10 %", "served_10", Unit::Share),
        Column::new("served at 50 %", "served_50", Unit::Share),
    ]
}

/// Simulates requests at a fixed rate whose calls fail independently; retries follow at once.
fn load(p: &BudgetsParameters, percent: u64, seed: u64) -> Result<CallerLoad, LabError> {
    let mut budget = Budget::of(p)?;
    let mut random = SplitMix64::new(seed ^ percent.rotate_left(32));
    let fails = |random: &mut SplitMix64| Random(random.draw()).unit() * 100.0 < percent as f64;
    let (mut requests, mut calls, mut served) = (0_u64, 0_u64, 0_u64);
    for second in 0..p.seconds {
        budget.second_begins();
        let counts = second >= p.settle_seconds;
        for i in 0..p.rate {
            let now = Time::from_millis(1_000_000 + second * 1_000 + i * 1_000 / p.rate);
            budget.requested();
            let (mut made, mut failed) = (1_u64, fails(&mut random));
            while failed && made <= u64::from(p.retries) && budget.takes(now) {
                made += 1;
                failed = fails(&mut random);
            }
            if !failed {
                budget.succeeded();
            }
            if counts {
                requests += 1;
                calls += made;
                served += u64::from(!failed);
            }
        }
    }
    let of = requests.max(1) as f64;
    Ok(CallerLoad { amplification: calls as f64 / of, served: served as f64 / of })
}
