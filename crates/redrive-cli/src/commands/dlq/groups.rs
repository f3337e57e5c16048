//! `redrive dlq groups`: letters by cause, and the decision about each group.

use redrive::internal::engine::groups::mark::{MORE_MAX, SNOOZE_MAX};
use redrive::{GroupId, Time};
use redrive_api::{GroupDecision, GroupView};
use serde_json::json;

use super::stats;
use crate::args::whole;
use crate::client::Session;
use crate::exit::{Exit, Failed};
use crate::output::{Align, Output, TextTable, age, count, instant, safe};

/// How much of an error a table shows.
const ERROR_CHARS: usize = 100;
/// How many groups the line below the table names.
const NAMED_MAX: usize = 5;
const DECISION: &str = "Decision (about one group)";

#[derive(Debug, clap::Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of the command line")]
pub struct GroupsArgs {
    /// The pipeline
    pub pipeline: String,
    /// One group: what its letters have in common, and a few of them
    #[arg(value_parser = group)]
    pub group: Option<GroupId>,
    /// List also groups that are acknowledged, snoozed or resolved, or have no open letters
    #[arg(long, conflicts_with = "group")]
    pub all: bool,
    /// Count the open letters by this instead of by what they died of
    #[arg(long, value_name = "WHAT", conflicts_with_all = ["group", "all"])]
    pub by: Option<By>,
    /// Mark as being worked on
    #[arg(long, requires = "group", help_heading = DECISION)]
    pub acknowledge: bool,
    /// Mark the group resolved; a new letter reopens it as regressed
    #[arg(long, requires = "group", conflicts_with = "acknowledge", help_heading = DECISION)]
    pub resolve: bool,
    /// Snooze for this long, or until an RFC 3339 time
    #[arg(long, value_name = "SPAN|TIME", allow_hyphen_values = true, requires = "group", conflicts_with_all = ["acknowledge", "resolve"], help_heading = DECISION)]
    pub snooze: Option<String>,
    /// Snooze until this many more letters are open
    #[arg(long, value_name = "LETTERS", allow_hyphen_values = true, value_parser = whole::<u64>(1, MORE_MAX), requires = "group", conflicts_with_all = ["acknowledge", "resolve"], help_heading = DECISION)]
    pub snooze_more: Option<u64>,
    /// Remove the decision
    #[arg(long, requires = "group", conflicts_with_all = ["acknowledge", "resolve", "snooze", "snooze_more"], help_heading = DECISION)]
    pub reopen: bool,
    /// A note for the others; an empty note removes it
    #[arg(long, value_name = "TEXT", requires = "group", help_heading = DECISION)]
    pub note: Option<String>,
}

/// What else letters are counted by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum By {
    /// Whose messages they are
    Tenant,
}

/// Parses a group id as `dlq groups` prints it.
pub fn group(text: &str) -> Result<GroupId, String> {
    text.parse().map_err(|error: redrive_core::fingerprint::group_id::NoGroupId| error.to_string())
}

pub async fn run(args: &GroupsArgs, session: &Session, out: &mut Output) -> Result<Exit, Failed> {
    match args.group {
        None if args.by == Some(By::Tenant) => by_tenant(args, session, out).await,
        None => list(args, session, out).await,
        Some(group) => match decision(args, session.now()) {
            None => show(args, group, session, out).await,
            Some(decision) => decide(args, group, decision?, session, out).await,
        },
    }
}

