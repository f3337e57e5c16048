//! The subscriptions of a push pipeline: active, flagged or purged endpoints. Endpoints are named by their hash; their
//! stored data is never returned.

use std::collections::BTreeSet;

use axum::extract::State;
use redrive::Time;
use redrive::actions::ActionKind;
use redrive::internal::subscriptions::{
    EndpointId, Listed, SubscriptionState, Subscriptions, SubscriptionsError,
};
use redrive_api::{
    Instant, NamedSubscription, NewSubscription, Purging, PurgingStopped, RemovedSubscription,
    SubscriptionKey, SubscriptionKeys, SubscriptionPage, SubscriptionView, UndoSubscription,
    UndoneSubscriptions,
};
use redrive_core::text::redact;
use serde::Deserialize;

use super::change::{Change, JsonBody, reason};
use super::selection;
use crate::answer::Json;
use crate::problem::{Code, Problem};
use crate::request::{Params, Path};
use crate::service::Served;
use crate::state::Shared;

/// The default number of rows per page.
const PAGE_DEFAULT: usize = 100;
const PAGE_MAX: usize = 1_000;
const REASON_BYTES_MAX: usize = 120;

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct SubscriptionListParams {
    state: Option<String>,
    cursor: Option<String>,
    limit: Option<usize>,
}

/// One endpoint.
fn subscription(listed: Listed) -> SubscriptionView {
    let state = listed.standing().name().to_owned();
    let Listed { endpoint, ids, record, stored } = listed;
    let (key, registered) = stored.map(|stored| (stored.key.clone(), Instant(stored.registered))).unzip();
    let view = SubscriptionView {
        endpoint_hash: endpoint.to_string(),
        ids,
        state,
        key: key.flatten(),
        registered,
        ..SubscriptionView::default()
    };
    match record {
        None => view,
        Some(record) => SubscriptionView {
            cause: Some(record.cause.name().to_owned()),
            reason: Some(record.reason),
            status: record.status,
            at: Some(Instant(record.at)),
            actor: record.actor,
            ..view
        },
    }
}

pub(crate) async fn list(
    State(shared): State<Shared>,
    Path(pipeline): Path<String>,
    Params(params): Params<SubscriptionListParams>,
) -> Result<Json<SubscriptionPage>, Problem> {
    let served = shared.service.find(&pipeline)?;
    let table = table(served)?;
    let standing = params.state.as_deref().filter(|text| !text.is_empty()).map(standing).transpose()?;
    let after = params.cursor.as_deref().map(cursor).transpose()?;
    let limit = params.limit.unwrap_or(PAGE_DEFAULT).min(PAGE_MAX);
    let listed = table.list(standing, after, limit);
    let next = listed.last().filter(|_| listed.len() == limit).map(|last| last.endpoint.digits());
    let counts = table.counts(served.handle.now());
    Ok(Json(SubscriptionPage {
        purge: counts.purge.name().to_owned(),
        active: counts.active,
        flagged: counts.flagged,
        purged: counts.purged,
        stored: counts.stored,
        stopped: counts.stopped.map(|stopped| PurgingStopped {
            at: Instant(stopped.at),
            purged: stopped.purged,
            active: stopped.active,
            percent: stopped.percent(),
        }),
        full: counts.is_full,
        unwritten: counts.unwritten,
        unannounced: counts.unannounced,
        unannounced_since: counts.unannounced_since.map(Instant),
        without_key: counts.without_key,
        damaged: counts.damaged,
        subscriptions: listed.into_iter().map(subscription).collect(),
        next,
    }))
}

pub(crate) async fn show(
    State(shared): State<Shared>,
    Path((pipeline, id)): Path<(String, String)>,
) -> Result<Json<SubscriptionView>, Problem> {
    let table = table(shared.service.find(&pipeline)?)?;
    let listed = table.show(&id).ok_or(SubscriptionsError::NotFound(id))?;
    Ok(Json(subscription(listed)))
}

/// The number of stored subscriptions per key.
pub(crate) async fn keys(
    State(shared): State<Shared>,
    Path(pipeline): Path<String>,
) -> Result<Json<SubscriptionKeys>, Problem> {
    let table = table(shared.service.find(&pipeline)?)?;
    let missing: BTreeSet<String> = table.missing_keys().into_iter().map(|(key, _)| key).collect();
    let view = |(key, subscriptions): (Option<String>, u64)| {
        let is_configured = key.as_ref().is_none_or(|key| !missing.contains(key));
        SubscriptionKey { key, subscriptions, configured: Some(is_configured) }
    };
    Ok(Json(SubscriptionKeys { keys: table.keys().into_iter().map(view).collect() }))
}

/// Stores a subscription, so that messages can name it. Not recorded as an operator's action: a user's system does it
/// all day.
pub(crate) async fn register(
    Change { served, .. }: Change,
    JsonBody { value: wish, .. }: JsonBody<NewSubscription>,
) -> Result<Json<SubscriptionView>, Problem> {
    let stored = table(&served)?.register(&wish.id, &wish.subscription, served.handle.now()).await?;
    Ok(Json(subscription(stored)))
}

pub(crate) async fn remove(
    change: Change,
    JsonBody { value: NamedSubscription { id, .. }, .. }: JsonBody<NamedSubscription>,
) -> Result<Json<RemovedSubscription>, Problem> {
    let table = table(&change.served)?;
    if table.stored(&id).is_none() {
        return Err(SubscriptionsError::NotFound(id).into());
    }
    change.record(change.action(ActionKind::SubscriptionRemove).of(&id, 1)).await?;
    table.remove(&id, change.served.handle.now()).await?;
    Ok(Json(RemovedSubscription { removed: id }))
}

