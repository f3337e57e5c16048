//! The audit at the end, by id, against what the downstream applied.

use redrive::{MessagePhase, PipelineHandle};
use redrive_lab::producer::ProducerReport;

use super::scene::{PIPELINE, Scene};
use crate::args::Global;
use crate::exit::{Exit, Failed};
use crate::output::{Output, count};
use crate::service::assemble;

#[derive(Debug, Default)]
struct FoundIds {
    produced: u64,
    succeeded: u64,
    dead: u64,
    pending: u64,
    missing: Vec<String>,
}

/// Reopens the store, as after a restart, and looks up every id. Returns how many are missing.
pub fn run(scene: &Scene, report: &ProducerReport, global: &Global, out: &mut Output) -> Result<u64, Failed> {
    let args = super::DemoArgs { listen: ([127, 0, 0, 1], 0).into(), ..scene.args.clone() };
    let assembled = assemble(&scene.config(&args)?, global)?;
    let handle = assembled.redrive.pipeline(PIPELINE);
    let handle = handle.ok_or_else(|| Failed::usage("the demo has no pipeline; this is a bug"))?;
    let found = scene.runtimes.api.block_on(look(scene, report, &handle))?;
    let verdict = if found.missing.is_empty() {
        "✓ nothing missing".to_owned()
    } else {
        format!(
            "✗ missing {}: {}",
            found.missing.len(),
            found.missing[..found.missing.len().min(20)].join(" ")
        )
    };
    out.line(&format!(
        "audit  produced {} = succeeded {} + dead {} + pending {}   {verdict}",
        count(found.produced),
        count(found.succeeded),
        count(found.dead),
        count(found.pending),
    ))?;
    Ok(found.missing.len() as u64)
}

async fn look(scene: &Scene, report: &ProducerReport, handle: &PipelineHandle) -> Result<FoundIds, Failed> {
    let mut found = FoundIds::default();
    for number in report.numbers.clone() {
        // An unacknowledged order counts as not produced, but may exist all the same.
        let unanswered = report.unanswered.iter().any(|range| range.contains(&number));
        let id = report.id(number);
        let applied = scene.downstream.is_applied(&id).await;
        let applied = applied.map_err(|error| Failed::new(Exit::Storage, error.to_string()))?;
        let state = handle.message(&id).await;
        let state = state.map_err(|error| Failed::new(Exit::Storage, error.to_string()))?;
        match state.map(|state| state.state) {
            _ if applied => found.succeeded += 1,
            Some(MessagePhase::Dead | MessagePhase::Discarded | MessagePhase::Erased) => found.dead += 1,
            // It succeeded, but the downstream does not know it: exactly what an audit must find.
            Some(MessagePhase::Succeeded) => found.missing.push(id),
            Some(_) => found.pending += 1,
            None if unanswered => continue,
            None => found.missing.push(id),
        }
        found.produced += 1;
    }
    Ok(found)
}
