//! The one validator: turns settings into a policy or a list of every fault.

use std::collections::BTreeMap;
use std::time::Duration;

use super::check::{Check, TICK, limits};
use super::delays::{cap_ttl_share, jitter, schedule};
use super::faults::{PolicyFaults, PolicyWarning};
use super::given::{Given, Word};
use super::rules::{BudgetRate, OnExhausted, Policy, Scalars};
use super::scalars::scalar_settings;
use super::settings::PolicySettings;
use crate::retry::schedule::DELAY_MAX;
use crate::text::nearest::nearest;
use crate::{Class, Ratio, Schedule, profiles};

impl PolicySettings {
    /// Checks everything and reports all faults at once; a fault in one key does not hide faults in others.
    pub fn resolve(&self) -> Result<Policy, PolicyFaults> {
        let mut check = Check::default();
        let profile = profile(&mut check, self.profile.as_deref());
        contradictions(&mut check, self);
        let all = self.clone().over(PolicySettings::from(profile));
        if !all.budget.has_rate() && self.budget.on_exhausted.is_some() {
            let value = all.budget.on_exhausted.as_ref().map(Given::print).unwrap_or_default();
            let problem = format!("`budget.on_exhausted = \"{value}\"` is set, but no budget is");
            check.fault("budget.on_exhausted", value, problem, "budget.retries_per_minute = 100");
        }

        let schedule = schedule(&mut check, &all);
        let attempts = attempts(&mut check, self, &all, &schedule);
        let scalars = scalars(&mut check, &all, &schedule);
        let policy = Policy {
            attempts,
            attempts_for: attempts_for(&mut check, &all, scalars.classify),
            schedule,
            scalars,
            budget: budget(&mut check, &all),
            on_exhausted: check.word(
                "budget.on_exhausted",
                all.budget.on_exhausted.as_ref(),
                OnExhausted::Defer,
            ),
            crash_threshold: check.number(
                "crash.threshold",
                all.crash.threshold,
                limits::CRASH_THRESHOLD_MAX,
                limits::CRASH_THRESHOLD,
            ),
            crash_window: check.span(
                "crash.window",
                all.crash.window.as_ref(),
                (TICK, limits::SPAN_MAX),
                limits::CRASH_WINDOW,
            ),
            warnings: Vec::new(),
        };
        // Warnings make sense only for values within their bounds.
        check.finish(policy).map(with_warnings)
    }
}

