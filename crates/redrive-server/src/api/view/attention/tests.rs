//! Which notices follow from which figures.

use redrive::internal::dispatch::{AskedWait, EndpointFigures, ResetFigures};
use redrive::internal::engine::{Problem, ProblemKind};
use redrive::{FailureKind, LimitBy};
use redrive_core::breaker::Cause;
use redrive_core::guard::Flood;
use redrive_core::pulse::Outage;
use redrive_core::views::Gate;

use super::*;

const AT: Time = Time::from_millis(1_794_700_800_000);

const HEALTHY: Circumstances<'static> =
    Circumstances { outage_gate: true, subscriptions: None, stopped_replays: None, status_pages: &[] };

fn texts(figures: &Figures) -> Vec<String> {
    notices("orders", figures.paused, figures, &HEALTHY, AT)
        .into_iter()
        .map(|notice| format!("{:?}: {} [{}]", notice.level, notice.text, notice.command.unwrap_or_default()))
        .collect()
}

#[test]
fn a_healthy_pipeline_needs_no_attention() {
    assert!(notices("orders", false, &Figures::default(), &HEALTHY, AT).is_empty());
}

#[test]
fn an_open_breaker_says_since_when_and_why() {
    let mut figures = Figures::default();
    figures.health.breaker = BreakerView {
        enabled: true,
        state: BreakerState::Open,
        since: Some(AT),
        next_probe: Some(AT.plus(Duration::from_secs(90))),
        rounds: 2,
        probes: 10,
        cause: Some(Cause {
            failed: 40,
            of: 40,
            within: Duration::from_secs(10),
            by: Gate::Breaker,
            last: Some(FailureKind::Reset),
        }),
    };
    figures.recent.failures.kinds = vec![(FailureKind::Reset, 40)];
    assert_eq!(
        texts(&figures),
        [
            "Bad: breaker open since 2026-11-15 00:00:00Z: 100 % of 40 messages failed within 10s, the last one with \
          reset. Nothing but probes is sent; rounds of probes so far: 2; next probe 2026-11-15 00:01:30Z \
          [redrive breaker probe orders]"
        ]
    );
    figures.recent.failures.replayed = 40;
    assert!(texts(&figures)[0].contains("with reset. Most of them were replayed letters. "), "{figures:?}");
}

#[test]
fn an_outage_that_the_breaker_cannot_see_is_named() {
    let mut figures = Figures::default();
    figures.health.outage = Some(Outage { last_good: Some(AT), failed: 8 });
    assert_eq!(
        texts(&figures),
        [
            "Bad: no success since 2026-11-15 00:00:00Z: 8 messages failed since. The breaker has seen too few within its \
             window to open. Until a call succeeds, messages that run out of attempts are held, for `hold_max` at most; \
             permanent failures and expired messages are still dead-lettered []"
        ]
    );
    figures.health.breaker.state = BreakerState::Open;
    assert!(!texts(&figures)[0].contains("no success"), "the breaker says it");
}

/// Effects of `outage_gate` and the breaker are not claimed if they are off.
#[test]
fn an_outage_says_what_holds_where_the_gate_or_the_breaker_is_off() {
    let mut figures = Figures::default();
    figures.health.outage = Some(Outage { last_good: None, failed: 8 });
    let text = |figures: &Figures, gate: bool| {
        let found = notices("orders", false, figures, &Circumstances { outage_gate: gate, ..HEALTHY }, AT);
        found.into_iter().next().map(|notice| notice.text).unwrap_or_default()
    };
    assert_eq!(
        text(&figures, false),
        "no success so far: 8 messages failed since. The breaker has seen too few within its window to open. `outage_gate` \
         is off: messages that run out of attempts are dead-lettered"
    );
    figures.health.breaker.enabled = false;
    let without = text(&figures, true);
    assert!(
        without.contains(". The breaker is disabled, so calls continue. Until a call succeeds, "),
        "{without}"
    );
}

#[test]
fn what_holds_a_whole_pipeline_says_how_to_lift_it() {
    let mut figures = Figures { paused: true, ..Figures::default() };
    figures.pending.held = 6_361_204;
    assert_eq!(
        texts(&figures),
        [
            "Bad: paused: nothing is sent, 6,361,204 messages wait; `redrive audit --actions` shows who paused it [redrive resume orders]"
        ]
    );
    figures.health.flood = Some(Flood { dead: 100, of: 120, within: Duration::from_mins(1) });
    assert!(
        texts(&figures)[0].starts_with("Bad: paused by the dead-letter guard: 100 of 120"),
        "one of both"
    );
    figures.health.wait = Some(AskedWait {
        since: AT,
        until: AT.plus(Duration::from_mins(5)),
        asked: Duration::from_hours(24),
        message_id: "o-1".to_owned(),
        kind: FailureKind::Status(429),
    });
    let texts = texts(&figures);
    assert!(
        texts[1].starts_with("Bad: nothing is sent until 2026-11-15 00:05:00Z: the downstream answered o-1")
    );
    assert!(texts[1].ends_with("[redrive resume orders --now]"), "{texts:?}");
}

#[test]
fn partitions_that_are_held_and_a_process_that_stood_still_are_named() {
    let mut figures = Figures::default();
    figures.condition.problems = vec![Problem {
        kind: ProblemKind::Write,
        place: "orders/3".to_owned(),
        text: "not allowed to write orders.DLQ".to_owned(),
    }];
    let change = HealthChange::StoodStill { span: Duration::from_secs(42) };
    figures.health.history = vec![HealthEntry { at: AT, change }];
    let texts = texts(&figures);
    assert_eq!(texts[0], "Bad: orders/3: not allowed to write orders.DLQ []");
    assert!(texts[1].starts_with("Warning: the process did not run for 42 s until 2026-11-15 00:00:00Z"));
    let later = notices("orders", false, &figures, &HEALTHY, AT.plus(STANDSTILL_SHOWN));
    assert_eq!(later.len(), 1, "it is forgotten");
}

