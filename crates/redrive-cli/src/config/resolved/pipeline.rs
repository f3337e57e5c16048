//! Every value of a pipeline, and what was set over its profile.

use redrive_core::duration::print;
use redrive_core::policy::BudgetRate;
use redrive_core::profiles::{self, Profile};
use redrive_core::{Class, Schedule};

use super::super::pipeline::PipelineConfig;
use super::super::source::Source;
use super::super::words::{after_dead_name, ordering_name, quoted};
use super::health;
use super::{Origin, Resolved, ResolvedTable, place};

impl PipelineConfig {
    /// The profile that the rest is laid over.
    pub fn profile(&self) -> &'static Profile {
        let name = self.settings.profile.as_deref().unwrap_or(profiles::DEFAULT);
        profiles::find(name).unwrap_or(&profiles::ALL[0])
    }

    /// Every value of this pipeline.
    pub fn resolved(&self, source: Option<&Source>) -> Vec<ResolvedTable> {
        let (policy, profile) = (&self.policy, self.profile());
        // A key or anything below it.
        let given = |key: &str| {
            let below = format!("{key}.");
            let mut found = self.given.iter().filter(|(name, _)| *name == key || name.starts_with(&below));
            found.next().map(|(_, at)| place(at, source))
        };
        let of_profile = |is: bool| if is { Origin::Profile(profile.name) } else { Origin::Default };
        let mut lines = Vec::new();
        let mut put = |key: &str, value: String, otherwise: Origin| {
            let origin = given(key).unwrap_or(otherwise);
            lines.push(Resolved { key: key.to_owned(), value, origin });
        };

        put("name", quoted(&self.name), Origin::Follows("source"));
        if let Some(source) = &self.source {
            put("source", quoted(source), Origin::Default);
        }
        for (key, pick) in [("id", &self.id), ("tenant", &self.tenant)] {
            if let Some(pick) = pick {
                put(key, quoted(&pick.to_string()), Origin::Default);
            }
        }
        put("profile", quoted(profile.name), Origin::Default);
        let own_schedule = self.settings.tiers.is_some() || self.settings.backoff.is_some();
        let schedule = of_profile(true);
        match policy.schedule() {
            Schedule::Tiers(tiers) => {
                let tiers: Vec<String> = tiers.iter().map(|tier| quoted(&print(*tier))).collect();
                put("tiers", format!("[{}]", tiers.join(", ")), schedule);
            }
            Schedule::Exponential { base, multiplier, cap } => {
                let cap = cap.map(|cap| format!(", cap = {}", quoted(&print(cap)))).unwrap_or_default();
                let value =
                    format!("{{ base = {}, multiplier = {multiplier:?}{cap} }}", quoted(&print(*base)));
                put("backoff", value, schedule);
            }
            Schedule::Fixed(delay) => {
                put("backoff", format!("{{ fixed = {} }}", quoted(&print(*delay))), schedule);
            }
            Schedule::Custom(_) => {}
        }
        let retries = match &self.settings {
            settings if settings.attempts.is_some() => Origin::Follows("attempts"),
            settings if settings.tiers.is_some() => Origin::Follows("tiers"),
            _ if profile.retries.is_none() && !own_schedule => Origin::Profile(profile.name),
            _ => of_profile(profile.retries.is_some()),
        };
        put("retries", policy.retries().to_string(), retries);
        if !self.settings.attempts_for.is_empty() {
            let own = Class::ALL
                .into_iter()
                .filter(|class| self.given.contains_key(&format!("attempts_for.{class}")));
            let own: Vec<String> =
                own.map(|class| format!("{class} = {}", policy.attempts_allowed(class, 0))).collect();
            put("attempts_for", format!("{{ {} }}", own.join(", ")), Origin::Default);
        }
        if let Some(attempts) = policy.replay_attempts() {
            put("replay_attempts", attempts.to_string(), of_profile(profile.replay_attempts.is_some()));
        }
        put("jitter", quoted(&policy.jitter().to_string()), of_profile(true));
        put("retry_after_jitter", quoted(&policy.retry_after_jitter().to_string()), of_profile(true));
        put("retry_after_max", quoted(&print(policy.retry_after_max())), Origin::Default);
        let shared = policy.retry_after_shared_max();
        put("retry_after_shared_max", quoted(&print(shared)), Origin::Default);
        if let Some(ttl) = policy.ttl() {
            put("ttl", quoted(&print(ttl)), of_profile(profile.ttl.is_some()));
        }
        if let Some(share) = policy.cap_ttl_share() {
            put(
                "cap_ttl_share",
                format!("{:?}", share.as_f64()),
                of_profile(profile.cap_ttl_share.is_some()),
            );
        }
        put("hold_max", quoted(&print(policy.hold_max())), Origin::Default);
        put("ordering", quoted(ordering_name(self.ordering)), Origin::Default);
        put("after_dead", quoted(after_dead_name(self.after_dead)), Origin::Default);
        put("classify", quoted(if policy.classify() { "on" } else { "off" }), Origin::Default);
        put("mode", quoted(policy.mode().name()), of_profile(true));
        let of_sink = |key: &str| given(&format!("sink.{}.{key}", self.sink.kind)).unwrap_or(Origin::Default);
        let (of_concurrency, of_timeout) = (of_sink("concurrency"), of_sink("timeout"));
        put("concurrency", policy.concurrency().to_string(), of_concurrency);
        put("timeout", quoted(&print(policy.timeout())), of_timeout);
        put("max_pending", self.max_pending.to_string(), Origin::Default);
        put("dedup", quoted(&self.dedup.map_or_else(|| "off".to_owned(), print)), Origin::Default);
        if let Some(horizon) = self.ledger_horizon {
            put("ledger_horizon", quoted(&print(horizon)), Origin::Default);
        }
        put("outage_gate", policy.outage_gate().to_string(), Origin::Default);
        if let Some(budget) = policy.budget() {
            let rate = match budget {
                BudgetRate::PerMinute(retries) => format!("retries_per_minute = {retries}"),
                BudgetRate::ShareOfSuccesses(share) => format!("share_of_successes = \"{share}\""),
            };
            let value = format!("{{ {rate}, on_exhausted = {} }}", quoted(policy.on_exhausted().name()));
            put("budget", value, of_profile(profile.retries_per_minute.is_some()));
        }
        let window = quoted(&print(policy.crash_window()));
        let crash = format!("{{ threshold = {}, window = {window} }}", policy.crash_threshold());
        put("crash", crash, Origin::Default);
        if let Some(keep) = self.letter_retention {
            put("letter_retention", quoted(&print(keep)), Origin::Default);
        }
        if !self.redaction.is_empty() {
            let rules: Vec<String> = self.redaction.rules().iter().map(|rule| quoted(rule)).collect();
            put("redact", format!("[{}]", rules.join(", ")), Origin::Default);
        }
        put("log_delivered", quoted(&self.log_delivered.to_string()), Origin::Default);

        let values = self.sink.settings.values().into_iter();
        let sink = values.map(|(key, value)| Resolved { key: key.to_owned(), value, origin: of_sink(key) });
        let sink = ResolvedTable { header: self.sink.header(), lines: sink.collect() };
        let mut tables = vec![ResolvedTable { header: "[[pipeline]]".to_owned(), lines }];
        tables.extend(health::tables(self, &given));
        for rule in &self.groups {
            let line = |key: &str, value: &str| Resolved {
                key: key.to_owned(),
                value: quoted(value),
                origin: given("group").unwrap_or(Origin::Default),
            };
            let lines = vec![line("match", rule.pattern()), line("as", rule.name())];
            tables.push(ResolvedTable { header: "[[pipeline.group]]".to_owned(), lines });
        }
        tables.push(sink);
        tables
    }

    /// What was set over the profile, for the head of a report: `profile tiered, edited: retries 3`.
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
