//! What of a pipeline needs attention, in words: one list for `status`, `status --watch` and the page, so that all of them
//! say the same. Pure: figures in, notices out, the most urgent first.

use std::time::Duration;

use redrive::dispatch::health;
use redrive::{Figures, HealthChange, HealthEntry, HealthFigures, Time, timestamp};
use redrive_core::breaker::{BreakerState, BreakerView};
use serde::Serialize;

/// How long a standstill of the process is shown.
const STANDSTILL_SHOWN: Duration = Duration::from_mins(10);

/// How urgent it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Level {
    /// Messages do not move, or data is damaged.
    Bad,
    /// Messages move, but slower or not all of them.
    Warning,
}

/// What it is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Subject {
    Paused,
    Guard,
    Breaker,
    RetryAfter,
    Partition,
    Store,
    Standstill,
    Suspects,
    Resets,
    Budget,
    Endpoints,
    Ramp,
}

/// One thing that somebody on call should know.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct Notice {
    subject: Subject,
    level: Level,
    /// In few words, for a line or a label.
    short: String,
    text: String,
    /// The command that changes it, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    command: Option<String>,
}

impl Notice {
    fn bad(subject: Subject, short: impl Into<String>, text: impl Into<String>) -> Self {
        Self { subject, level: Level::Bad, short: short.into(), text: text.into(), command: None }
    }

    fn warning(subject: Subject, short: impl Into<String>, text: impl Into<String>) -> Self {
        Self { level: Level::Warning, ..Self::bad(subject, short, text) }
    }

    fn lifted_by(self, command: String) -> Self {
        Self { command: Some(command), ..self }
    }
}

/// What needs attention in this pipeline.
pub fn notices(name: &str, paused: bool, figures: &Figures, now: Time) -> Vec<Notice> {
    let mut notices = Vec::new();
    notices.extend(pause(name, paused, figures));
    notices.extend(breaker(name, figures));
    notices.extend(retry_after(name, &figures.health));
    notices.extend(figures.condition.problems.iter().map(|problem| {
        Notice::bad(
            Subject::Partition,
            format!("{} held", problem.place),
            format!("{}: {}", problem.place, problem.text),
        )
    }));
    notices.extend(store(figures));
    notices.extend(standstill(&figures.health, now));
    notices.extend(slower(figures));
    notices
}

fn pause(name: &str, paused: bool, figures: &Figures) -> Option<Notice> {
    if let Some(flood) = &figures.health.flood {
        let why = health::flood(flood);
        let text =
            format!("paused by the dead-letter guard: {why}; --dead-letter-anyway lets more of them die");
        let notice = Notice::bad(Subject::Guard, "PAUSED by the dead-letter guard", text);
        return Some(notice.lifted_by(format!("redrive resume {name}")));
    }
    let text = format!(
        "paused: nothing is sent, {} messages wait; `redrive audit --actions` says by whom",
        count(figures.pending.pending())
    );
    paused.then(|| Notice::bad(Subject::Paused, "PAUSED", text).lifted_by(format!("redrive resume {name}")))
}

fn breaker(name: &str, figures: &Figures) -> Option<Notice> {
    let BreakerView { state, since, next_probe, rounds, cause, .. } = &figures.health.breaker;
    let short = match state {
        BreakerState::Closed => return None,
        BreakerState::Open => "breaker OPEN",
        BreakerState::HalfOpen => "breaker HALF OPEN",
    };
    let mut text = format!("breaker {}", if *state == BreakerState::Open { "open" } else { "half open" });
    if let Some(since) = since {
        text += &format!(" since {}", utc(*since));
    }
    if let Some(cause) = cause {
        text += &format!(": {}", health::cause(cause));
        text += &cause.last.map(|kind| format!(", the last one with {kind}")).unwrap_or_default();
    }
    let failures = &figures.recent.failures;
    if failures.replayed > 0 && failures.replayed * 2 >= failures.total() {
        text += ". Most of them were replayed letters";
    }
    text += ". Nothing but probes is sent";
    if *rounds > 0 {
        text += &format!("; rounds of probes so far: {rounds}");
    }
    if let Some(next) = next_probe {
        text += &format!("; next probe {}", utc(*next));
    }
    Some(Notice::bad(Subject::Breaker, short, text).lifted_by(format!("redrive breaker probe {name}")))
}

fn retry_after(name: &str, health: &HealthFigures) -> Option<Notice> {
    let wait = health.wait.as_ref()?;
    let until = utc(wait.until);
    let text = format!("nothing is sent until {until}: {}", health::asked(wait));
    let notice = Notice::bad(Subject::RetryAfter, format!("ASKED TO WAIT until {until}"), text);
    Some(notice.lifted_by(format!("redrive resume {name} --now")))
}

fn store(figures: &Figures) -> Option<Notice> {
    let damaged = figures.upkeep.damaged;
    let places = if damaged == 1 { "place" } else { "places" };
    let text = format!("{} damaged {places} in stored data: keep the last backup", count(damaged));
    let notice = Notice::bad(Subject::Store, "stored data damaged", text);
    (damaged > 0).then(|| notice.lifted_by("redrive journal --verify".to_owned()))
}

