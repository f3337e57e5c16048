//! `on_purged`: tells the owner's system of every subscription that was purged, so that it can forget it too.
//!
//! What cannot be delivered is logged and given up; `redrive subscriptions export --state purged` has them all.

use std::time::Duration;

use redrive::subscriptions::{Change, Changed, Subscriptions};
use redrive::timestamp;
use serde_json::Value;
use tokio::runtime::Runtime;
use tokio::sync::mpsc;

use super::events::{concerned, subscription_fields};
use super::outlet::{Outlet, Post};
use crate::config::AlertTarget;
use crate::exit::Failed;

/// How long one call may take.
const TIMEOUT: Duration = Duration::from_secs(10);
const TRY_AGAIN_AFTER: [Duration; 3] =
    [Duration::from_secs(1), Duration::from_secs(10), Duration::from_mins(1)];
/// Purges that wait to be told.
const QUEUE_MAX: usize = 10_000;

/// Whom to tell of the purges of a pipeline.
#[derive(Clone, Debug)]
pub struct OnPurged {
    pub subscriptions: Subscriptions,
    pub to: AlertTarget,
}

impl OnPurged {
    /// Tells of every purge from now on, one after the other.
    pub fn start(self, runtime: &Runtime) -> Result<(), Failed> {
        let outlet = Outlet::build(&self.to, TIMEOUT, "on_purged")?;
        let (queue, mut waiting) = mpsc::channel::<Post>(QUEUE_MAX);
        runtime.spawn(async move {
            while let Some(post) = waiting.recv().await {
                send(&outlet, &post).await;
            }
        });
        let pipeline = self.subscriptions.pipeline().to_owned();
        self.subscriptions.on_change(move |changed| {
            for id in concerned(changed) {
                let Some(post) = post(&pipeline, changed, id) else { return };
                if queue.try_send(post).is_err() {
                    tracing::error!(pipeline, "on_purged is not told: {QUEUE_MAX} others wait");
                }
            }
        });
        Ok(())
    }
}

/// What is told of a purge; nothing of other changes.
fn post(pipeline: &str, changed: &Changed, subscription: Option<&str>) -> Option<Post> {
    let endpoint = changed.endpoint.filter(|_| changed.change == Change::Purged)?;
    let mut fields = subscription_fields(changed, subscription);
    if let Value::Object(fields) = &mut fields {
        fields.insert("type".to_owned(), changed.change.name().into());
        fields.insert("pipeline".to_owned(), pipeline.into());
        fields.insert("at".to_owned(), timestamp::print(changed.at).into());
    }
    let env = vec![
        ("REDRIVE_PIPELINE", pipeline.to_owned()),
        ("REDRIVE_ENDPOINT_HASH", endpoint.to_string()),
        ("REDRIVE_SUBSCRIPTION_ID", subscription.unwrap_or_default().to_owned()),
    ];
    let id = format!("purged-{}-{}", endpoint.digits(), changed.at.as_millis());
    Some(Post { id, pipeline: pipeline.to_owned(), body: fields.to_string(), env })
}

async fn send(outlet: &Outlet, post: &Post) {
    let mut waits = TRY_AGAIN_AFTER.into_iter();
    for attempt in 1.. {
        let Err(error) = outlet.send(post, attempt).await else { return };
        let pipeline = &post.pipeline;
        let Some(wait) = waits.next() else {
            tracing::error!(pipeline, error, id = post.id, "on_purged could not be told, and is given up");
            return;
        };
        tracing::warn!(pipeline, error, id = post.id, "on_purged could not be told, and is tried again");
        tokio::time::sleep(wait).await;
    }
}
