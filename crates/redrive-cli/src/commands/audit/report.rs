//! The output of an audit, as text and as JSON.

use serde_json::{Value, json};

use super::gather::{AuditFindings, BY_POSITION};
use super::reconcile::Reconciliation;
use crate::exit::Failed;
use crate::output::{Output, Style, count, safe};

#[derive(Debug)]
pub struct AuditReport<'a> {
    pub pipeline: &'a str,
    pub reconciliation: &'a Reconciliation,
    pub seen: &'a AuditFindings,
}

pub fn write(report: &AuditReport<'_>, out: &mut Output) -> Result<(), Failed> {
    if out.is_json() {
        return out.json(&to_json(report));
    }
    let AuditReport { reconciliation, seen, .. } = report;
    let row = |label: &str, number: u64, text: &str| {
        let line = format!("{label:<16}{:>16}   {text}", count(number));
        line.trim_end().to_owned()
    };
    let (sign, style) =
        if reconciliation.missing == 0 { ("✓", Style::Good) } else { ("✗", Style::Error) };
    let produced = match &seen.source {
        Some(topic) => format!("by reading {topic} (records, not offsets)"),
        None => "ids".to_owned(),
    };
    out.line(&row("produced", reconciliation.produced, &produced))?;
    let is_by_position = seen.proof == BY_POSITION;
    let succeeded =
        if is_by_position { "committed, neither pending nor dead" } else { "id found in applied" };
    out.line(&row("  succeeded", reconciliation.succeeded, succeeded))?;
    let erased = match reconciliation.dead_erased {
        0 => String::new(),
        erased => format!(" · erased {}", count(erased)),
    };
    let dead = format!(
        "open {} · discarded {}{erased} · of these also succeeded {}",
        count(reconciliation.dead_open),
        count(reconciliation.dead_discarded),
        count(reconciliation.dead_also_succeeded)
    );
    out.line(&row("  dead", reconciliation.dead(), &dead))?;
    out.line(&row("  pending", reconciliation.pending, ""))?;
    let sign = out.paint(style, sign);
    out.line(&row("  missing", reconciliation.missing, &sign))?;
    for id in &reconciliation.missing_ids {
        out.line(&format!("    {}", safe::line(id)))?;
    }
    let unnamed = reconciliation.missing - reconciliation.missing_ids.len() as u64;
    if unnamed > 0 {
        out.line(&format!("    … and {} more (--json names them)", count(unnamed)))?;
    }
    out.line(&merged(reconciliation, seen))?;
    if reconciliation.listed_again > 0 {
        out.line(&format!("listed more than once   {}, counted once", count(reconciliation.listed_again)))?;
    }
    if reconciliation.continued > 0 {
        let before = match reconciliation.continued_applied_before {
            0 => String::new(),
            some => format!("; {} of them were applied under an earlier id too", count(some)),
        };
        out.line(&format!(
            "continued under a new id (edit --new-id)   {}, each counted once{before}",
            count(reconciliation.continued)
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
    let weaker = if is_by_position { "   (effects not verified: --applied URL)" } else { "" };
    out.line(&format!("proof   {}{weaker}", seen.proof))
}

fn merged(reconciliation: &Reconciliation, seen: &AuditFindings) -> String {
    let mut parts = Vec::new();
    if seen.twins > 0 {
        parts.push(format!("twins (same id, second copy after a crash)   {}, all merged", count(seen.twins)));
    }
    if let Some(repeats) = seen.report.repeats_merged {
        parts.push(format!("repeated calls   {}, all merged", count(repeats)));
    }
    let by = seen.effects_table.as_deref().map(|table| format!("   (rows of {table})")).unwrap_or_default();
    let duplicates = if seen.proof == BY_POSITION {
        "unknown".to_owned()
    } else {
        count(reconciliation.duplicate_effects)
    };
    parts.push(format!("duplicate effects   {duplicates}{by}"));
    parts.join("      ")
}

fn to_json(report: &AuditReport<'_>) -> Value {
    let AuditReport { pipeline, reconciliation, seen } = report;
    json!({
        "pipeline": pipeline,
        "produced": reconciliation.produced,
        "succeeded": reconciliation.succeeded,
        "dead": {
            "total": reconciliation.dead(),
            "open": reconciliation.dead_open,
            "discarded": reconciliation.dead_discarded,
            "erased": reconciliation.dead_erased,
            "also_succeeded": reconciliation.dead_also_succeeded,
        },
        "pending": reconciliation.pending,
        "missing": reconciliation.missing,
        "missing_ids": reconciliation.missing_ids,
        "duplicate_effects": (seen.proof != BY_POSITION).then_some(reconciliation.duplicate_effects),
        "repeated_calls": seen.report.repeats_merged,
        "twins": seen.twins,
        "listed_again": reconciliation.listed_again,
        "continued": reconciliation.continued,
        "continued_applied_before": reconciliation.continued_applied_before,
        "not_produced": seen.not_produced,
        "proof": seen.proof,
        "source": seen.source,
        "lost": seen.lost,
        "ok": reconciliation.is_good() && seen.lost.is_empty(),
    })
}
