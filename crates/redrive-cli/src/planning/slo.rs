//! `p99 recovery < 10m through outage 15m`: an objective, and whether a policy meets it.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use redrive_core::duration::{parse, print, rough};
use redrive_core::{OutageForecast, Policy, Schedule};

use crate::config::words::schedule_words;
use crate::output::percent;

/// An objective: this share of the messages that arrive in an outage is delivered this soon after its end.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Slo {
    pub share: f64,
    pub within: Duration,
    pub outage: Duration,
}

impl FromStr for Slo {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong =
            || format!("`{text}` is not an objective; write it like p99 recovery < 10m through outage 15m");
        let words: Vec<&str> = text.split_whitespace().collect();
        let [quantile, "recovery", "<", within, "through", "outage", outage] = words[..] else {
            return Err(wrong());
        };
        let percent: f64 =
            quantile.strip_prefix('p').and_then(|number| number.parse().ok()).ok_or_else(wrong)?;
        let share = percent / 100.0;
        if !(share > 0.0 && share <= 1.0) {
            return Err(wrong());
        }
        let span = |text: &str| parse(text).map_err(|error| error.to_string());
        let (within, outage) = (span(within)?, span(outage)?);
        if outage.is_zero() {
            return Err(wrong());
        }
        Ok(Self { share, within, outage })
    }
}

impl fmt::Display for Slo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let quantile = format!("{:.3}", self.share * 100.0);
        let quantile = quantile.trim_end_matches('0').trim_end_matches('.');
        write!(f, "p{quantile} recovery < {} through outage {}", print(self.within), print(self.outage))
    }
}

/// The result for an objective.
#[derive(Clone, Debug, PartialEq)]
pub struct SloResult {
    pub slo: Slo,
    pub met: bool,
    /// How soon the share is delivered; `None` if too many messages are dead.
    pub recovery: Option<Duration>,
    pub dead: f64,
    /// Tiers that would meet it.
    pub instead: Option<Vec<Duration>>,
    /// The line of the report.
    pub text: String,
}

/// Enough messages to judge a candidate; printed figures are computed with all messages.
const CANDIDATE_MESSAGES: u32 = 4_000;
const CANDIDATE_TIERS_MAX: usize = 16;

impl Slo {
    pub fn ask(self, policy: &Policy) -> SloResult {
        let forecast = policy.outage(self.outage);
        let recovery = forecast.recovery(self.share);
        let met = recovery.is_some_and(|recovery| recovery < self.within);
        let instead = if met { None } else { self.instead(policy) };
        let text = self.words(policy, &forecast, recovery, met, instead.as_deref());
        SloResult { slo: self, met, recovery, dead: forecast.dead, instead, text }
    }

    fn words(
        self,
        policy: &Policy,
        forecast: &OutageForecast,
        recovery: Option<Duration>,
        met: bool,
        instead: Option<&[Duration]>,
    ) -> String {
        if met {
            let recovery = rough(recovery.unwrap_or_default());
            return format!("✓ {self}: {recovery} after the outage, {} dead", percent(forecast.dead));
        }
        let schedule = schedule_words(policy.schedule());
        let ends = rough(policy.forecast().waiting_max);
        let outage = rough(self.outage);
        let what = match recovery {
            None => format!(
                "{schedule} end after {ends}; without the breaker {:.0} % of messages failing in a {outage} outage would be dead",
                forecast.dead * 100.0
            ),
            Some(recovery) => {
                format!(
                    "{schedule}: {} after the outage and not less than {}",
                    rough(recovery),
                    rough(self.within)
                )
            }
        };
        let instead = match instead {
            Some(tiers) => {
                let tiers: Vec<String> = tiers.iter().map(|tier| print(*tier)).collect();
                format!(" Or tiers {}.", tiers.join(","))
            }
            None => String::new(),
        };
        format!("✗ {what}. With the breaker on nothing is dead for it.{instead}")
    }

    /// Tiers that meet the objective: doubling from the first delay, and never longer than it allows.
    fn instead(self, policy: &Policy) -> Option<Vec<Duration>> {
        let first = match policy.schedule() {
            Schedule::Tiers(tiers) => tiers.first().copied()?,
            other => Duration::from_millis(other.base_ms()),
        };
        let longest = self.within * 9 / 10;
        let mut tiers = vec![first.min(longest).max(Duration::from_millis(1))];
        while tiers.len() < CANDIDATE_TIERS_MAX {
            let last = *tiers.last()?;
            // Tiers must grow; at the maximum length they grow by the smallest step that can be written.
            let doubled = last * 4;
            let next = if doubled <= longest { doubled } else { longest.max(last + Duration::from_secs(1)) };
            tiers.push(next);
            let candidate = Policy::tiers(tiers.iter().copied()).jitter(policy.jitter()).build().ok()?;
            let recovery =
                OutageForecast::of(&candidate, self.outage, CANDIDATE_MESSAGES).recovery(self.share);
            if recovery.is_some_and(|recovery| recovery < self.within) {
                return Some(tiers);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slo(text: &str) -> Slo {
        text.parse().unwrap()
    }

    #[test]
    fn an_objective_is_read_and_written_back() {
        for text in ["p99 recovery < 10m through outage 15m", "p99.9 recovery < 1h through outage 30s"] {
            assert_eq!(slo(text).to_string(), text);
        }
        for text in [
            "",
            "p99 recovery < 10m",
            "99 recovery < 10m through outage 15m",
            "p0 recovery < 10m through outage 15m",
            "p101 recovery < 10m through outage 15m",
            "pNaN recovery < 10m through outage 15m",
            "p99 recovery < ten through outage 15m",
            "p99 recovery < 10m through outage 0s",
            "p99 recovery > 10m through outage 15m",
        ] {
            assert!(text.parse::<Slo>().is_err(), "{text}");
        }
    }

    #[test]
    fn what_is_suggested_meets_the_objective() {
        let policy = Policy::default();
        let answer = slo("p99 recovery < 10m through outage 15m").ask(&policy);
        assert!(!answer.met);
        assert!(answer.text.starts_with("✗ tiers 5s,30s,5m end after 5m35s; without the breaker 72 % of messages failing in a 15m outage would be dead."), "{}", answer.text);
        let tiers = answer.instead.unwrap();
        let better = Policy::tiers(tiers).jitter(policy.jitter()).build().unwrap();
        assert!(answer.slo.ask(&better).met);
    }

    #[test]
    fn a_short_outage_is_survived() {
        let answer = slo("p99 recovery < 10m through outage 60s").ask(&Policy::default());
        assert!(answer.met && answer.text.starts_with('✓'), "{}", answer.text);
    }
}
