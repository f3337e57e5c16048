//! One configured alert: what it watches, and what it has reported.

use std::collections::BTreeMap;
use std::time::Duration;

use redrive::Time;

use super::facts::{Facts, Pill};
use super::groups::{FoundGroups, GroupsFound};
use super::judge::{Finding, Limits, Past, judge};
use super::kind::AlertKind;
use super::notice::{Notice, NoticeState, PILLS_MAX};
use super::rhythm::Rhythm;

/// Watches some kinds of problems in some pipelines. Its owner polls once a second.
#[derive(Clone, Debug)]
pub struct Watcher {
    kinds: Vec<AlertKind>,
    limits: Limits,
    rhythm: Rhythm,
    pipelines: BTreeMap<String, WatchedPipeline>,
}

#[derive(Clone, Debug)]
struct WatchedPipeline {
    past: Past,
    /// Pills not yet in a notification.
    unreported: Vec<Pill>,
    /// Groups not yet in a notification.
    groups: FoundGroups,
}

impl WatchedPipeline {
    /// The groups for a notice of this kind.
    fn groups_of(&mut self, kind: AlertKind) -> Option<&mut GroupsFound> {
        match kind {
            AlertKind::NewGroup => Some(&mut self.groups.new),
            AlertKind::GroupRegressed => Some(&mut self.groups.regressed),
            _ => None,
        }
    }
}

impl Watcher {
    pub fn new(
        kinds: Vec<AlertKind>,
        pipelines: impl IntoIterator<Item = String>,
        limits: Limits,
        every: Duration,
        now: Time,
    ) -> Self {
        let watched = |name| {
            (
                name,
                WatchedPipeline {
                    past: Past::at(now),
                    unreported: Vec::new(),
                    groups: FoundGroups::default(),
                },
            )
        };
        let pipelines = pipelines.into_iter().map(watched).collect();
        Self { kinds, limits, rhythm: Rhythm::new(every), pipelines }
    }

    pub fn watches(&self, kind: AlertKind) -> bool {
        self.kinds.contains(&kind)
    }

    /// The notices about a pipeline that are due now.
    pub fn look(&mut self, pipeline: &str, facts: &Facts, now: Time) -> Vec<Notice> {
        let every = self.rhythm.every();
        let Some(watched) = self.pipelines.get_mut(pipeline) else { return Vec::new() };
        let room = PILLS_MAX.saturating_sub(watched.unreported.len());
        watched.unreported.extend(facts.pills.iter().take(room).cloned());
        watched.groups.new.add(&facts.groups.new);
        watched.groups.regressed.add(&facts.groups.regressed);
        let findings = judge(pipeline, facts, &self.limits, &mut watched.past, every, now);
        let mut notices = Vec::new();
        for kind in self.kinds.iter().copied().filter(|kind| *kind != AlertKind::Storage) {
            let finding = findings.iter().find(|finding| finding.kind == kind);
            let beat = self.rhythm.hear((kind, Some(pipeline.to_owned())), finding.is_some(), now);
            let Some(beat) = beat else { continue };
            let pills = match (kind, beat.state) {
                (AlertKind::PoisonPill, NoticeState::Firing) => std::mem::take(&mut watched.unreported),
                _ => Vec::new(),
            };
            let mut notice = notice(kind, Some(pipeline), finding, now);
            (notice.state, notice.since, notice.pills) = (beat.state, beat.since, pills);
            if let (Some(groups), NoticeState::Firing) = (watched.groups_of(kind), beat.state) {
                notice.groups = std::mem::take(groups);
                notice.summary = format!("{}: {}", notice.summary, notice.groups.sentence());
            }
            notices.push(notice);
        }
        notices
    }

    /// The notice about the storage that is due now; `wrong` describes a problem, if there is one.
    pub fn look_at_storage(&mut self, wrong: Option<&str>, now: Time) -> Option<Notice> {
        if !self.watches(AlertKind::Storage) {
            return None;
        }
        let beat = self.rhythm.hear((AlertKind::Storage, None), wrong.is_some(), now)?;
        let finding = wrong.map(|why| Finding {
            kind: AlertKind::Storage,
            summary: why.to_owned(),
            value: None,
            limit: None,
            status_pages: &[],
        });
        let notice = notice(AlertKind::Storage, None, finding.as_ref(), now);
        Some(Notice { state: beat.state, since: beat.since, ..notice })
    }
}

