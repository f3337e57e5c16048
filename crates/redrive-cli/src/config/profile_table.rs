//! The profiles as a section of the reference, generated from their data.

use std::fmt::Write as _;

use redrive_core::duration::{print, rough};
use redrive_core::policy::{BudgetRate, SCALARS};
use redrive_core::profiles::{self, Profile};
use redrive_core::{Policy, Schedule};

const HEAD: &str = "
## Profiles

`profile` names a set of settings; every key that is given goes over it. `redrive config show --origin` prints what came from the profile, and `redrive check` what it means for your numbers.

Which one: `tiered` for services you run, `webhooks-day` for endpoints you do not. \"Gives up after\" is the waiting time of a message that always fails; while the sink is unhealthy nothing is given up for exhaustion, for up to `hold_max`.

| profile | for | delays | retries | jitter | ttl | gives up after | else |
| --- | --- | --- | --- | --- | --- | --- | --- |
";

pub fn section() -> String {
    let mut section = HEAD.to_owned();
    for profile in &profiles::ALL {
        let Ok(policy) = Policy::profile(profile.name).build() else { continue };
        let name = match profile.name {
            profiles::DEFAULT => format!("`{}` (default)", profile.name),
            name => format!("`{name}`"),
        };
        let forecast = policy.forecast();
        let waiting = format!("{} … {}", rough(forecast.waiting_min), rough(forecast.waiting_max));
        let waiting =
            if forecast.waiting_min == forecast.waiting_max { rough(forecast.waiting_max) } else { waiting };
        let _ = writeln!(
            section,
            "| {name} | {} | {} | {} | `{}` | {} | {waiting} | {} |",
            profile.about,
            delays(&policy),
            policy.retries(),
            policy.jitter(),
            policy.ttl().map_or_else(|| "–".to_owned(), print),
            others(profile, &policy),
        );
    }
    section
}

fn delays(policy: &Policy) -> String {
    match policy.schedule() {
        Schedule::Tiers(tiers) => tiers.iter().map(|tier| print(*tier)).collect::<Vec<_>>().join(", "),
        Schedule::Exponential { base, multiplier, cap } => {
            let cap = cap.map(|cap| format!(", at most {}", print(cap))).unwrap_or_default();
            format!("{} × {multiplier}{cap}", print(*base))
        }
        Schedule::Fixed(delay) => format!("{} each", print(*delay)),
        Schedule::Custom(_) => String::new(),
    }
}

/// Further settings that differ from the default profile's.
fn others(profile: &Profile, policy: &Policy) -> String {
    let Some(usual) = profiles::find(profiles::DEFAULT) else { return String::new() };
    let Ok(usual_policy) = Policy::profile(usual.name).build() else { return String::new() };
    let mut others = Vec::new();
    if let Some(BudgetRate::PerMinute(retries)) = policy.budget() {
        others.push(format!("budget {retries} retries/min, then `{}`", policy.on_exhausted().name()));
    }
    for scalar in SCALARS.iter().filter(|scalar| !["jitter", "ttl"].contains(&scalar.key)) {
        let value = (scalar.toml)(policy).filter(|_| (scalar.toml)(policy) != (scalar.toml)(&usual_policy));
        others.extend(value.map(|value| format!("`{} = {value}`", scalar.key)));
    }
    if profile.slow_counts != usual.slow_counts {
        let counts: Vec<String> = profile.slow_counts.iter().map(ToString::to_string).collect();
        others.push(format!("the breaker's slow window counts {}", counts.join(", ")));
    }
    if others.is_empty() { "–".to_owned() } else { others.join("; ") }
}
