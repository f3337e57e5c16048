//! `redrive status --watch`: the changes every second until ^C. One line for one pipeline; for several, a block under
//! the time, so that their lines do not mix.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use redrive::Time;
use redrive_api::{PipelineView, Subject};

use super::{health, look};
use crate::client::Session;
use crate::exit::{Exit, Failed};
use crate::output::{Output, count, instant, percent};

const EVERY: Duration = Duration::from_secs(1);

/// Every pipeline at the previous poll.
type Before = BTreeMap<String, (Instant, PipelineView)>;

pub async fn run(pipeline: Option<&str>, session: &Session, out: &mut Output) -> Result<Exit, Failed> {
    let mut interrupt = std::pin::pin!(tokio::signal::ctrl_c());
    let mut before = Before::new();
    let mut away = false;
    loop {
        match look(pipeline, session).await {
            Ok(found) => {
                away = false;
                if out.is_json() {
                    found.iter().try_for_each(|(json, _)| out.json(json))?;
                }
                let views: Vec<PipelineView> = found.into_iter().map(|(_, view)| view).collect();
                let lines = frame(&views, &before, (Instant::now(), session.now()), pipeline.is_none());
                if !out.is_json() {
                    lines.iter().try_for_each(|line| out.line(line))?;
                }
                let seen = Instant::now();
                before = views.into_iter().map(|view| (view.name.clone(), (seen, view))).collect();
            }
            // The first poll has to succeed; after that the processor may be restarted meanwhile.
            Err(fault) if fault.may_pass() && !before.is_empty() => {
                if !away {
                    out.note(&format!("{}  {fault}", instant::clock(session.now())));
                }
                away = true;
            }
            Err(fault) => return Err(fault.into()),
        }
        tokio::select! {
            _ = &mut interrupt => return Ok(Exit::Ok),
            () = tokio::time::sleep(EVERY) => {}
        }
    }
}

/// The output of one poll.
fn frame(views: &[PipelineView], before: &Before, (seen, now): (Instant, Time), named: bool) -> Vec<String> {
    let clock = instant::clock(now);
    let width = views.iter().map(|view| view.name.chars().count()).max().unwrap_or(0);
    let of = |view: &PipelineView| {
        let earlier = before.get(&view.name);
        let mut lines = news(earlier.map(|(_, earlier)| earlier), view);
        // A rate needs two polls.
        if let Some((at, earlier)) = earlier {
            lines.push(line(earlier, view, seen - *at));
            lines.extend(outcome(earlier, view));
        }
        let name = if named { format!("{:width$}  ", view.name) } else { String::new() };
        lines.into_iter().map(|line| format!("{name}{line}")).collect::<Vec<_>>()
    };
    let lines = views.iter().flat_map(of);
    match views {
        [] | [_] => lines.map(|line| format!("{clock}  {line}")).collect(),
        _ => {
            let lines: Vec<String> = lines.map(|line| format!("  {line}")).collect();
            if lines.is_empty() { lines } else { [clock].into_iter().chain(lines).collect() }
        }
    }
}

/// Health changes of the sink since the previous poll, and new notices.
fn news(earlier: Option<&PipelineView>, view: &PipelineView) -> Vec<String> {
    let known = |subject: Subject| {
        earlier.is_some_and(|earlier| earlier.attention.iter().any(|notice| notice.subject == subject))
    };
    let new = view.attention.iter().filter(|notice| !known(notice.subject));
    let notices = new.map(|notice| format!("▲ {}", health::notice(notice)));
    let heard = earlier.map(|earlier| earlier.health.history.last().map(|change| change.at));
    let changes =
        view.health.history.iter().filter(|change| heard.is_some_and(|heard| Some(change.at) > heard));
    let changes = changes.map(|change| format!("{}  {}", instant::clock(change.at.0), change.what));
    changes.chain(notices).collect()
}

/// The effect of an outage, when it has just ended.
fn outcome(earlier: &PipelineView, view: &PipelineView) -> Option<String> {
    let is_over = |view: &PipelineView| view.health.incident.as_ref().is_some_and(|incident| incident.over);
    let is_news = is_over(view) && !is_over(earlier);
    is_news.then(|| health::incident(&view.health)).flatten()
}

