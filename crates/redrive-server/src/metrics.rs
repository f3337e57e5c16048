//! Every metric: its name, type, labels and help, and the source of its values.

use std::fmt::Write as _;

use redrive::figures::{Figures, Histogram};
use redrive::internal::engine::{ClusterStanding, GroupState, ProblemKind};
use redrive::internal::subscriptions::Counts as SubscriptionCounts;
use redrive_core::breaker::BreakerState;
use redrive_core::{Reason, Time};

use crate::exposition::{Exposition, Kind, Metric, Samples};
use crate::group_watch::GroupCounts;

/// The figures of one pipeline at one moment.
#[derive(Clone, Debug)]
pub struct PipelineFigures {
    pub name: String,
    pub figures: Figures,
    /// `None` until the first poll.
    pub groups: Option<GroupCounts>,
    /// Letters that `letter_retention` has discarded.
    pub expired: u64,
    /// `None` for a sink without subscriptions.
    pub subscriptions: Option<SubscriptionCounts>,
    /// Unfinished replay jobs.
    pub replay_jobs: ReplayJobs,
}

/// Unfinished replay jobs of a pipeline, by state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReplayJobs {
    pub running: u64,
    pub paused: u64,
    /// Too many of their letters died again, or their canary was held.
    pub stopped: u64,
}

/// Letters of replay jobs, by outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReplayCounts {
    pub published: u64,
    pub succeeded: u64,
    pub dead_again: u64,
    pub skipped: u64,
}

/// All values, collected before a line is written.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    pub pipelines: Vec<PipelineFigures>,
    pub replays: ReplayCounts,
    /// When the process started to serve.
    pub started: Time,
    pub door: DoorCounts,
}

/// Connections and refused requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DoorCounts {
    pub connections: u64,
    pub evicted: u64,
    pub wrong_tokens: u64,
}

macro_rules! metrics {
    ($($row:ident = $kind:ident $name:literal [$($label:ident),*] $help:literal;)+) => {
        $(static $row: Metric =
            Metric { name: $name, kind: Kind::$kind, labels: &[$(stringify!($label)),*], help: $help };)+

        /// All metrics, in the order they are written and documented.
        pub static METRICS: &[&Metric] = &[$(&$row),+];
    };
}

