//! What needs attention in a pipeline, in words: one list for `status`, `status --watch` and the page, so that all show
//! the same. Pure: figures in, notices out, the most urgent first.

use std::time::Duration;

use redrive::internal::dispatch::health;
use redrive::internal::subscriptions::{Counts as SubscriptionCounts, Stopped};
use redrive::replay::StoppedReplays;
use redrive::{Figures, HealthChange, HealthEntry, HealthFigures, StatusPage, Time, timestamp};
use redrive_api::{AttentionNotice, Level, Subject};
use redrive_core::breaker::{BreakerState, BreakerView};

/// How long a standstill of the process is shown.
const STANDSTILL_SHOWN: Duration = Duration::from_mins(10);
/// A purge that is unannounced for this long is shown: by then its announcement has failed four times.
const ANNOUNCED_WITHIN: Duration = Duration::from_mins(5);

fn bad(subject: Subject, short: impl Into<String>, text: impl Into<String>) -> AttentionNotice {
    AttentionNotice {
        subject,
        level: Level::Bad,
        short: short.into(),
        text: text.into(),
        command: None,
        links: Vec::new(),
    }
}

fn warning(subject: Subject, short: impl Into<String>, text: impl Into<String>) -> AttentionNotice {
    AttentionNotice { level: Level::Warning, ..bad(subject, short, text) }
}

/// Adds the command that ends the condition.
fn lifted_by(notice: AttentionNotice, command: String) -> AttentionNotice {
    AttentionNotice { command: Some(command), ..notice }
}

/// Adds the status pages of the services behind the sink.
fn see(notice: AttentionNotice, pages: &[StatusPage]) -> AttentionNotice {
    if pages.is_empty() {
        return notice;
    }
    let named = pages.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    let text = format!("{}. Status pages: {named}", notice.text);
    AttentionNotice { text, links: pages.iter().map(|page| page.url.to_owned()).collect(), ..notice }
}

/// Facts about a pipeline beyond its figures.
#[derive(Clone, Copy, Debug, Default)]
pub struct Circumstances<'a> {
    pub outage_gate: bool,
    /// `None` for a sink without subscriptions.
    pub subscriptions: Option<SubscriptionCounts>,
    pub stopped_replays: Option<&'a StoppedReplays>,
    pub status_pages: &'a [StatusPage],
}

/// The notices about this pipeline.
pub fn notices(
    name: &str,
    paused: bool,
    figures: &Figures,
    beside: &Circumstances<'_>,
    now: Time,
) -> Vec<AttentionNotice> {
    let mut notices = Vec::new();
    notices.extend(pause(name, paused, figures));
    notices.extend(breaker(name, figures).map(|notice| see(notice, beside.status_pages)));
    notices.extend(outage(&figures.health, beside.outage_gate));
    notices.extend(retry_after(name, &figures.health));
    notices.extend(figures.condition.problems.iter().map(|problem| {
        bad(
            Subject::Partition,
            format!("{} held", problem.place),
            format!("{}: {}", problem.place, problem.text),
        )
    }));
    notices.extend(store(figures));
    notices.extend(standstill(&figures.health, now));
    notices.extend(beside.subscriptions.iter().flat_map(|counts| of_subscriptions(name, counts, now)));
    notices.extend(beside.stopped_replays.map(replay));
    notices.extend(slower(figures, beside.status_pages));
    notices
}

fn pause(name: &str, paused: bool, figures: &Figures) -> Option<AttentionNotice> {
    if let Some(flood) = &figures.health.flood {
        let why = health::flood(flood);
        let text = format!(
            "paused by the dead-letter guard: {why}; `--dead-letter-anyway` resumes and lets them be dead-lettered"
        );
        let notice = bad(Subject::Guard, "PAUSED by the dead-letter guard", text);
        return Some(lifted_by(notice, format!("redrive resume {name}")));
    }
    let text = format!(
        "paused: nothing is sent, {} messages wait; `redrive audit --actions` shows who paused it",
        count(figures.pending.pending())
    );
    paused.then(|| lifted_by(bad(Subject::Paused, "PAUSED", text), format!("redrive resume {name}")))
}

