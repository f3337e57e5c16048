//! What `status` says about the health of a sink: only what is out of the ordinary.

use std::time::Duration;

use redrive::Time;
use redrive_api::{AttentionNotice, Pending, PipelineView, Recovery, SinkHealth, Subject};

use super::endpoints;
use crate::output::instant::{clock, date_and_clock};
use crate::output::{age, count, rate};

/// The state of the breaker, unless it is closed; or that the sink asked to slow down.
pub fn head(view: &PipelineView, now: Time) -> Option<String> {
    let health = &view.health;
    let state = match view.breaker.as_str() {
        "open" => "breaker OPEN",
        "half_open" => "breaker HALF OPEN",
        _ => {
            let until = health.waits_until?.0;
            return Some(format!(
                "ASKED TO WAIT until {} ({})",
                date_and_clock(until),
                age::since(until, now)
            ));
        }
    };
    let since = health.since.map(|at| format!(" since {} ({})", clock(at.0), age::since(now, at.0)));
    let mut parts = vec![format!("{state}{}", since.unwrap_or_default())];
    if let Some(next) = health.next_probe {
        parts.push(format!("next probe {}", clock(next.0)));
    }
    if health.rounds > 0 {
        parts.push(format!(
            "{}, {}{}",
            many(health.rounds, "round"),
            many(health.probes, "probe"),
            failed(health)
        ));
    }
    Some(parts.join("   "))
}

/// Further details.
pub fn lines(view: &PipelineView) -> Vec<String> {
    let health = &view.health;
    let mut lines = Vec::new();
    if view.breaker == "open" || view.breaker == "half_open" {
        let reason = health.reason.as_ref().map(|reason| format!("{reason}; ")).unwrap_or_default();
        lines.push(format!("{reason}{}", dead_for_it(view)));
        let breaker = view.attention.iter().filter(|notice| notice.subject == Subject::Breaker);
        let links: Vec<&str> = breaker.flat_map(|notice| notice.links.iter().map(String::as_str)).collect();
        if !links.is_empty() {
            lines.push(format!("status pages of the service: {}", links.join("  ")));
        }
        lines.extend(health.if_closed_now.as_ref().map(if_closed_now));
    } else if health.waits_until.is_none() && health.permits < health.permits_max {
        lines.push(format!("permits {} of {}, growing after the outage", health.permits, health.permits_max));
    }
    lines.extend(incident(health));
    lines.extend(view.attention.iter().filter(|notice| !is_shown_above(notice)).map(notice));
    lines.extend(health.endpoints.iter().flat_map(endpoints::lines));
    if let Some(left @ 1..) = health.budget_remaining {
        lines.push(format!("retry budget: {} retries left now", count(u64::from(left))));
    }
    lines
}

/// Whether the head of a pipeline, the lines before or those of the engine already say this.
fn is_shown_above(notice: &AttentionNotice) -> bool {
    matches!(notice.subject, Subject::Paused | Subject::Breaker | Subject::Partition | Subject::Ramp)
}

/// What needs attention, and how to fix it.
pub fn notice(notice: &AttentionNotice) -> String {
    let AttentionNotice { subject, text, command, .. } = notice;
    match (command, subject) {
        (None, _) => text.clone(),
        (Some(command), Subject::Paused | Subject::Guard | Subject::RetryAfter) => {
            format!("{text}   `{command}` lifts it")
        }
        (Some(command), Subject::Replay) => format!("{text}   `{command}` resumes it"),
        (Some(command), Subject::Breaker) => format!("{text}   `{command}` probes now"),
        (Some(command), _) => format!("{text}   see `{command}`"),
    }
}

/// Whether the current outage causes dead letters.
fn dead_for_it(view: &PipelineView) -> String {
    let dead = view.health.incident.as_ref().map_or(0, |incident| incident.dead_for_the_outage);
    match (dead, view.policy.outage_gate) {
        (0, Some(false)) => "outage_gate is off: exhausted messages are dead-lettered".to_owned(),
        (0, _) => "nothing is dead-lettered for it".to_owned(),
        (dead, _) => format!("{} dead-lettered for it", count(dead)),
    }
}

