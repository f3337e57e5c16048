//! Validates what defines a delay: tiers, backoff, jitter and the cap.

use std::time::Duration;

use super::check::{Check, TICK, limits};
use super::given::Given;
use super::settings::{BackoffSettings, PolicySettings};
use crate::retry::jitter::Spread;
use crate::retry::schedule::DELAY_MAX;
use crate::text::duration::print;
use crate::{Jitter, Ratio, Schedule};

pub(super) fn schedule(check: &mut Check, all: &PolicySettings) -> Schedule {
    match (&all.tiers, &all.backoff, &all.custom) {
        (Some(tiers), _, _) => read_tiers(check, tiers, all.retries.or(all.attempts).is_some()),
        (None, Some(backoff), _) => read_backoff(check, backoff),
        (None, None, Some(custom)) => Schedule::Custom(custom.clone()),
        (None, None, None) => unreachable!("every profile has a schedule"),
    }
}

fn read_tiers(check: &mut Check, given: &[Given<Duration>], has_retries: bool) -> Schedule {
    let value = listed(given.iter().map(Given::print));
    let before = check.count();
    let mut tiers = Vec::new();
    for (item, tier) in given.iter().enumerate() {
        let found = check.count();
        let span = check.span("tiers", Some(tier), (TICK, DELAY_MAX), TICK);
        // If all items can be read, show the corrected list instead of a single item.
        let all: Option<Vec<Duration>> = given.iter().map(Given::read).collect();
        check.rewrite_fix(found, |fix| match all {
            Some(all) => grown(&all, has_retries),
            None => fix.trim_start_matches("tiers = ").to_owned(),
        });
        tiers.push(span);
        check.of_item(found, item);
    }
    if tiers.is_empty() {
        check.fault("tiers", value, "`tiers` is empty", "tiers = [\"5s\", \"30s\", \"5m\"]");
    } else if tiers.len() > limits::TIERS_MAX {
        let problem = format!("`tiers` has {} steps, at most {} are allowed", tiers.len(), limits::TIERS_MAX);
        check.fault("tiers", value, problem, "use fewer, longer steps, or `backoff`");
    } else if let (Some(item), true) =
        (tiers.windows(2).position(|pair| pair[0] >= pair[1]), check.count() == before)
    {
        let pair = &tiers[item..];
        let problem = format!("`tiers` must grow: {} comes after {}", print(pair[1]), print(pair[0]));
        check.fault("tiers", value, problem, grown(&tiers, has_retries));
        check.of_item(before, item + 1);
    }
    Schedule::Tiers(tiers)
}

fn read_backoff(check: &mut Check, given: &BackoffSettings) -> Schedule {
    let grows = given.base.is_some() || given.multiplier.is_some() || given.cap.is_some();
    if let Some(fixed) = &given.fixed {
        if grows {
            let problem = "`backoff` has both `fixed` and `base`, `multiplier` or `cap`";
            let fixed_only = format!("backoff = {{ fixed = {:?} }}", fixed.print());
            let fix = match given.base {
                Some(_) => format!("{fixed_only}, or remove `backoff.fixed`"),
                None => fixed_only,
            };
            check.fault("backoff.fixed", fixed.print(), problem, fix);
        }
        return Schedule::Fixed(check.span("backoff.fixed", Some(fixed), (TICK, DELAY_MAX), TICK));
    }
    if given.base.is_none() {
        let fix = "backoff = { base = \"2s\", multiplier = 2.0, cap = \"120s\" }";
        check.fault("backoff", "", "`backoff` needs `base` or `fixed`", fix);
    }
    let base = check.span("backoff.base", given.base.as_ref(), (TICK, DELAY_MAX), TICK);
    let multiplier = given.multiplier.unwrap_or(2.0);
    if !(1.0..=1_000.0).contains(&multiplier) {
        let problem = format!("`backoff.multiplier = {multiplier}` must lie between 1 and 1000");
        check.fault("backoff.multiplier", multiplier.to_string(), problem, "backoff.multiplier = 2.0");
    }
    let cap =
        given.cap.as_ref().map(|cap| check.span("backoff.cap", Some(cap), (TICK, DELAY_MAX), DELAY_MAX));
    if let Some(cap) = cap.filter(|cap| *cap < base) {
        let problem = format!(
            "`backoff.cap = \"{}\"` is shorter than `backoff.base = \"{}\"`",
            print(cap),
            print(base)
        );
        check.fault("backoff.cap", print(cap), problem, format!("backoff.cap = \"{}\"", print(base)));
    }
    Schedule::Exponential { base, multiplier, cap }
}

