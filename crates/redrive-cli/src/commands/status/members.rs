//! `redrive status --members`: the processes that share a pipeline's work, as reported by the cluster.

use redrive_kafka::group::control;
use redrive_kafka::group::members::{Member, members};
use redrive_kafka::topics::Topics;
use redrive_kafka::topics::scan::{Scan, Span};
use serde_json::json;

use crate::args::Global;
use crate::config::load::load_text;
use crate::config::{Config, Environment};
use crate::exit::{Exit, Failed};
use crate::output::{Align, Output, Style, TextTable, count};
use crate::service::engine_failed::engine_failed;
use crate::service::kafka;

pub fn run(pipeline: &str, global: &Global, out: &mut Output) -> Result<Exit, Failed> {
    let config: Config = load_text(global, &Environment::of_process())?.report(out)?;
    let cluster = kafka::cluster(&config)?;
    let pipelines = kafka::pipelines(&config);
    let Some(of) = pipelines.iter().find(|one| one.name == pipeline) else {
        return Err(Failed::usage(format!("the configuration has no pipeline `{pipeline}`")));
    };
    let failed = |error| engine_failed(&error);
    let (state, mut found) = members(&cluster).map_err(failed)?;
    found.retain(|member| member.of_pipeline(pipeline).is_some());
    found.sort_by_key(|member| member.partitions(&of.source).first().copied().unwrap_or(i32::MAX));
    let scan = Scan::new(&cluster).map_err(failed)?;
    let spans = scan.spans(&of.source).map_err(failed)?;
    let pause = control::read(&cluster, &Topics::of(of)).map_err(failed)?;
    let flying = found.iter().map(|member| scan.in_flight(&member.assigned));
    let flying: Vec<u64> = flying.collect::<Result<_, _>>().map_err(failed)?;
    if out.is_json() {
        let members: Vec<_> = found
            .iter()
            .zip(&flying)
            .map(|(member, flying)| as_json(member, pipeline, &of.source, &spans, *flying))
            .collect();
        out.json(&json!({
            "pipeline": pipeline,
            "group": cluster.group,
            "state": state,
            "paused": pause.map(|pause| json!({"by": pause.by, "at": pause.at})),
            "members": members,
        }))?;
        return Ok(Exit::Ok);
    }
    if let Some(pause) = &pause {
        let text = format!(
            "PAUSED for all members, at {} since {}: nothing is delivered until `redrive resume {pipeline}`",
            pause.by, pause.at
        );
        out.line(&out.paint(Style::Warning, &text))?;
    }
    if found.is_empty() {
        out.line(&format!("group {} has no member that reads {pipeline} ({state})", cluster.group))?;
        return Ok(Exit::Bad);
    }
    let mut table = TextTable::new([
        ("MEMBER", Align::Left),
        ("VERSION", Align::Left),
        ("POLICY", Align::Left),
        ("PARTITIONS", Align::Left),
        ("IN FLIGHT", Align::Right),
        ("LAG", Align::Right),
        ("", Align::Left),
    ]);
    for (member, flying) in found.iter().zip(&flying) {
        let Some(process) = member.of_pipeline(pipeline) else { continue };
        let partitions = member.partitions(&of.source);
        table.row([
            process.name.to_owned(),
            process.version.unwrap_or("-").to_owned(),
            process.settings.unwrap_or("-").to_owned(),
            ranges(partitions),
            count(*flying),
            count(lag(partitions, &spans)),
            remark(member, &found, pipeline),
        ]);
    }
    out.table(&table)?;
    if state != "Stable" {
        out.line(&out.paint(Style::Warning, &format!("the group is {state}")))?;
    }
    let differ = |get: fn(&Member, &str) -> Option<String>| {
        let mut all: Vec<_> = found.iter().map(|member| get(member, pipeline)).collect();
        all.dedup();
        all.len() > 1
    };
    if differ(|member, pipeline| Some(member.of_pipeline(pipeline)?.settings?.to_owned())) {
        let text =
            "members run with different settings, so a message's fate depends on which member handles it";
        out.line(&out.paint(Style::Warning, text))?;
    }
    Ok(Exit::Ok)
}

/// `← older version, same policy`
fn remark(member: &Member, all: &[Member], pipeline: &str) -> String {
    let version = |member: &Member| {
        let text = member.of_pipeline(pipeline).and_then(|process| process.version.map(str::to_owned));
        text.map(|text| text.split('.').map(|part| part.parse::<u64>().unwrap_or(0)).collect::<Vec<_>>())
    };
    let newest = all.iter().filter_map(version).max();
    let mine = version(member);
    if mine.is_none() || mine >= newest {
        return String::new();
    }
    let policy = |member: &Member| Some(member.of_pipeline(pipeline)?.settings?.to_owned());
    let same = all.iter().all(|other| policy(other) == policy(member));
    if same { "← older version, same policy".to_owned() } else { "← older version".to_owned() }
}

fn lag(partitions: &[i32], spans: &[Span]) -> u64 {
    let lag: i64 = spans.iter().filter(|span| partitions.contains(&span.partition)).map(Span::lag).sum();
    u64::try_from(lag).unwrap_or(0)
}

/// `0-3,7`
fn ranges(partitions: &[i32]) -> String {
    let mut parts: Vec<(i32, i32)> = Vec::new();
    for partition in partitions {
        match parts.last_mut() {
            Some((_, last)) if *last + 1 == *partition => *last = *partition,
            _ => parts.push((*partition, *partition)),
        }
    }
    let part = |(first, last): &(i32, i32)| {
        if first == last { first.to_string() } else { format!("{first}-{last}") }
    };
    let text: Vec<String> = parts.iter().map(part).collect();
    if text.is_empty() { "-".to_owned() } else { text.join(",") }
}

fn as_json(member: &Member, pipeline: &str, source: &str, spans: &[Span], flying: u64) -> serde_json::Value {
    let process = member.of_pipeline(pipeline);
    let partitions = member.partitions(source);
    json!({
        "member": process.map(|process| process.name),
        "version": process.and_then(|process| process.version),
        "policy": process.and_then(|process| process.settings),
        "host": member.host,
        "partitions": partitions,
        "in_flight": flying,
        "lag": lag(partitions, spans),
    })
}

#[cfg(test)]
mod tests {
    use super::ranges;

    #[test]
    fn partitions_are_told_in_ranges() {
        assert_eq!(ranges(&[0, 1, 2, 3]), "0-3");
        assert_eq!(ranges(&[0, 2, 3, 9]), "0,2-3,9");
        assert_eq!(ranges(&[]), "-");
    }
}