/// One line: messages sent between two polls, failures and their kinds, waiting messages and the reason.
fn line(earlier: &PipelineView, view: &PipelineView, span: Duration) -> String {
    // Counters restart with the processor; a negative difference means a restart.
    let sent = view.attempts.saturating_sub(earlier.attempts);
    let succeeded = view.succeeded.saturating_sub(earlier.succeeded);
    let per_second = sent as f64 / span.as_secs_f64().max(0.001);
    let failed = if sent == 0 { 0.0 } else { sent.saturating_sub(succeeded) as f64 / sent as f64 };
    let kind = view.recent.failed.first().filter(|_| failed > 0.0);
    let kind = kind.map(|of| format!(" (mostly {})", of.kind)).unwrap_or_default();
    let arrow = match view.pending.held.cmp(&earlier.pending.held) {
        std::cmp::Ordering::Less => " ↓",
        std::cmp::Ordering::Greater => " ↑",
        std::cmp::Ordering::Equal => "",
    };
    let pending = &view.pending;
    let mut parts = vec![
        format!("sent/s {}", count(per_second.round() as u64)),
        format!("failed {}{kind}", percent(failed)),
        format!("ready {}", count(pending.ready)),
        format!("delayed {}", count(pending.delayed)),
        format!("held {}{arrow}", count(pending.held)),
    ];
    if pending.key_wait > 0 {
        parts.push(format!("waiting for their key {}", count(pending.key_wait)));
    }
    parts.push(format!("in flight {}", count(pending.in_flight)));
    parts.push(format!("dead {}", count(view.letters.open)));
    parts.extend(view.attention.iter().map(|notice| notice.short.clone()));
    parts.join("   ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use redrive_api::{AttentionNotice, HealthChange, Incident, LetterCounts, Level, Pending};

    fn view(attempts: u64, succeeded: u64, held: u64) -> PipelineView {
        PipelineView {
            name: "orders".into(),
            attempts,
            succeeded,
            pending: Pending { held, delayed: 3, ..Pending::default() },
            letters: LetterCounts { open: 61, ..LetterCounts::default() },
            ..PipelineView::default()
        }
    }

    const AT: Time = Time::from_millis(1_794_778_805_120);

    fn frame_of(earlier: &[PipelineView], later: &[PipelineView], named: bool) -> Vec<String> {
        let seen = Instant::now();
        let at = |view: &PipelineView| (view.name.clone(), (seen, view.clone()));
        let before = earlier.iter().map(at).collect();
        frame(later, &before, (seen + Duration::from_secs(1), AT), named)
    }

    #[test]
    fn a_line_says_what_happened_between_two_looks() {
        let mut later = view(6_980, 6_868, 5);
        (later.pending.key_wait, later.pending.in_flight) = (1_775, 16);
        later.recent.failed = vec![redrive_api::FailedKind { kind: "reset".into(), attempts: 12 }];
        assert_eq!(
            frame_of(&[view(1_000, 900, 7)], &[later], false),
            ["21:40:05Z  sent/s 5,980   failed 0.2 % (mostly reset)   ready 0   delayed 3   held 5 ↓   \
              waiting for their key 1,775   in flight 16   dead 61"]
        );
        assert!(frame_of(&[], &[view(1, 1, 1)], false).is_empty(), "a rate needs two looks");
    }

    #[test]
    fn the_lines_of_several_pipelines_stand_together_under_the_time() {
        let named = |name: &str| PipelineView { name: name.into(), ..view(10, 10, 0) };
        let both = [named("orders"), named("mail")];
        let lines = frame_of(&both, &both, true);
        assert_eq!(lines.len(), 3);
        assert_eq!(lines[0], "21:40:05Z");
        assert!(
            lines[1].starts_with("  orders  sent/s 0") && lines[2].starts_with("  mail    sent/s 0"),
            "{lines:?}"
        );
    }

    #[test]
    fn what_needs_attention_is_said_in_full_once_and_in_short_every_second() {
        let mut open = view(0, 0, 0);
        open.attention = vec![AttentionNotice {
            subject: Subject::Breaker,
            level: Level::Bad,
            short: "breaker OPEN".into(),
            text: "breaker open since …".into(),
            command: Some("redrive breaker probe orders".into()),
            links: Vec::new(),
        }];
        let first = frame_of(&[], std::slice::from_ref(&open), false);
        assert_eq!(first, ["21:40:05Z  ▲ breaker open since …   `redrive breaker probe orders` probes now"]);
        let next = frame_of(std::slice::from_ref(&open), std::slice::from_ref(&open), false);
        assert!(next.len() == 1 && next[0].ends_with("dead 61   breaker OPEN"), "{next:?}");
    }

    #[test]
    fn what_happened_between_two_looks_is_told() {
        let change = |ms, what: &str| HealthChange {
            at: redrive_api::Instant(Time::from_millis(1_794_778_805_000_u64 + ms)),
            what: what.into(),
        };
        let (mut earlier, mut later) = (view(0, 0, 0), view(0, 0, 0));
        earlier.health.history = vec![change(0, "▲ breaker open")];
        later.health.history = vec![change(0, "▲ breaker open"), change(1_000, "▼ breaker closed")];
        assert_eq!(news(Some(&earlier), &later), ["21:40:06Z  ▼ breaker closed"]);
        assert!(news(Some(&later), &later).is_empty());
        let at = redrive_api::Instant(Time::from_millis(1_794_778_805_000));
        earlier.health.incident = Some(Incident { from: at, until: Some(at), ..Incident::default() });
        later.health.incident =
            Some(Incident { from: at, until: Some(at), over: true, ..Incident::default() });
        let outcome_of = outcome(&earlier, &later).unwrap();
        assert!(outcome_of.starts_with("incident 21:40:05Z–21:40:05Z  failed attempts 0"), "{outcome_of}");
        assert_eq!(outcome(&later, &later), None);
    }

    #[test]
    fn a_restart_of_the_processor_is_no_negative_rate() {
        let lines = frame_of(&[view(1_000, 900, 0)], &[view(10, 10, 0)], true);
        assert!(lines[0].starts_with("21:40:05Z  orders  sent/s 0   failed 0.0 %"), "{lines:?}");
    }
}