macro_rules! checks {
    (
        ($check:ident, $all:ident, $schedule:ident)
        $($(#[doc = $doc:literal])+ $name:ident: $given:tt($of:ty) => $holds:ty = $read:expr;)+
    ) => {
        /// Checks every row in turn; a row may use the values above it.
        fn scalars($check: &mut Check, $all: &PolicySettings, $schedule: &Schedule) -> Scalars {
            $(let $name: $holds = $read;)+
            Scalars { $($name,)+ }
        }
    };
}

scalar_settings!(checks);

fn with_warnings(mut policy: Policy) -> Policy {
    let longest = policy.longest_delay();
    let window = policy.crash_window;
    if longest >= window {
        policy.warnings.push(PolicyWarning::DelayPassesCrashWindow { longest, window });
    }
    if let Some(ttl) = policy.ttl().filter(|ttl| longest >= *ttl) {
        policy.warnings.push(PolicyWarning::DelayPassesTtl { longest, ttl });
    }
    policy
}

fn profile(check: &mut Check, name: Option<&str>) -> &'static profiles::Profile {
    let name = name.unwrap_or(profiles::DEFAULT);
    profiles::find(name).unwrap_or_else(|| {
        let near = profiles::nearest_name(name);
        let names = profiles::ALL.map(|profile| profile.name).join(", ");
        let others = if near.is_some() { String::new() } else { format!(": there are {names}") };
        let (problem, fix) =
            (format!("there is no profile `{name}`{others}"), near.unwrap_or(profiles::DEFAULT));
        check.fault("profile", name, problem, format!("profile = \"{fix}\""));
        &profiles::ALL[0]
    })
}

/// Reports settings that exclude each other. Only explicit settings count; a profile never contradicts its user.
fn contradictions(check: &mut Check, given: &PolicySettings) {
    let schedules = [
        ("tiers", given.tiers.is_some()),
        ("backoff", given.backoff.is_some()),
        ("custom", given.custom.is_some()),
    ];
    let named: Vec<_> = schedules.iter().filter(|(_, is_given)| *is_given).map(|(key, _)| *key).collect();
    if let [first, .., last] = named[..] {
        let problem = format!("both `{first}` and `{last}` are set, and both define the delay");
        check.fault(first, "", problem, format!("keep `{first}` or `{last}`"));
    }
    if let (Some(retries), Some(attempts)) = (given.retries, given.attempts) {
        let problem = format!("both `retries = {retries}` and `attempts = {attempts}` are set");
        let fix = format!("keep `retries = {retries}` or `attempts = {attempts}`");
        check.fault("retries", retries.to_string(), problem, fix);
    }
    if let (Some(rate), Some(share)) = (given.budget.retries_per_minute, &given.budget.share_of_successes) {
        let share = share.print();
        let problem = format!(
            "both `budget.retries_per_minute = {rate}` and `budget.share_of_successes = \"{share}\"` are set"
        );
        let fix = "keep `budget.retries_per_minute` or `budget.share_of_successes`";
        check.fault("budget.retries_per_minute", rate.to_string(), problem, fix);
    }
}

fn attempts(check: &mut Check, given: &PolicySettings, all: &PolicySettings, schedule: &Schedule) -> u32 {
    let tiers = match schedule {
        Schedule::Tiers(tiers) => Some(tiers.len() as u32),
        _ => None,
    };
    let attempts = match (all.retries, all.attempts) {
        (Some(retries), _) => retries.saturating_add(1),
        (None, Some(attempts)) => attempts,
        (None, None) => tiers.unwrap_or(limits::RETRIES) + 1,
    };
    // Having both was reported already; bounds can be checked once one of them is removed.
    if given.retries.is_some() && given.attempts.is_some() {
        return attempts;
    }
    let (key, value, first) = match given.attempts {
        Some(attempts) => ("attempts", attempts, 1),
        _ => ("retries", attempts.saturating_sub(1), 0),
    };
    let max = limits::ATTEMPTS_MAX - 1 + first;
    if !(first..=max).contains(&value) {
        let problem = format!("`{key} = {value}` must lie between {first} and {max}");
        check.fault(key, value.to_string(), problem, format!("{key} = {}", value.clamp(first, max)));
    } else if let Some(tiers) = tiers.filter(|tiers| *tiers > 0 && attempts - 1 > *tiers) {
        let problem = match tiers {
            1 => format!("both `{key} = {value}` and 1 tier are set; 1 tier allows at most 1 retry"),
            _ => format!(
                "both `{key} = {value}` and {tiers} tiers are set; {tiers} tiers allow at most {tiers} retries"
            ),
        };
        check.fault(key, value.to_string(), problem, format!("{key} = {}", tiers + first));
    }
    attempts
}

fn attempts_for(check: &mut Check, all: &PolicySettings, classify: bool) -> BTreeMap<Class, u32> {
    let mut allowed = BTreeMap::new();
    for (class, attempts) in &all.attempts_for {
        let key = format!("attempts_for.{}", class.print());
        let Some(class) = class.read() else {
            let name = class.print();
            let problem = format!("`attempts_for` names `{name}`, which is not one of {}", Class::ACCEPTED);
            let fix = match nearest(&name, Class::ACCEPTED.split(", ").flat_map(|names| names.split(" or ")))
            {
                Some(near) => format!("rename it to `attempts_for.{near}`"),
                None => format!("remove `{key}`"),
            };
            check.fault(key, attempts.to_string(), problem, fix);
            continue;
        };
        let problem = match class {
            Class::Permanent | Class::Gone if classify => "is never retried while `classify = \"on\"`",
            Class::Credential => "waits without counting attempts",
            Class::Reconnect => "counts as transient once its free calls are used up",
            _ => "",
        };
        if !problem.is_empty() {
            let problem = format!("`{key} = {attempts}` has no effect: {class} {problem}");
            check.fault(key.as_str(), attempts.to_string(), problem, format!("remove `{key}`"));
        }
        allowed.insert(class, check.number(&key, Some(*attempts), limits::ATTEMPTS_MAX, 1));
    }
    allowed
}

fn budget(check: &mut Check, all: &PolicySettings) -> Option<BudgetRate> {
    if let Some(rate) = all.budget.retries_per_minute {
        return Some(BudgetRate::PerMinute(check.number(
            "budget.retries_per_minute",
            Some(rate),
            u32::MAX,
            1,
        )));
    }
    let given = all.budget.share_of_successes.as_ref()?;
    let share = check.share_up_to_whole("budget.share_of_successes", Some(given), Ratio::WHOLE);
    if share == Ratio::ZERO {
        let problem = "`budget.share_of_successes = \"0%\"` allows no retry at all";
        let fix = "budget.share_of_successes = \"10%\", or retries = 0 instead of `budget`";
        check.fault("budget.share_of_successes", "0%", problem, fix);
    }
    Some(BudgetRate::ShareOfSuccesses(share))
}
