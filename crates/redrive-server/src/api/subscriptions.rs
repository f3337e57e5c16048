//! The subscriptions of a push pipeline: which endpoints are alive, flagged or purged. Endpoints are named by their hash;
//! what is stored of them is never answered.

use std::collections::BTreeSet;

use axum::Extension;
use axum::body::Body;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::{IntoResponse, Response};
use redrive::Time;
use redrive::actions::{Action, ActionKind};
use redrive::subscriptions::{Counts, EndpointId, Listed, Standing, Subscriptions, SubscriptionsError};
use redrive_core::text::redact;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::selection;
use super::view;
use crate::answer::Json;
use crate::auth::Actor;
use crate::body;
use crate::problem::{Code, Problem};
use crate::request::{Params, Path, read_json};
use crate::service::Served;
use crate::state::Shared;

/// Rows of a page, unless asked otherwise.
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
#[derive(Debug, Serialize)]
pub(crate) struct SubscriptionView {
    endpoint_hash: String,
    /// The ids of the stored subscriptions of this endpoint.
    ids: Vec<String>,
    state: &'static str,
    /// `gone`, `refused` or `operator`.
    cause: Option<&'static str>,
    reason: Option<String>,
    status: Option<u16>,
    /// When it was flagged or purged.
    at: Option<String>,
    actor: Option<String>,
    /// The VAPID key that it was made with.
    key: Option<String>,
    registered: Option<String>,
}

#[derive(Debug, Serialize)]
pub(crate) struct SubscriptionsPage {
    #[serde(flatten)]
    counts: CountsView,
    subscriptions: Vec<SubscriptionView>,
    next: Option<String>,
}

#[derive(Debug, Serialize)]
struct CountsView {
    purge: &'static str,
    /// An estimate.
    active: u64,
    flagged: u64,
    purged: u64,
    stored: u64,
    /// Why purging is stopped; null if it is not.
    stopped: Option<StoppedView>,
    full: bool,
    unwritten: u64,
    /// Purges that `on_purged` has not accepted yet.
    unannounced: u64,
    unannounced_since: Option<String>,
    /// Stored subscriptions whose VAPID key is not configured.
    without_key: u64,
    /// Damaged lines of the log.
    damaged: u64,
}

#[derive(Debug, Serialize)]
struct StoppedView {
    at: Option<String>,
    purged: u64,
    active: u64,
    percent: f64,
}

impl From<Counts> for CountsView {
    fn from(counts: Counts) -> Self {
        let stopped = counts.stopped.map(|stopped| StoppedView {
            at: view::time(Some(stopped.at)),
            purged: stopped.purged,
            active: stopped.active,
            percent: stopped.percent(),
        });
        Self {
            purge: counts.purge.name(),
            active: counts.active,
            flagged: counts.flagged,
            purged: counts.purged,
            stored: counts.stored,
            stopped,
            full: counts.is_full,
            unwritten: counts.unwritten,
            unannounced: counts.unannounced,
            unannounced_since: view::time(counts.unannounced_since),
            without_key: counts.without_key,
            damaged: counts.damaged,
        }
    }
}

impl From<Listed> for SubscriptionView {
    fn from(listed: Listed) -> Self {
        let state = listed.standing().name();
        let Listed { endpoint, ids, record, stored } = listed;
        let (key, registered) = stored.map(|stored| (stored.key.clone(), stored.registered)).unzip();
        let view = Self {
            endpoint_hash: endpoint.to_string(),
            ids,
            state,
            cause: None,
            reason: None,
            status: None,
            at: None,
            actor: None,
            key: key.flatten(),
            registered: view::time(registered),
        };
        match record {
            None => view,
            Some(record) => Self {
                cause: Some(record.cause.name()),
                reason: Some(record.reason),
                status: record.status,
                at: view::time(Some(record.at)),
                actor: record.actor,
                ..view
            },
        }
    }
}

pub(crate) async fn list(
    State(shared): State<Shared>,
    Path(pipeline): Path<String>,
    Params(params): Params<SubscriptionListParams>,
) -> Result<Response, Problem> {
    let (served, table) = found(&shared, &pipeline)?;
    let standing = params.state.as_deref().filter(|text| !text.is_empty()).map(standing).transpose()?;
    let after = params.cursor.as_deref().map(cursor).transpose()?;
    let limit = params.limit.unwrap_or(PAGE_DEFAULT).min(PAGE_MAX);
    let listed = table.list(standing, after, limit);
    let next = listed.last().filter(|_| listed.len() == limit).map(|last| last.endpoint.digits());
    let counts = table.counts(served.handle.now()).into();
    let subscriptions = listed.into_iter().map(SubscriptionView::from).collect();
    Ok(Json(SubscriptionsPage { counts, subscriptions, next }).into_response())
}

