//! `on_purged`: announces every purge to the owner's system, so that it can forget the subscription too.
//!
//! At least once: a purge stays in the table of subscriptions, durably, until its announcement was accepted, across
//! restarts and crashes. Repeats have the same id. A failing receiver is tried less and less often, but for ever;
//! `status` shows purges that wait for too long. On Kafka the member that reads partition 0 of the source announces for
//! all.

mod schedule;

use std::time::Duration;

use redrive::PipelineHandle;
use redrive::internal::engine::Condition;
use redrive::internal::subscriptions::{Change, Changed, EndpointId, Subscriptions};
use redrive::{Time, timestamp};
use serde_json::Value;
use tokio::runtime::Runtime;
use tokio::time::{Instant, MissedTickBehavior, interval};

use super::events::{concerned, subscription_fields};
use super::outlet::{Outlet, Post};
use crate::config::AlertTarget;
use crate::exit::Failed;
use schedule::AnnounceSchedule;

/// The timeout of one call.
const TIMEOUT: Duration = Duration::from_secs(10);
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// How many purges are processed together.
const PAGE: usize = 100;

/// Announces the purges of a pipeline.
#[derive(Clone, Debug)]
pub struct OnPurged {
    pub subscriptions: Subscriptions,
    pub to: AlertTarget,
    pub handle: PipelineHandle,
    /// The topic that the members of a group share, if there are several members.
    pub shared_source: Option<String>,
}

impl OnPurged {
    /// Announces pending purges, and every later one, one at a time.
    pub fn start(self, runtime: &Runtime) -> Result<(), Failed> {
        let outlet = Outlet::build(&self.to, TIMEOUT, "on_purged")?;
        runtime.spawn(async move { self.run(&outlet).await });
        Ok(())
    }

    async fn run(&self, outlet: &Outlet) {
        let mut schedule = AnnounceSchedule::default();
        let mut looks = interval(LOOK_EVERY);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        // Where the last round stopped: the next one begins after it.
        let mut from = None;
        loop {
            looks.tick().await;
            from = self.round(outlet, &mut schedule, from).await;
        }
    }

    /// Tries everything that is due. Returns where to continue if it stopped before the end.
    async fn round(
        &self,
        outlet: &Outlet,
        schedule: &mut AnnounceSchedule,
        mut from: Option<(Time, EndpointId)>,
    ) -> Option<(Time, EndpointId)> {
        loop {
            if schedule.is_paused(Instant::now()) {
                return from;
            }
            let page = self.subscriptions.unannounced(from, PAGE);
            if page.is_empty() || !self.is_announcer() {
                return None;
            }
            for purge in page {
                self.announce(outlet, schedule, purge).await;
                from = Some(purge);
                if schedule.is_paused(Instant::now()) {
                    return from;
                }
            }
        }
    }

    /// Announces one purge, if it is due.
    async fn announce(&self, outlet: &Outlet, schedule: &mut AnnounceSchedule, purge: (Time, EndpointId)) {
        let Some(attempt) = schedule.due(purge, Instant::now()) else { return };
        // A purge that was undone needs no announcement.
        let changed = self.subscriptions.announcement(purge).filter(|_| !schedule.was_made(purge));
        if let Some(changed) = changed {
            let pipeline = self.subscriptions.pipeline();
            if let Err(error) = send_all(outlet, pipeline, &changed, attempt).await {
                let again_s = schedule.failed(purge, Instant::now()).as_secs();
                let endpoint_hash = purge.1.to_string();
                tracing::warn!(
                    pipeline,
                    error,
                    endpoint_hash,
                    attempt,
                    again_s,
                    "on_purged failed; the purge is announced again later"
                );
                return;
            }
            schedule.succeeded(purge);
        }
        if let Err(error) = self.subscriptions.announced(purge).await {
            tracing::warn!(
                pipeline = self.subscriptions.pipeline(),
                %error,
                "could not record a purge announcement; it will be repeated after a restart"
            );
        }
    }

