//! One call of the downstream from beginning to end. HTTP is only a transport.

use std::sync::{PoisonError, RwLock};

use serde_json::{Map, Value};
use tokio::sync::Notify;
use tokio::time::Instant;

use super::decide::{StubCall, decide, latency_number};
use super::ledger::Ledger;
use super::stats::Counters;
use super::{
    Applied, DownstreamOptions, LedgerFault, OutageStyle, Page, Stats, StubFailure, SwitchFaults, Switches,
};
use crate::mark::Marked;

/// The stub, for calls over HTTP and in process. Share it in an `Arc`.
#[derive(Debug)]
pub struct Downstream {
    seed: u64,
    setting: RwLock<StubSetting>,
    /// Notified of every change of the switches.
    changed: Notify,
    ledger: Ledger,
    counters: Counters,
}

/// The switches, and the start of the outage window.
#[derive(Clone, Debug)]
struct StubSetting {
    switches: Switches,
    window_set: Instant,
}

impl Downstream {
    /// Opens the ledger. An outage window counts from now.
    pub async fn open(options: &DownstreamOptions) -> Result<Self, LedgerFault> {
        let setting = StubSetting { switches: options.switches.clone(), window_set: Instant::now() };
        Ok(Self {
            seed: options.seed,
            setting: RwLock::new(setting),
            changed: Notify::new(),
            ledger: Ledger::open(&options.ledger).await?,
            counters: Counters::default(),
        })
    }

    /// Applies the message, or fails as the switches, the payload's mark and the seed dictate. `attempt` counts from
    /// 1.
    pub async fn handle(&self, id: &str, attempt: u32, payload: &[u8]) -> Result<Applied, StubFailure> {
        let _in_flight = self.counters.begin();
        let end = self.call(id, attempt, payload).await;
        match &end {
            Ok(applied) => self.counters.applied(*applied),
            Err(failure) => self.counters.failed(failure.kind()),
        }
        end
    }

    async fn call(&self, id: &str, attempt: u32, payload: &[u8]) -> Result<Applied, StubFailure> {
        self.outage_ends_the_call().await?;
        let switches = self.switches();
        let call = StubCall { id, attempt: attempt.max(1), mark: Marked::read(payload).fate() };
        let latency = switches.latency.drawn(latency_number(self.seed, call));
        if !latency.is_zero() {
            tokio::time::sleep(latency).await;
        }
        decide(&switches, self.seed, call)?;
        self.ledger.apply(id).await.map_err(StubFailure::Ledger)
    }

    /// Fails the call during an outage: at once, or when the outage is over.
    async fn outage_ends_the_call(&self) -> Result<(), StubFailure> {
        let Some(style) = self.outage() else { return Ok(()) };
        if style == OutageStyle::Hang {
            self.outage_left(OutageStyle::Hang).await;
        }
        Err(StubFailure::Outage { style, retry_after: self.switches().retry_after })
    }

    /// Waits until the outage is over or changes its style.
    pub(super) async fn outage_left(&self, style: OutageStyle) {
        while self.outage() == Some(style) {
            self.outage_may_differ_from(Some(style)).await;
        }
    }

    /// Waits for the next moment at which the outage may differ from `seen`.
    pub(super) async fn outage_may_differ_from(&self, seen: Option<OutageStyle>) {
        let changed = self.changed.notified();
        tokio::pin!(changed);
        // Subscribe before checking again, so that a change in between is not missed.
        changed.as_mut().enable();
        if self.outage() != seen {
            return;
        }
        let setting = self.setting();
        let elapsed = setting.window_set.elapsed();
        let edge = setting.switches.outage_window.and_then(|window| window.next_edge(elapsed));
        match edge.and_then(|edge| setting.window_set.checked_add(edge)) {
            Some(edge) => tokio::select! {
                () = changed => {}
                () = tokio::time::sleep_until(edge) => {}
            },
            None => changed.await,
        }
    }

    /// The style of the current outage; `None` without one.
    pub fn outage(&self) -> Option<OutageStyle> {
        let setting = self.setting.read().unwrap_or_else(PoisonError::into_inner);
        setting.switches.outage_window?;
        setting.switches.outage(setting.window_set.elapsed())
    }

    pub fn switches(&self) -> Switches {
        self.setting().switches
    }

    /// Changes all switches that `change` names, or none on error. A named outage window counts from now.
    pub fn change(&self, change: &Map<String, Value>) -> Result<Switches, SwitchFaults> {
        let mut setting = self.setting.write().unwrap_or_else(PoisonError::into_inner);
        let switches = setting.switches.changed(change)?;
        let window_set =
            if change.contains_key("outage_window") { Instant::now() } else { setting.window_set };
        *setting = StubSetting { switches: switches.clone(), window_set };
        drop(setting);
        self.changed.notify_waiters();
        Ok(switches)
    }

    /// Turns off poison: from now on it is accepted, as if a bug had been fixed.
    pub fn fix(&self) {
        self.setting.write().unwrap_or_else(PoisonError::into_inner).switches.poison_detect = false;
        self.changed.notify_waiters();
    }

    pub fn stats(&self) -> Stats {
        self.counters.read()
    }

    /// The number of applied ids, including those of earlier runs.
    pub async fn applied_count(&self) -> Result<u64, LedgerFault> {
        self.ledger.count().await
    }

    pub async fn is_applied(&self, id: &str) -> Result<bool, LedgerFault> {
        self.ledger.contains(id).await
    }

    /// A page of applied ids after `after`.
    pub async fn applied(&self, after: Option<&str>, limit: usize) -> Result<Page, LedgerFault> {
        self.ledger.page(after, limit).await
    }

    /// A warning about how the ledger was opened, if any.
    pub fn notice(&self) -> Option<String> {
        self.ledger.notice()
    }

    fn setting(&self) -> StubSetting {
        self.setting.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
