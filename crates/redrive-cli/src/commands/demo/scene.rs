//! The parts of the demo, and how it runs.

use std::cell::RefCell;
use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;
use std::sync::Arc;

use redrive_lab::downstream::{self, Downstream};
use redrive_lab::producer::{self, ProducerReport, Target};

use super::{DemoArgs, status};
use crate::args::Global;
use crate::config::load::build;
use crate::config::{Config, Environment, ProcessorFlags};
use crate::exit::{Exit, Failed};
use crate::output::Output;
use crate::service::{Runtimes, Signals, assemble, run};

pub const PIPELINE: &str = "orders";
const TIERS: [&str; 3] = ["2s", "5s", "15s"];

/// The parts that outlive the run, for the audit afterwards.
#[derive(Debug)]
pub struct Scene {
    pub args: DemoArgs,
    pub dir: PathBuf,
    pub runtimes: Runtimes,
    pub downstream: Arc<Downstream>,
    server: RefCell<Option<downstream::Server>>,
    address: SocketAddr,
}

impl Scene {
    /// Creates the directory and starts the downstream on its own port.
    pub fn new(args: &DemoArgs) -> Result<Self, Failed> {
        let runtimes = Runtimes::start()?;
        let dir = fresh_dir()?;
        let options = downstream::DownstreamOptions {
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            switches: downstream::Switches {
                outage_window: Some(args.outage_window),
                ..downstream::Switches::default()
            },
            ..downstream::DownstreamOptions::default()
        };
        let server = runtimes.api.block_on(downstream::Server::bind(&options));
        let server = server.map_err(|error| Failed::new(Exit::Storage, error.to_string()))?;
        let (downstream, address) = (Arc::clone(server.downstream()), server.addr());
        let (args, server) = (args.clone(), RefCell::new(Some(server)));
        Ok(Self { args, dir, runtimes, downstream, server, address })
    }

    /// The configuration that corresponds to these flags.
    pub fn config(&self, args: &DemoArgs) -> Result<Config, Failed> {
        let (dir, listen) = (self.dir.display().to_string(), args.listen.to_string());
        let (url, tiers) = (format!("http://{}/orders", self.address), TIERS.join(","));
        let given = [
            ("--dir", dir.as_str()),
            ("--listen", &listen),
            ("--name", PIPELINE),
            ("--sink-url", &url),
            ("--tiers", &tiers),
            ("--jitter", "equal"),
        ];
        let flags = ProcessorFlags::of(given.into_iter().flat_map(|(flag, value)| [flag, value]))
            .map_err(|error| Failed::usage(error.to_string()))?;
        let loaded = build(None, &flags, &Environment::default());
        loaded.config.ok_or_else(|| Failed::usage("the demo's own configuration is refused; this is a bug"))
    }

    /// Runs until ^C or the end of the time; returns what was produced.
    pub fn play(&self, args: &DemoArgs, global: &Global, out: &mut Output) -> Result<ProducerReport, Failed> {
        let config = self.config(args)?;
        let assembled = assemble(&config, global)?;
        let handle = assembled.redrive.pipeline(PIPELINE);
        let handle = handle.ok_or_else(|| Failed::usage("the demo has no pipeline; this is a bug"))?;
        let token = assembled.server.tokens.first().map(|token| token.reveal().to_owned());
        let api = &self.runtimes.api;
        let signals = {
            let _inside = api.enter();
            Signals::listen()?
        };
        let (end, ended) = tokio::sync::watch::channel(false);
        let stop = |mut ended: tokio::sync::watch::Receiver<bool>| async move {
            // A dropped sender means the same.
            let _ = ended.wait_for(|ended| *ended).await;
        };
        if let Some(server) = self.server.take() {
            // The API outlives the pipeline, so that requests in flight are still answered.
            api.spawn(server.run(std::future::pending()));
        }
        let options = producer::ProducerOptions {
            rate: args.rate,
            poison_rate: args.poison_rate,
            transient_rate: args.transient_rate,
            seed: args.seed,
            ..producer::ProducerOptions::new(Target::pipeline(handle.clone()))
        };
        let producing = producer::run(options, stop(ended.clone()));
        let producing = api.spawn(producing);
        let span = args.span;
        let timed = api.spawn(async move {
            let time_is_up = async {
                match span {
                    Some(span) => tokio::time::sleep(span).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = signals.asked() => {}
                () = time_is_up => {}
            }
            // Stops the producer and the pipeline.
            let _ = end.send(true);
        });
        let mut watch = None;
        let downstream = Arc::clone(&self.downstream);
        let played = run::run(&self.runtimes, assembled, stop(ended), |address| {
            for line in status::opening(args, &self.dir, address, token.as_deref()) {
                out.line(&line)?;
            }
            watch = Some(api.spawn(status::watch(handle, downstream)));
            Ok(())
        });
        timed.abort();
        if let Some(watch) = watch {
            watch.abort();
        }
        let played = played?;
        let total = played.report.total();
        out.line(&format!(
            "draining … {} deliveries settled in {:.1} s",
            total.drained,
            played.report.drain_took.as_secs_f64()
        ))?;
        let report = api.block_on(producing);
        report
            .map_err(|error| Failed::new(Exit::Storage, format!("the producer ended: {error}")))?
            .map_err(|error| Failed::new(Exit::Bad, error.to_string()))
    }

    pub fn clear(&self, keep: bool, out: &mut Output) {
        if keep {
            out.note(&format!("kept {}", self.dir.display()));
        } else if let Err(error) = fs::remove_dir_all(&self.dir) {
            out.note(&format!("could not remove {}: {error}", self.dir.display()));
        }
    }
}

/// Creates a new directory for this run that only its owner can read.
fn fresh_dir() -> Result<PathBuf, Failed> {
    let mut random = [0_u8; 4];
    getrandom::fill(&mut random).map_err(|error| Failed::new(Exit::Storage, error.to_string()))?;
    let number = u32::from_be_bytes(random);
    let dir = std::env::temp_dir().join(format!("redrive-demo-{number:08x}"));
    match fs::DirBuilder::new().mode(0o700).create(&dir) {
        Ok(()) => Ok(dir),
        Err(error) => Err(Failed::new(Exit::Storage, format!("creating {}: {error}", dir.display()))),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn the_directory_is_private() {
        let dir = fresh_dir().unwrap();
        let mode = fs::metadata(&dir).unwrap().permissions().mode();
        fs::remove_dir(&dir).unwrap();
        assert_eq!(mode & 0o777, 0o700);
    }
}