async fn list(args: &GroupsArgs, session: &Session, out: &mut Output) -> Result<Exit, Failed> {
    let answer = session.api.groups(&args.pipeline).await?;
    if out.is_json() {
        out.json(&answer.json)?;
        return Ok(Exit::Ok);
    }
    let (all, now) = (answer.view, session.now());
    // A group whose decision is over needs no new one once its letters are gone.
    let has_nothing = |group: &GroupView| group.state == "open" && group.open == 0;
    let is_shown = |group: &&GroupView| {
        args.all || group.state == "regressed" || (group.state == "open" && !has_nothing(group))
    };
    let shown: Vec<&GroupView> = all.groups.iter().filter(is_shown).collect();
    if !shown.is_empty() {
        let mut columns = vec![
            ("GROUP", Align::Left),
            ("OPEN", Align::Right),
            ("RATE/MIN", Align::Right),
            ("OLDEST", Align::Left),
            ("CLASS", Align::Left),
            ("REASON", Align::Left),
        ];
        // Without --all there is only one state to show: regressed groups are named below.
        if args.all {
            columns.push(("STATE", Align::Left));
        }
        columns.push(("ERROR (normalised)", Align::Left));
        let mut table = TextTable::new(columns);
        for group in &shown {
            let mut cells = vec![
                group.id.clone(),
                count(group.open),
                count(group.per_minute),
                group.oldest.map_or_else(|| "-".to_owned(), |at| age::since(now, at.0)),
                group.class.clone().unwrap_or_else(|| "-".to_owned()),
                group.reason.clone().unwrap_or_else(|| "-".to_owned()),
            ];
            if args.all {
                cells.push(group.state.clone());
            }
            cells.push(safe::short(&group.error, ERROR_CHARS));
            table.row(cells);
        }
        out.table(&table)?;
    }
    let groups = all.groups.iter().filter(|group| group.open > 0).count() as u64;
    let empty = if args.all { 0 } else { all.groups.iter().filter(|group| has_nothing(group)).count() };
    let hidden = all.groups.len() - shown.len() - empty;
    let regressed: Vec<&str> = all
        .groups
        .iter()
        .filter(|group| group.state == "regressed" && !args.all)
        .map(|group| group.id.as_str())
        .collect();
    let mut more = match &regressed[..] {
        [] => String::new(),
        named => {
            let rest = if named.len() > NAMED_MAX { ", …" } else { "" };
            format!(
                "   {} regressed: {}{rest}",
                count(named.len() as u64),
                named[..named.len().min(NAMED_MAX)].join(", ")
            )
        }
    };
    if hidden > 0 {
        more = format!("{more}   {} acknowledged, snoozed or resolved: --all", count(hidden as u64));
    }
    out.line(&match all.open {
        0 if hidden == 0 && shown.is_empty() => "no open letters".to_owned(),
        open => format!("   {} open in {}{more}", count(open), plural(groups, "group")),
    })?;
    Ok(Exit::Ok)
}

async fn by_tenant(args: &GroupsArgs, session: &Session, out: &mut Output) -> Result<Exit, Failed> {
    let answer = session.api.letter_stats(&args.pipeline).await?;
    if out.is_json() {
        out.json(&json!({ "by_tenant": answer.json["by_tenant"], "scanned": answer.json["scanned"] }))?;
        return Ok(Exit::Ok);
    }
    let stats = answer.view;
    if stats.by_tenant.is_empty() {
        out.line("no open letters")?;
        return Ok(Exit::Ok);
    }
    stats::tenants(&stats.by_tenant, session.now(), out)?;
    // Letters may be added or removed between counting and scanning.
    let part = if stats.scanned < stats.open {
        format!("   (the first {} of them)", count(stats.scanned))
    } else {
        String::new()
    };
    out.line(&format!(
        "   {} open for {}{part}",
        count(stats.open),
        plural(stats.by_tenant.len() as u64, "tenant")
    ))?;
    Ok(Exit::Ok)
}

fn plural(number: u64, what: &str) -> String {
    format!("{} {what}{}", count(number), if number == 1 { "" } else { "s" })
}

async fn show(
    args: &GroupsArgs,
    group: GroupId,
    session: &Session,
    out: &mut Output,
) -> Result<Exit, Failed> {
    let answer = session.api.group(&args.pipeline, group).await?;
    if out.is_json() {
        out.json(&answer.json)?;
        return Ok(Exit::Ok);
    }
    for line in lines(&answer.view.group, session.now()) {
        out.line(&line)?;
    }
    for letter in &answer.view.letters {
        out.line(&format!(
            "letter   {}   message {}   {}",
            letter.id,
            safe::short(&letter.message, 40),
            safe::short(letter.error.as_deref().unwrap_or("-"), ERROR_CHARS)
        ))?;
    }
    out.line(&format!(
        "         all of them: redrive dlq inspect {0} --group {group}   replay: redrive dlq replay {0} --group {group}",
        args.pipeline
    ))?;
    Ok(Exit::Ok)
}

