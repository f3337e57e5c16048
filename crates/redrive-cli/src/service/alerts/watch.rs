//! Polls the figures once a second, and passes notifications to one sender per `[[alert]]`.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use redrive::actions::Actions;
use redrive::internal::engine::embedded::Tuning;
use redrive::internal::subscriptions::Subscriptions;
use redrive::letters::Redaction;
use redrive::replay::{Replays, StoppedReplays};
use redrive::{Clock as _, PipelineHandle, WallClock};
use redrive_server::alerts::{AlertKind, Facts, FoundGroups, GroupLookout, Limits, Notice, Watcher};
use tokio::runtime::Runtime;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::MissedTickBehavior;

use super::pills::Pills;
use super::send::Sender;
use crate::config::{AlertConfig, Config, EngineKind};
use crate::exit::{Exit, Failed};

const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Free space is polled less often: it needs a system call.
const DISK_EVERY: u64 = 10;
/// The maximum number of notices waiting for a slow sender.
const QUEUE_MAX: usize = 64;
/// The waits before the second and the third attempt to send a notice.
const TRY_AGAIN_AFTER: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(5)];
/// How long shutdown waits for unsent notices.
const END_WAIT: Duration = Duration::from_secs(5);

/// A pipeline to watch.
#[derive(Clone, Debug)]
pub struct Watched {
    pub handle: PipelineHandle,
    pub subscriptions: Option<Subscriptions>,
    pub replays: Replays,
    pub actions: Actions,
    /// Notices redact the same values as letters.
    pub redaction: Redaction,
}

/// The running alerts.
#[derive(Debug)]
pub struct Watching {
    stop: oneshot::Sender<()>,
    looking: JoinHandle<()>,
    sending: Vec<JoinHandle<()>>,
}

/// One `[[alert]]`.
#[derive(Debug)]
struct AlertLine {
    watcher: Watcher,
    queue: mpsc::Sender<Notice>,
}

impl Watching {
    /// Starts polling and sending; `None` if there is no alert.
    pub fn start(
        config: &[AlertConfig],
        handles: Vec<Watched>,
        pills: Arc<Pills>,
        dir: Option<PathBuf>,
        runtime: &Runtime,
    ) -> Result<Option<Self>, Failed> {
        if config.is_empty() {
            return Ok(None);
        }
        let (mut lines, mut sending) = (Vec::new(), Vec::new());
        for alert in config {
            let (queue, notices) = mpsc::channel(QUEUE_MAX);
            let (on, names) = (alert.on.clone(), alert.pipelines.iter().cloned());
            let watcher = Watcher::new(on, names, alert.limits.clone(), alert.every, WallClock.now());
            lines.push(AlertLine { watcher, queue });
            sending.push(runtime.spawn(send_all(Sender::build(alert)?, notices)));
        }
        let (stop, stopped) = oneshot::channel();
        let looking = runtime.spawn(look(lines, handles, pills, dir, stopped));
        Ok(Some(Self { stop, looking, sending }))
    }

    /// Stops, and gives unsent notices a moment.
    pub async fn end(self) {
        drop(self.stop);
        // A panic while polling was already printed; there is nothing left to wait for.
        let _ = self.looking.await;
        let sent = async {
            for sending in self.sending {
                let _ = sending.await;
            }
        };
        if tokio::time::timeout(END_WAIT, sent).await.is_err() {
            tracing::warn!("some alerts were not sent before the end");
        }
    }
}

