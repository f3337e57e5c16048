//! The one validator: settings in, a policy or every fault out.

use std::collections::BTreeMap;
use std::time::Duration;

use super::faults::{PolicyFault, PolicyFaults, PolicyWarning};
use super::given::{Given, Word};
use super::rules::{BudgetRate, Mode, OnExhausted, Policy};
use super::settings::{BackoffSettings, PolicySettings};
use crate::duration::print;
use crate::jitter::Spread;
use crate::schedule::DELAY_MAX;
use crate::{Class, Jitter, Ratio, Schedule, profiles};

/// Bounds of the settings, and what holds where neither the settings nor the profile say anything.
pub mod limits {
    use std::time::Duration;

    pub const TIERS_MAX: usize = 32;
    pub const ATTEMPTS_MAX: u32 = 1_000;
    pub const SPAN_MAX: Duration = Duration::from_secs(3_650 * 24 * 3_600);
    pub const TIMEOUT_MAX: Duration = Duration::from_secs(24 * 3_600);
    pub const CONCURRENCY_MAX: u32 = 100_000;
    pub const CRASH_THRESHOLD_MAX: u32 = 100;

    pub(super) const RETRIES: u32 = 3;
    pub(super) const RETRY_AFTER_MAX: Duration = Duration::from_secs(24 * 3_600);
    pub(super) const HOLD_MAX: Duration = Duration::from_secs(24 * 3_600);
    pub(super) const CONCURRENCY: u32 = 64;
    pub(super) const TIMEOUT: Duration = Duration::from_secs(30);
    pub(super) const CRASH_THRESHOLD: u32 = 3;
    pub(super) const CRASH_WINDOW: Duration = Duration::from_millis(300_000);
}

/// The shortest span that is not nothing.
const TICK: Duration = Duration::from_millis(1);

impl PolicySettings {
    /// Checks everything and reports all faults at once; a fault in one key does not hide one in another.
    pub fn resolve(&self) -> Result<Policy, PolicyFaults> {
        let mut check = Check::default();
        let profile = check.profile(self.profile.as_deref());
        check.contradictions(self);
        let all = self.clone().over(PolicySettings::from(profile));
        if !all.budget.has_rate() && self.budget.on_exhausted.is_some() {
            let value = all.budget.on_exhausted.as_ref().map(Given::print).unwrap_or_default();
            let problem = format!("`budget.on_exhausted = \"{value}\"` is set, but no budget is");
            check.fault("budget.on_exhausted", value, problem, "budget = { retries_per_minute = 100 }");
        }

        let schedule = check.schedule(&all);
        let attempts = check.attempts(self, &all, &schedule);
        let classify = check.word("classify", all.classify.as_ref(), true);
        let policy = Policy {
            attempts,
            attempts_for: check.attempts_for(&all, classify),
            jitter: check.jitter(&all, &schedule),
            schedule,
            retry_after_jitter: check.share_up_to_whole(
                "retry_after_jitter",
                all.retry_after_jitter.as_ref(),
                Ratio::percent(10),
            ),
            retry_after_max: check.span(
                "retry_after_max",
                all.retry_after_max.as_ref(),
                (TICK, DELAY_MAX),
                limits::RETRY_AFTER_MAX,
            ),
            ttl: all.ttl.as_ref().map(|ttl| check.span("ttl", Some(ttl), (TICK, limits::SPAN_MAX), TICK)),
            cap_ttl_share: check.cap_ttl_share(&all),
            hold_max: check.span(
                "hold_max",
                all.hold_max.as_ref(),
                (Duration::ZERO, limits::SPAN_MAX),
                limits::HOLD_MAX,
            ),
            classify,
            mode: check.word("mode", all.mode.as_ref(), Mode::NonBlocking),
            concurrency: check.number(
                "concurrency",
                all.concurrency,
                limits::CONCURRENCY_MAX,
                limits::CONCURRENCY,
            ),
            timeout: check.span(
                "timeout",
                all.timeout.as_ref(),
                (TICK, limits::TIMEOUT_MAX),
                limits::TIMEOUT,
            ),
            outage_gate: all.outage_gate.unwrap_or(true),
            budget: check.budget(&all),
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
            replay_attempts: all
                .replay_attempts
                .map(|attempts| check.number("replay_attempts", Some(attempts), limits::ATTEMPTS_MAX, 1)),
            warnings: Vec::new(),
        };
        if check.faults.is_empty() { Ok(with_warnings(policy)) } else { Err(PolicyFaults(check.faults)) }
    }
}