fn notice(kind: AlertKind, pipeline: Option<&str>, finding: Option<&Finding>, now: Time) -> Notice {
    let over = || match pipeline {
        Some(pipeline) => format!("{pipeline}: {} is over", kind.name()),
        None => format!("{} is over", kind.name()),
    };
    Notice {
        kind,
        state: NoticeState::Firing,
        pipeline: pipeline.map(str::to_owned),
        at: now,
        since: now,
        summary: finding.map_or_else(over, |finding| finding.summary.clone()),
        value: finding.and_then(|finding| finding.value),
        limit: finding.and_then(|finding| finding.limit),
        status_pages: finding.map_or(&[], |finding| finding.status_pages),
        pills: Vec::new(),
        groups: GroupsFound::default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::alerts::groups::{GROUPS_MAX, GroupNews};

    fn at(secs: u64) -> Time {
        Time::from_millis(1_794_700_800_000 + secs * 1000)
    }

    fn watcher(kinds: &[AlertKind]) -> Watcher {
        let every = Duration::from_mins(15);
        Watcher::new(kinds.to_vec(), ["orders".to_owned()], Limits::default(), every, at(0))
    }

    fn with_pill(id: &str, secs: u64) -> Facts {
        let pill = Pill {
            message_id: id.to_owned(),
            crash_count: 3,
            first_crash_at: Some(at(secs - 60)),
            last_crash_at: Some(at(secs - 1)),
            quarantined_at: at(secs),
            attempts: 3,
        };
        Facts { pills: vec![pill], ..Facts::default() }
    }

    /// S1-44: the alert names the vendor's status page.
    #[test]
    fn a_breaker_of_a_push_sink_names_the_status_page_of_the_vendor() {
        const PAGES: &[redrive::StatusPage] =
            &[redrive::StatusPage { service: "FCM", url: "https://status.firebase.google.com/" }];
        let mut figures = redrive::Figures::default();
        let facts = Facts::of(&figures).with_services(&figures, PAGES);
        assert!(watcher(&[AlertKind::BreakerOpen]).look("orders", &facts, at(1)).is_empty());
        figures.health.breaker.state = redrive_core::breaker::BreakerState::Open;
        let facts = Facts::of(&figures).with_services(&figures, PAGES);
        let told = watcher(&[AlertKind::BreakerOpen]).look("orders", &facts, at(1)).remove(0).to_json();
        let page = serde_json::json!([{ "service": "FCM", "url": "https://status.firebase.google.com/" }]);
        assert_eq!(told["status_pages"], page);
        assert!(
            told["text"].as_str().unwrap().ends_with("FCM: https://status.firebase.google.com/"),
            "{told}"
        );
        let other = watcher(&[AlertKind::QueueDepth]);
        let many = Facts { pending: 50_000, ..facts };
        let told = { other }.look("orders", &many, at(1)).remove(0).to_json();
        assert!(told.get("status_pages").is_none(), "it is about the breaker: {told}");
    }

    /// The pipeline's breaker stays closed if only one of several push services is paused.
    #[test]
    fn a_push_service_that_is_paused_alone_is_told_as_well() {
        use redrive::internal::dispatch::EndpointFigures;
        const PAGES: &[redrive::StatusPage] = &[redrive::StatusPage { service: "FCM", url: "https://x" }];
        let mut figures = redrive::Figures::default();
        let waits = std::sync::Arc::from(Vec::new());
        let limit_by = redrive::LimitBy::Endpoint;
        figures.health.endpoints =
            Some(EndpointFigures { limit_by, endpoints: 0, origins: 1, waiting: 1, waits });
        let look = |pages| {
            let facts = Facts::of(&figures).with_services(&figures, pages);
            watcher(&[AlertKind::BreakerOpen]).look("orders", &facts, at(1))
        };
        let told = look(PAGES);
        assert!(told[0].summary.contains("1 push service is paused"), "{told:?}");
        assert!(look(&[]).is_empty(), "an origin of webhooks is one customer of many");
    }

    #[test]
    fn pills_are_told_with_their_record_and_later_ones_together() {
        let mut watcher = watcher(&[AlertKind::PoisonPill]);
        let first = watcher.look("orders", &with_pill("o-1", 100), at(100));
        assert_eq!(
            first[0].to_json(),
            serde_json::json!({
                "alert": "poison_pill",
                "state": "firing",
                "severity": "critical",
                "pipeline": "orders",
                "at": "2026-11-15T00:01:40.000Z",
                "since": "2026-11-15T00:01:40.000Z",
                "summary": "orders: a message crashed its worker too often and is quarantined",
                "text": "[firing] critical orders: a message crashed its worker too often and is quarantined",
                "value": null,
                "limit": null,
                "runbook": "docs/runbooks/poison-pill.md",
                "version": env!("CARGO_PKG_VERSION"),
                "quarantined": [{
                    "message_id": "o-1",
                    "crash_count": 3,
                    "first_crash_at": "2026-11-15T00:00:40.000Z",
                    "last_crash_at": "2026-11-15T00:01:39.000Z",
                    "quarantined_at": "2026-11-15T00:01:40.000Z",
                    "attempts": 3,
                }],
            })
        );
        assert_eq!(watcher.look("orders", &with_pill("o-2", 300), at(300)), []);
        assert_eq!(watcher.look("orders", &with_pill("o-3", 400), at(400)), []);
        let later = watcher.look("orders", &Facts::default(), at(1000));
        let ids: Vec<&str> = later[0].pills.iter().map(|pill| pill.message_id.as_str()).collect();
        assert_eq!((later[0].state, ids), (NoticeState::Firing, vec!["o-2", "o-3"]));
        let over = watcher.look("orders", &Facts::default(), at(1300));
        assert_eq!((over[0].state, over[0].pills.len()), (NoticeState::Resolved, 0));
        assert_eq!(over[0].summary, "orders: poison_pill is over");
    }

    #[test]
    fn a_flood_of_pills_is_bounded() {
        let mut watcher = watcher(&[AlertKind::PoisonPill]);
        watcher.look("orders", &with_pill("first", 100), at(100));
        for secs in 101..200 {
            watcher.look("orders", &with_pill("more", secs), at(secs));
        }
        assert_eq!(watcher.look("orders", &Facts::default(), at(1000))[0].pills.len(), PILLS_MAX);
    }

    fn with_new_groups(groups: std::ops::Range<u64>) -> Facts {
        let news = |n: u64| GroupNews { id: format!("g{n}"), title: "422: no lines".to_owned(), open: n };
        let new = groups.fold(GroupsFound::default(), |mut found, n| {
            found.add(&GroupsFound { named: vec![news(n)], more: 0 });
            found
        });
        Facts { groups: FoundGroups { new, ..FoundGroups::default() }, ..Facts::default() }
    }

    /// A deployment that breaks everything creates a thousand groups: one notice, not a thousand.
    #[test]
    fn new_groups_are_told_together_the_first_by_name_and_the_rest_counted() {
        let mut watcher = watcher(&[AlertKind::NewGroup, AlertKind::GroupRegressed]);
        let first = watcher.look("orders", &with_new_groups(1..2), at(100));
        assert_eq!(first.len(), 1);
        let told = first[0].to_json();
        assert_eq!((&told["alert"], &told["severity"]), (&"new_group".into(), &"warning".into()));
        assert_eq!(
            told["summary"],
            "orders: a new group of dead letters appeared: g1 (422: no lines, 1 open)"
        );
        let group = serde_json::json!([{ "id": "g1", "title": "422: no lines", "open": 1 }]);
        assert_eq!((&told["groups"], &told["more_groups"]), (&group, &0.into()));

        for secs in 101..300 {
            let groups = secs * 5..(secs + 1) * 5;
            assert_eq!(watcher.look("orders", &with_new_groups(groups), at(secs)), [], "once a period");
        }
        let later = watcher.look("orders", &Facts::default(), at(1000));
        let told = later[0].to_json();
        assert_eq!((later.len(), told["groups"].as_array().unwrap().len()), (1, GROUPS_MAX));
        assert_eq!(told["more_groups"], 199 * 5 - GROUPS_MAX as u64);
        assert!(told["summary"].as_str().unwrap().ends_with(", and 990 more"), "{told}");
        let over = watcher.look("orders", &Facts::default(), at(1300));
        assert_eq!((over[0].state, over[0].groups.is_empty()), (NoticeState::Resolved, true));
    }

    #[test]
    fn only_what_is_asked_for_is_told() {
        let facts = Facts { pending: 50_000, dead: 5_000, ..Facts::default() };
        let told = watcher(&[AlertKind::QueueDepth]).look("orders", &facts, at(1));
        let kinds: Vec<AlertKind> = told.iter().map(|notice| notice.kind).collect();
        assert_eq!(kinds, [AlertKind::QueueDepth]);
        assert_eq!((told[0].value, told[0].limit), (Some(50_000), Some(10_000)));
        assert_eq!(watcher(&[AlertKind::QueueDepth]).look("invoices", &facts, at(1)), []);
        assert_eq!(watcher(&[AlertKind::QueueDepth]).look_at_storage(Some("failed"), at(1)), None);
    }

    #[test]
    fn storage_is_told_for_the_process_and_its_notices_have_ids_of_their_own() {
        let mut watcher = watcher(&[AlertKind::Storage]);
        assert_eq!(watcher.look_at_storage(None, at(1)), None);
        let wrong = watcher.look_at_storage(Some("the disk is nearly full"), at(2)).unwrap();
        assert_eq!((wrong.pipeline.as_deref(), wrong.summary.as_str()), (None, "the disk is nearly full"));
        assert_eq!(watcher.look_at_storage(Some("the disk is nearly full"), at(3)), None);
        let over = watcher.look_at_storage(None, at(4)).unwrap();
        assert_eq!((over.state, over.since), (NoticeState::Resolved, at(2)));
        assert_ne!(over.id(), wrong.id());
    }
}