pub(super) fn jitter(check: &mut Check, all: &PolicySettings, schedule: &Schedule) -> Jitter {
    let jitter = check.word("jitter", all.jitter.as_ref(), Jitter::Equal);
    let problem = match (jitter, schedule) {
        (Jitter::Decorrelated, Schedule::Exponential { cap: Some(_), .. }) => return jitter,
        (Jitter::Decorrelated, Schedule::Exponential { base, multiplier, cap: None }) => {
            let (base, cap) = (print(*base), print((*base).max(CAP_OF_EXAMPLE)));
            let fix = format!("backoff = {{ base = {base:?}, multiplier = {multiplier:.1}, cap = {cap:?} }}");
            Some(("needs a `backoff.cap`: it triples from delay to delay", fix))
        }
        (Jitter::Decorrelated, _) => {
            Some(("needs an exponential `backoff` to grow from", "jitter = \"equal\"".to_owned()))
        }
        (Jitter::Around(Spread::Ratio(ratio)), _) if ratio > Ratio::WHOLE => {
            Some(("cannot go below zero", "jitter = \"around(100%)\"".to_owned()))
        }
        (Jitter::Plus(Spread::Time(span)) | Jitter::Around(Spread::Time(span)), _) if span > DELAY_MAX => {
            let problem = "spreads wider than the longest delay there is, 720h";
            Some((problem, "jitter = \"plus(1s)\"".to_owned()))
        }
        _ => None,
    };
    if let Some((problem, fix)) = problem {
        check.fault("jitter", jitter.to_string(), format!("`jitter = \"{jitter}\"` {problem}"), fix);
    }
    jitter
}

pub(super) fn cap_ttl_share(check: &mut Check, all: &PolicySettings) -> Option<Ratio> {
    let given = all.cap_ttl_share?;
    let share = Ratio::of_one(given).filter(|share| *share > Ratio::ZERO);
    let problem = match share {
        None => Some(("must be above 0 and at most 1", "cap_ttl_share = 0.5")),
        _ if all.tiers.is_some() => Some(("does not cap tiers", "remove `cap_ttl_share`")),
        _ if all.ttl.is_none() => Some(("needs a `ttl` to be a share of", "ttl = \"1h\"")),
        _ => None,
    };
    if let Some((problem, fix)) = problem {
        check.fault("cap_ttl_share", given.to_string(), format!("`cap_ttl_share = {given}` {problem}"), fix);
    }
    share
}

/// The cap shown in fixes and examples.
const CAP_OF_EXAMPLE: Duration = Duration::from_mins(2);

fn listed(tiers: impl IntoIterator<Item = String>) -> String {
    let tiers: Vec<String> = tiers.into_iter().map(|tier| format!("{tier:?}")).collect();
    format!("[{}]", tiers.join(", "))
}

/// Suggests valid tiers in place of ones that do not grow or are out of bounds. The number of retries is kept: equal
/// steps become a fixed delay, and a repeated step is doubled.
fn grown(given: &[Duration], has_retries: bool) -> String {
    let mut tiers: Vec<Duration> = given.iter().map(|tier| (*tier).clamp(TICK, DELAY_MAX)).collect();
    tiers.sort();
    if let ([first, _, ..], true) = (&tiers[..], tiers.first() == tiers.last()) {
        let retries = if has_retries { String::new() } else { format!(" and retries = {}", tiers.len()) };
        return format!("backoff.fixed = {:?}{retries} instead of `tiers`", print(*first));
    }
    for i in 1..tiers.len() {
        if tiers[i] <= tiers[i - 1] {
            tiers[i] = tiers[i - 1] * 2;
        }
    }
    if tiers.last().is_some_and(|last| *last > DELAY_MAX) {
        tiers.iter_mut().for_each(|tier| *tier = (*tier).min(DELAY_MAX));
        tiers.dedup();
    }
    format!("tiers = {}", listed(tiers.into_iter().map(print)))
}