/// The effect of an outage, once it is over.
pub fn incident(health: &SinkHealth) -> Option<String> {
    let incident = health.incident.as_ref()?;
    let (from, until) = (incident.from, incident.until?);
    let peak = if incident.over { "peak after recovery" } else { "peak so far" };
    Some(format!(
        "incident {}–{}  failed attempts {} (of which probes {})  dead for the outage {}  expired {}  {peak} {}/s = {:.1} × limit",
        clock(from.0),
        clock(until.0),
        count(incident.failed_attempts),
        count(incident.failed_probes),
        count(incident.dead_for_the_outage),
        count(incident.expired),
        count(incident.peak_per_second),
        incident.peak_of_limit,
    ))
}

/// While the breaker is open, all waiting messages are held; show also how many died since.
pub fn standing(view: &PipelineView, now: Time) -> Option<String> {
    let incident = view.health.incident.as_ref().filter(|incident| incident.until.is_none())?;
    let oldest = view.oldest_pending.map(|at| format!(" (oldest {})", age::since(now, at.0)));
    let Pending { ready, delayed, held, key_wait, .. } = view.pending;
    let mut parts = vec![format!("ready {}", count(ready)), format!("delayed {}", count(delayed))];
    parts.push(format!("held {}{}", count(held), oldest.unwrap_or_default()));
    if key_wait > 0 {
        parts.push(format!("waiting for their key {}", count(key_wait)));
    }
    if view.pending.in_flight > 0 {
        parts.push(format!("in flight {}", count(view.pending.in_flight)));
    }
    parts.push(format!("dead +{} since open", count(incident.dead)));
    Some(parts.join("   "))
}

fn if_closed_now(recovery: &Recovery) -> String {
    let Recovery { permits_from, permits_to, ramp_seconds, live_per_second, .. } = recovery;
    let ramp = format!(
        "if it closed now: ramp {permits_from} → {permits_to} permits in {}",
        about(Duration::from_secs(*ramp_seconds))
    );
    let Some(sent) = recovery.rate_per_second.map(rate) else { return ramp };
    let live = rate(*live_per_second);
    match recovery.backlog_seconds {
        Some(seconds) => {
            let gone = about(Duration::from_secs(seconds));
            let at_first =
                recovery.begins_per_second.filter(|begins| recovery.rate_per_second > Some(*begins));
            let at_first = at_first.map(|begins| format!(", {} at first", rate(begins))).unwrap_or_default();
            format!("{ramp}, backlog gone in {gone} at {sent} against {live} live{at_first}")
        }
        None => format!("{ramp}, but {sent} is less than the incoming {live}: the backlog would grow"),
    }
}

/// Whether all probes failed, or how many.
fn failed(health: &SinkHealth) -> String {
    let failed = health.incident.as_ref().map_or(0, |incident| incident.failed_probes);
    match failed {
        0 => String::new(),
        all if all == u64::from(health.probes) => ", all failed".to_owned(),
        some => format!(", {} failed", count(some)),
    }
}

fn many(number: u32, what: &str) -> String {
    format!("{} {what}{}", count(u64::from(number)), if number == 1 { "" } else { "s" })
}