#[test]
fn what_slows_a_pipeline_down_is_a_warning() {
    let mut figures = Figures::default();
    figures.health.suspects = 3;
    figures.health.resets = ResetFigures { lately: 1_812, apart: 16 };
    figures.health.budget_remaining = Some(0);
    (figures.health.permits, figures.health.limit) = (5, 64);
    let texts = texts(&figures);
    assert_eq!(texts.len(), 4);
    assert!(texts.iter().all(|text| text.starts_with("Warning: ")), "{texts:?}");
    assert!(texts[1].contains("receivers closed 1,812 connections while handling a message"), "{texts:?}");
}

#[test]
fn what_is_in_cooldown_is_called_what_the_limits_count() {
    let mut figures = Figures::default();
    for (limit_by, said) in [
        (LimitBy::Endpoint, "2 endpoints and 1 origin"),
        (LimitBy::Tenant, "2 tenants and 1 origin"),
        (LimitBy::Key, "2 keys and 1 origin"),
    ] {
        let endpoints = EndpointFigures { limit_by, endpoints: 2, origins: 1, ..EndpointFigures::default() };
        figures.health.endpoints = Some(endpoints);
        let expected = format!("Warning: {said} in cooldown; their messages are deferred []");
        assert_eq!(texts(&figures), [expected]);
    }
}

#[test]
fn stopped_purging_says_what_stopped_it_and_how_to_go_on() {
    let stopped = Stopped { at: AT, purged: 23, active: 1000 };
    let counts = SubscriptionCounts { stopped: Some(stopped), ..SubscriptionCounts::default() };
    let found = notices(
        "push",
        false,
        &Figures::default(),
        &Circumstances { subscriptions: Some(counts), ..HEALTHY },
        AT,
    );
    let [notice] = found.as_slice() else { panic!("{found:?}") };
    assert_eq!((notice.subject, notice.level), (Subject::Subscriptions, Level::Warning));
    assert!(notice.text.contains("2.3 % of the active ones"), "{}", notice.text);
    assert_eq!(notice.command.as_deref(), Some("redrive subscriptions resume push"));
}

#[test]
fn a_replay_that_was_stopped_waits_for_somebody() {
    let stopped = StoppedReplays {
        jobs: 1,
        last: "r-31".to_owned(),
        why: "11 of the last 50 failed (limit 20 %)".to_owned(),
        auto_is_off: true,
    };
    let found = notices(
        "orders",
        false,
        &Figures::default(),
        &Circumstances { stopped_replays: Some(&stopped), ..HEALTHY },
        AT,
    );
    assert_eq!(found.len(), 1);
    assert_eq!(
        found[0].text,
        "replay r-31 was stopped: 11 of the last 50 failed (limit 20 %); auto-replay is off until its last job is resumed or \
         aborted"
    );
    assert_eq!(found[0].command.as_deref(), Some("redrive dlq replay --resume r-31"));
}

/// S1-44: on call for a failing push service, an operator wants to know whether the service reports an outage.
#[test]
fn an_open_breaker_and_a_paused_service_name_the_status_pages_of_the_vendor() {
    const PAGES: &[StatusPage] =
        &[StatusPage { service: "APNs", url: "https://developer.apple.com/system-status/" }];
    let mut figures = Figures::default();
    figures.health.breaker.state = BreakerState::Open;
    let found = notices("push", false, &figures, &Circumstances { status_pages: PAGES, ..HEALTHY }, AT);
    assert!(found[0].text.ends_with("Status pages: APNs: https://developer.apple.com/system-status/"));
    assert_eq!(found[0].links, ["https://developer.apple.com/system-status/"]);
    let paused = |endpoints, origins| {
        let mut figures = Figures::default();
        let waits = std::sync::Arc::from(Vec::new());
        figures.health.endpoints =
            Some(EndpointFigures { limit_by: LimitBy::Endpoint, endpoints, origins, waiting: 1, waits });
        notices("push", false, &figures, &Circumstances { status_pages: PAGES, ..HEALTHY }, AT).remove(0)
    };
    assert_eq!(paused(0, 1).links, ["https://developer.apple.com/system-status/"]);
    assert!(paused(1, 0).links.is_empty(), "one endpoint is not the service");
}

#[test]
fn purges_that_cannot_be_announced_missing_keys_and_damage_are_named() {
    let of = |counts: SubscriptionCounts, after: Duration| {
        notices(
            "push",
            false,
            &Figures::default(),
            &Circumstances { subscriptions: Some(counts), ..HEALTHY },
            AT.plus(after),
        )
    };
    let waiting =
        SubscriptionCounts { unannounced: 3, unannounced_since: Some(AT), ..SubscriptionCounts::default() };
    assert!(of(waiting, Duration::from_secs(299)).is_empty(), "it may still be on its way");
    let late = of(waiting, Duration::from_mins(5));
    assert!(late[0].text.starts_with("3 purges are not announced to `on_purged`"), "{late:?}");
    let keyless = of(SubscriptionCounts { without_key: 2, ..SubscriptionCounts::default() }, Duration::ZERO);
    assert_eq!(keyless[0].command.as_deref(), Some("redrive subscriptions keys push"));
    let damaged = of(SubscriptionCounts { damaged: 1, ..SubscriptionCounts::default() }, Duration::ZERO);
    assert_eq!((damaged[0].subject, damaged[0].level), (Subject::Store, Level::Bad));
    assert!(damaged[0].text.starts_with("1 damaged line in subscriptions.log"), "{damaged:?}");
}
