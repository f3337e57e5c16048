//! Describes what a replay would do.

use std::time::Duration;

use redrive::Time;
use redrive_api::{LastReplay, ReplayForecast, Superseded};

use crate::exit::Failed;
use crate::output::{Align, Output, TextTable, age, count, instant, rate, safe};

/// The maximum number of tenants named in one line.
const TENANTS_MAX: usize = 5;

/// `would replay 300 (frozen)   to orders.replay (only this pipeline sees it)   at 20/s ± jitter ≈ 15 s   …`
pub(super) fn would(dry: &ReplayForecast, pipeline: &str) -> String {
    if dry.would_replay == 0 {
        let parts = ["would replay 0".to_owned()].into_iter().chain(would_skip(dry));
        return parts.collect::<Vec<_>>().join("   ");
    }
    let mut parts = vec![format!("would replay {} (frozen)", count(dry.would_replay))];
    if !dry.to.is_empty() {
        parts.push(target(&dry.to, dry.topic.as_deref().unwrap_or(pipeline)));
    }
    parts.push(match dry.rate {
        None => "as fast as the pipeline takes them".to_owned(),
        Some(pace) => {
            let seconds = dry.about_seconds.unwrap_or(dry.would_replay as f64 / pace);
            format!("at {} ± jitter ≈ {}", rate(pace), about(seconds))
        }
    });
    if dry.key_order {
        parts.push(match dry.unordered {
            0 => "per-key order kept".to_owned(),
            imported => format!(
                "per-key order kept, but not of {}",
                plural(imported, "imported letter", "imported letters")
            ),
        });
    }
    parts.extend(later_successes(dry));
    parts.extend(would_skip(dry));
    parts.join("   ")
}

fn would_skip(dry: &ReplayForecast) -> Option<String> {
    let skips: u64 = dry.skips.values().sum();
    let often = if dry.skips.contains_key("too_often") {
        "; replayed three times before, --force takes those"
    } else {
        ""
    };
    (skips > 0).then(|| format!("would skip {}{often}", count(skips)))
}

/// `4 keys have later successes (list: --show superseded)`; printed at the start of a replay too.
pub(super) fn later_successes(dry: &ReplayForecast) -> Option<String> {
    // Letters that stay open are reported elsewhere.
    let keys = if dry.superseded_skipped > 0 { 0 } else { dry.superseded.keys };
    (keys > 0).then(|| format!("{} (list: --show superseded)", have_later_successes(keys)))
}

/// `1 key has had a later success`, `4 keys have later successes`.
fn have_later_successes(keys: u64) -> String {
    plural(keys, "key has had a later success", "keys have later successes")
}

fn target(to: &str, place: &str) -> String {
    let place = safe::line(place);
    match to {
        "source" => format!("to {place}"),
        _ => format!("to {place} (only this pipeline sees it)"),
    }
}