/// A process that did not run for a while, as long as its effects may show.
fn standstill(health: &HealthFigures, now: Time) -> Option<Notice> {
    let lately = |entry: &&HealthEntry| now.since(entry.at) < STANDSTILL_SHOWN;
    let latest = health.history.iter().rev().take_while(lately);
    let (at, span) = latest.into_iter().find_map(|entry| match &entry.change {
        HealthChange::StoodStill { span } => Some((entry.at, span.as_secs())),
        _ => None,
    })?;
    let short = format!("process stood still for {span} s");
    let text = format!(
        "the process did not run for {span} s until {}: it was stopped, or its machine suspended, or starved of \
         processor or disk",
        utc(at)
    );
    Some(Notice::warning(Subject::Standstill, short, text))
}

/// What makes a pipeline slower than it could be.
fn slower(figures: &Figures) -> Vec<Notice> {
    let HealthFigures { suspects, resets, budget_remaining, endpoints, permits, limit, .. } = &figures.health;
    let mut notices = Vec::new();
    if *suspects > 0 {
        notices.push(Notice::warning(
            Subject::Suspects,
            format!("{} suspects", count(*suspects)),
            format!(
                "{} suspects of having ended the process run one at a time: it ended without a clean stop while they ran",
                count(*suspects)
            ),
        ));
    }
    if resets.lately > 0 {
        let lately = count(resets.lately);
        let apart = match resets.apart {
            0 => String::new(),
            apart => format!("; {} of their messages run one at a time", count(apart)),
        };
        notices.push(Notice::warning(
            Subject::Resets,
            format!("{lately} connections closed by receivers"),
            format!("receivers closed {lately} connections while handling a message in the last two minutes{apart}"),
        ));
    }
    if *budget_remaining == Some(0) {
        notices.push(Notice::warning(
            Subject::Budget,
            "retry budget used up",
            "the retry budget is used up: more failures per minute than `budget` allows",
        ));
    }
    if let Some(endpoints) = endpoints
        && endpoints.endpoints + endpoints.origins > 0
    {
        notices.push(Notice::warning(
            Subject::Endpoints,
            format!("{} endpoints in cooldown", count(endpoints.endpoints)),
            format!(
                "{} endpoints and {} origins in cooldown; their messages are deferred",
                count(endpoints.endpoints),
                count(endpoints.origins)
            ),
        ));
    }
    if !figures.health.is_gated() && permits < limit {
        notices.push(Notice::warning(
            Subject::Ramp,
            format!("permits {permits} of {limit}"),
            format!("calls ramp up after an outage: {permits} of {limit} permits"),
        ));
    }
    notices
}

/// `2026-11-17 03:12:07Z`.
fn utc(at: Time) -> String {
    let text = timestamp::print(at);
    text.get(..19).map_or(text.clone(), |seconds| format!("{}Z", seconds.replace('T', " ")))
}

/// `6,361,204`.
fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use redrive::FailureKind;
    use redrive::dispatch::{AskedWait, ResetFigures};
    use redrive::engine::{Problem, ProblemKind};
    use redrive_core::breaker::Cause;
    use redrive_core::guard::Flood;
    use redrive_core::views::Gate;

    use super::*;

    const AT: Time = Time::from_millis(1_794_700_800_000);

    fn texts(figures: &Figures) -> Vec<String> {
        notices("orders", figures.paused, figures, AT)
            .into_iter()
            .map(|notice| {
                format!("{:?}: {} [{}]", notice.level, notice.text, notice.command.unwrap_or_default())
            })
            .collect()
    }

    #[test]
    fn a_healthy_pipeline_needs_no_attention() {
        assert!(notices("orders", false, &Figures::default(), AT).is_empty());
    }

    #[test]
    fn an_open_breaker_says_since_when_and_why() {
        let mut figures = Figures::default();
        figures.health.breaker = BreakerView {
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
        assert!(
            texts(&figures)[0].contains("with reset. Most of them were replayed letters. "),
            "{figures:?}"
        );
    }

    #[test]
    fn what_holds_a_whole_pipeline_says_how_to_lift_it() {
        let mut figures = Figures { paused: true, ..Figures::default() };
        figures.pending.held = 6_361_204;
        assert_eq!(
            texts(&figures),
            [
                "Bad: paused: nothing is sent, 6,361,204 messages wait; `redrive audit --actions` says by whom [redrive resume orders]"
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
            texts[1]
                .starts_with("Bad: nothing is sent until 2026-11-15 00:05:00Z: the downstream answered o-1")
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
        let later = notices("orders", false, &figures, AT.plus(STANDSTILL_SHOWN));
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
        assert!(
            texts[1].contains("receivers closed 1,812 connections while handling a message"),
            "{texts:?}"
        );
    }
}