// One line per metric.
metrics! {
    MESSAGES = Counter "redrive_messages_total" [pipeline, outcome] "Messages that reached a final state, by outcome: succeeded or dead. A replayed letter that dies again counts again.";
    ATTEMPTS = Counter "redrive_attempts_total" [pipeline, class] "Calls of the handler or sink that ended, by class; ok is success.";
    ATTEMPTS_PER_MESSAGE = Histogram "redrive_attempts_per_message" [pipeline] "Calls a message needed until it succeeded or died.";
    RETRIED_MESSAGES = Counter "redrive_retried_messages_total" [pipeline, outcome] "Messages that reached a final state after more than one call, by outcome: succeeded or dead.";
    CONSUMED = Counter "redrive_consumed_total" [pipeline, topic, partition] "Records read from Kafka, by topic and partition. The embedded engine counts messages taken for their first attempt; its topic is the name of the pipeline, its partition 0.";
    LAG = Gauge "redrive_lag" [pipeline, topic, partition] "Undelivered records, by topic and partition: in the source, waiting for a first attempt; in a tier, waiting until due. On Kafka only partitions of this process; ends of transactions do not count. The embedded engine has one partition, 0.";
    RETRIES = Counter "redrive_retries_total" [pipeline, tier] "Retries and deferrals that were decided, by the tier they wait in.";
    DEAD_LETTERS_TOTAL = Counter "redrive_dead_letters_total" [pipeline, reason] "Messages that became dead letters here, by reason. Letters imported from elsewhere are not counted; redrive_dead_letters includes them.";
    DEAD_LETTERS = Gauge "redrive_dead_letters" [pipeline, state] "Dead letters in the store, by state; absent while they are being read at the start.";
    GROUPS = Gauge "redrive_letter_groups" [pipeline, state] "Groups of dead letters, by state: those with open letters, and those about which something was decided.";
    GROUPS_NEW = Counter "redrive_letter_groups_new_total" [pipeline] "Groups of dead letters that came up for the first time since the process started.";
    GROUPS_REGRESSED = Counter "redrive_letter_groups_regressed_total" [pipeline] "Groups of dead letters that were resolved and got new letters.";
    EXPIRED_LETTERS = Counter "redrive_letters_expired_total" [pipeline] "Open dead letters that `letter_retention` has discarded since the process started.";
    OLDEST_LETTER = Gauge "redrive_oldest_dead_letter_timestamp_seconds" [pipeline] "When the oldest open dead letter died, in seconds since 1970; absent if there is none.";
    PENDING = Gauge "redrive_pending" [pipeline, state] "Messages that are not terminal, each in exactly one state: ready, delayed, held, key_wait, in_flight.";
    OLDEST_PENDING = Gauge "redrive_oldest_pending_timestamp_seconds" [pipeline] "Creation time of the oldest pending message, in seconds since 1970; absent if there is none.";
    RETRY_LATENESS = Histogram "redrive_retry_lateness_seconds" [pipeline] "How long after its due time a delayed message was started.";
    STALL_OLDEST = Gauge "redrive_stall_oldest_seconds" [pipeline, topic, partition] "How long the oldest message that was read but not attempted has waited behind others of its partition. Zero if none waits. On Kafka only partitions of this process; the embedded engine has one partition, 0.";
    STALL = Histogram "redrive_stall_seconds" [pipeline] "How long a message waited behind others of its partition before its first attempt, from when this process had it: on Kafka from when it was read, otherwise from its creation.";
    END_TO_END = Histogram "redrive_end_to_end_seconds" [pipeline] "Time from message creation to success.";
    SETTLE_DURATION = Histogram "redrive_settle_duration_seconds" [pipeline] "From a decision being handed to the engine until it is durable.";
    SCHEDULE_WRITE = Histogram "redrive_schedule_write_seconds" [pipeline] "From the decision to retry until the retry is durable.";
    REPLAY_MESSAGES = Counter "redrive_replay_messages_total" [result] "Letters of all retained replay jobs, by result.";
    REPLAY_JOBS = Gauge "redrive_replay_jobs" [pipeline, state] "Replay jobs that are not over: running, paused, or stopped because too many letters died again, or because the canary was held.";
    REPEATS = Counter "redrive_repeats_total" [pipeline] "Calls abandoned before they returned; the message is redelivered.";
    KEY_ORDER_VOIDED = Counter "redrive_key_order_voided_total" [pipeline] "Keys whose order was not preserved.";
    SCRUB_BYTES = Counter "redrive_scrub_bytes_total" [pipeline] "Stored bytes that were read to verify them.";
    SCRUB_DAMAGED = Gauge "redrive_scrub_damaged" [pipeline] "Damaged places that the last scrub found, those of `subscriptions.log` included.";
    SCRUB_LAST = Gauge "redrive_scrub_last_timestamp_seconds" [pipeline] "When the last complete scrub ended.";
    INDEX_REBUILDS = Counter "redrive_index_rebuilds_total" [pipeline] "Times a damaged index was rebuilt while the pipeline ran.";
    UNANNOUNCED = Gauge "redrive_subscriptions_unannounced" [pipeline] "Purged subscriptions that `on_purged` has not accepted yet.";
    OLDEST_UNANNOUNCED = Gauge "redrive_oldest_unannounced_timestamp_seconds" [pipeline] "When the oldest of the purges happened that `on_purged` has not accepted yet.";
    PAUSED = Gauge "redrive_paused" [pipeline] "1 while the pipeline is paused, 0 otherwise.";
    RUNNING = Gauge "redrive_running" [pipeline] "Calls of the handler or sink that run now.";
    START = Gauge "redrive_start_timestamp_seconds" [] "When the process began to serve, in seconds since 1970.";
    BREAKER_STATE = Gauge "redrive_breaker_state" [pipeline, state] "1 for the state the breaker is in, 0 for the others: closed, open, half_open.";
    PERMITS = Gauge "redrive_permits" [pipeline] "Calls that may run at once now: the limit, fewer while they grow again after the breaker closed, 0 while it is open.";
    BUDGET_REMAINING = Gauge "redrive_budget_remaining" [pipeline] "Retries that are left of the retry budget; absent where there is none.";
    ENDPOINTS_IN_COOLDOWN = Gauge "redrive_endpoints_in_cooldown" [pipeline] "Endpoints (with `limit_by`, tenants or keys) and origins in cooldown, because they fail or have sent a Retry-After; absent where all messages go to one place.";
    SUSPECTS = Gauge "redrive_suspects" [pipeline] "Messages that were running when a process ended without a clean stop, and have not run alone yet.";
    PARTITIONS = Gauge "redrive_partitions" [pipeline, state] "Kafka partitions assigned to this process: reading, blocked (a retry or a dead letter of theirs cannot be written, nothing more of them is delivered), stopped (nothing more of them can be read); and of the whole group: unassigned (no member reads them). Zero on other engines.";
    PROBLEMS = Gauge "redrive_problems" [pipeline, kind] "What keeps messages from moving until a person acts, by kind: write, decode, read, lost_range, assign, letters, reach, membership. `redrive status` shows the text.";
    KAFKA_REACHABLE = Gauge "redrive_kafka_reachable" [pipeline] "1 while the Kafka cluster answers, 0 after it has not for some ten seconds; absent on other engines.";
    GROUP_MEMBER = Gauge "redrive_group_member" [pipeline] "1 while this process is a member of its consumer group and has partitions, 0 otherwise; absent on other engines.";
    REBALANCES = Counter "redrive_rebalances_total" [pipeline] "How often the consumer group gave this process partitions, the first time included; absent on other engines.";
    COMMIT_FAILURES = Counter "redrive_commit_failures_total" [pipeline] "Offset commits that failed; the next commit covers the same offsets. Absent on other engines.";
    SPOOL_RECORDS = Gauge "redrive_spool_records" [pipeline] "Whole records on the local disk whose dead letters had to be cut, because Kafka refuses them at their size.";
    LETTER_TWINS = Gauge "redrive_letter_twins" [pipeline] "Second records of one dead letter in `T.DLQ`, left by a crash. They are shown as one letter.";
    FOREIGN_LETTERS = Gauge "redrive_foreign_letters" [pipeline] "Records in `T.DLQ` and `T.DLQ.state` that Redrive did not write, or that are damaged. They are not shown as letters.";
    PASSED_OVER = Counter "redrive_passed_over_total" [pipeline] "Kafka records that were not delivered because another record of the same message is used; each is logged.";
    CONNECTIONS = Gauge "redrive_connections" [] "Connections to the API that are open now.";
    CONNECTIONS_EVICTED = Counter "redrive_connections_evicted_total" [] "Idle connections closed to make room for others.";
    WRONG_TOKENS = Counter "redrive_wrong_tokens_total" [] "Requests that were refused for a wrong token.";
    BUILD_INFO = Gauge "redrive_build_info" [version] "Always 1; the version is in the label.";
}