/// Further details, one per line, if there are any.
pub(super) fn details(dry: &ReplayForecast, now: Time) -> Vec<String> {
    let mut lines = Vec::new();
    // A replay of nothing needs no safeguards. An older processor reports none.
    if dry.would_replay > 0 && !dry.breaker.is_empty() {
        lines.push(format!("  {}   {}", first(dry), health(dry)));
    }
    if dry.ambiguous > dry.ambiguous_skipped {
        let letters = plural(dry.ambiguous, "letter has", "letters have");
        let same = if dry.ambiguous_new_id < dry.ambiguous { " with the same message id" } else { "" };
        let what = if dry.ambiguous_undecided {
            format!(": replay them{same} with --ambiguous ok, leave them open with --ambiguous skip")
        } else {
            String::new()
        };
        lines.push(format!("  {letters} an attempt whose end is unknown{what}"));
    }
    if dry.ambiguous_skipped > 0 {
        let letters = plural(dry.ambiguous_skipped, "letter is", "letters are");
        lines.push(format!("  {letters} left open by --ambiguous skip"));
    }
    if dry.ambiguous_new_id > 0 {
        let of_them = plural(dry.ambiguous_new_id, "of them has", "of them have");
        let what = "a new message id since an edit: a receiver that remembers ids applies it, whatever it did before";
        lines.push(format!("  {of_them} {what}"));
    }
    if let Some(horizon) = dry.ledger_horizon.as_ref().filter(|_| dry.would_replay + dry.beyond_ledger > 0) {
        let horizon = safe::line(horizon);
        lines.push(match dry.beyond_ledger {
            0 => format!("  all were first attempted within the receiver's {horizon} id memory"),
            some => format!(
                "  {} first attempted before the {horizon} that the receiver remembers ids: what it applied then it would \
                 apply again; --beyond-ledger replays them",
                plural(some, "letter was", "letters were")
            ),
        });
    }
    if dry.superseded_skipped > 0 {
        let letters = plural(dry.superseded_skipped, "letter is", "letters are");
        let keys = have_later_successes(dry.superseded.keys);
        lines.push(format!("  {letters} left open by --skip-superseded: {keys} (list: --show superseded)"));
    }
    lines.extend(incomplete(&dry.superseded).map(|line| format!("  {line}")));
    for taken in &dry.taken {
        let letters = plural(taken.letters, "more letter waits", "more letters wait");
        let replay = safe::line(&taken.replay);
        lines.push(format!(
            "  {letters} in {replay} and would stay there (redrive dlq replays show {replay})"
        ));
    }
    lines.extend(dry.last.as_ref().map(|last| format!("  {}", last_replay(last, now))));
    if let Some(oldest) = dry.oldest {
        lines.push(format!("  oldest died {} ago", age::since(now, oldest.0)));
    }
    if !dry.tenants.is_empty() {
        let named = dry.tenants.iter().take(TENANTS_MAX);
        let named: Vec<String> =
            named.map(|one| format!("{} {}", safe::line(&one.tenant), count(one.letters))).collect();
        let more = if dry.tenants.len() > TENANTS_MAX { ", …" } else { "" };
        lines.push(format!("  tenants take turns: {}{more}", named.join(", ")));
    }
    if dry.beyond_quota > 0 {
        lines.push(format!(
            "  {} left open by --tenant-max",
            plural(dry.beyond_quota, "letter is", "letters are")
        ));
    }
    lines
}

/// The safeguards of the job.
fn first(dry: &ReplayForecast) -> String {
    let canary = match dry.canary {
        0 => "no canary".to_owned(),
        letters => format!("canary {}", count(letters)),
    };
    match &dry.stop_at {
        Some(share) => format!("{canary}   stops above {} of the last 50 failed", safe::line(share)),
        None => format!("{canary}   never stops for failures"),
    }
}

fn health(dry: &ReplayForecast) -> String {
    let mut parts = vec![format!("breaker {}", safe::line(&dry.breaker.replace('_', " ")))];
    parts.extend(dry.budget_remaining.map(|left| format!("retry budget {} left", count(left.into()))));
    if dry.paused {
        parts.push("the pipeline is paused".to_owned());
    }
    parts.join("   ")
}

fn last_replay(last: &LastReplay, now: Time) -> String {
    let ago = age::since(now, last.created.0);
    let of = match last.by.as_str() {
        "group" => "with letters of these groups",
        "perhaps_group" => "that may have had letters of these groups",
        _ => "of this selection",
    };
    format!(
        "last replay {of}: {} {ago} ago, {}   succeeded {}   dead again {}   untouched {}",
        safe::line(&last.id),
        safe::line(&last.state),
        count(last.succeeded),
        count(last.dead_again),
        count(last.untouched)
    )
}

/// `later successes known since 10:41:07; 12 letters are older than that`: the limits of `superseded`.
fn incomplete(keys: &Superseded) -> Option<String> {
    let own = if keys.own_partitions_only { ", in the partitions of this member only" } else { "" };
    let since = match keys.since {
        Some(since) => {
            format!("later successes known since {}{}{own}", instant::date_and_clock(since.0), gaps(keys))
        }
        None if keys.older_letters > 0 => {
            let older = plural(keys.older_letters, "letter is", "letters are");
            return Some(format!("no later success is known yet; {older} older"));
        }
        None => "no later success is known yet".to_owned(),
    };
    match keys.older_letters {
        0 => (!own.is_empty() || !keys.gaps.is_empty()).then_some(since),
        older => Some(format!("{since}; {} older than that", plural(older, "letter is", "letters are"))),
    }
}

/// `, but not from 10:52:01 to 10:53:20 (a process was killed)`; with several gaps, the last one and their number.
fn gaps(keys: &Superseded) -> String {
    let Some(last) = keys.gaps.last() else { return String::new() };
    let clock = |instant: redrive_api::Instant| instant::date_and_clock(instant.0);
    let more = match keys.gaps.len() - 1 {
        0 => String::new(),
        more => format!(" and {}", plural(more as u64, "earlier gap", "earlier gaps")),
    };
    format!(", but not from {} to {} (a process was killed){more}", clock(last.from), clock(last.until))
}