fn breaker(name: &str, figures: &Figures) -> Option<AttentionNotice> {
    let BreakerView { state, since, next_probe, rounds, cause, .. } = &figures.health.breaker;
    let short = match state {
        BreakerState::Closed => return None,
        BreakerState::Open => "breaker OPEN",
        BreakerState::HalfOpen => "breaker HALF OPEN",
    };
    let failures = &figures.recent.failures;
    let are_replays = failures.replayed > 0 && failures.replayed * 2 >= failures.total();
    let cause = cause.map(|cause| {
        let last = cause.last.map(|kind| format!(", the last one with {kind}")).unwrap_or_default();
        format!(": {}{last}", health::cause(&cause))
    });
    let text = [
        format!("breaker {}", if *state == BreakerState::Open { "open" } else { "half open" }),
        since.map(|since| format!(" since {}", utc(since))).unwrap_or_default(),
        cause.unwrap_or_default(),
        if are_replays { ". Most of them were replayed letters".to_owned() } else { String::new() },
        ". Nothing but probes is sent".to_owned(),
        if *rounds > 0 { format!("; rounds of probes so far: {rounds}") } else { String::new() },
        next_probe.map(|next| format!("; next probe {}", utc(next))).unwrap_or_default(),
    ]
    .concat();
    Some(lifted_by(bad(Subject::Breaker, short, text), format!("redrive breaker probe {name}")))
}

/// Nothing gets through, but the breaker is not open: it has seen too few messages, or it is disabled. The outage gate
/// determines what happens to messages that run out of attempts.
fn outage(health: &HealthFigures, outage_gate: bool) -> Option<AttentionNotice> {
    let outage = health.outage.filter(|_| health.breaker.state == BreakerState::Closed)?;
    let failed = count(outage.failed);
    let since = match outage.last_good {
        Some(at) => format!("no success since {}", utc(at)),
        None => "no success so far".to_owned(),
    };
    let breaker = if health.breaker.enabled {
        "The breaker has seen too few within its window to open"
    } else {
        "The breaker is disabled, so calls continue"
    };
    let exhausted = if outage_gate {
        "Until a call succeeds, messages that run out of attempts are held, for `hold_max` at most; permanent failures and \
         expired messages are still dead-lettered"
    } else {
        "`outage_gate` is off: messages that run out of attempts are dead-lettered"
    };
    let text = format!("{since}: {failed} messages failed since. {breaker}. {exhausted}");
    Some(bad(Subject::Outage, format!("OUTAGE: {since}"), text))
}

fn retry_after(name: &str, health: &HealthFigures) -> Option<AttentionNotice> {
    let wait = health.wait.as_ref()?;
    let until = utc(wait.until);
    let text = format!("nothing is sent until {until}: {}", health::asked(wait));
    let notice = bad(Subject::RetryAfter, format!("ASKED TO WAIT until {until}"), text);
    Some(lifted_by(notice, format!("redrive resume {name} --now")))
}

fn store(figures: &Figures) -> Option<AttentionNotice> {
    let damaged = figures.upkeep.damaged;
    let places = if damaged == 1 { "place" } else { "places" };
    let text = format!("{} damaged {places} in stored data: keep the last backup", count(damaged));
    let notice = bad(Subject::Store, "stored data damaged", text);
    (damaged > 0).then(|| lifted_by(notice, "redrive journal --verify".to_owned()))
}

/// Problems with the table of subscriptions.
fn of_subscriptions(name: &str, counts: &SubscriptionCounts, now: Time) -> Vec<AttentionNotice> {
    let mut notices = Vec::new();
    if counts.damaged > 0 {
        let lines = if counts.damaged == 1 { "line" } else { "lines" };
        let text = format!(
            "{} damaged {lines} in subscriptions.log: their content is lost, and at the next start the endpoints they were \
             about are checked again; `redrive journal --pipeline {name} --accept-loss` removes them",
            count(counts.damaged)
        );
        let notice = bad(Subject::Store, "subscriptions.log damaged", text);
        notices.push(lifted_by(notice, "redrive journal --verify".to_owned()));
    }
    notices.extend(counts.stopped.map(|stopped| purging(name, stopped)));
    let overdue = counts.unannounced_since.filter(|since| now.since(*since) >= ANNOUNCED_WITHIN);
    if let Some(since) = overdue {
        let purges = if counts.unannounced == 1 { "purge is" } else { "purges are" };
        let text = format!(
            "{} {purges} not announced to `on_purged`, the first of {}: it fails. It is tried again every ten minutes at \
             least, and nothing is forgotten; the log has the cause",
            count(counts.unannounced),
            utc(since)
        );
        notices.push(warning(Subject::Subscriptions, "on_purged FAILS", text));
    }
    if counts.without_key > 0 {
        let stored = if counts.without_key == 1 { "subscription was" } else { "subscriptions were" };
        let text = format!(
            "{} stored {stored} made with a VAPID key that is not configured: their messages become dead letters. Put its \
             file into `previous_vapid_key_files`",
            count(counts.without_key)
        );
        let notice = warning(Subject::Subscriptions, "VAPID key missing", text);
        notices.push(lifted_by(notice, format!("redrive subscriptions keys {name}")));
    }
    notices
}

