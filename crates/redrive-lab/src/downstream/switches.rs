//! The settings that can change while the downstream runs, and their JSON.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use redrive_core::nearest::nearest;
use redrive_core::{Ratio, duration};
use serde_json::{Map, Value, json};

use super::{Latency, OutageStyle, OutageWindow};
use crate::share;

/// The longest Retry-After of the stub: one day, the most that the default policy accepts.
pub const RETRY_AFTER_MAX: Duration = Duration::from_hours(24);

/// How the downstream behaves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Switches {
    /// This share of the ids fails at first: two thirds of them once, one third twice.
    pub fail_rate: Ratio,
    /// Whether to refuse orders marked as poison; off once "fixed".
    pub poison_detect: bool,
    /// Whether orders marked as transient fail as often as marked.
    pub obey_marks: bool,
    pub latency: Latency,
    /// Counted from the time when it was set.
    pub outage_window: Option<OutageWindow>,
    pub outage_style: OutageStyle,
    /// Sent with every 503, if set.
    pub retry_after: Option<Duration>,
}

impl Default for Switches {
    fn default() -> Self {
        Self {
            fail_rate: Ratio::ZERO,
            poison_detect: true,
            obey_marks: true,
            latency: Latency::NONE,
            outage_window: None,
            outage_style: OutageStyle::Unavailable,
            retry_after: None,
        }
    }
}

const NAMES: [&str; 7] =
    ["fail_rate", "poison_detect", "obey_marks", "latency", "outage_window", "outage_style", "retry_after"];

/// One error in a change of the switches.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{name}: {fault}")]
pub struct SwitchFault {
    pub name: String,
    pub fault: String,
}

/// All errors of a rejected change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SwitchFaults(pub Vec<SwitchFault>);

impl fmt::Display for SwitchFaults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let faults: Vec<String> = self.0.iter().map(ToString::to_string).collect();
        f.write_str(&faults.join("; "))
    }
}

impl std::error::Error for SwitchFaults {}

impl Switches {
    /// Returns these switches with those in the JSON object `change` replaced. Reports all faults at once.
    pub fn changed(&self, change: &Map<String, Value>) -> Result<Self, SwitchFaults> {
        let mut new = self.clone();
        let faults: Vec<SwitchFault> = change
            .iter()
            .filter_map(|(name, value)| {
                let fault = new.set(name, value).err()?;
                Some(SwitchFault { name: name.clone(), fault })
            })
            .collect();
        if faults.is_empty() { Ok(new) } else { Err(SwitchFaults(faults)) }
    }

    pub fn to_json(&self) -> Value {
        json!({
            "fail_rate": self.fail_rate.to_string(),
            "poison_detect": self.poison_detect,
            "obey_marks": self.obey_marks,
            "latency": self.latency.to_string(),
            "outage_window": self.outage_window.map(|window| window.to_string()),
            "outage_style": self.outage_style.name(),
            "retry_after": self.retry_after.map(duration::print),
        })
    }

    /// The style of the outage `elapsed` after the switches were set; `None` without one.
    pub fn outage(&self, elapsed: Duration) -> Option<OutageStyle> {
        self.outage_window.filter(|window| window.contains(elapsed)).map(|_| self.outage_style)
    }

    fn set(&mut self, name: &str, value: &Value) -> Result<(), String> {
        match name {
            "fail_rate" => self.fail_rate = share_of(value)?,
            "poison_detect" => self.poison_detect = on_or_off(value)?,
            "obey_marks" => self.obey_marks = on_or_off(value)?,
            "latency" => self.latency = parsed(value)?,
            "outage_window" => self.outage_window = optional(value, parsed)?,
            "outage_style" => self.outage_style = parsed(value)?,
            "retry_after" => self.retry_after = optional(value, retry_after)?,
            other => {
                return Err(match nearest(other, NAMES) {
                    Some(meant) => format!("there is no such switch; did you mean `{meant}`?"),
                    None => format!("there is no such switch; there are {}", NAMES.join(", ")),
                });
            }
        }
        Ok(())
    }
}

fn text(value: &Value) -> Result<&str, String> {
    value.as_str().ok_or_else(|| format!("{value} is not a text"))
}

fn parsed<T: FromStr<Err: fmt::Display>>(value: &Value) -> Result<T, String> {
    text(value)?.parse().map_err(|error: T::Err| error.to_string())
}

fn optional<T>(value: &Value, read: impl Fn(&Value) -> Result<T, String>) -> Result<Option<T>, String> {
    if value.is_null() { Ok(None) } else { read(value).map(Some) }
}

fn on_or_off(value: &Value) -> Result<bool, String> {
    value.as_bool().ok_or_else(|| format!("{value} is neither true nor false"))
}

fn share_of(value: &Value) -> Result<Ratio, String> {
    let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    share::parse(&text).map_err(|error| error.to_string())
}

fn retry_after(value: &Value) -> Result<Duration, String> {
    let span = duration::parse(text(value)?).map_err(|error| error.to_string())?;
    if span <= RETRY_AFTER_MAX { Ok(span) } else { Err(format!("{value} is longer than 24h")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(json: &Value) -> Result<Switches, SwitchFaults> {
        Switches::default().changed(json.as_object().unwrap())
    }

    #[test]
    fn what_is_shown_can_be_set() {
        let switches = change(&json!({
            "fail_rate": 0.15, "poison_detect": false, "obey_marks": false, "latency": "10ms..50ms",
            "outage_window": "60s@5m", "outage_style": "hang", "retry_after": "2s",
        }))
        .unwrap();
        assert_eq!(switches.fail_rate, Ratio::percent(15));
        assert_eq!(change(&switches.to_json()).unwrap(), switches);
        assert_eq!(change(&Switches::default().to_json()).unwrap(), Switches::default());
    }

    #[test]
    fn only_what_is_named_changes_and_null_takes_an_outage_away() {
        let with_outage = change(&json!({ "outage_window": "60s", "fail_rate": "30%" })).unwrap();
        let without = with_outage.changed(json!({ "outage_window": null }).as_object().unwrap()).unwrap();
        assert_eq!(without, Switches { fail_rate: Ratio::percent(30), ..Switches::default() });
    }

    #[test]
    fn every_fault_of_a_change_is_named_and_nothing_is_changed() {
        let faults = change(&json!({
            "fail-rate": "15%", "poison_detect": "yes", "latency": 5, "outage_window": "5m", "outage_style": "x",
            "retry_after": "25h", "colour": "red",
        }))
        .unwrap_err();
        let text = faults.to_string();
        assert_eq!(faults.0.len(), 6, "{text}");
        for part in [
            "fail-rate: there is no such switch; did you mean `fail_rate`?",
            "poison_detect: \"yes\" is neither true nor false",
            "latency: 5 is not a text",
            "`x` is not a kind of outage",
            "longer than 24h",
            "colour: there is no such switch; there are fail_rate,",
        ] {
            assert!(text.contains(part), "{part} is not in {text}");
        }
    }

    #[test]
    fn the_outage_has_its_style_while_it_lasts() {
        let switches = change(&json!({ "outage_window": "2s@1s", "outage_style": "refuse" })).unwrap();
        let at = |ms| switches.outage(Duration::from_millis(ms));
        assert_eq!(
            [at(999), at(1_000), at(2_999), at(3_000)],
            [None, Some(OutageStyle::Refuse), Some(OutageStyle::Refuse), None]
        );
    }
}