    fn is_announcer(&self) -> bool {
        match &self.shared_source {
            None => true,
            Some(source) => reads_first_partition(&self.handle.figures().condition, source),
        }
    }
}

/// Whether this process announces: only one member of a group does.
fn reads_first_partition(condition: &Condition, source: &str) -> bool {
    // Only a partition that was read here has a lag.
    condition.flows.iter().any(|flow| *flow.topic == *source && flow.partition == 0 && flow.lag.is_some())
}

/// Makes one call for each stored subscription of the endpoint.
async fn send_all(outlet: &Outlet, pipeline: &str, changed: &Changed, attempt: u32) -> Result<(), String> {
    for id in concerned(changed) {
        if let Some(post) = post(pipeline, changed, id) {
            outlet.send(&post, attempt).await?;
        }
    }
    Ok(())
}

/// The announcement of a purge; `None` for other changes.
fn post(pipeline: &str, changed: &Changed, subscription: Option<&str>) -> Option<Post> {
    let endpoint = changed.endpoint.filter(|_| changed.change == Change::Purged)?;
    let id = event_id(endpoint, changed.at, subscription);
    let mut fields = subscription_fields(changed, subscription);
    if let Value::Object(fields) = &mut fields {
        fields.insert("id".to_owned(), id.as_str().into());
        fields.insert("type".to_owned(), changed.change.name().into());
        fields.insert("pipeline".to_owned(), pipeline.into());
        fields.insert("at".to_owned(), timestamp::print(changed.at).into());
    }
    let env = vec![
        ("REDRIVE_EVENT_ID", id.clone()),
        ("REDRIVE_PIPELINE", pipeline.to_owned()),
        ("REDRIVE_ENDPOINT_HASH", endpoint.to_string()),
        ("REDRIVE_SUBSCRIPTION_ID", subscription.unwrap_or_default().to_owned()),
    ];
    Some(Post { id, pipeline: pipeline.to_owned(), body: fields.to_string(), env })
}

/// The same id for every repeat, even by another process, but a different one for each stored subscription.
fn event_id(endpoint: EndpointId, at: Time, subscription: Option<&str>) -> String {
    let id = format!("purged-{}-{}", endpoint.digits(), at.as_millis());
    match subscription {
        Some(subscription) => format!("{id}-{:08x}", crc32fast::hash(subscription.as_bytes())),
        None => id,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use redrive::internal::engine::PartitionFlow;

    use super::*;

    #[test]
    fn of_the_members_of_a_group_the_one_with_partition_0_of_the_source_announces() {
        let flow = |topic: &str, partition, lag| PartitionFlow {
            topic: Arc::from(topic),
            partition,
            lag,
            consumed: 1,
            stalled_for: std::time::Duration::ZERO,
        };
        let reads = |flow: PartitionFlow| {
            reads_first_partition(&Condition { flows: vec![flow], ..Condition::default() }, "push")
        };
        assert!(reads(flow("push", 0, Some(7))));
        assert!(!reads(flow("push", 1, Some(0))));
        assert!(!reads(flow("push.retry.5s", 0, Some(0))));
        assert!(!reads(flow("push", 0, None)), "another member reads it by now");
        assert!(!reads_first_partition(&Condition::default(), "push"), "nothing is assigned yet");
    }

    #[test]
    fn an_event_id_is_the_same_for_repeats_and_differs_between_subscriptions_of_one_endpoint() {
        let (endpoint, at) = (EndpointId::from_number(7), Time::from_millis(5));
        let id = |subscription| event_id(endpoint, at, subscription);
        assert_eq!(id(None), "purged-0000000000000007-5");
        assert_eq!(id(Some("user-1/phone")), id(Some("user-1/phone")));
        assert_ne!(id(Some("user-1/phone")), id(Some("user-2/phone")));
    }
}
