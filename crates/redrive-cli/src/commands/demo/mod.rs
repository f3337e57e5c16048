//! `redrive demo`: producer, flaky downstream, pipeline and API in one process, with an audit at the end.

mod audit;
mod scene;
mod status;

use std::net::SocketAddr;
use std::time::Duration;

use redrive_core::{Ratio, duration, rate};
use redrive_lab::downstream::OutageWindow;
use redrive_lab::share;

use crate::args::Global;
use crate::exit::{Exit, Failed};
use crate::output::Output;
use crate::service::files;

#[derive(Clone, Debug, clap::Args)]
pub struct DemoArgs {
    /// Orders per second
    #[arg(long, default_value = "50", value_parser = rate::parse)]
    pub rate: f64,
    /// Share of the orders that always fail
    #[arg(long, value_name = "SHARE", default_value = "1%", value_parser = share::parse)]
    pub poison_rate: Ratio,
    /// Share of the orders that fail at first
    #[arg(long, value_name = "SHARE", default_value = "15%", value_parser = share::parse)]
    pub transient_rate: Ratio,
    /// When the downstream is down
    #[arg(long, value_name = "LENGTH@AFTER", default_value = "10s@1m")]
    pub outage_window: OutageWindow,
    /// The same seed makes the same orders fail
    #[arg(long, default_value_t = 42)]
    pub seed: u64,
    /// End by itself after this long; ^C ends it at any time
    #[arg(long = "for", value_name = "DURATION", value_parser = duration::parse)]
    pub span: Option<Duration>,
    /// Keep the directory
    #[arg(long)]
    pub keep: bool,
    /// Address and port of the page and the API
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:7333")]
    pub listen: SocketAddr,
}

pub fn run(args: &DemoArgs, global: &Global, out: &mut Output) -> Result<Exit, Failed> {
    // The demo is for a look and not for load, so the warning for operators is dropped.
    let _ = files::raise_limit();
    let scene = scene::Scene::new(args)?;
    let played = scene.play(args, global, out);
    let missing = played.and_then(|report| audit::run(&scene, &report, global, out));
    scene.clear(args.keep, out);
    Ok(if missing? == 0 { Exit::Ok } else { Exit::Bad })
}