/// The answer of `/metrics`.
pub fn render(snapshot: &Snapshot) -> String {
    let mut exposition = Exposition::default();
    let out = &mut exposition;
    each(out, &MESSAGES, snapshot, |samples, name, figures| {
        samples.count(&[name, "succeeded"], figures.succeeded);
        samples.count(&[name, "dead"], figures.dead.total());
    });
    each(out, &ATTEMPTS, snapshot, |samples, name, figures| {
        figures.attempts.iter().for_each(|(class, count)| samples.count(&[name, class], count));
    });
    histogram(out, &ATTEMPTS_PER_MESSAGE, snapshot, |figures| &figures.attempts_per_message);
    each(out, &RETRIED_MESSAGES, snapshot, |samples, name, figures| {
        samples.count(&[name, "succeeded"], figures.retried_ended.succeeded);
        samples.count(&[name, "dead"], figures.retried_ended.dead);
    });
    each(out, &CONSUMED, snapshot, |samples, name, figures| {
        if figures.condition.cluster.is_none() {
            samples.count(&[name, name, "0"], figures.consumed);
        }
        for flow in &figures.condition.flows {
            samples.count(&[name, &*flow.topic, &flow.partition.to_string()], flow.consumed);
        }
    });
    each(out, &LAG, snapshot, |samples, name, figures| {
        if figures.condition.cluster.is_none() {
            samples.count(&[name, name, "0"], figures.pending.ready);
        }
        for flow in &figures.condition.flows {
            flow.lag.iter().for_each(|lag| {
                samples.count(&[name, &*flow.topic, &flow.partition.to_string()], *lag);
            });
        }
    });
    each(out, &RETRIES, snapshot, |samples, name, figures| {
        figures.retries.iter().for_each(|tier| samples.count(&[name, &*tier.tier], tier.retries));
    });
    each(out, &DEAD_LETTERS_TOTAL, snapshot, |samples, name, figures| {
        let here = figures.dead.iter().filter(|(reason, _)| *reason != Reason::Imported);
        here.for_each(|(reason, count)| samples.count(&[name, reason.name()], count));
    });
    each(out, &DEAD_LETTERS, snapshot, |samples, name, figures| {
        // Incomplete counts would look like new letters.
        if !figures.condition.letters_loading {
            figures.letters().iter().for_each(|(state, count)| samples.count(&[name, state.name()], *count));
        }
    });
    groups(out, snapshot);
    let mut samples = out.metric(&EXPIRED_LETTERS);
    snapshot.pipelines.iter().for_each(|one| samples.count(&[&one.name], one.expired));
    moment(out, &OLDEST_LETTER, snapshot, |figures| figures.oldest_letter);
    each(out, &PENDING, snapshot, |samples, name, figures| {
        let pending = figures.pending;
        samples.count(&[name, "ready"], pending.ready);
        samples.count(&[name, "delayed"], pending.delayed);
        samples.count(&[name, "key_wait"], pending.key_wait);
        samples.count(&[name, "in_flight"], pending.in_flight);
        samples.count(&[name, "held"], pending.held);
    });
    moment(out, &OLDEST_PENDING, snapshot, |figures| figures.oldest_pending);
    histogram(out, &RETRY_LATENESS, snapshot, |figures| &figures.retry_lateness);
    each(out, &STALL_OLDEST, snapshot, |samples, name, figures| {
        if figures.condition.cluster.is_none() {
            samples.value(&[name, name, "0"], figures.stalled_for.as_secs_f64());
        }
        for flow in figures.condition.flows.iter().filter(|flow| flow.lag.is_some()) {
            let labels = [name, &*flow.topic, &flow.partition.to_string()];
            samples.value(&labels, flow.stalled_for.as_secs_f64());
        }
    });
    histogram(out, &STALL, snapshot, |figures| &figures.stall);
    histogram(out, &END_TO_END, snapshot, |figures| &figures.end_to_end);
    histogram(out, &SETTLE_DURATION, snapshot, |figures| &figures.settle_duration);
    histogram(out, &SCHEDULE_WRITE, snapshot, |figures| &figures.schedule_write);
    let ReplayCounts { published, succeeded, dead_again, skipped } = snapshot.replays;
    let mut samples = out.metric(&REPLAY_MESSAGES);
    samples.count(&["published"], published);
    samples.count(&["succeeded"], succeeded);
    samples.count(&["dead_again"], dead_again);
    samples.count(&["skipped"], skipped);
    let mut samples = out.metric(&REPLAY_JOBS);
    for PipelineFigures { name, replay_jobs, .. } in &snapshot.pipelines {
        let ReplayJobs { running, paused, stopped } = *replay_jobs;
        for (state, jobs) in [("running", running), ("paused", paused), ("stopped", stopped)] {
            samples.count(&[name.as_str(), state], jobs);
        }
    }
    each(out, &REPEATS, snapshot, |samples, name, figures| samples.count(&[name], figures.repeats));
    each(out, &KEY_ORDER_VOIDED, snapshot, |samples, name, figures| {
        samples.count(&[name], figures.key_order_voided);
    });
    each(out, &SCRUB_BYTES, snapshot, |samples, name, figures| {
        samples.count(&[name], figures.upkeep.scrubbed_bytes);
    });
    let mut samples = out.metric(&SCRUB_DAMAGED);
    for one in &snapshot.pipelines {
        let lines = one.subscriptions.map_or(0, |counts| counts.damaged);
        samples.count(&[one.name.as_str()], one.figures.upkeep.damaged + lines);
    }
    moment(out, &SCRUB_LAST, snapshot, |figures| figures.upkeep.scrubbed);
    each(out, &INDEX_REBUILDS, snapshot, |samples, name, figures| {
        samples.count(&[name], figures.upkeep.index_rebuilds);
    });
    subscriptions(out, snapshot);
    each(out, &PAUSED, snapshot, |samples, name, figures| samples.count(&[name], u64::from(figures.paused)));
    each(out, &RUNNING, snapshot, |samples, name, figures| samples.count(&[name], figures.running as u64));
    out.metric(&START).value(&[], seconds(snapshot.started));
    each(out, &BREAKER_STATE, snapshot, |samples, name, figures| {
        let now = figures.health.breaker.state;
        BreakerState::ALL.iter().for_each(|s| samples.count(&[name, s.name()], u64::from(*s == now)));
    });
    each(out, &PERMITS, snapshot, |samples, name, figures| {
        samples.count(&[name], figures.health.permits as u64);
    });
    each(out, &BUDGET_REMAINING, snapshot, |samples, name, figures| {
        figures.health.budget_remaining.iter().for_each(|left| samples.count(&[name], u64::from(*left)));
    });
    each(out, &ENDPOINTS_IN_COOLDOWN, snapshot, |samples, name, figures| {
        let alone = figures.health.endpoints.as_ref().map(|all| all.endpoints + all.origins);
        alone.iter().for_each(|alone| samples.count(&[name], *alone));
    });
    each(out, &SUSPECTS, snapshot, |samples, name, figures| samples.count(&[name], figures.health.suspects));
    conditions(out, snapshot);
    out.metric(&CONNECTIONS).count(&[], snapshot.door.connections);
    out.metric(&CONNECTIONS_EVICTED).count(&[], snapshot.door.evicted);
    out.metric(&WRONG_TOKENS).count(&[], snapshot.door.wrong_tokens);
    out.metric(&BUILD_INFO).count(&[env!("CARGO_PKG_VERSION")], 1);
    exposition.finish()
}

