//! All values of a pipeline, and the settings that override its profile.

use redrive_core::duration::print;
use redrive_core::policy::{BudgetRate, SCALARS};
use redrive_core::profiles::{self, Profile};
use redrive_core::{Class, PolicySettings, Schedule};

use super::super::pipeline::PipelineConfig;
use super::super::policy::ALSO_IN_SINK;
use super::super::protection;
use super::super::sinks::registry;
use super::super::source::Source;
use super::super::words::quoted;
use super::{ResolvedTable, ValueOrigin, place};

impl PipelineConfig {
    /// The profile that the settings override.
    pub fn profile(&self) -> &'static Profile {
        let name = self.settings.profile.as_deref().unwrap_or(profiles::DEFAULT);
        profiles::find(name).unwrap_or(&profiles::ALL[0])
    }

    /// All values of this pipeline, in the order of the declaration.
    pub fn resolved(&self, source: Option<&Source>) -> Vec<ResolvedTable> {
        // A key or anything below it.
        let given = |key: &str| {
            let below = format!("{key}.");
            let mut found = self.given.iter().filter(|(name, _)| *name == key || name.starts_with(&below));
            found.next().map(|(_, at)| place(at, source))
        };
        let of_sink =
            |key: &str| given(&format!("sink.{}.{key}", self.sink.kind)).unwrap_or(ValueOrigin::Default);
        let otherwise = |key: &str| match key {
            "name" => ValueOrigin::Follows("source"),
            key if ALSO_IN_SINK.contains(&key) => of_sink(key),
            key => self.origin_unless_given(key),
        };
        let origin = |key: &str| given(key).unwrap_or_else(|| otherwise(key));
        let mut values = self.values();
        values.extend(self.policy_values());
        let declared = registry::KEYS.of("pipeline").unwrap_or_default();
        values.sort_by_key(|(key, _)| declared.iter().position(|name| name == key));

        let mut tables = vec![ResolvedTable::of("[[pipeline]]", values, origin)];
        let breaker = protection::breaker_values(&self.breaker);
        for (path, values) in
            breaker.into_iter().chain([protection::guard_values(&self.guard), self.auto_replay.values()])
        {
            let otherwise = |key: &str| match key {
                "counts" => ValueOrigin::Profile(self.profile().name),
                _ => ValueOrigin::Default,
            };
            let origin = |key: &str| given(&format!("{path}.{key}")).unwrap_or_else(|| otherwise(key));
            tables.push(ResolvedTable::of(format!("[pipeline.{path}]"), values, origin));
        }
        for rule in &self.groups {
            let values = vec![("match", quoted(rule.pattern())), ("as", quoted(rule.name()))];
            let origin = |_: &str| given("group").unwrap_or(ValueOrigin::Default);
            tables.push(ResolvedTable::of("[[pipeline.group]]", values, origin));
        }
        tables.push(ResolvedTable::of(self.sink.header(), self.sink.settings.values(), of_sink));
        tables
    }

    /// The effective values of the policy, as TOML.
    fn policy_values(&self) -> Vec<(&'static str, String)> {
        let policy = &self.policy;
        let mut values =
            vec![("profile", quoted(self.profile().name)), ("retries", policy.retries().to_string())];
        match policy.schedule() {
            Schedule::Tiers(tiers) => {
                let tiers: Vec<String> = tiers.iter().map(|tier| quoted(&print(*tier))).collect();
                values.push(("tiers", format!("[{}]", tiers.join(", "))));
            }
            Schedule::Exponential { base, multiplier, cap } => {
                let cap = cap.map(|cap| format!(", cap = {}", quoted(&print(cap)))).unwrap_or_default();
                let value =
                    format!("{{ base = {}, multiplier = {multiplier:?}{cap} }}", quoted(&print(*base)));
                values.push(("backoff", value));
            }
            Schedule::Fixed(delay) => {
                values.push(("backoff", format!("{{ fixed = {} }}", quoted(&print(*delay)))));
            }
            Schedule::Custom(_) => {}
        }
        if !self.settings.attempts_for.is_empty() {
            let own = Class::ALL
                .into_iter()
                .filter(|class| self.given.contains_key(&format!("attempts_for.{class}")));
            let own: Vec<String> =
                own.map(|class| format!("{class} = {}", policy.attempts_allowed(class, 0))).collect();
            values.push(("attempts_for", format!("{{ {} }}", own.join(", "))));
        }
        for scalar in SCALARS {
            values.extend((scalar.toml)(policy).map(|value| (scalar.key, value)));
        }
        if let Some(budget) = policy.budget() {
            let rate = match budget {
                BudgetRate::PerMinute(retries) => format!("retries_per_minute = {retries}"),
                BudgetRate::ShareOfSuccesses(share) => format!("share_of_successes = \"{share}\""),
            };
            let exhausted = quoted(policy.on_exhausted().name());
            values.push(("budget", format!("{{ {rate}, on_exhausted = {exhausted} }}")));
        }
        let (threshold, window) = (policy.crash_threshold(), quoted(&print(policy.crash_window())));
        values.push(("crash", format!("{{ threshold = {threshold}, window = {window} }}")));
        values
    }

    /// The origin of a value that was not given under its own key.
    fn origin_unless_given(&self, key: &str) -> ValueOrigin {
        let (settings, profile) = (&self.settings, PolicySettings::from(self.profile()));
        let is_of_profile = match key {
            "tiers" | "backoff" => true,
            "retries" if settings.attempts.is_some() => return ValueOrigin::Follows("attempts"),
            "retries" if settings.tiers.is_some() => return ValueOrigin::Follows("tiers"),
            "retries" => profile.retries.is_some() || settings.backoff.is_none(),
            "budget" => profile.budget.retries_per_minute.is_some(),
            _ => SCALARS.iter().any(|scalar| scalar.key == key && (scalar.is_set)(&profile)),
        };
        if is_of_profile { ValueOrigin::Profile(self.profile().name) } else { ValueOrigin::Default }
    }

    /// The settings that override the profile, for the head of a report: `profile tiered, edited: retries 3`.
    pub fn edits(&self) -> Vec<String> {
        let in_sink = |key: &str| format!("sink.{}.{key}", self.sink.kind);
        let of_policy = |key: &&String| {
            let first = key.split('.').next().unwrap_or_default();
            [
                "tiers",
                "backoff",
                "retries",
                "attempts",
                "attempts_for",
                "jitter",
                "ttl",
                "timeout",
                "hold_max",
            ]
            .contains(&first)
                || **key == in_sink("timeout")
        };
        let mut edits: Vec<String> = Vec::new();
        for key in self.given.keys().filter(of_policy) {
            let first = key.trim_start_matches(&in_sink("")).split('.').next().unwrap_or_default();
            let text = match first {
                "retries" => format!("retries {}", self.policy.retries()),
                "attempts" => format!("attempts {}", self.policy.attempts()),
                "jitter" => format!("jitter {}", self.policy.jitter()),
                "timeout" => format!("timeout {}", print(self.policy.timeout())),
                "ttl" => format!("ttl {}", self.policy.ttl().map(print).unwrap_or_default()),
                "hold_max" => format!("hold_max {}", print(self.policy.hold_max())),
                other => other.to_owned(),
            };
            if !edits.contains(&text) {
                edits.push(text);
            }
        }
        edits
    }
}
