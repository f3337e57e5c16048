//! Messages arriving over HTTP: read, validated, and passed to the pipeline, which answers once they are on disk.

pub mod batch;
pub mod message;

use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use redrive::{Accepted, NewMessage, Time, messages};
use redrive_api::{AcceptedMessage, AcceptedMessages};
use serde::Deserialize;

use crate::access::token::hex;
use crate::answer::Json;
use crate::body;
use crate::problem::{Code, Problem};
use crate::request::{Params, Path};
use crate::service::Served;
use crate::state::Shared;

pub use message::Intake;

/// Bodies from this size on are parsed on a separate thread, so that they do not delay other requests.
const LARGE_BYTES: usize = 256 * 1024;

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct IngestParams {
    /// Whether the answer to many messages lists their ids, for senders that let the server generate them.
    ids: bool,
}

pub(crate) async fn ingest(
    State(shared): State<Shared>,
    Path(pipeline): Path<String>,
    Params(params): Params<IngestParams>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    let served = shared.service.find(&pipeline)?;
    if let Some(topic) = &served.source {
        let message =
            format!("messages of `{pipeline}` come from the Kafka topic {topic}, not over this API");
        return Err(Problem::new(Code::Conflict, message, format!("produce it to the topic {topic}")));
    }
    let held = body::hold(&shared, &headers, body).await?;
    if is_many(&headers) {
        many(served, params, held.bytes.clone()).await
    } else {
        one(served, &held.bytes).await
    }
}

/// `false` if accepted messages are lost when the process ends; otherwise omitted.
fn durable(served: &Served) -> Option<bool> {
    (served.engine == "memory").then_some(false)
}

async fn one(served: &Served, body: &[u8]) -> Result<Response, Problem> {
    let now = served.handle.now();
    let new = message::read(body, &served.intake, now, fresh_id)?;
    let id = new.message.id().to_owned();
    let state = if new.due.is_some_and(|due| due > now) { "delayed" } else { "ready" };
    let accepted = served.handle.ingest([new]).await?;
    if let Some(Accepted::Duplicate { seq }) = accepted.first() {
        let known = match served.handle.message(&id).await? {
            // Only the letter knows an id that an edit assigned.
            None if is_letter(served, *seq, &id).await? => messages::message(&served.handle, &id).await?,
            known => known,
        };
        // A remembered id that is neither pending nor a dead letter has been delivered.
        let state = known.map_or("succeeded", |known| known.state.name());
        return Ok(Json(answer(id, state, true, served)).into_response());
    }
    Ok((StatusCode::ACCEPTED, Json(answer(id, state, false, served))).into_response())
}

async fn is_letter(served: &Served, number: u64, id: &str) -> Result<bool, Problem> {
    let letter = served.handle.letter(number).await?;
    Ok(letter.is_some_and(|letter| letter.message.id() == id))
}

/// The name of the state is borrowed, so that an answer needs no more memory than the id.
fn answer(id: String, state: &'static str, duplicate: bool, served: &Served) -> AcceptedMessage {
    AcceptedMessage { id, state: state.into(), duplicate, durable: durable(served) }
}

async fn many(served: &Served, params: IngestParams, body: Bytes) -> Result<Response, Problem> {
    let messages = read_many(body, &served.intake, served.handle.now()).await?;
    let ids: Option<Vec<String>> =
        params.ids.then(|| messages.iter().map(|new| new.message.id().to_owned()).collect());
    let accepted = served.handle.ingest(messages).await?;
    let duplicates = accepted.iter().filter(|one| matches!(one, Accepted::Duplicate { .. })).count();
    let news = accepted.len() - duplicates;
    let status = if news == 0 { StatusCode::OK } else { StatusCode::ACCEPTED };
    let (accepted, duplicates) = (news as u64, duplicates as u64);
    Ok((status, Json(AcceptedMessages { accepted, duplicates, ids, durable: durable(served) }))
        .into_response())
}

async fn read_many(body: Bytes, intake: &Intake, now: Time) -> Result<Vec<NewMessage>, Problem> {
    if body.len() < LARGE_BYTES {
        return batch::read(&body, intake, now, fresh_id);
    }
    let intake = intake.clone();
    let reading = tokio::task::spawn_blocking(move || batch::read(&body, &intake, now, fresh_id));
    reading.await.unwrap_or_else(|_| {
        Err(Problem::new(Code::Stopping, "the server is stopping", "nothing was accepted; send it again"))
    })
}

fn is_many(headers: &HeaderMap) -> bool {
    let kind = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default().trim();
    ["application/x-ndjson", "application/ndjson"].iter().any(|many| kind.eq_ignore_ascii_case(many))
}

/// A random UUID (RFC 9562, version 4).
fn fresh_id() -> Result<String, Problem> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(|error| {
        let message = format!("no random numbers for a new id: {error}");
        Problem::new(Code::Stopping, message, "give every message its own `id`")
    })?;
    bytes[6] = bytes[6] & 0x0f | 0x40;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    let text = hex(&bytes);
    Ok([&text[..8], &text[8..12], &text[12..16], &text[16..20], &text[20..]].join("-"))
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn made_ids_differ_and_look_like_ids() {
        let ids: HashSet<String> = (0..1000).map(|_| fresh_id().unwrap()).collect();
        assert_eq!(ids.len(), 1000);
        assert!(ids.iter().all(|id| id.len() == 36 && id.as_bytes()[14] == b'4'));
    }
}
