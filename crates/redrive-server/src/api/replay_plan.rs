//! The plan of a replay in the API: the answer to a dry run, and part of the answer to a start.

use std::collections::BTreeMap;

use redrive::DeliveryOrder;
use redrive::internal::engine::ReplayTarget;
use redrive::letters::redact::REDACTED;
use redrive::replay::{
    Ambiguous, Plan, PlanOptions, ReplaySpec, ReplayView, Skipped, TakenCounts, Touched, TouchedGroups,
};
use redrive_api::{
    Instant, KeyLetters, LastReplay, ReplayForecast, Superseded, TakenByReplay, TenantLetters, UnknownSpan,
};
use redrive_core::breaker::BreakerState;
use redrive_core::duration;

use crate::service::Served;

/// Letters that wait in replays, by replay.
pub(super) fn taken(counts: &TakenCounts) -> Vec<TakenByReplay> {
    let by_replay = counts.iter();
    by_replay.map(|(replay, letters)| TakenByReplay { replay: replay.to_owned(), letters }).collect()
}

pub(super) fn forecast(
    served: &Served,
    spec: &ReplaySpec,
    plan: &Plan,
    options: &PlanOptions,
    last: Option<(ReplayView, &'static str)>,
    other_groups: Option<Vec<String>>,
) -> ReplayForecast {
    let (ambiguous, figures) = (options.ambiguous, served.handle.figures());
    let would_replay = plan.would_replay();
    let superseded = &plan.superseded;
    // Keys and tenants may be redacted values; their letters are still counted.
    let name = |name: &str| if served.redaction.is_empty() { name.to_owned() } else { REDACTED.to_owned() };
    let shown =
        superseded.shown.iter().map(|(key, letters)| KeyLetters { key: name(key), letters: *letters });
    ReplayForecast {
        would_replay,
        skips: by_reason(&Skipped { too_often: plan.too_often, ..Skipped::default() }),
        rate: spec.rate,
        about_seconds: spec.rate.map(|rate| would_replay as f64 / rate),
        to: spec.target.name().to_owned(),
        topic: topic(served, spec.target),
        key_order: served.handle.ordering() == DeliveryOrder::Key,
        unordered: plan.unordered,
        canary: spec.canary.min(would_replay),
        stop_at: spec.stop_at.map(|share| share.to_string()),
        ambiguous: plan.ambiguous,
        ambiguous_new_id: plan.ambiguous_new_id,
        ledger_horizon: served.handle.ledger_horizon().map(duration::print),
        beyond_ledger: plan.beyond_ledger,
        ambiguous_undecided: plan.ambiguous > 0 && ambiguous == Ambiguous::Ask,
        ambiguous_skipped: if ambiguous == Ambiguous::Skip { plan.ambiguous } else { 0 },
        superseded: Superseded {
            keys: superseded.keys,
            letters: superseded.letters,
            since: superseded.since.map(Instant),
            older_letters: superseded.older_letters,
            gaps: superseded
                .gaps
                .iter()
                .map(|gap| UnknownSpan { from: Instant(gap.start), until: Instant(gap.end) })
                .collect(),
            own_partitions_only: !served.handle.takes_messages(),
            shown: shown.collect(),
        },
        superseded_skipped: if options.skip_superseded { superseded.letters } else { 0 },
        taken: taken(&plan.taken),
        tenants: plan
            .tenants
            .iter()
            .map(|(tenant, letters)| TenantLetters { tenant: name(tenant), letters: *letters })
            .collect(),
        beyond_quota: plan.beyond_quota,
        oldest: plan.oldest.map(Instant),
        breaker: breaker(served),
        budget_remaining: figures.health.budget_remaining,
        paused: figures.paused,
        last: last.map(|(job, by)| last_replay(job, by)),
        not_open: Vec::new(),
        other_groups,
    }
}

/// `closed`, `open`, `half_open`, or `disabled` if it never opens by itself.
pub(super) fn breaker(served: &Served) -> String {
    let breaker = served.handle.figures().health.breaker;
    let is_disabled = !breaker.enabled && breaker.state == BreakerState::Closed;
    if is_disabled { "disabled" } else { breaker.state.name() }.to_owned()
}

/// The latest of `jobs` (given latest first) that relates to a selection, and how. Pass no `words` if they do not
/// identify the letters: those of a list of ids only count the ids.
pub(super) fn last_of(
    jobs: impl IntoIterator<Item = ReplayView>,
    pipeline: &str,
    words: Option<&str>,
    groups: &TouchedGroups,
) -> Option<(ReplayView, &'static str)> {
    let related = |job: &ReplayView| match groups.touches(&job.groups) {
        // If the words hide which letters were meant, they may have been others.
        _ if words.is_some_and(|words| job.selection == words && !words.contains(REDACTED)) => {
            Some("selection")
        }
        Touched::Yes => Some("group"),
        Touched::Perhaps => Some("perhaps_group"),
        Touched::No => None,
    };
    let mut jobs = jobs.into_iter().filter(|job| job.pipeline == pipeline);
    jobs.find_map(|job| related(&job).map(|by| (job, by)))
}

fn last_replay(job: ReplayView, by: &str) -> LastReplay {
    LastReplay {
        id: job.id,
        state: job.state.name().to_owned(),
        created: Instant(job.created),
        total: job.total,
        succeeded: job.succeeded,
        dead_again: job.dead_again,
        untouched: job.untouched,
        by: by.to_owned(),
    }
}

/// The destination topic, if messages are in topics.
fn topic(served: &Served, target: ReplayTarget) -> Option<String> {
    let name = served.handle.name();
    match target {
        _ if served.handle.takes_messages() => None,
        ReplayTarget::Pipeline => Some(format!("{name}.replay")),
        ReplayTarget::Source => Some(served.source.clone().unwrap_or_else(|| name.to_owned())),
    }
}

/// The counts of reasons that occur.
pub(super) fn by_reason(skips: &Skipped) -> BTreeMap<String, u64> {
    let there = skips.by_reason().into_iter().filter(|(_, count)| *count > 0);
    there.map(|(reason, count)| (reason.to_owned(), count)).collect()
}