/// The text about a group, and why its letters belong together.
fn lines(group: &GroupView, now: Time) -> Vec<String> {
    let mut lines = vec![
        format!(
            "group    {}   open {}   rate {}/min   oldest {}   state {}",
            group.id,
            count(group.open),
            count(group.per_minute),
            group.oldest.map_or_else(|| "-".to_owned(), |at| age::since(now, at.0)),
            group.state
        ),
        format!("error    {}", safe::line(&group.error)),
    ];
    let why = [
        ("class", group.class.clone()),
        ("reason", group.reason.clone()),
        ("status", group.status.map(|status| status.to_string())),
        ("sink", group.sink.clone()),
        ("fingerprint version", group.version.map(|version| version.to_string())),
    ];
    let why: Vec<String> =
        why.into_iter().filter_map(|(name, value)| Some(format!("{name} {}", value?))).collect();
    if let Some(rule) = &group.rule {
        let rule = match &rule.pattern {
            Some(pattern) => format!("match = {:?}, as = {:?}", safe::line(pattern), safe::line(&rule.name)),
            None => {
                format!("as = {:?}, which the configuration does not have any more", safe::line(&rule.name))
            }
        };
        lines.push(format!("because  matched by rule [[pipeline.group]] {rule}"));
    } else if !why.is_empty() {
        lines.push(format!("because  the same error as above, {}", why.join(", ")));
    }
    let until = group.until.map(|at| format!("until {}", instant::print(at.0)));
    let more = group.more.map(|more| format!("until {} more letters are open", count(more)));
    if let (Some(by), Some(at)) = (&group.by, group.at) {
        let limits: Vec<String> = until.into_iter().chain(more).collect();
        let limits = if limits.is_empty() { String::new() } else { format!("   {}", limits.join(" or ")) };
        lines.push(format!("decided  by {} at {}{limits}", safe::line(by), instant::print(at.0)));
    }
    if let Some(note) = &group.note {
        lines.push(format!("note     {}", safe::line(note)));
    }
    lines
}

/// The requested decision, if any.
fn decision(args: &GroupsArgs, now: Time) -> Option<Result<GroupDecision, Failed>> {
    let snoozes = args.snooze.is_some() || args.snooze_more.is_some();
    let state = match () {
        () if args.acknowledge => "acknowledged",
        () if args.resolve => "resolved",
        () if snoozes => "snoozed",
        () if args.reopen => "open",
        () if args.note.is_some() => {
            return Some(Err(Failed::usage("--note needs a decision")
                .hint("give --acknowledge, --resolve, --snooze, --snooze-more or --reopen with it")));
        }
        () => return None,
    };
    if let Some(Err(failed)) = args.snooze.as_deref().map(|until| check_snooze(until, now)) {
        return Some(Err(failed));
    }
    Some(Ok(GroupDecision {
        state: state.to_owned(),
        until: args.snooze.clone(),
        more: args.snooze_more,
        note: args.note.clone(),
    }))
}

/// The processor would refuse it too, but under the name that the API has for it.
fn check_snooze(text: &str, now: Time) -> Result<(), Failed> {
    let until = match redrive_core::duration::parse(text) {
        Ok(span) => Some(now.plus(span)),
        Err(_) => instant::parse(text),
    };
    let refused = |why: &str| {
        Failed::usage(format!("--snooze `{}` {why}", safe::line(text)))
            .hint("write it like 2d, or 2026-11-15T09:00:00Z, at most a year ahead")
    };
    match until {
        None => Err(refused("is neither a duration nor a time")),
        Some(until) if until <= now => Err(refused("is not in the future")),
        Some(until) if until > now.plus(SNOOZE_MAX) => Err(refused("is more than a year ahead")),
        Some(_) => Ok(()),
    }
}

async fn decide(
    args: &GroupsArgs,
    group: GroupId,
    decision: GroupDecision,
    session: &Session,
    out: &mut Output,
) -> Result<Exit, Failed> {
    let answer = session.api.mark_group(&args.pipeline, group, &decision).await?;
    if out.is_json() {
        out.json(&answer.json)?;
        return Ok(Exit::Ok);
    }
    for line in lines(&answer.view, session.now()) {
        out.line(&line)?;
    }
    Ok(Exit::Ok)
}

/// Combines a filter with a requested group.
pub fn with_filter(filter: Option<&str>, group: Option<GroupId>) -> Option<String> {
    let filter = filter.map(str::trim).filter(|filter| !filter.is_empty());
    match (filter, group) {
        (Some(filter), Some(group)) => Some(format!("group:{group} {filter}")),
        (None, Some(group)) => Some(format!("group:{group}")),
        (filter, None) => filter.map(str::to_owned),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_snooze_ends_in_the_future_and_within_a_year() {
        let now = Time::from_millis(1_794_778_805_120);
        for good in ["2d", "365d", "2026-12-01", "2026-11-16T09:00:00Z"] {
            assert!(check_snooze(good, now).is_ok(), "{good}");
        }
        for (wrong, why) in [
            ("-2d", "neither a duration nor a time"),
            ("soon", "neither a duration nor a time"),
            ("2020-01-01", "not in the future"),
            ("99999999999d", "more than a year ahead"),
            ("2031-01-01", "more than a year ahead"),
        ] {
            let failed = check_snooze(wrong, now).unwrap_err();
            assert!(failed.message.starts_with("--snooze `") && failed.message.contains(why), "{failed}");
        }
    }
}