/// The keys that a replay would overwrite with old state.
pub(super) fn superseded(keys: &Superseded, out: &mut Output) -> Result<(), Failed> {
    let since = match keys.since {
        Some(since) => {
            format!("successes are known since {}{}", instant::date_and_clock(since.0), gaps(keys))
        }
        None => "no success is known yet".to_owned(),
    };
    if keys.keys == 0 {
        return out.line(&format!("no key has a later success; {since}"));
    }
    let mut table = TextTable::new([("KEY", Align::Left), ("LETTERS", Align::Right)]);
    for one in &keys.shown {
        table.row([safe::line(&one.key), count(one.letters)]);
    }
    out.table(&table)?;
    let more = keys.keys.saturating_sub(keys.shown.len() as u64);
    let more = if more > 0 { format!(", {} more keys", count(more)) } else { String::new() };
    out.line(&format!(
        "   {} of {}{more}; {since}",
        plural(keys.letters, "letter", "letters"),
        plural(keys.keys, "key", "keys")
    ))
}

pub(super) fn plural(number: u64, one: &str, many: &str) -> String {
    format!("{} {}", count(number), if number == 1 { one } else { many })
}

/// The other consumer groups that get the letters.
pub(super) fn others(groups: &[String]) -> String {
    if groups.is_empty() {
        return "replaying to the source topic: no other consumer group reads it now, but a group that reads it later gets the letters \
                again"
            .to_owned();
    }
    let names: Vec<String> = groups.iter().map(|group| safe::line(group)).collect();
    let (count, names) = (count(groups.len() as u64), names.join(", "));
    format!(
        "replaying to the source topic: {count} other consumer groups will receive these letters again: {names}"
    )
}

/// `15 s`, `4m`, `3h 02m`.
fn about(seconds: f64) -> String {
    if seconds < 120.0 {
        format!("{:.0} s", seconds.ceil())
    } else {
        age::age(Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX))
    }
}

#[cfg(test)]
mod tests {
    use redrive_api::TakenByReplay;

    use super::*;

    #[test]
    fn a_plan_reads_as_one_sentence() {
        let dry = ReplayForecast {
            would_replay: 300,
            rate: Some(20.0),
            about_seconds: Some(15.0),
            to: "pipeline".into(),
            topic: Some("orders.replay".into()),
            key_order: true,
            superseded: Superseded { keys: 4, letters: 9, ..Superseded::default() },
            ..ReplayForecast::default()
        };
        assert_eq!(
            would(&dry, "orders"),
            "would replay 300 (frozen)   to orders.replay (only this pipeline sees it)   at 20/s ± jitter ≈ 15 s   \
             per-key order kept   4 keys have later successes (list: --show superseded)"
        );
        let imported = would(&ReplayForecast { unordered: 12, ..dry }, "orders");
        assert!(
            imported.contains("   per-key order kept, but not of 12 imported letters   4 keys"),
            "{imported}"
        );
        let dry = ReplayForecast { would_replay: 40_000, rate: Some(20.0), ..ReplayForecast::default() };
        assert_eq!(would(&dry, "orders"), "would replay 40,000 (frozen)   at 20/s ± jitter ≈ 33m");
        let dry = ReplayForecast { would_replay: 1, ..ReplayForecast::default() };
        assert_eq!(would(&dry, "orders"), "would replay 1 (frozen)   as fast as the pipeline takes them");
    }

    #[test]
    fn what_an_operator_should_know_has_a_line_each() {
        assert!(
            details(&ReplayForecast::default(), Time::ZERO).is_empty(),
            "an older processor says nothing"
        );
        let dry = ReplayForecast {
            would_replay: 300,
            canary: 10,
            stop_at: Some("20%".into()),
            breaker: "half_open".into(),
            budget_remaining: Some(80),
            ambiguous: 12,
            ambiguous_undecided: true,
            taken: vec![TakenByReplay { replay: "r-29".into(), letters: 5 }],
            last: Some(LastReplay {
                id: "r-30".into(),
                state: "done".into(),
                succeeded: 280,
                ..LastReplay::default()
            }),
            ..ReplayForecast::default()
        };
        let lines = details(&dry, Time::ZERO);
        assert_eq!(
            lines[0],
            "  canary 10   stops above 20% of the last 50 failed   breaker half open   retry budget 80 left"
        );
        assert!(lines[1].starts_with("  12 letters have an attempt whose end is unknown"), "{lines:?}");
        assert!(lines[1].contains("--ambiguous ok"), "{lines:?}");
        assert_eq!(
            lines[2],
            "  5 more letters wait in r-29 and would stay there (redrive dlq replays show r-29)"
        );
        assert!(lines[3].contains("r-30 0s ago, done   succeeded 280"), "{lines:?}");
    }

