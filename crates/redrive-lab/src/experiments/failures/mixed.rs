//! Everything at once: transient failures, poison and an outage in one run, and how every id ended.

use redrive::BreakerSettings;
use serde::Deserialize;

use super::super::fault::LabError;
use super::super::setup::{ExperimentSetup, built, complete, unprotected};
use crate::fate::{Fate, Rates};
use crate::results::{Column, Curve, Outcome, Plot, Unit, VariantResult};
use crate::scenario::{Scenario, Share, Span};
use crate::testbed::{Fates, Load, MessageRecord, Outage, Subject, Trace};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct MixedParameters {
    rate: f64,
    arrive_for: Span,
    outage_at: Span,
    outage: Span,
    /// How long messages may take after the last arrival.
    follow: Span,
    tiers: Vec<Span>,
    transient: Share,
    poison: Share,
    /// Also turns on the outage gate.
    breaker: bool,
    /// Divides the times of the breaker, for a quick run.
    speed: f64,
    concurrency: u32,
    /// Letters that are reported but never written, to break the audit.
    #[serde(default)]
    phantom_letters: u64,
}

impl MixedParameters {
    fn load(&self, seed: u64) -> Load {
        Load {
            fates: Fates::Rates(Rates { poison: self.poison.0, transient: self.transient.0 }),
            outage: Some(Outage::refusing(self.outage_at.0, self.outage.0)),
            follow: self.follow.0,
            phantom_letters: self.phantom_letters,
            ..Load::steady(seed, self.rate, self.arrive_for.0)
        }
    }

    fn breaker(&self) -> BreakerSettings {
        if !self.breaker {
            return BreakerSettings::off();
        }
        let mut breaker = BreakerSettings::default();
        for span in [
            &mut breaker.fast.window,
            &mut breaker.slow.window,
            &mut breaker.cooldown,
            &mut breaker.cooldown_max,
        ] {
            *span = span.div_f64(self.speed);
        }
        breaker
    }

    fn subject(&self) -> Result<Subject, LabError> {
        let policy = built(&unprotected(&self.tiers).outage_gate(self.breaker))?;
        Ok(Subject { breaker: self.breaker(), ..Subject::plain(policy, self.concurrency) })
    }
}

pub fn run(scenario: &Scenario, setup: &ExperimentSetup<'_>) -> Result<Outcome, LabError> {
    let each = setup.each(scenario, |variant, stage| {
        let p: &MixedParameters = &variant.parameters;
        let trace = setup.play(scenario, &p.load(setup.seed), &p.subject()?, stage)?;
        Ok(trace.map(|trace| {
            let calls = Curve::new(&variant.name, trace.calls_per_second());
            let letters = Curve::new(&variant.name, trace.letters(trace.ran_for / STEPS));
            (measure(&variant.name, &trace), (calls, letters))
        }))
    })?;
    let (variants, rest, is_partial) = complete(each);
    let (calls, letters): (Vec<Curve>, Vec<Curve>) = rest.into_iter().unzip();
    let plots = vec![
        Plot::new("calls", "Calls of the downstream", "seconds", "calls per second", calls),
        Plot::new("letters", "Dead letters since the beginning", "seconds", "letters", letters),
    ];
    Ok(Outcome { columns: columns(), variants, plots, is_partial, ..Outcome::default() })
}

/// Number of points on a curve.
const STEPS: u32 = 120;

fn columns() -> Vec<Column> {
    vec![
        Column::new("produced", "produced", Unit::Count),
        Column::new("succeeded", "succeeded", Unit::Count),
        Column::new("dead letters", "dead", Unit::Count),
        Column::new("pending", "pending", Unit::Count),
        Column::new("poison", "poison", Unit::Count),
        Column::new("poison with a letter", "poison_dead", Unit::Share),
        Column::new("transient that recovered", "recovered", Unit::Share),
        Column::new("dead for the outage", "dead_for_outage", Unit::Count),
        Column::new("of what arrived in it", "dead_for_outage_share", Unit::Share),
    ]
}

fn measure(name: &str, trace: &Trace) -> VariantResult {
    let of = |wanted: fn(Fate) -> bool| -> Vec<&MessageRecord> {
        trace
            .arrived()
            .filter(|(number, _)| wanted(trace.load.fate(*number)))
            .map(|(_, record)| record)
            .collect()
    };
    let count = |records: &[&MessageRecord], is: fn(&MessageRecord) -> bool| {
        records.iter().filter(|record| is(record)).count() as f64
    };
    let poison = of(|fate| fate == Fate::Poison);
    let transient = of(|fate| matches!(fate, Fate::Transient { .. }));
    let sound = of(|fate| fate != Fate::Poison);
    let outage = trace.load.outage.filter(|outage| !outage.lasts.is_zero());
    let in_outage = outage.map_or(0, |outage| {
        let span = outage.at.as_millis() as u32..outage.end().as_millis() as u32;
        sound.iter().filter(|record| span.contains(&record.arrived_ms)).count()
    });
    let dead_for_outage = count(&sound, MessageRecord::is_dead);
    VariantResult::new(name, Some(trace.audit))
        .with("produced", trace.audit.produced as f64)
        .with("succeeded", trace.audit.succeeded as f64)
        .with("dead", trace.audit.dead as f64)
        .with("pending", trace.audit.pending as f64)
        .with("poison", poison.len() as f64)
        .with("poison_dead", count(&poison, MessageRecord::is_dead) / poison.len() as f64)
        .with("recovered", count(&transient, MessageRecord::has_succeeded) / transient.len() as f64)
        .with("dead_for_outage", dead_for_outage)
        .with("dead_for_outage_share", dead_for_outage / in_outage as f64)
}