/// `~4 s`, `~26 min`, `~3 h`.
fn about(span: Duration) -> String {
    match span.as_secs() {
        seconds @ 0..120 => format!("~{seconds} s"),
        seconds @ 120..7_200 => format!("~{} min", (seconds + 30) / 60),
        seconds => format!("~{} h", (seconds + 1_800) / 3_600),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use redrive_api::{Incident, Instant};

    fn at(clock: &str) -> Instant {
        let seconds = clock.split(':').fold(0, |all, part| all * 60 + part.parse::<u64>().unwrap());
        Instant(Time::from_millis(1_794_700_800_000 + seconds * 1_000))
    }

    /// The numbers of story 5.
    fn open() -> PipelineView {
        let health = SinkHealth {
            since: Some(at("03:12:07")),
            next_probe: Some(at("04:09:37")),
            reason: Some("51 % of 19980 messages failed within 10s".into()),
            rounds: 13,
            probes: 65,
            permits_max: 64,
            incident: Some(Incident { from: at("03:12:07"), failed_probes: 65, ..Incident::default() }),
            if_closed_now: Some(Recovery {
                permits_from: 5,
                permits_to: 64,
                ramp_seconds: 7,
                begins_per_second: Some(4_000.0),
                rate_per_second: Some(6_100.0),
                live_per_second: 2_000.0,
                backlog_seconds: Some(1_551),
            }),
            ..SinkHealth::default()
        };
        PipelineView {
            breaker: "open".into(),
            oldest_pending: Some(at("03:12:07")),
            pending: Pending { held: 6_361_204, ..Pending::default() },
            health,
            ..PipelineView::default()
        }
    }

    #[test]
    fn an_open_breaker_says_since_when_what_waits_and_what_would_happen_if_it_closed() {
        let (view, now) = (open(), at("04:05:07").0);
        assert_eq!(
            head(&view, now).unwrap(),
            "breaker OPEN since 03:12:07Z (53m)   next probe 04:09:37Z   13 rounds, 65 probes, all failed"
        );
        assert_eq!(
            standing(&view, now).unwrap(),
            "ready 0   delayed 0   held 6,361,204 (oldest 53m)   dead +0 since open"
        );
        assert_eq!(
            lines(&view),
            [
                "51 % of 19980 messages failed within 10s; nothing is dead-lettered for it",
                "if it closed now: ramp 5 → 64 permits in ~7 s, backlog gone in ~26 min at 6,100/s against 2,000/s live, 4,000/s at first",
            ]
        );
    }

    #[test]
    fn an_outage_that_is_over_is_told_in_one_line() {
        let mut view = open();
        view.breaker = "closed".into();
        (view.health.permits, view.health.if_closed_now) = (64, None);
        view.health.incident = Some(Incident {
            from: at("03:12:07"),
            until: Some(at("04:09:40")),
            failed_attempts: 10_255,
            failed_probes: 65,
            peak_per_second: 6_104,
            peak_of_limit: 1.0,
            over: true,
            ..Incident::default()
        });
        assert_eq!((head(&view, at("05:00:00").0), standing(&view, at("05:00:00").0)), (None, None));
        assert_eq!(
            lines(&view),
            [
                "incident 03:12:07Z–04:09:40Z  failed attempts 10,255 (of which probes 65)  dead for the outage 0  \
              expired 0  peak after recovery 6,104/s = 1.0 × limit"
            ]
        );
    }

    #[test]
    fn a_sink_that_asked_for_patience_is_named() {
        let waits_until = Some(at("03:12:07"));
        let health = SinkHealth { waits_until, permits_max: 64, ..SinkHealth::default() };
        let view = PipelineView { breaker: "closed".into(), health, ..PipelineView::default() };
        let head = head(&view, at("03:10:07").0).unwrap();
        assert_eq!(head, "ASKED TO WAIT until 2026-11-15 03:12:07Z (2m)");
    }

    #[test]
    fn an_outage_that_makes_letters_does_not_claim_otherwise() {
        let mut view = open();
        view.policy.outage_gate = Some(false);
        assert!(lines(&view)[0].ends_with("; outage_gate is off: exhausted messages are dead-lettered"));
        view.health.incident.as_mut().unwrap().dead_for_the_outage = 1_388;
        assert!(lines(&view)[0].ends_with("; 1,388 dead-lettered for it"), "{:?}", lines(&view));
    }

    #[test]
    fn what_needs_attention_is_said_with_what_to_do_about_it() {
        let notice = |subject: Subject, text: &str, command: Option<&str>| AttentionNotice {
            subject,
            text: text.into(),
            command: command.map(str::to_owned),
            ..AttentionNotice::default()
        };
        let view = PipelineView {
            breaker: "closed".into(),
            attention: vec![
                notice(Subject::Breaker, "breaker open", None),
                notice(Subject::Guard, "paused by the guard", Some("redrive resume orders")),
                notice(Subject::Resets, "receivers closed 3 connections", None),
                notice(Subject::Store, "1 damaged place", Some("redrive journal --verify")),
            ],
            ..PipelineView::default()
        };
        assert_eq!(
            lines(&view),
            [
                "paused by the guard   `redrive resume orders` lifts it",
                "receivers closed 3 connections",
                "1 damaged place   see `redrive journal --verify`",
            ]
        );
    }
}
