//! `redrive dlq stats`: counts letters by state and reason.

use std::collections::BTreeMap;

use redrive::Time;
use redrive_api::LettersOfTenant;

use crate::client::Session;
use crate::exit::{Exit, Failed};
use crate::output::{Align, Output, TextTable, age, count, safe};

/// How much of a tenant's name a table shows.
const TENANT_CHARS: usize = 60;

#[derive(Debug, clap::Args)]
pub struct StatsArgs {
    /// The pipeline
    pub pipeline: String,
}

pub async fn run(args: &StatsArgs, session: &Session, out: &mut Output) -> Result<Exit, Failed> {
    let answer = session.api.letter_stats(&args.pipeline).await?;
    if out.is_json() {
        out.json(&answer.json)?;
        return Ok(Exit::Ok);
    }
    let stats = answer.view;
    let oldest = stats.oldest.map(|at| format!(" (oldest {})", age::since(session.now(), at.0)));
    let erased = if stats.erased > 0 { format!("   erased {}", count(stats.erased)) } else { String::new() };
    out.line(&format!(
        "pipeline {}   open {}{}   replaying {}   succeeded {}   discarded {}{erased}",
        args.pipeline,
        count(stats.open),
        oldest.unwrap_or_default(),
        count(stats.replaying),
        count(stats.succeeded),
        count(stats.discarded)
    ))?;
    // Letters may be added or removed between counting and scanning, so only a clearly smaller number is reported as a
    // part.
    if stats.scanned < stats.open {
        out.line(&format!(
            "  by reason and class: the first {} of {} open letters",
            count(stats.scanned),
            count(stats.open)
        ))?;
    }
    breakdown("REASON", &stats.by_reason, out)?;
    breakdown("CLASS", &stats.by_class, out)?;
    if stats.by_tenant.len() > 1 {
        out.line("")?;
        tenants(&stats.by_tenant, session.now(), out)?;
    }
    Ok(Exit::Ok)
}

/// Prints the open letters of each tenant, the most first.
pub fn tenants(tenants: &[LettersOfTenant], now: Time, out: &mut Output) -> Result<(), Failed> {
    let mut table =
        TextTable::new([("TENANT", Align::Left), ("LETTERS", Align::Right), ("OLDEST", Align::Left)]);
    for one in tenants {
        let oldest = one.oldest.map_or_else(|| "-".to_owned(), |at| age::since(now, at.0));
        table.row([safe::short(&one.tenant, TENANT_CHARS), count(one.letters), oldest]);
    }
    out.table(&table)
}

/// Prints the counts, the largest first.
fn breakdown(head: &'static str, counts: &BTreeMap<String, u64>, out: &mut Output) -> Result<(), Failed> {
    if counts.is_empty() {
        return Ok(());
    }
    let mut rows: Vec<(&String, &u64)> = counts.iter().collect();
    rows.sort_by(|a, b| b.1.cmp(a.1).then_with(|| a.0.cmp(b.0)));
    let mut table = TextTable::new([(head, Align::Left), ("LETTERS", Align::Right)]);
    for (name, letters) in rows {
        table.row([name.clone(), count(*letters)]);
    }
    out.line("")?;
    out.table(&table)
}
