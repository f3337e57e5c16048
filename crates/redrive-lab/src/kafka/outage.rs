//! The outage on the Kafka engine: with its own topic, into which orders are produced alongside the pipeline.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

use redrive::PipelineHandle;
use tokio::task::block_in_place;

use super::Error;
use super::load::Loader;
use super::processor::Processor;
use super::topics::{self, Topic};
use crate::outage::{Feed, OutageDownstream, OutagePlan, OutageReport, play};

const PARTITIONS: u64 = 4;
const PIECE: Duration = Duration::from_millis(100);

/// Runs the outage on topics that begin with `name`, and removes them afterwards.
pub async fn run(
    brokers: &str,
    name: &str,
    state_dir: &Path,
    plan: &OutagePlan,
) -> Result<OutageReport, Error> {
    // Creating and removing topics blocks.
    let source = Topic { name, partitions: PARTITIONS as i32, settings: &[] };
    block_in_place(|| topics::create(brokers, &[source]))?;
    let processor = Processor {
        brokers: brokers.to_owned(),
        name: name.to_owned(),
        source: name.to_owned(),
        member: None,
        tiers: ["1s", "5s", "30s"].map(str::to_owned).into(),
        state_dir: state_dir.to_owned(),
        concurrency: plan.limit,
        blocking: false,
        crash_threshold: None,
        passed_on: Vec::new(),
    };
    let downstream = Arc::new(OutageDownstream::default());
    let redrive = block_in_place(|| processor.build(downstream.pipeline(name, plan)))?;
    let loader = Loader::new(brokers, name, PARTITIONS, &[])?;
    let rate = plan.rate;
    let feed = move |stop: Arc<AtomicBool>, _: PipelineHandle| -> Feed {
        std::thread::spawn(move || {
            let mut brought = 0;
            while !stop.load(SeqCst) {
                brought += loader.write_paced(brought, rate, PIECE)?;
            }
            Ok(brought)
        })
    };
    let report = play(redrive, name, &downstream, plan, feed).await;
    block_in_place(|| {
        let found = topics::beginning_with(brokers, name)?;
        topics::delete(brokers, &found.iter().map(String::as_str).collect::<Vec<_>>())
    })?;
    report
}
