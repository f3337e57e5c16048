//! How soon deliveries resume after a kill and after the loss of a broker, by session timeout.
//!
//! The lost broker is the coordinator of the group, so heartbeats and commits stop with it. The cluster waits for a
//! silent broker for as long as Kafka does by default.

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use redrive_lab::bench::machine;
use redrive_lab::kafka::broker::Act;
use redrive_lab::kafka::{Error, trace};

use super::cluster::Cluster;
use super::fleet::Settings;
use super::flow::Flow;
use super::scene::Scene;
use super::seen::Attempt;
use super::silence;

/// Kafka's default of `broker.session.timeout.ms`.
const BROKER_SESSION_MS: u64 = 9_000;
/// Calls that arrive later than this after the loss no longer come from records fetched before.
const FENCED_US: u64 = 15_000_000;
/// The product's own default.
pub const SESSION_DEFAULT_S: u64 = 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Loss {
    Processor,
    Killed,
    Frozen,
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Processor => "processor killed (-9), restarted",
            Self::Killed => "coordinator killed (-9)",
            Self::Frozen => "coordinator frozen",
        })
    }
}

/// What the caller chooses.
#[derive(Clone, Copy, Debug)]
pub struct FigureOptions<'a> {
    pub redrive: &'a Path,
    /// The checkout.
    pub root: &'a Path,
    pub sessions_s: &'a [u64],
    pub repeats: usize,
    pub per_second: u64,
    /// More settings for `[engine.kafka]`.
    pub client: &'a [(String, String)],
    /// Measure only losses of brokers that stay connected and silent.
    pub frozen_only: bool,
    /// Set when the run is to be ended.
    pub interrupted: &'a Arc<AtomicBool>,
}

/// Measures and prints a table.
pub fn figures(options: &FigureOptions<'_>) -> Result<(), Error> {
    let dir = tempfile::tempdir()?;
    println!(
        "longest silence of any of 12 partitions after a loss; {} repeats, {}/s",
        options.repeats, options.per_second
    );
    for (name, value) in machine::describe(options.root) {
        println!("  {name:<14}{value}");
    }
    println!("\n{:<9} {:<34} {:<36} repeated deliveries", "session", "loss", "silence, s (sorted)");
    let cluster = Cluster::up(options.root, &dir.path().join("cluster"), BROKER_SESSION_MS)?;
    for session_s in options.sessions_s {
        let suffix = format!("-{session_s}s");
        let settings =
            Settings { suffix: &suffix, session_ms: Some(session_s * 1_000), client: options.client };
        let home = dir.path().join(&suffix);
        let mut scene = Scene::start(
            &cluster,
            options.redrive,
            &home,
            settings,
            options.per_second,
            options.interrupted,
        )?;
        // How fast a processor returns under its own name does not depend on the session.
        let losses: &[Loss] = match *session_s {
            _ if options.frozen_only => &[Loss::Frozen],
            SESSION_DEFAULT_S => &[Loss::Processor, Loss::Killed, Loss::Frozen],
            _ => &[Loss::Killed, Loss::Frozen],
        };
        for loss in losses {
            let mut measured = Vec::new();
            for round in 0..options.repeats {
                measured.push(measure(&mut scene, *loss, round).map_err(|error| format!("{loss}: {error}"))?);
            }
            let mut silences: Vec<f64> =
                measured.iter().map(|(silence_us, _)| *silence_us as f64 / 1e6).collect();
            silences.sort_by(f64::total_cmp);
            let silences: Vec<String> = silences.iter().map(|silence| format!("{silence:.1}")).collect();
            let repeats: Vec<String> = measured.iter().map(|(_, repeats)| repeats.to_string()).collect();
            println!(
                "{:<9} {:<34} {:<36} {}",
                format!("{session_s} s"),
                loss.to_string(),
                silences.join(" "),
                repeats.join(" ")
            );
        }
        let found = scene.finish([&[], &[]], &[])?;
        let lost: usize = found.iter().map(|found| found.lost.len() + found.both.len()).sum();
        println!("{:<9} lost, or delivered and dead: {lost}", "");
    }
    println!("load at the end {}", machine::load());
    Ok(())
}

/// Measures one loss: the longest silence, and how many deliveries were repeated.
fn measure(scene: &mut Scene<'_>, loss: Loss, round: usize) -> Result<(u64, usize), Error> {
    let repeats_before = repeats(scene);
    let from_us = match loss {
        Loss::Processor => {
            let from_us = trace::wall_us();
            scene.crash(round % 3, false)?;
            from_us
        }
        Loss::Killed | Loss::Frozen => {
            let (group, mut node) = (scene.settings.group(), 0);
            // The tool gives up after a few seconds, which may be too soon on a busy machine.
            scene.until("the coordinator", |scene| {
                node = scene.cluster.coordinator(&group).unwrap_or(0);
                Ok(node > 0)
            })?;
            let (gone, back) =
                if loss == Loss::Killed { (Act::Kill, Act::Start) } else { (Act::Freeze, Act::Thaw) };
            let from_us = trace::wall_us();
            scene.cluster.node(node, gone)?;
            scene.until_moving(&Flow::ALL, from_us + FENCED_US)?;
            scene.bring_back(node, back)?;
            from_us
        }
    };
    scene.until_moving(&Flow::ALL, trace::wall_us())?;
    let to_us = trace::wall_us();
    let silence = |flow| silence::longest(&scene.seen.attempts(flow), from_us, to_us).length_us;
    let longest = Flow::ALL.map(silence).into_iter().max().unwrap_or(0);
    Ok((longest, repeats(scene) - repeats_before))
}

fn repeats(scene: &Scene<'_>) -> usize {
    let of = |flow| {
        let attempts = scene.seen.attempts(flow);
        let mut numbers: Vec<u64> =
            attempts.iter().filter(|call| call.succeeded).map(|call: &Attempt| call.number).collect();
        let all = numbers.len();
        numbers.sort_unstable();
        numbers.dedup();
        all - numbers.len()
    };
    Flow::ALL.map(of).into_iter().sum()
}
