//! The lines of an audit, and its JSON.

use serde_json::{Value, json};

use super::gather::AuditFindings;
use super::reconcile::Reckoning;
use crate::exit::Failed;
use crate::output::{Output, Style, count, safe};

#[derive(Debug)]
pub struct AuditReport<'a> {
    pub pipeline: &'a str,
    pub reckoning: &'a Reckoning,
    pub seen: &'a AuditFindings,
}

pub fn write(report: &AuditReport<'_>, out: &mut Output) -> Result<(), Failed> {
    if out.is_json() {
        return out.json(&to_json(report));
    }
    let AuditReport { reckoning, seen, .. } = report;
    let row = |label: &str, number: u64, text: &str| {
        let line = format!("{label:<16}{:>16}   {text}", count(number));
        line.trim_end().to_owned()
    };
    let (sign, style) = if reckoning.missing == 0 { ("✓", Style::Good) } else { ("✗", Style::Error) };
    let produced = match &seen.source {
        Some(topic) => format!("by reading {topic} (records, not offsets)"),
        None => "ids".to_owned(),
    };
    out.line(&row("produced", reckoning.produced, &produced))?;
    out.line(&row("  succeeded", reckoning.succeeded, "id found in applied"))?;
    let erased = match reckoning.dead_erased {
        0 => String::new(),
        erased => format!(" · erased {}", count(erased)),
    };
    let dead = format!(
        "open {} · discarded {}{erased} · of these also succeeded {}",
        count(reckoning.dead_open),
        count(reckoning.dead_discarded),
        count(reckoning.dead_also_succeeded)
    );
    out.line(&row("  dead", reckoning.dead(), &dead))?;
    out.line(&row("  pending", reckoning.pending, ""))?;
    let sign = out.paint(style, sign);
    out.line(&row("  missing", reckoning.missing, &sign))?;
    for id in &reckoning.missing_ids {
        out.line(&format!("    {}", safe::line(id)))?;
    }
    let unnamed = reckoning.missing - reckoning.missing_ids.len() as u64;
    if unnamed > 0 {
        out.line(&format!("    … and {} more (--json names them)", count(unnamed)))?;
    }
    out.line(&merged(reckoning, seen))?;
    if reckoning.listed_again > 0 {
        out.line(&format!("listed more than once   {}, counted once", count(reckoning.listed_again)))?;
    }
    if reckoning.continued > 0 {
        let before = match reckoning.continued_applied_before {
            0 => String::new(),
            some => format!("; {} of them were applied under an earlier id too", count(some)),
        };
        out.line(&format!(
            "continued under a new id (edit --new-id)   {}, each counted once{before}",
            count(reckoning.continued)
        ))?;
    }
    if seen.not_produced > 0 {
        let text = "ids in applied that are not in the list of produced ids; is the list complete?";
        out.line(&format!("not produced   {}   {text}", count(seen.not_produced)))?;
    }
    if seen.source.is_some() {
        let lost = if seen.lost.is_empty() { "none".to_owned() } else { seen.lost.join(" ") };
        let style = if seen.lost.is_empty() { Style::Good } else { Style::Error };
        out.line(&format!("range lost to retention   {}", out.paint(style, &lost)))?;
    }
    out.line(&format!("proof   {}", seen.proof))
}

fn merged(reckoning: &Reckoning, seen: &AuditFindings) -> String {
    let mut parts = Vec::new();
    if seen.twins > 0 {
        parts.push(format!("twins (same id, second copy after a crash)   {}, all merged", count(seen.twins)));
    }
    if let Some(repeats) = seen.testimony.repeats_merged {
        parts.push(format!("repeated calls   {}, all merged", count(repeats)));
    }
    let by = seen.effects_table.as_deref().map(|table| format!("   (rows of {table})")).unwrap_or_default();
    parts.push(format!("duplicate effects   {}{by}", count(reckoning.duplicate_effects)));
    parts.join("      ")
}

fn to_json(report: &AuditReport<'_>) -> Value {
    let AuditReport { pipeline, reckoning, seen } = report;
    json!({
        "pipeline": pipeline,
        "produced": reckoning.produced,
        "succeeded": reckoning.succeeded,
        "dead": {
            "total": reckoning.dead(),
            "open": reckoning.dead_open,
            "discarded": reckoning.dead_discarded,
            "erased": reckoning.dead_erased,
            "also_succeeded": reckoning.dead_also_succeeded,
        },
        "pending": reckoning.pending,
        "missing": reckoning.missing,
        "missing_ids": reckoning.missing_ids,
        "duplicate_effects": reckoning.duplicate_effects,
        "repeated_calls": seen.testimony.repeats_merged,
        "twins": seen.twins,
        "listed_again": reckoning.listed_again,
        "continued": reckoning.continued,
        "continued_applied_before": reckoning.continued_applied_before,
        "not_produced": seen.not_produced,
        "proof": seen.proof,
        "source": seen.source,
        "lost": seen.lost,
        "ok": reckoning.is_good() && seen.lost.is_empty(),
    })
}
