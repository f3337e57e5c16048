//! What a replay would do, as the API shows it: a dry run answers with it, and a job that is started brings it along.

use std::collections::BTreeMap;

use redrive::engine::ReplayTarget;
use redrive::replay::{Ambiguous, Plan, ReplaySpec, ReplayView, Skipped};
use redrive::{Ordering, timestamp};
use redrive_core::duration;
use serde::Serialize;

use crate::service::Served;

#[derive(Debug, Serialize)]
pub(super) struct PlanView {
    would_replay: u64,
    skips: BTreeMap<&'static str, u64>,
    rate: Option<f64>,
    about_seconds: Option<f64>,
    to: &'static str,
    /// The topic they go onto, where there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    topic: Option<String>,
    /// Whether letters of a key are delivered in their order.
    key_order: bool,
    canary: u64,
    stop_at: Option<String>,
    /// Letters with an attempt whose end is unknown.
    ambiguous: u64,
    /// Of these: with a new message id since an edit.
    ambiguous_new_id: u64,
    /// Whether somebody has to decide about those first.
    ambiguous_undecided: bool,
    /// How long the receiver remembers ids, and the letters that were first attempted before that.
    ledger_horizon: Option<String>,
    beyond_ledger: u64,
    superseded: SupersededView,
    /// Letters that are selected and wait in other jobs; this one would leave them there.
    taken: Vec<TakenView>,
    tenants: Vec<TenantView>,
    /// Letters that stay open because their tenant has more than `tenant_max`.
    beyond_quota: u64,
    /// When the oldest of them died.
    oldest: Option<String>,
    breaker: &'static str,
    budget_remaining: Option<u32>,
    paused: bool,
    /// The last replay of the same selection.
    last: Option<LastView>,
    /// Who else reads the topic the letters would go onto.
    #[serde(skip_serializing_if = "Option::is_none")]
    other_groups: Option<Vec<String>>,
}

/// Letters whose key has had a later success.
#[derive(Debug, Serialize)]
struct SupersededView {
    keys: u64,
    letters: u64,
    /// From when on successes are known to this process.
    since: Option<String>,
    shown: Vec<KeyView>,
}

#[derive(Debug, Serialize)]
struct KeyView {
    key: String,
    letters: u64,
}

#[derive(Debug, Serialize)]
pub(super) struct TenantView {
    tenant: String,
    letters: u64,
}

#[derive(Debug, Serialize)]
struct TakenView {
    replay: String,
    letters: u64,
}

#[derive(Debug, Serialize)]
struct LastView {
    id: String,
    state: &'static str,
    created: String,
    total: u64,
    succeeded: u64,
    dead_again: u64,
    untouched: u64,
}

impl PlanView {
    pub(super) fn new(
        served: &Served,
        spec: &ReplaySpec,
        plan: &Plan,
        ambiguous: Ambiguous,
        last: Option<ReplayView>,
        other_groups: Option<Vec<String>>,
    ) -> Self {
        let figures = served.handle.figures();
        let would_replay = plan.would_replay();
        let superseded = &plan.superseded;
        let shown =
            superseded.shown.iter().map(|(key, letters)| KeyView { key: key.clone(), letters: *letters });
        Self {
            would_replay,
            skips: by_reason(&Skipped { too_often: plan.too_often, ..Skipped::default() }),
            rate: spec.rate,
            about_seconds: spec.rate.map(|rate| would_replay as f64 / rate),
            to: spec.target.name(),
            topic: topic(served, spec.target),
            key_order: served.handle.ordering() == Ordering::Key,
            canary: spec.canary.min(would_replay),
            stop_at: spec.stop_at.map(|share| share.to_string()),
            ambiguous: plan.ambiguous,
            ambiguous_new_id: plan.ambiguous_new_id,
            ledger_horizon: served.handle.ledger_horizon().map(duration::print),
            beyond_ledger: plan.beyond_ledger,
            ambiguous_undecided: plan.ambiguous > 0 && ambiguous == Ambiguous::Ask,
            superseded: SupersededView {
                keys: superseded.keys,
                letters: superseded.letters,
                since: superseded.since.map(timestamp::print),
                shown: shown.collect(),
            },
            taken: plan
                .taken
                .iter()
                .map(|(replay, letters)| TakenView { replay: replay.to_owned(), letters })
                .collect(),
            tenants: tenants(plan.tenants.clone()),
            beyond_quota: plan.beyond_quota,
            oldest: plan.oldest.map(timestamp::print),
            breaker: figures.health.breaker.state.name(),
            budget_remaining: figures.health.budget_remaining,
            paused: figures.paused,
            last: last.map(LastView::of),
            other_groups,
        }
    }
}

impl LastView {
    fn of(job: ReplayView) -> Self {
        Self {
            id: job.id,
            state: job.state.name(),
            created: timestamp::print(job.created),
            total: job.total,
            succeeded: job.succeeded,
            dead_again: job.dead_again,
            untouched: job.untouched,
        }
    }
}

/// Where the letters go, where messages live in topics.
fn topic(served: &Served, target: ReplayTarget) -> Option<String> {
    let name = served.handle.name();
    match target {
        _ if served.handle.takes_messages() => None,
        ReplayTarget::Pipeline => Some(format!("{name}.replay")),
        ReplayTarget::Source => Some(served.source.clone().unwrap_or_else(|| name.to_owned())),
    }
}

pub(super) fn tenants(letters: Vec<(String, u64)>) -> Vec<TenantView> {
    letters.into_iter().map(|(tenant, letters)| TenantView { tenant, letters }).collect()
}

/// The reasons that there are.
pub(super) fn by_reason(skips: &Skipped) -> BTreeMap<&'static str, u64> {
    skips.by_reason().into_iter().filter(|(_, count)| *count > 0).collect()
}
