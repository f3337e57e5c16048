//! Messages that are not terminal: listed, shown by id, made due and cancelled.

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use redrive::PendingState;
use redrive::actions::ActionKind;
use redrive::internal::letters::select::LetterIds;
use redrive::internal::messages::page;
use redrive::letters::redact::Secrets;
use redrive::messages::{self, Cursor, ListedMessage, MessageQuery, Steer, SteerError};
use redrive_api::{Instant, MessagePage, MessageView, Steered};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::change::Change;
use super::selection;
use super::view;
use crate::answer::Json;
use crate::answer_memory::large;
use crate::problem::{Code, Problem};
use crate::request::{Params, Path};
use crate::routes::{self, Operation};
use crate::service::Served;
use crate::state::Shared;

/// The default number of messages per page.
const PAGE_DEFAULT: usize = 100;

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct MessageListParams {
    state: Option<String>,
    filter: Option<String>,
    cursor: Option<String>,
    limit: Option<usize>,
    payload: bool,
}

pub(crate) async fn list(
    State(shared): State<Shared>,
    Path(pipeline): Path<String>,
    Params(params): Params<MessageListParams>,
) -> Result<Response, Problem> {
    let served = shared.service.find(&pipeline)?;
    let given = |text: &Option<String>| text.clone().filter(|text| !text.trim().is_empty());
    let query = MessageQuery {
        state: given(&params.state).as_deref().map(state).transpose()?,
        filter: params.filter.as_deref().map(|text| filter(text, served)).transpose()?,
    };
    let cursor = given(&params.cursor).as_deref().map(cursor).transpose()?;
    let limit = params.limit.unwrap_or(PAGE_DEFAULT).min(page::PAGE_MAX);
    let room = shared.answers.room().await?;
    let page = query.page(&served.handle, cursor, limit).await?;
    let (served, with_payload) = (served.clone(), params.payload);
    let build = move || {
        let shown = |listed| shown_message(&served, listed, with_payload);
        let messages = page.messages.iter().map(shown).collect();
        let next = page.next.map(|next| next.to_string());
        MessagePage { messages, next, scanned: page.scanned, unlisted: page.unlisted }
    };
    let built = large(build).await?;
    shared.answers.hold(built, Some(room)).await
}

/// A message for display, without what its pipeline redacts.
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub(crate) enum ShownMessage {
    Whole(Box<redrive_api::ListedMessage>),
    Redacted(Value),
}

fn shown_message(served: &Served, listed: &ListedMessage, with_payload: bool) -> ShownMessage {
    let ids = LetterIds::of(&served.handle);
    if served.redaction.is_empty() {
        return ShownMessage::Whole(Box::new(view::listed(ids, listed, with_payload)));
    }
    // The payload must be in the view: otherwise copies of its values in other fields would not be recognised.
    let listed = view::listed(ids, listed, true);
    let mut message = view::redacted(&served.redaction, &listed, Secrets::default());
    if let Some(fields) = message.as_object_mut().filter(|_| !with_payload) {
        fields.remove("payload");
    }
    ShownMessage::Redacted(message)
}

fn state(name: &str) -> Result<PendingState, Problem> {
    PendingState::from_name(name).ok_or_else(|| {
        let names: Vec<&str> = PendingState::ALL.into_iter().map(PendingState::name).collect();
        let hint = format!("use {}; what is terminal is a dead letter, or delivered", names.join(", "));
        Problem::bad_request(format!("there is no state `{name}` of a message that is pending"), hint)
    })
}

fn filter(text: &str, served: &Served) -> Result<redrive::letters::Filter, Problem> {
    let filter = selection::filter(text, &served.redaction)?;
    match filter.only_for_letters() {
        Some(field) => {
            let message = format!("`{field}` is a field of dead letters; a message that is pending has none");
            let hint = "leave it out; the parameter `state` chooses among ready, held, delayed, key_wait and in_flight";
            Err(Problem::new(Code::BadFilter, message, hint))
        }
        None => Ok(filter),
    }
}

fn cursor(text: &str) -> Result<Cursor, Problem> {
    text.parse().map_err(|error| Problem::bad_request(error, "use the `next` of the page before as it is"))
}

pub(crate) async fn show(
    State(shared): State<Shared>,
    Path((pipeline, id)): Path<(String, String)>,
) -> Result<Response, Problem> {
    let served = shared.service.find(&pipeline)?;
    let view = shown(served, &id).await?.ok_or_else(|| unknown(served, &id))?;
    if !served.redaction.hides_texts() {
        return Ok(Json(view).into_response());
    }
    Ok(Json(view::without_errors(&view)).into_response())
}

async fn shown(served: &Served, id: &str) -> Result<Option<MessageView>, Problem> {
    let Some(message) = messages::message(&served.handle, id).await? else { return Ok(None) };
    let letter = match message.letter {
        Some(number) => served.handle.letter(number).await?,
        None => None,
    };
    let view = view::message(LetterIds::of(&served.handle), &message);
    Ok(Some(match letter {
        Some(letter) => view::with_ids_of(view, &letter),
        None => view,
    }))
}

fn unknown(served: &Served, id: &str) -> Problem {
    let hint = if served.source.is_some() {
        "this process knows the partitions that it owns, and the dead letters; ask the others too, or look in the topic"
    } else {
        "ids are remembered for the pipeline's `dedup` time; dead letters are kept until they are \
         discarded"
    };
    Problem::not_found(format!("pipeline `{}` knows no message `{id}`", served.handle.name()), hint)
}

/// Why a message cannot be made due or cancelled. In a paused pipeline nothing starts by itself.
fn refused(served: &Served, error: SteerError) -> Problem {
    if matches!(error, SteerError::Ready { .. }) && served.handle.is_paused() {
        let name = served.handle.name();
        let hint = format!("pipeline `{name}` is paused: it starts after `redrive resume {name}`");
        return Problem::new(Code::Conflict, error, hint);
    }
    error.into()
}

/// Makes a message due or cancels it. The action is recorded first, so that none is missing.
pub(crate) async fn steer(
    change: Change,
    Path((_, rest)): Path<(String, String)>,
) -> Result<Json<Steered>, Problem> {
    let served = &change.served;
    let (route, id) = routes::steered(&rest).ok_or_else(|| unknown(served, &rest))?;
    let (how, kind) = match route.operation {
        Operation::CancelMessage => (Steer::Cancel, ActionKind::Cancel),
        _ => (Steer::RetryNow, ActionKind::RetryNow),
    };
    let steering = served.handle.steering(id, how).await.map_err(|error| refused(served, error))?;
    let number = steering.number();
    change.record(change.action(kind).of(id, 0)).await?;
    if let Err(error) = steering.carry_out().await {
        let failed = change.action(kind).of(id, 0).note(format!("not carried out: {error}"));
        change.record(failed).await?;
        return Err(refused(served, error));
    }
    let letter = (how == Steer::Cancel).then(|| LetterIds::of(&served.handle).text(number));
    let at = Instant(served.handle.now());
    Ok(Json(Steered { id: id.to_owned(), action: kind.name().to_owned(), letter, at }))
}