pub(crate) async fn flag(
    change: Change,
    JsonBody { value, .. }: JsonBody<NamedSubscription>,
) -> Result<Json<SubscriptionView>, Problem> {
    let (id, reason) = marked(&change, value, ActionKind::SubscriptionFlag).await?;
    let Change { served, actor, .. } = &change;
    Ok(Json(subscription(table(served)?.flag(&id, &reason, &actor.0, served.handle.now()).await?)))
}

pub(crate) async fn purge(
    change: Change,
    JsonBody { value, .. }: JsonBody<NamedSubscription>,
) -> Result<Json<SubscriptionView>, Problem> {
    let (id, reason) = marked(&change, value, ActionKind::SubscriptionPurge).await?;
    let Change { served, actor, .. } = &change;
    Ok(Json(subscription(table(served)?.purge(&id, &reason, &actor.0, served.handle.now()).await?)))
}

/// Checks that an endpoint may be flagged or purged, and records that with the reason. Returns its id and the reason.
async fn marked(
    change: &Change,
    wish: NamedSubscription,
    kind: ActionKind,
) -> Result<(String, String), Problem> {
    let table = table(&change.served)?;
    // The reason is written to logs and records, so remove secrets that were pasted into it.
    let said = wish.reason.as_deref().map(|text| redact::without_secrets(text.trim()));
    let reason = reason(said, REASON_BYTES_MAX)?;
    table.check_markable(&wish.id)?;
    change.record(change.action(kind).of(&wish.id, 1).note(&reason)).await?;
    Ok((wish.id, reason))
}

/// Undoes one flag or purge, or all purges since a time.
pub(crate) async fn undo(
    change: Change,
    JsonBody { value: wish, .. }: JsonBody<UndoSubscription>,
) -> Result<Json<UndoneSubscriptions>, Problem> {
    let (table, now) = (table(&change.served)?, change.served.handle.now());
    let action = change.action(ActionKind::SubscriptionUndo);
    let undone = match (wish.id, wish.since) {
        (Some(id), None) => {
            table.check_undoable(&id)?;
            change.record(action.of(&id, 1)).await?;
            table.undo(&id, now).await?;
            1
        }
        (None, Some(since)) => {
            let from: Time = selection::since(&since, now)?;
            change.record(action.of(format!("since {since}"), table.purged_since(from))).await?;
            table.undo_since(from, now).await?
        }
        _ => {
            return Err(Problem::bad_request(
                "either `id` or `since` is needed",
                "{\"id\": \"hmac-sha256:…\"} takes one back, {\"since\": \"1h\"} all purges of the last hour",
            ));
        }
    };
    Ok(Json(UndoneSubscriptions { undone }))
}

pub(crate) async fn resume(change: Change) -> Result<Json<Purging>, Problem> {
    let (table, now) = (table(&change.served)?, change.served.handle.now());
    if table.counts(now).stopped.is_none() {
        return Err(SubscriptionsError::NotStopped.into());
    }
    change.record(change.action(ActionKind::SubscriptionResume).of("purging", 0)).await?;
    table.resume(now).await?;
    Ok(Json(Purging { purging: true }))
}

/// The table of subscriptions, if the pipeline's sink has one.
fn table(served: &Served) -> Result<&Subscriptions, Problem> {
    served.subscriptions.as_ref().ok_or_else(|| {
        let message = format!("the sink of pipeline `{}` has no subscriptions", served.handle.name());
        Problem::new(Code::Conflict, message, "those of webpush, apns and fcm do")
    })
}

fn standing(name: &str) -> Result<SubscriptionState, Problem> {
    SubscriptionState::from_name(name).ok_or_else(|| {
        let message = format!("there is no state `{name}` of a subscription");
        Problem::bad_request(message, "use active, flagged or purged")
    })
}

fn cursor(text: &str) -> Result<EndpointId, Problem> {
    let hint = "use the `next` of the page before as it is";
    text.parse()
        .map_err(|_| Problem::bad_request(format!("`cursor` is {text:?}, which is not a cursor"), hint))
}

impl From<SubscriptionsError> for Problem {
    fn from(error: SubscriptionsError) -> Self {
        match error {
            SubscriptionsError::NotFound(_) => Self::not_found(
                error,
                "known are stored, flagged and purged ones, and those that this process called lately; `redrive \
                     subscriptions list PIPELINE`, or GET …/subscriptions, lists all but the last",
            ),
            SubscriptionsError::NotMarked(_) => {
                Self::new(Code::Conflict, error, "there is nothing to take back")
            }
            SubscriptionsError::Id => Self::bad_request(error, "for example user-5512/phone"),
            SubscriptionsError::Subscription(_) => Self::bad_request(
                error,
                "send what the browser or the device gave; docs/guide/push.md shows it",
            ),
            SubscriptionsError::Full => {
                Self::new(Code::Conflict, error, "remove some, or let messages carry their subscription")
            }
            SubscriptionsError::NotStopped => Self::new(Code::Conflict, error, "there is nothing to resume"),
            SubscriptionsError::AlreadyPurged(_) => Self::new(
                Code::Conflict,
                error,
                "`redrive subscriptions undo PIPELINE HASH`, or POST …/subscriptions/undo, takes it back",
            ),
            SubscriptionsError::Store(error) => {
                Self::new(Code::StorageFailed, error, "the change holds in this process; see its log")
            }
        }
    }
}