pub(crate) async fn show(
    State(shared): State<Shared>,
    Path((pipeline, id)): Path<(String, String)>,
) -> Result<Json<SubscriptionView>, Problem> {
    let (_, table) = found(&shared, &pipeline)?;
    let listed = table.show(&id).ok_or(SubscriptionsError::NotFound(id))?;
    Ok(Json(listed.into()))
}

/// How many stored subscriptions are on which key.
pub(crate) async fn keys(
    State(shared): State<Shared>,
    Path(pipeline): Path<String>,
) -> Result<Json<Value>, Problem> {
    let (_, table) = found(&shared, &pipeline)?;
    let missing: BTreeSet<String> = table.missing_keys().into_iter().map(|(key, _)| key).collect();
    let view = |(key, count): (Option<String>, u64)| {
        let is_configured = key.as_ref().is_none_or(|key| !missing.contains(key));
        json!({ "key": key, "subscriptions": count, "configured": is_configured })
    };
    let keys: Vec<Value> = table.keys().into_iter().map(view).collect();
    Ok(Json(json!({ "keys": keys })))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RegisterWish {
    id: String,
    subscription: Value,
}

/// Stores a subscription, so that messages can name it. Not an action of an operator: a user's system does it all day.
pub(crate) async fn register(
    State(shared): State<Shared>,
    Path(pipeline): Path<String>,
    headers: HeaderMap,
    body: Body,
) -> Result<Json<SubscriptionView>, Problem> {
    let (served, table) = found(&shared, &pipeline)?;
    let held = body::hold(&shared, &headers, body).await?;
    let wish: RegisterWish = read_json(&held.bytes)?;
    let stored = table.register(&wish.id, &wish.subscription, served.handle.now()).await?;
    Ok(Json(stored.into()))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct NamedWish {
    id: String,
    reason: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct UndoWish {
    id: Option<String>,
    since: Option<String>,
}

pub(crate) async fn remove(
    State(shared): State<Shared>,
    Extension(actor): Extension<Actor>,
    Path(pipeline): Path<String>,
    headers: HeaderMap,
    body: Body,
) -> Result<Json<Value>, Problem> {
    let (served, table) = found(&shared, &pipeline)?;
    let held = body::hold(&shared, &headers, body).await?;
    let NamedWish { id, .. } = read_json(&held.bytes)?;
    if table.stored(&id).is_none() {
        return Err(SubscriptionsError::NotFound(id).into());
    }
    let done = Done { kind: ActionKind::SubscriptionRemove, id: &id, subscriptions: 1, note: None };
    record(&shared, served, &actor, done).await?;
    table.remove(&id, served.handle.now()).await?;
    Ok(Json(json!({ "removed": id })))
}

pub(crate) async fn flag(
    State(shared): State<Shared>,
    Extension(actor): Extension<Actor>,
    Path(pipeline): Path<String>,
    headers: HeaderMap,
    body: Body,
) -> Result<Json<SubscriptionView>, Problem> {
    let (served, table) = found(&shared, &pipeline)?;
    let NamedWish { id, reason } = named(&shared, &headers, body).await?;
    let reason = said(reason)?;
    table.check_markable(&id)?;
    let kind = ActionKind::SubscriptionFlag;
    record(&shared, served, &actor, Done { kind, id: &id, subscriptions: 1, note: Some(&reason) }).await?;
    Ok(Json(table.flag(&id, &reason, &actor.0, served.handle.now()).await?.into()))
}

pub(crate) async fn purge(
    State(shared): State<Shared>,
    Extension(actor): Extension<Actor>,
    Path(pipeline): Path<String>,
    headers: HeaderMap,
    body: Body,
) -> Result<Json<SubscriptionView>, Problem> {
    let (served, table) = found(&shared, &pipeline)?;
    let NamedWish { id, reason } = named(&shared, &headers, body).await?;
    let reason = said(reason)?;
    table.check_markable(&id)?;
    let kind = ActionKind::SubscriptionPurge;
    record(&shared, served, &actor, Done { kind, id: &id, subscriptions: 1, note: Some(&reason) }).await?;
    Ok(Json(table.purge(&id, &reason, &actor.0, served.handle.now()).await?.into()))
}

/// Takes one flag or purge back, or all purges since a time.
pub(crate) async fn undo(
    State(shared): State<Shared>,
    Extension(actor): Extension<Actor>,
    Path(pipeline): Path<String>,
    headers: HeaderMap,
    body: Body,
) -> Result<Json<Value>, Problem> {
    let (served, table) = found(&shared, &pipeline)?;
    let held = body::hold(&shared, &headers, body).await?;
    let wish: UndoWish = read_json(&held.bytes)?;
    let now = served.handle.now();
    let kind = ActionKind::SubscriptionUndo;
    match (wish.id, wish.since) {
        (Some(id), None) => {
            table.check_undoable(&id)?;
            record(&shared, served, &actor, Done { kind, id: &id, subscriptions: 1, note: None }).await?;
            table.undo(&id, now).await?;
            Ok(Json(json!({ "undone": 1 })))
        }
        (None, Some(since)) => {
            let from: Time = selection::since(&since, now)?;
            let (id, subscriptions) = (format!("since {since}"), table.purged_since(from));
            record(&shared, served, &actor, Done { kind, id: &id, subscriptions, note: None }).await?;
            Ok(Json(json!({ "undone": table.undo_since(from, now).await? })))
        }
        _ => Err(Problem::bad_request(
            "either `id` or `since` is needed",
            "{\"id\": \"hmac-sha256:…\"} takes one back, {\"since\": \"1h\"} all purges of the last hour",
        )),
    }
}

pub(crate) async fn resume(
    State(shared): State<Shared>,
    Extension(actor): Extension<Actor>,
    Path(pipeline): Path<String>,
) -> Result<Json<Value>, Problem> {
    let (served, table) = found(&shared, &pipeline)?;
    if table.counts(served.handle.now()).stopped.is_none() {
        return Err(SubscriptionsError::NotStopped.into());
    }
    let done = Done { kind: ActionKind::SubscriptionResume, id: "purging", subscriptions: 0, note: None };
    record(&shared, served, &actor, done).await?;
    table.resume(served.handle.now()).await?;
    Ok(Json(json!({ "purging": true })))
}

fn found<'a>(shared: &'a Shared, pipeline: &str) -> Result<(&'a Served, &'a Subscriptions), Problem> {
    let served = shared.service.find(pipeline)?;
    let none = || {
        let message = format!("the sink of pipeline `{pipeline}` has no subscriptions");
        Problem::new(Code::Conflict, message, "those of webpush, apns and fcm do")
    };
    Ok((served, served.subscriptions.as_ref().ok_or_else(none)?))
}

async fn named(shared: &Shared, headers: &HeaderMap, body: Body) -> Result<NamedWish, Problem> {
    let held = body::hold(shared, headers, body).await?;
    read_json(&held.bytes)
}

/// What somebody does.
struct Done<'a> {
    kind: ActionKind,
    id: &'a str,
    subscriptions: u64,
    note: Option<&'a str>,
}

/// The record comes first: what was done is never missing from it.
async fn record(shared: &Shared, served: &Served, actor: &Actor, done: Done<'_>) -> Result<(), Problem> {
    let Done { kind, id, subscriptions, note } = done;
    let action = Action::new(served.handle.now(), &actor.0, kind, served.handle.name()).of(id, subscriptions);
    let action = Action { note: note.map(str::to_owned), ..action };
    Ok(shared.service.actions.record(action).await?)
}

fn said(reason: Option<String>) -> Result<String, Problem> {
    // It stands in logs and records: what somebody pasted into it must not.
    let reason = redact::without_secrets(reason.unwrap_or_default().trim());
    if reason.is_empty() || reason.len() > REASON_BYTES_MAX {
        let message = format!("`reason` is needed, of at most {REASON_BYTES_MAX} bytes");
        return Err(Problem::bad_request(message, "say why: it stands in the record beside your name"));
    }
    Ok(reason)
}

fn standing(name: &str) -> Result<Standing, Problem> {
    Standing::from_name(name).ok_or_else(|| {
        let message = format!("there is no state `{name}` of a subscription");
        Problem::bad_request(message, "use active, flagged or purged")
    })
}

fn cursor(text: &str) -> Result<EndpointId, Problem> {
    let hint = "use the `next` of the page before as it is";
    text.parse().map_err(|_| Problem::bad_request(format!("`cursor` is {text:?}, which is no cursor"), hint))
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