/// A metric, and where its value is in the standing of a process.
type OfCluster = (&'static Metric, fn(&ClusterStanding) -> u64);

fn conditions(out: &mut Exposition, snapshot: &Snapshot) {
    each(out, &PARTITIONS, snapshot, |samples, name, figures| {
        let partitions = figures.condition.partitions;
        samples.count(&[name, "reading"], partitions.reading);
        samples.count(&[name, "blocked"], partitions.blocked);
        samples.count(&[name, "stopped"], partitions.stopped);
        samples.count(&[name, "unassigned"], partitions.unassigned);
    });
    each(out, &PROBLEMS, snapshot, |samples, name, figures| {
        for kind in ProblemKind::ALL {
            let of_kind = figures.condition.problems.iter().filter(|problem| problem.kind == kind);
            samples.count(&[name, kind.name()], of_kind.count() as u64);
        }
    });
    let of_cluster: [OfCluster; 4] = [
        (&KAFKA_REACHABLE, |cluster| u64::from(cluster.reachable)),
        (&GROUP_MEMBER, |cluster| u64::from(cluster.member)),
        (&REBALANCES, |cluster| cluster.rebalances),
        (&COMMIT_FAILURES, |cluster| cluster.commit_failures),
    ];
    for (metric, value) in of_cluster {
        each(out, metric, snapshot, |samples, name, figures| {
            figures.condition.cluster.iter().for_each(|cluster| samples.count(&[name], value(cluster)));
        });
    }
    each(out, &SPOOL_RECORDS, snapshot, |samples, name, figures| {
        samples.count(&[name], figures.condition.spooled);
    });
    each(out, &LETTER_TWINS, snapshot, |samples, name, figures| {
        samples.count(&[name], figures.condition.letter_twins);
    });
    each(out, &FOREIGN_LETTERS, snapshot, |samples, name, figures| {
        samples.count(&[name], figures.condition.foreign_letters);
    });
    each(out, &PASSED_OVER, snapshot, |samples, name, figures| {
        samples.count(&[name], figures.condition.passed_over);
    });
}

fn groups(out: &mut Exposition, snapshot: &Snapshot) {
    let looked = || snapshot.pipelines.iter().filter_map(|one| Some((one.name.as_str(), one.groups?)));
    let mut samples = out.metric(&GROUPS);
    for (name, counts) in looked() {
        for (state, groups) in GroupState::ALL.iter().zip(counts.by_state) {
            samples.count(&[name, state.name()], groups);
        }
    }
    let mut samples = out.metric(&GROUPS_NEW);
    looked().for_each(|(name, counts)| samples.count(&[name], counts.new));
    let mut samples = out.metric(&GROUPS_REGRESSED);
    looked().for_each(|(name, counts)| samples.count(&[name], counts.regressed));
}

/// The metrics of pipelines with subscriptions.
fn subscriptions(out: &mut Exposition, snapshot: &Snapshot) {
    let counted =
        || snapshot.pipelines.iter().filter_map(|one| Some((one.name.as_str(), one.subscriptions?)));
    let mut samples = out.metric(&UNANNOUNCED);
    counted().for_each(|(name, counts)| samples.count(&[name], counts.unannounced));
    let mut samples = out.metric(&OLDEST_UNANNOUNCED);
    for (name, counts) in counted() {
        counts.unannounced_since.iter().for_each(|since| samples.value(&[name], seconds(*since)));
    }
}

fn each(
    out: &mut Exposition,
    metric: &'static Metric,
    snapshot: &Snapshot,
    write: impl Fn(&mut Samples<'_>, &str, &Figures),
) {
    let mut samples = out.metric(metric);
    snapshot.pipelines.iter().for_each(|one| write(&mut samples, &one.name, &one.figures));
}

fn histogram(
    out: &mut Exposition,
    metric: &'static Metric,
    snapshot: &Snapshot,
    of: impl Fn(&Figures) -> &Histogram,
) {
    each(out, metric, snapshot, |samples, name, figures| samples.histogram(&[name], of(figures)));
}

fn moment(
    out: &mut Exposition,
    metric: &'static Metric,
    snapshot: &Snapshot,
    of: impl Fn(&Figures) -> Option<Time>,
) {
    each(out, metric, snapshot, |samples, name, figures| {
        if let Some(time) = of(figures) {
            samples.value(&[name], seconds(time));
        }
    });
}

fn seconds(time: Time) -> f64 {
    time.as_millis() as f64 / 1000.0
}

/// The reference page of the metrics.
pub fn docs() -> String {
    let mut page = String::from(
        "# Metrics\n\n<!-- Generated from crates/redrive-server/src/metrics.rs; a test says how when it is out of date. -->\n\n\
         `GET /metrics` answers in the text format of Prometheus. Counters start at zero with the process. Labels come \
         from fixed sets: the names of pipelines and tiers are those of the configuration.\n\n\
         | metric | type | labels | meaning |\n| --- | --- | --- | --- |\n",
    );
    for Metric { name, kind, labels, help } in METRICS {
        let labels = labels.iter().map(|label| format!("`{label}`")).collect::<Vec<_>>().join(", ");
        // Writing to a string cannot fail.
        let _ = writeln!(page, "| `{name}` | {} | {labels} | {help} |", kind.name());
    }
    page
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exposition::lint;

    #[test]
    fn every_metric_is_declared_also_without_pipelines_and_passes_the_linter() {
        let text = render(&Snapshot::default());
        assert_eq!(lint(&text), Vec::<String>::new());
        let declared: Vec<&str> =
            text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next()).collect();
        assert_eq!(declared, METRICS.iter().map(|metric| metric.name).collect::<Vec<_>>());
        assert!(declared.iter().all(|name| name.starts_with("redrive_")));
    }
}