fn with_warnings(mut policy: Policy) -> Policy {
    let longest = policy.longest_delay();
    let window = policy.crash_window;
    if longest >= window {
        policy.warnings.push(PolicyWarning::DelayPassesCrashWindow { longest, window });
    }
    if let Some(ttl) = policy.ttl.filter(|ttl| longest >= *ttl) {
        policy.warnings.push(PolicyWarning::DelayPassesTtl { longest, ttl });
    }
    policy
}

/// Reads settings and collects what is wrong with them. After a fault it goes on with a value that is right.
#[derive(Default)]
struct Check {
    faults: Vec<PolicyFault>,
}

impl Check {
    fn fault(
        &mut self,
        key: impl Into<String>,
        value: impl Into<String>,
        problem: impl Into<String>,
        fix: impl Into<String>,
    ) {
        let fault =
            PolicyFault { key: key.into(), value: value.into(), problem: problem.into(), fix: fix.into() };
        self.faults.push(fault);
    }

    fn profile(&mut self, name: Option<&str>) -> &'static profiles::Profile {
        let name = name.unwrap_or(profiles::DEFAULT);
        profiles::find(name).unwrap_or_else(|| {
            let fix = match profiles::nearest_name(name) {
                Some(near) => format!("profile = \"{near}\""),
                None => format!("one of {}", profiles::ALL.map(|profile| profile.name).join(", ")),
            };
            self.fault("profile", name, format!("there is no profile `{name}`"), fix);
            &profiles::ALL[0]
        })
    }

    /// Settings that exclude each other. Only what was given counts; a profile never contradicts its user.
    fn contradictions(&mut self, given: &PolicySettings) {
        let schedules = [
            ("tiers", given.tiers.is_some()),
            ("backoff", given.backoff.is_some()),
            ("custom", given.custom.is_some()),
        ];
        let named: Vec<_> = schedules.iter().filter(|(_, is_given)| *is_given).map(|(key, _)| *key).collect();
        if let [first, .., last] = named[..] {
            let problem = format!("both `{first}` and `{last}` are set, and both define the delay");
            self.fault(first, "", problem, format!("keep `{first}` or `{last}`"));
        }
        if let (Some(retries), Some(attempts)) = (given.retries, given.attempts) {
            let problem = format!("both `retries = {retries}` and `attempts = {attempts}` are set");
            let fix =
                format!("keep `retries = {retries}`, which is attempts = {}", retries.saturating_add(1));
            self.fault("retries", retries.to_string(), problem, fix);
        }
        if let (Some(rate), Some(share)) = (given.budget.retries_per_minute, &given.budget.share_of_successes)
        {
            let share = share.print();
            let problem = format!(
                "both `budget.retries_per_minute = {rate}` and `budget.share_of_successes = \"{share}\"` are set"
            );
            self.fault("budget.retries_per_minute", rate.to_string(), problem, "keep one of them");
        }
    }

    fn word<T: Word>(&mut self, key: &str, given: Option<&Given<T>>, otherwise: T) -> T {
        let Some(given) = given else { return otherwise };
        given.read().unwrap_or_else(|| {
            let value = given.print();
            let problem = format!("`{key} = \"{value}\"` is not {}", T::KIND);
            self.fault(key, value, problem, format!("write it like {}", T::ACCEPTED));
            otherwise
        })
    }

    fn span(
        &mut self,
        key: &str,
        given: Option<&Given<Duration>>,
        (min, max): (Duration, Duration),
        otherwise: Duration,
    ) -> Duration {
        let span = self.word(key, given, otherwise);
        if (min..=max).contains(&span) {
            return span;
        }
        let value = print(span);
        let fix = if span < min { print(min) } else { print(max) };
        let least = if span < min { "at least" } else { "at most" };
        let problem = format!("`{key} = \"{value}\"` must be {least} {fix}");
        self.fault(key, value, problem, format!("{key} = \"{fix}\""));
        otherwise
    }

    fn number(&mut self, key: &str, given: Option<u32>, max: u32, otherwise: u32) -> u32 {
        let number = given.unwrap_or(otherwise);
        if (1..=max).contains(&number) {
            return number;
        }
        let problem = format!("`{key} = {number}` must lie between 1 and {max}");
        self.fault(key, number.to_string(), problem, format!("{key} = {}", number.clamp(1, max)));
        otherwise
    }

    fn share_up_to_whole(&mut self, key: &str, given: Option<&Given<Ratio>>, otherwise: Ratio) -> Ratio {
        let share = self.word(key, given, otherwise);
        if share > Ratio::WHOLE {
            let problem = format!("`{key} = \"{share}\"` must be at most 100%");
            self.fault(key, share.to_string(), problem, format!("{key} = \"100%\""));
        }
        share
    }

    fn schedule(&mut self, all: &PolicySettings) -> Schedule {
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
        let tiers: Vec<_> =
            given.iter().map(|tier| self.span("tiers", Some(tier), (TICK, DELAY_MAX), TICK)).collect();
        if tiers.is_empty() {
            self.fault("tiers", value, "`tiers` is empty", "tiers = [\"5s\", \"30s\", \"5m\"]");
        } else if tiers.len() > limits::TIERS_MAX {
            let problem =
                format!("`tiers` has {} steps, at most {} are allowed", tiers.len(), limits::TIERS_MAX);
            self.fault("tiers", value, problem, "use fewer, longer steps");
        } else if let (Some(pair), true) =
            (tiers.windows(2).find(|pair| pair[0] >= pair[1]), self.faults.len() == before)
        {
            let mut grown = tiers.clone();
            grown.sort();
            grown.dedup();
            let grown = listed(&grown.into_iter().map(print).collect::<Vec<_>>());
            let problem = format!("`tiers` must grow: {} comes after {}", print(pair[1]), print(pair[0]));
            self.fault("tiers", value, problem, format!("tiers = {grown}"));
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

    fn attempts(&mut self, given: &PolicySettings, all: &PolicySettings, schedule: &Schedule) -> u32 {
        let tiers = match schedule {
            Schedule::Tiers(tiers) => Some(tiers.len() as u32),
            _ => None,
        };
        let attempts = match (all.retries, all.attempts) {
            (Some(retries), _) => retries.saturating_add(1),
            (None, Some(attempts)) => attempts,
            (None, None) => tiers.unwrap_or(limits::RETRIES) + 1,
        };
        let (key, value, first) = match given.attempts {
            Some(attempts) if given.retries.is_none() => ("attempts", attempts, 1),
            _ => ("retries", attempts.saturating_sub(1), 0),
        };
        let max = limits::ATTEMPTS_MAX - 1 + first;
        if !(first..=max).contains(&value) {
            let problem = format!("`{key} = {value}` must lie between {first} and {max}");
            self.fault(key, value.to_string(), problem, format!("{key} = {}", value.clamp(first, max)));
        } else if let Some(tiers) = tiers.filter(|tiers| *tiers > 0 && attempts - 1 > *tiers) {
            let steps = if tiers == 1 { "tier is" } else { "tiers are" };
            let (s, allow) = if tiers == 1 { ("", "allows") } else { ("s", "allow") };
            let problem = format!(
                "both `{key} = {value}` and {tiers} {steps} set; {tiers} tier{s} {allow} at most {tiers} retries"
            );
            self.fault(key, value.to_string(), problem, format!("{key} = {}", tiers + first));
        }
        attempts
    }

    fn attempts_for(&mut self, all: &PolicySettings, classify: bool) -> BTreeMap<Class, u32> {
        let mut allowed = BTreeMap::new();
        for (class, attempts) in &all.attempts_for {
            let key = format!("attempts_for.{}", class.print());
            let Some(class) = class.read() else {
                let name = class.print();
                let problem = format!("`attempts_for` names `{name}`, which is not a class");
                self.fault(key, attempts.to_string(), problem, format!("write it like {}", Class::ACCEPTED));
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
                self.fault(key.as_str(), attempts.to_string(), problem, format!("remove `{key}`"));
            }
            allowed.insert(class, self.number(&key, Some(*attempts), limits::ATTEMPTS_MAX, 1));
        }
        allowed
    }

    fn jitter(&mut self, all: &PolicySettings, schedule: &Schedule) -> Jitter {
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

    fn cap_ttl_share(&mut self, all: &PolicySettings) -> Option<Ratio> {
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

    fn budget(&mut self, all: &PolicySettings) -> Option<BudgetRate> {
        if let Some(rate) = all.budget.retries_per_minute {
            return Some(BudgetRate::PerMinute(self.number(
                "budget.retries_per_minute",
                Some(rate),
                u32::MAX,
                1,
            )));
        }
        let given = all.budget.share_of_successes.as_ref()?;
        let share = self.share_up_to_whole("budget.share_of_successes", Some(given), Ratio::WHOLE);
        if share == Ratio::ZERO {
            let problem = "`budget.share_of_successes = \"0%\"` allows no retry at all";
            self.fault("budget.share_of_successes", "0%", problem, "retries = 0");
        }
        Some(BudgetRate::ShareOfSuccesses(share))
    }
}