fn purging(name: &str, stopped: Stopped) -> AttentionNotice {
    let text = if stopped.is_unknown() {
        "the damaged part of subscriptions.log records whether purging is stopped, so it stays stopped"
            .to_owned()
    } else {
        format!(
            "purging of subscriptions stopped at {}: {} % of the active ones were gone within 5 min (limit 2 %). That looks \
             like a fault at the push service or at us",
            utc(stopped.at),
            stopped.percent()
        )
    };
    let notice = warning(Subject::Subscriptions, "PURGING STOPPED", text);
    lifted_by(notice, format!("redrive subscriptions resume {name}"))
}

fn replay(stopped: &StoppedReplays) -> AttentionNotice {
    let notice = warning(Subject::Replay, "REPLAY STOPPED", stopped.sentence());
    lifted_by(notice, format!("redrive dlq replay --resume {}", stopped.last))
}

/// A process that did not run for a while, as long as the effects may show.
fn standstill(health: &HealthFigures, now: Time) -> Option<AttentionNotice> {
    let lately = |entry: &&HealthEntry| now.since(entry.at) < STANDSTILL_SHOWN;
    let latest = health.history.iter().rev().take_while(lately);
    let (at, span) = latest.into_iter().find_map(|entry| match &entry.change {
        HealthChange::StoodStill { span } => Some((entry.at, span.as_secs())),
        _ => None,
    })?;
    let short = format!("process did not run for {span} s");
    let text = format!(
        "the process did not run for {span} s until {}: it was stopped, or its machine suspended, or starved of \
         processor or disk",
        utc(at)
    );
    Some(warning(Subject::Standstill, short, text))
}

/// Conditions that slow a pipeline down.
fn slower(figures: &Figures, pages: &[StatusPage]) -> Vec<AttentionNotice> {
    let HealthFigures { suspects, resets, budget_remaining, endpoints, permits, limit, .. } = &figures.health;
    let mut notices = Vec::new();
    if *suspects > 0 {
        notices.push(warning(
            Subject::Suspects,
            format!("{} suspects", count(*suspects)),
            format!(
                "{} messages were in flight when the process crashed; they run one at a time until one is found to be the cause",
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
        notices.push(warning(
            Subject::Resets,
            format!("{lately} connections closed by receivers"),
            format!("receivers closed {lately} connections while handling a message in the last two minutes{apart}"),
        ));
    }
    if *budget_remaining == Some(0) {
        notices.push(warning(
            Subject::Budget,
            "retry budget used up",
            "the retry budget is used up: more failures per minute than `budget` allows",
        ));
    }
    if let Some(endpoints) = endpoints
        && endpoints.endpoints + endpoints.origins > 0
    {
        let all = [(endpoints.endpoints, endpoints.limit_by.name()), (endpoints.origins, "origin")];
        let some = all.into_iter().filter(|(number, _)| *number > 0);
        let some = some
            .map(|(number, what)| format!("{} {what}{}", count(number), if number == 1 { "" } else { "s" }));
        let some = some.collect::<Vec<_>>().join(" and ");
        let whose = if endpoints.endpoints + endpoints.origins == 1 { "its" } else { "their" };
        let notice = warning(
            Subject::Endpoints,
            format!("{some} in cooldown"),
            format!("{some} in cooldown; {whose} messages are deferred"),
        );
        // An origin is a whole service if the sink names status pages.
        notices.push(if endpoints.origins > 0 { see(notice, pages) } else { notice });
    }
    if !figures.health.is_gated() && (permits < limit || figures.health.reload_per_second.is_some()) {
        let rate = figures.health.reload_per_second.map(|rate| format!(", at most {rate:.0} calls/s"));
        notices.push(warning(
            Subject::Ramp,
            format!("permits {permits} of {limit}"),
            format!(
                "calls ramp up after an outage: {permits} of {limit} permits{}",
                rate.unwrap_or_default()
            ),
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
mod tests;
