//! The output of the demo while it runs.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use redrive::{Figures, HealthChange, HealthEntry, PipelineHandle, Reason, Time};
use redrive_core::breaker::BreakerChange;
use redrive_lab::downstream::Downstream;

use super::DemoArgs;
use crate::output::count;

const EVERY: Duration = Duration::from_secs(5);
const LOOK: Duration = Duration::from_millis(250);

pub fn opening(args: &DemoArgs, dir: &Path, address: SocketAddr, token: Option<&str>) -> Vec<String> {
    let kept = if args.keep { "kept" } else { "removed on exit; --keep to keep" };
    let token = token.unwrap_or_default();
    vec![
        format!("redrive demo · embedded engine in {} ({kept})", dir.display()),
        format!(
            "  producer    {} orders/s, 512 B, {} poison, seed {}",
            args.rate, args.poison_rate, args.seed
        ),
        format!(
            "  downstream  {} transient failures, full outage {}",
            args.transient_rate, args.outage_window
        ),
        "  pipeline    orders   tiers 2s,5s,15s   jitter equal   breaker on".to_owned(),
        format!("  dashboard   http://{address}/#token={token}   ← open this"),
        format!("  try it      export REDRIVE_URL=http://{address} REDRIVE_TOKEN={token}"),
        format!("              {} dlq inspect orders          (in another terminal)", started_as()),
        String::new(),
    ]
}

/// This program as typed in a shell: the path it was started with, or its name.
fn started_as() -> String {
    std::env::args().next().filter(|path| !path.is_empty()).unwrap_or_else(|| "redrive".to_owned())
}

/// Prints a line every few seconds, and one when the downstream goes away or comes back.
pub async fn watch(handle: PipelineHandle, downstream: Arc<Downstream>) {
    let began = Instant::now();
    let mut next = EVERY;
    let mut away = false;
    let mut outage = OutageLine::default();
    loop {
        tokio::time::sleep(LOOK).await;
        let now = began.elapsed();
        let gone = downstream.outage().is_some();
        if gone != away {
            away = gone;
            let what = if gone { "▲ the downstream is down" } else { "▼ the downstream is back" };
            println!("{}  {what}", clock(now));
        }
        let figures = handle.figures();
        for change in outage.news(&figures) {
            println!("{}  {change}", clock(now));
        }
        if now >= next {
            next += EVERY;
            println!("{}  {}{}", clock(now), line(&figures), outage.after());
        }
    }
}

/// The breaker's changes so far, and the cost of the outage.
#[derive(Debug, Default)]
struct OutageLine {
    heard: Option<Time>,
    given_up_before: Option<u64>,
    given_up: Option<u64>,
}

impl OutageLine {
    /// Changes of the breaker since the last call.
    fn news(&mut self, figures: &Figures) -> Vec<String> {
        let heard = self.heard;
        let new = figures.health.history.iter().filter(|entry| heard.is_none_or(|heard| entry.at > heard));
        let mut news = Vec::new();
        for HealthEntry { at, change } in new {
            self.heard = Some(*at);
            if let HealthChange::Breaker { change, .. } = change {
                match change {
                    BreakerChange::Opened(_) => self.given_up_before = Some(given_up(figures)),
                    BreakerChange::Closed { .. } => {
                        let before = self.given_up_before.unwrap_or_default();
                        self.given_up = Some(given_up(figures).saturating_sub(before));
                    }
                    _ => {}
                }
            }
            news.push(change.to_string());
        }
        news
    }

    /// How many messages the outage dead-lettered, once it is over.
    fn after(&self) -> String {
        self.given_up
            .map(|dead| format!("   {} dead-lettered for the outage", count(dead)))
            .unwrap_or_default()
    }
}

/// Dead letters that an outage can cause: attempts or time used up.
fn given_up(figures: &Figures) -> u64 {
    let reasons = [Reason::MaxRetries, Reason::TtlExceeded, Reason::HoldExpired, Reason::BudgetExhausted];
    reasons.into_iter().map(|reason| figures.dead.get(reason)).sum()
}

fn clock(elapsed: Duration) -> String {
    format!("{:02}:{:02}", elapsed.as_secs() / 60, elapsed.as_secs() % 60)
}

/// The five numbers of the page, and the latency.
fn line(figures: &Figures) -> String {
    let pending = figures.pending;
    let dead = pending.letters_open;
    // A pending message is either being tried or held, as on the page, so the five numbers always add up.
    let (waiting, held) = (pending.pending(), pending.held);
    let mut text = format!(
        "produced {}  succeeded {}  retrying {}  held {}  dead {}",
        count(figures.succeeded + dead + pending.letters_discarded + pending.letters_erased + waiting),
        count(figures.succeeded),
        count(waiting - held),
        count(held),
        count(dead)
    );
    let mut quantile = |name: &str, seconds: Option<f64>| {
        if let Some(seconds) = seconds {
            // Writing to a String cannot fail.
            let _ = write!(text, "   {name} {:.0} ms", seconds * 1000.0);
        }
    };
    quantile("p99", figures.end_to_end.quantile(0.99));
    quantile("late p99", figures.retry_lateness.quantile(0.99));
    text
}
