//! What each fault does, and when it is over: always a condition seen from outside, never a duration.

use std::collections::HashSet;
use std::time::Duration;

use redrive_lab::kafka::broker::Act;
use redrive_lab::kafka::{Error, trace};

use super::fleet::TIERS;
use super::flow::Flow;
use super::plan::Fault;
use super::scene::Scene;

/// Longer than the cluster waits for a silent broker (4 s here): calls that arrive after this no longer come from
/// records fetched before.
const FENCED_US: u64 = 6_000_000;
/// Longer than the session of a processor (20 s by default).
const FROZEN: Duration = Duration::from_secs(25);
/// A pause counts as complete after no call of the flow has arrived for this long.
const QUIET_US: u64 = 2_000_000;
/// Letters that are put back at once.
const PUT_BACK_MAX: usize = 20;
/// Partitions that are added at once.
const MORE_PARTITIONS: i32 = 3;

/// What the faults leave behind for the audit.
#[derive(Debug, Default)]
pub struct Traces {
    /// Letters of the unordered flow that were put back by hand.
    pub put_back: Vec<u64>,
    /// Calls of a paused flow.
    pub while_paused: u64,
    /// How often a partition was seen to be held while writing was forbidden.
    pub held: u64,
}

/// Injects a fault and returns when everything moves again.
pub fn happen(scene: &mut Scene<'_>, fault: Fault, traces: &mut Traces) -> Result<(), Error> {
    let begun_us = trace::wall_us();
    match fault {
        Fault::BrokerKilled { node } => lose_broker(scene, node, Act::Kill, Act::Start)?,
        Fault::BrokerFrozen { node } => lose_broker(scene, node, Act::Freeze, Act::Thaw)?,
        Fault::BrokersRolled => {
            for node in 1..=3 {
                scene.cluster.node(node, Act::Stop)?;
                scene.bring_back(node, Act::Start)?;
            }
        }
        Fault::ProcessorKilled { processor, disk_lost } => scene.crash(processor, disk_lost)?,
        Fault::ProcessorFrozen { processor } => {
            scene.fleet.signal(processor, "STOP")?;
            std::thread::sleep(FROZEN);
            // Others have taken over by now.
            scene.until_moving(&Flow::ALL, begun_us + FROZEN.as_micros() as u64)?;
            scene.fleet.signal(processor, "CONT")?;
        }
        Fault::ProcessorsRolled => {
            for processor in 0..3 {
                scene.stop(processor)?;
                scene.fleet.launch(processor)?;
                scene.until_moving(&Flow::ALL, trace::wall_us())?;
            }
        }
        Fault::BothKilled { node, processor, disk_lost } => {
            scene.cluster.node(node, Act::Kill)?;
            scene.crash(processor, disk_lost)?;
            scene.until_moving(&Flow::ALL, begun_us + FENCED_US)?;
            scene.bring_back(node, Act::Start)?;
        }
        Fault::PartitionsAdded => {
            let partitions = scene.load.partitions(Flow::Orders) + MORE_PARTITIONS;
            scene.cluster.grow(&scene.settings.topic(Flow::Orders), partitions)?;
            scene.load.spread(Flow::Orders, partitions);
            scene.until("records in the new partitions", |scene| {
                Ok(scene.load.partitions(Flow::Orders) == partitions)
            })?;
        }
        Fault::WriteRevoked { processor } => revoke_write(scene, processor, traces)?,
        Fault::PausedInRebalance { killed } => pause(scene, killed, traces)?,
        Fault::PutBack { processor } => put_back(scene, processor, traces)?,
    }
    scene.until_moving(&Flow::ALL, trace::wall_us())
}

fn lose_broker(scene: &mut Scene<'_>, node: u32, gone: Act, back: Act) -> Result<(), Error> {
    scene.cluster.node(node, gone)?;
    scene.until_moving(&Flow::ALL, trace::wall_us() + FENCED_US)?;
    scene.bring_back(node, back)
}

/// Forbids writing retries and letters of one flow; meanwhile a processor dies with its disk.
fn revoke_write(scene: &mut Scene<'_>, processor: usize, traces: &mut Traces) -> Result<(), Error> {
    let orders = scene.settings.topic(Flow::Orders);
    let tiers = TIERS.map(|tier| format!("{orders}.retry.{tier}"));
    let topics: Vec<String> = tiers.into_iter().chain([format!("{orders}.DLQ")]).collect();
    scene.cluster.revoke_write(&topics)?;
    scene.until("a processor that is not ready", |scene| {
        Ok((0..3).any(|number| scene.fleet.is_ready(number) == Some(false)))
    })?;
    traces.held += 1;
    scene.crash(processor, true)?;
    scene.until_moving(&[Flow::Accounts], trace::wall_us())?;
    scene.cluster.grant_write(&topics)
}

/// Pauses one flow; partitions change owners twice, and nothing of the flow may be delivered.
fn pause(scene: &mut Scene<'_>, killed: usize, traces: &mut Traces) -> Result<(), Error> {
    let orders = scene.settings.topic(Flow::Orders);
    let (asked, restarted) = ((killed + 1) % 3, (killed + 2) % 3);
    scene.until("a pause", |scene| Ok(scene.fleet.steer(asked, "pause", &orders).is_ok()))?;
    scene.until("the end of calls in flight", |scene| {
        Ok(scene.seen.last_us(Flow::Orders) + QUIET_US < trace::wall_us())
    })?;
    let quiet_us = trace::wall_us();
    scene.crash(killed, true)?;
    scene.stop(restarted)?;
    scene.fleet.launch(restarted)?;
    scene.until_moving(&[Flow::Accounts], trace::wall_us())?;
    traces.while_paused += scene.seen.arrived_between(Flow::Orders, quiet_us, trace::wall_us());
    scene.until("the end of the pause", |scene| Ok(scene.fleet.steer(asked, "resume", &orders).is_ok()))
}

/// Puts letters back onto the source while a processor is dead, so that some are read just after an assignment.
fn put_back(scene: &mut Scene<'_>, processor: usize, traces: &mut Traces) -> Result<(), Error> {
    let orders = scene.settings.topic(Flow::Orders);
    scene.fleet.kill(processor)?;
    let without: HashSet<u64> = traces.put_back.iter().copied().collect();
    let (seen, letters) = (std::sync::Arc::clone(&scene.seen), format!("{orders}.DLQ"));
    let repaired = |numbers: &[u64]| seen.repair(Flow::Orders, numbers);
    let numbers = scene.cluster.put_back(&letters, &orders, &without, PUT_BACK_MAX, repaired)?;
    scene.fleet.launch(processor)?;
    scene.until("the delivery of what was put back", |scene| {
        Ok(scene.seen.have_succeeded(Flow::Orders, &numbers))
    })?;
    traces.put_back.extend(numbers);
    Ok(())
}
