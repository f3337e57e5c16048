//! The checks of what defines a delay: tiers, backoff, jitter and the cap.

use std::time::Duration;

use super::check::{Check, TICK, limits};
use super::given::Given;
use super::settings::{BackoffSettings, PolicySettings};
use crate::duration::print;
use crate::jitter::Spread;
use crate::schedule::DELAY_MAX;
use crate::{Jitter, Ratio, Schedule};

impl Check {
    pub(super) fn schedule(&mut self, all: &PolicySettings) -> Schedule {
        match (&all.tiers, &all.backoff, &all.custom) {
            (Some(tiers), _, _) => self.tiers(tiers),
            (None, Some(backoff), _) => self.backoff(backoff),
            (None, None, Some(custom)) => Schedule::Custom(custom.clone()),
            (None, None, None) => unreachable!("every profile has a schedule"),
        }
    }

    fn tiers(&mut self, given: &[Given<Duration>]) -> Schedule {
        let listed = |tiers: &[String]| {
            format!("[{}]", tiers.iter().map(|t| format!("{t:?}")).collect::<Vec<_>>().join(", "))
        };
        let value = listed(&given.iter().map(Given::print).collect::<Vec<_>>());
        let before = self.faults.len();
        let mut tiers = Vec::new();
        for (item, tier) in given.iter().enumerate() {
            let found = self.faults.len();
            tiers.push(self.span("tiers", Some(tier), (TICK, DELAY_MAX), TICK));
            self.of_item(found, item);
        }
        if tiers.is_empty() {
            self.fault("tiers", value, "`tiers` is empty", "tiers = [\"5s\", \"30s\", \"5m\"]");
        } else if tiers.len() > limits::TIERS_MAX {
            let problem =
                format!("`tiers` has {} steps, at most {} are allowed", tiers.len(), limits::TIERS_MAX);
            self.fault("tiers", value, problem, "use fewer, longer steps");
        } else if let (Some(item), true) =
            (tiers.windows(2).position(|pair| pair[0] >= pair[1]), self.faults.len() == before)
        {
            let pair = &tiers[item..];
            let mut grown = tiers.clone();
            grown.sort();
            grown.dedup();
            let grown = listed(&grown.into_iter().map(print).collect::<Vec<_>>());
            let problem = format!("`tiers` must grow: {} comes after {}", print(pair[1]), print(pair[0]));
            self.fault("tiers", value, problem, format!("tiers = {grown}"));
            self.of_item(before, item + 1);
        }
        Schedule::Tiers(tiers)
    }

    fn backoff(&mut self, given: &BackoffSettings) -> Schedule {
        let grows = given.base.is_some() || given.multiplier.is_some() || given.cap.is_some();
        if let Some(fixed) = &given.fixed {
            if grows {
                let problem = "`backoff` has both `fixed` and `base`, `multiplier` or `cap`";
                self.fault("backoff.fixed", fixed.print(), problem, "keep `fixed`, or the others");
            }
            return Schedule::Fixed(self.span("backoff.fixed", Some(fixed), (TICK, DELAY_MAX), TICK));
        }
        if given.base.is_none() {
            let fix = "backoff = { base = \"2s\", multiplier = 2.0, cap = \"120s\" }";
            self.fault("backoff", "", "`backoff` needs `base` or `fixed`", fix);
        }
        let base = self.span("backoff.base", given.base.as_ref(), (TICK, DELAY_MAX), TICK);
        let multiplier = given.multiplier.unwrap_or(2.0);
        if !(1.0..=1_000.0).contains(&multiplier) {
            let problem = format!("`backoff.multiplier = {multiplier}` must lie between 1 and 1000");
            self.fault("backoff.multiplier", multiplier.to_string(), problem, "backoff.multiplier = 2.0");
        }
        let cap =
            given.cap.as_ref().map(|cap| self.span("backoff.cap", Some(cap), (TICK, DELAY_MAX), DELAY_MAX));
        if let Some(cap) = cap.filter(|cap| *cap < base) {
            let problem = format!(
                "`backoff.cap = \"{}\"` is shorter than `backoff.base = \"{}\"`",
                print(cap),
                print(base)
            );
            self.fault("backoff.cap", print(cap), problem, format!("backoff.cap = \"{}\"", print(base)));
        }
        Schedule::Exponential { base, multiplier, cap }
    }

    pub(super) fn jitter(&mut self, all: &PolicySettings, schedule: &Schedule) -> Jitter {
        let jitter = self.word("jitter", all.jitter.as_ref(), Jitter::Equal);
        let problem = match (jitter, schedule) {
            (Jitter::Decorrelated, Schedule::Exponential { cap: Some(_), .. }) => return jitter,
            (Jitter::Decorrelated, Schedule::Exponential { cap: None, .. }) => {
                Some(("needs a `backoff.cap`: it triples from delay to delay", "backoff.cap = \"120s\""))
            }
            (Jitter::Decorrelated, _) => {
                Some(("needs an exponential `backoff` to grow from", "jitter = \"equal\""))
            }
            (Jitter::Around(Spread::Ratio(ratio)), _) if ratio > Ratio::WHOLE => {
                Some(("cannot go below zero", "jitter = \"around(100%)\""))
            }
            (Jitter::Plus(Spread::Time(span)) | Jitter::Around(Spread::Time(span)), _)
                if span > DELAY_MAX =>
            {
                Some(("spreads wider than the longest delay there is, 720h", "jitter = \"plus(1s)\""))
            }
            _ => None,
        };
        if let Some((problem, fix)) = problem {
            self.fault("jitter", jitter.to_string(), format!("`jitter = \"{jitter}\"` {problem}"), fix);
        }
        jitter
    }

    pub(super) fn cap_ttl_share(&mut self, all: &PolicySettings) -> Option<Ratio> {
        let given = all.cap_ttl_share?;
        let share = Ratio::of_one(given).filter(|share| *share > Ratio::ZERO);
        let problem = match share {
            None => Some(("must be above 0 and at most 1", "cap_ttl_share = 0.5")),
            _ if all.ttl.is_none() => Some(("needs a `ttl` to be a share of", "ttl = \"1h\"")),
            _ if all.tiers.is_some() => Some(("does not cap tiers", "shorten the tiers, or use `backoff`")),
            _ => None,
        };
        if let Some((problem, fix)) = problem {
            self.fault(
                "cap_ttl_share",
                given.to_string(),
                format!("`cap_ttl_share = {given}` {problem}"),
                fix,
            );
        }
        share
    }
}
