//! `redrive status --watch`: a line a second with what changed, until ^C.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use redrive::Time;
use serde_json::Value;

use super::{health, look};
use crate::client::Session;
use crate::client::answers::PipelineView;
use crate::exit::{Exit, Failed};
use crate::output::{Output, count, instant, percent};

const EVERY: Duration = Duration::from_secs(1);

pub async fn run(pipeline: Option<&str>, session: &Session, out: &mut Output) -> Result<Exit, Failed> {
    let mut interrupt = std::pin::pin!(tokio::signal::ctrl_c());
    let mut before: BTreeMap<String, (Instant, PipelineView)> = BTreeMap::new();
    let mut away = false;
    loop {
        match look(pipeline, session).await {
            Ok(found) => {
                away = false;
                for (json, view) in found {
                    write(&json, view, pipeline.is_none(), &mut before, session.now(), out)?;
                }
            }
            // The first look has to succeed; after that a processor may be restarted under our eyes.
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

fn write(
    json: &Value,
    view: PipelineView,
    named: bool,
    before: &mut BTreeMap<String, (Instant, PipelineView)>,
    now: Time,
    out: &mut Output,
) -> Result<(), Failed> {
    let seen = Instant::now();
    // A rate needs two looks.
    let texts = before.get(&view.name).map(|(at, earlier)| {
        let mut texts = news(earlier, &view, named);
        texts.push(line(earlier, &view, seen - *at, named, now));
        texts.extend(outcome(earlier, &view));
        texts
    });
    before.insert(view.name.clone(), (seen, view));
    if out.is_json() {
        return out.json(json);
    }
    texts.unwrap_or_default().iter().try_for_each(|text| out.line(text))
}

/// What happened to the health of the sink between two looks.
fn news(earlier: &PipelineView, view: &PipelineView, named: bool) -> Vec<String> {
    let heard = earlier.health.history.last().and_then(|change| change.at);
    let name = if named { format!("{}  ", view.name) } else { String::new() };
    let new = view.health.history.iter().filter(|change| change.at > heard);
    new.filter_map(|change| Some(format!("{}  {name}{}", instant::clock(change.at?.0), change.what)))
        .collect()
}

/// What an outage came to, when it has come to its end.
fn outcome(earlier: &PipelineView, view: &PipelineView) -> Option<String> {
    let is_over = |view: &PipelineView| view.health.incident.as_ref().is_some_and(|incident| incident.over);
    let is_news = is_over(view) && !is_over(earlier);
    is_news.then(|| health::incident(&view.health)).flatten()
}

/// One line: what was sent between two looks, how much of it failed, and what waits.
fn line(earlier: &PipelineView, view: &PipelineView, span: Duration, named: bool, now: Time) -> String {
    // Counters start anew with the processor; a difference below zero is a restart.
    let sent = view.attempts.saturating_sub(earlier.attempts);
    let succeeded = view.succeeded.saturating_sub(earlier.succeeded);
    let per_second = sent as f64 / span.as_secs_f64().max(0.001);
    let failed = if sent == 0 { 0.0 } else { sent.saturating_sub(succeeded) as f64 / sent as f64 };
    let arrow = match view.pending.held.cmp(&earlier.pending.held) {
        std::cmp::Ordering::Less => " ↓",
        std::cmp::Ordering::Greater => " ↑",
        std::cmp::Ordering::Equal => "",
    };
    let name = if named { format!("{}  ", view.name) } else { String::new() };
    let paused = if view.paused { "   PAUSED" } else { "" };
    format!(
        "{}  {name}sent/s {}   failed {}   ready {}   delayed {}   held {}{arrow}   dead {}{paused}",
        instant::clock(now),
        count(per_second.round() as u64),
        percent(failed),
        count(view.pending.ready),
        count(view.pending.delayed),
        count(view.pending.held),
        count(view.letters.open),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::answers::{self, HealthChange, Incident, LetterCounts, Pending};

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

    #[test]
    fn a_line_says_what_happened_between_two_looks() {
        let now = Time::from_millis(1_794_778_805_120);
        let text = line(&view(1_000, 900, 7), &view(6_980, 6_868, 5), Duration::from_secs(1), false, now);
        assert_eq!(text, "21:40:05  sent/s 5,980   failed 0.2 %   ready 0   delayed 3   held 5 ↓   dead 61");
    }

    #[test]
    fn what_happened_between_two_looks_is_told() {
        let change = |ms, what: &str| HealthChange {
            at: Some(answers::Instant(Time::from_millis(1_794_778_805_000 + ms))),
            what: what.into(),
        };
        let (mut earlier, mut later) = (view(0, 0, 0), view(0, 0, 0));
        earlier.health.history = vec![change(0, "▲ breaker open")];
        later.health.history = vec![change(0, "▲ breaker open"), change(1_000, "▼ breaker closed")];
        assert_eq!(news(&earlier, &later, false), ["21:40:06  ▼ breaker closed"]);
        assert!(news(&later, &later, false).is_empty());
        let at = Some(answers::Instant(Time::from_millis(1_794_778_805_000)));
        earlier.health.incident = Some(Incident { from: at, until: at, ..Incident::default() });
        later.health.incident = Some(Incident { from: at, until: at, over: true, ..Incident::default() });
        assert!(
            outcome(&earlier, &later).unwrap().starts_with("incident 21:40:05–21:40:05  failed attempts 0")
        );
        assert_eq!(outcome(&later, &later), None);
    }

    #[test]
    fn a_restart_of_the_processor_is_no_negative_rate() {
        let now = Time::from_millis(0);
        let text = line(&view(1_000, 900, 0), &view(10, 10, 0), Duration::from_secs(1), true, now);
        assert!(text.starts_with("00:00:00  orders  sent/s 0   failed 0.0 %"), "{text}");
    }
}
