//! Events of a pipeline that clients can follow: dead letters, the health of the sink, replays, subscriptions. Like the
//! log they contain no payload, endpoint or error text.

use redrive::internal::events::{EventKind, Events};
use redrive::internal::letters::select::LetterIds;
use redrive::internal::subscriptions::{Change, Changed};
use redrive::replay::ReplayView;
use redrive::{DeadLetter, HealthChange, HealthChanged, Time};
use redrive_api::{DeadLetterEvent, HealthEvent, PurgingStoppedEvent, ReplayEvent, SubscriptionEvent};
use serde_json::{Value, json};

/// A message became a dead letter.
pub fn dead_letter(
    events: &Events,
    letter: &DeadLetter,
    [message_id, correlation_id]: [String; 2],
    are_places: bool,
    now: Time,
) {
    let note = |name: &str| {
        let notes = letter.failure.as_ref().map(redrive::Failure::notes).unwrap_or_default();
        notes.iter().find(|(given, _)| *given == name).map(|(_, value)| value.as_str())
    };
    let ids = LetterIds { pipeline: &letter.pipeline, are_places };
    let event = DeadLetterEvent {
        letter: ids.text(letter.number),
        message_id,
        correlation_id,
        reason: letter.reason.name().to_owned(),
        class: letter.failure.as_ref().map(|failure| failure.class().name().to_owned()),
        status: note("status_code").and_then(|code| code.parse().ok()),
        endpoint_hash: note("endpoint_hash").map(str::to_owned),
        attempts: letter.meta.attempts,
    };
    events.push(EventKind::DeadLetter, now, json!(event));
}

/// The breaker opened or closed, or the health of the sink changed otherwise.
pub fn health(events: &Events, changed: &HealthChanged) {
    let is_breaker = matches!(changed.change, HealthChange::Breaker { .. });
    let kind = if is_breaker { EventKind::Breaker } else { EventKind::Health };
    let event = HealthEvent { change: changed.change.to_string(), bad: changed.change.is_bad() };
    events.push(kind, changed.at, json!(event));
}

/// A replay started, or its state changed.
pub fn replay(events: &Events, replay: &ReplayView, now: Time) {
    let event = ReplayEvent {
        replay: replay.id.clone(),
        state: replay.state.to_string(),
        total: replay.total,
        published: replay.published,
        succeeded: replay.succeeded,
        dead_again: replay.dead_again,
    };
    events.push(EventKind::Replay, now, json!(event));
}

/// A subscription changed.
pub fn subscription(events: &Events, changed: &Changed) {
    for id in concerned(changed) {
        events.push(changed.change.kind(), changed.at, subscription_fields(changed, id));
    }
}

/// The stored subscriptions to report individually; `None` for an endpoint that is not stored.
pub fn concerned(changed: &Changed) -> impl Iterator<Item = Option<&str>> {
    let nobody = changed.ids.is_empty().then_some(None);
    changed.ids.iter().map(|id| Some(id.as_str())).chain(nobody)
}

/// The fields of an event about a change.
pub fn subscription_fields(changed: &Changed, id: Option<&str>) -> Value {
    if let Change::PurgingStopped(stopped) = changed.change {
        let (purged, active, percent) = (stopped.purged, stopped.active, stopped.percent());
        return json!(PurgingStoppedEvent { purged, active, percent });
    }
    let record = changed.record.as_ref();
    json!(SubscriptionEvent {
        endpoint_hash: changed.endpoint.map(|endpoint| endpoint.to_string()),
        subscription_id: id.map(str::to_owned),
        status: record.and_then(|record| record.status),
        cause: record.map(|record| record.cause.name().to_owned()),
        reason: record.map(|record| record.reason.clone()),
    })
}

/// Logs a change. Stopped purging needs an operator.
pub fn log_subscription(pipeline: &str, changed: &Changed) {
    if let Change::PurgingStopped(stopped) = changed.change {
        tracing::warn!(
            target: "redrive::subscription",
            pipeline,
            purged = stopped.purged,
            active = stopped.active,
            "purging stopped: {} % of active subscriptions are gone within 5 min (limit 2 %); resume with: \
             redrive subscriptions resume {pipeline}",
            stopped.percent()
        );
        return;
    }
    let record = changed.record.as_ref();
    tracing::info!(
        target: "redrive::subscription",
        pipeline,
        change = changed.change.name(),
        endpoint_hash = changed.endpoint.map(|endpoint| endpoint.to_string()),
        status_code = record.and_then(|record| record.status),
        cause = record.map(|record| record.cause.name()),
        reason = record.map(|record| record.reason.as_str()),
        "subscription changed"
    );
}