    #[test]
    fn a_plan_of_nothing_does_not_speak_of_how_it_would_be_replayed() {
        let dry = ReplayForecast {
            rate: Some(20.0),
            to: "pipeline".into(),
            key_order: true,
            breaker: "closed".into(),
            ledger_horizon: Some("168h".into()),
            ambiguous_skipped: 2,
            ambiguous: 2,
            ..ReplayForecast::default()
        };
        assert_eq!(would(&dry, "orders"), "would replay 0");
        assert_eq!(details(&dry, Time::ZERO), ["  2 letters are left open by --ambiguous skip"]);
    }

    #[test]
    fn letters_that_stay_open_are_no_warning() {
        let dry = ReplayForecast {
            superseded: Superseded { keys: 4, letters: 9, ..Superseded::default() },
            superseded_skipped: 9,
            ..ReplayForecast::default()
        };
        assert_eq!(later_successes(&dry), None);
        assert!(
            details(&dry, Time::ZERO)[0]
                .starts_with("  9 letters are left open by --skip-superseded: 4 keys")
        );
    }

    #[test]
    fn a_plan_says_what_it_does_not_know_of_later_successes() {
        let since = Some(redrive_api::Instant(Time::from_millis(1_700_000_000_000)));
        let line = |superseded: Superseded| {
            details(&ReplayForecast { superseded, ..ReplayForecast::default() }, Time::ZERO)
        };
        let known = Superseded { since, ..Superseded::default() };
        assert!(line(known.clone()).is_empty(), "all letters are younger");
        let older = line(Superseded { older_letters: 12, ..known.clone() });
        assert!(older[0].starts_with("  later successes known since "), "{older:?}");
        assert!(older[0].ends_with("; 12 letters are older than that"), "{older:?}");
        let fresh = line(Superseded { older_letters: 1, ..Superseded::default() });
        assert_eq!(fresh, ["  no later success is known yet; 1 letter is older"]);
        let span = |from, until| redrive_api::UnknownSpan {
            from: redrive_api::Instant(Time::from_millis(from)),
            until: redrive_api::Instant(Time::from_millis(until)),
        };
        let killed = line(Superseded { gaps: vec![span(1, 2), span(3_000, 5_000)], ..known.clone() });
        assert!(
            killed[0].contains(", but not from ") && killed[0].contains(" (a process was killed)"),
            "{killed:?}"
        );
        assert!(killed[0].ends_with(" and 1 earlier gap"), "{killed:?}");
        let kafka = line(Superseded { own_partitions_only: true, ..known });
        assert!(kafka[0].ends_with(", in the partitions of this member only"), "{kafka:?}");
    }

    #[test]
    fn a_plan_does_not_speak_of_the_same_id_where_an_edit_gave_a_new_one() {
        let dry = ReplayForecast {
            would_replay: 3,
            ambiguous: 1,
            ambiguous_new_id: 1,
            ambiguous_undecided: true,
            ledger_horizon: Some("7d".into()),
            beyond_ledger: 2,
            ..ReplayForecast::default()
        };
        let lines = details(&dry, Time::ZERO);
        assert!(!lines[0].contains("same message id") && lines[0].contains("--ambiguous ok"), "{lines:?}");
        assert!(lines[1].starts_with("  1 of them has a new message id since an edit"), "{lines:?}");
        assert!(lines[2].starts_with("  2 letters were first attempted before the 7d"), "{lines:?}");
        assert!(lines[2].contains("--beyond-ledger"), "{lines:?}");
        let some = ReplayForecast { ambiguous: 3, beyond_ledger: 0, ..dry };
        let lines = details(&some, Time::ZERO);
        assert!(lines[0].contains("with the same message id with --ambiguous ok"), "{lines:?}");
        assert!(
            lines[2].contains("all were first attempted within the receiver's 7d id memory"),
            "{lines:?}"
        );
    }
}