async fn look(
    mut lines: Vec<AlertLine>,
    handles: Vec<Watched>,
    pills: Arc<Pills>,
    dir: Option<PathBuf>,
    mut stopped: oneshot::Receiver<()>,
) {
    let mut seconds = tokio::time::interval(LOOK_EVERY);
    seconds.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut full = None;
    let mut lookouts: Vec<GroupLookout> = handles.iter().map(|_| GroupLookout::default()).collect();
    let wants_groups = lines.iter().any(|line| {
        line.watcher.watches(AlertKind::NewGroup) || line.watcher.watches(AlertKind::GroupRegressed)
    });
    for count in 0.. {
        let is_last = tokio::select! {
            _ = seconds.tick() => false,
            _ = &mut stopped => true,
        };
        if count % DISK_EVERY == 0 {
            let dir = dir.clone();
            let asked = tokio::task::spawn_blocking(move || disk_nearly_full(dir)).await;
            full = asked.unwrap_or_default();
        }
        let mut groups = Vec::new();
        for (watched, lookout) in handles.iter().zip(&mut lookouts).filter(|_| wants_groups) {
            groups.push(lookout.look(&watched.handle, &watched.actions, &watched.redaction).await);
        }
        groups.resize(handles.len(), FoundGroups::default());
        let (now, found) = (WallClock.now(), pills.take());
        for line in &mut lines {
            let notice = line.watcher.look_at_storage(full.as_deref(), now);
            line.tell(notice);
            for (Watched { handle, subscriptions, replays, .. }, groups) in handles.iter().zip(&groups) {
                let name = handle.name();
                let own = found.iter().filter(|(pipeline, _)| pipeline == name);
                let figures = handle.figures();
                let facts = Facts::of(&figures).with_services(&figures, handle.sink().status_pages);
                let own = own.map(|(_, pill)| pill.clone()).collect();
                let facts = Facts { pills: own, groups: groups.clone(), ..facts };
                let stopped = subscriptions.as_ref().and_then(|table| table.counts(now).stopped);
                let replays = StoppedReplays::of(name, &replays.list());
                let facts = facts.with_subscriptions(stopped).with_replays(replays.as_ref());
                let notices = line.watcher.look(name, &facts, now);
                line.tell(notices);
            }
        }
        if is_last {
            return;
        }
    }
}

impl AlertLine {
    fn tell(&self, notices: impl IntoIterator<Item = Notice>) {
        for notice in notices {
            let (alert, pipeline, state) = (notice.kind.name(), notice.pipeline.clone(), notice.state.name());
            tracing::warn!(alert, pipeline, state, summary = notice.summary, "alert");
            if self.queue.try_send(notice).is_err() {
                tracing::error!(alert, pipeline, "alert was dropped: {QUEUE_MAX} others wait to be sent");
            }
        }
    }
}

async fn send_all(sender: Sender, mut notices: mpsc::Receiver<Notice>) {
    while let Some(notice) = notices.recv().await {
        send_one(&sender, &notice).await;
    }
}

/// Sends a notice, with up to two retries.
async fn send_one(sender: &Sender, notice: &Notice) {
    let (alert, pipeline) = (notice.kind.name(), notice.pipeline.as_deref());
    let mut waits = TRY_AGAIN_AFTER.into_iter();
    for attempt in 1.. {
        let Err(error) = sender.send(notice, attempt).await else { return };
        let Some(wait) = waits.next() else {
            tracing::error!(alert, pipeline, error, "alert could not be sent and is given up");
            return;
        };
        tracing::warn!(alert, pipeline, error, "alert could not be sent and is tried again");
        tokio::time::sleep(wait).await;
    }
}

/// The notice for so little free space that nothing is accepted any more.
fn disk_nearly_full(dir: Option<PathBuf>) -> Option<String> {
    let stat = rustix::fs::statvfs(&dir?).ok()?;
    let (free, reserve) = (stat.f_bavail.saturating_mul(stat.f_frsize), Tuning::default().reserve_bytes);
    (free < reserve).then(|| {
        format!("the disk is nearly full: {} MiB left; nothing is accepted, deliveries continue", free >> 20)
    })
}

/// Tells the recipients of `storage` alerts that storage failed and the process ends. Waits for that, but not for long.
pub fn tell_of_failed_storage(config: &Config, failed: &Failed) {
    let concerned: Vec<&AlertConfig> =
        config.alerts.iter().filter(|alert| alert.on.contains(&AlertKind::Storage)).collect();
    if failed.exit != Exit::Storage || concerned.is_empty() {
        return;
    }
    // The runtimes of the processor may be gone, or may never have existed.
    let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() else { return };
    let now = WallClock.now();
    runtime.block_on(async {
        for alert in concerned {
            let mut watcher = Watcher::new(alert.on.clone(), [], Limits::default(), alert.every, now);
            let why = format!("storage failed and the processor ended: {}", failed.message);
            let notice = watcher.look_at_storage(Some(&why), now);
            let (Some(notice), Ok(sender)) = (notice, Sender::build(alert)) else { continue };
            if let Err(error) = sender.send(&notice, 1).await {
                tracing::error!(alert = notice.kind.name(), error, "alert could not be sent");
            }
        }
    });
    runtime.shutdown_background();
}

/// The directory whose free space is watched.
pub fn watched_dir(config: &Config) -> Option<PathBuf> {
    (config.engine.kind == EngineKind::Embedded).then(|| config.engine.dir.clone())
}
