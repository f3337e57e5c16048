//! Edits of open letters: planned with `dry_run`, carried out, and undone by name.

use std::collections::{BTreeMap, HashMap};

use axum::Extension;
use axum::body::Body;
use axum::extract::State;
use axum::http::HeaderMap;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use redrive::actions::{EditPlan, EditUndone, EditWish, NewPayload, Skipped};
use redrive::letters::Redaction;
use redrive::letters::edit::json_text::JsonText;
use redrive::letters::edit::{Condition, Difference, MessageChange, MessageIds, Pointer};
use redrive::letters::select::LetterIds;
use redrive_core::text::secret_header::is_secret_header;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::selection::{Given, NotOpenView};
use crate::access::auth::Actor;
use crate::answer::Json;
use crate::body;
use crate::problem::Problem;
use crate::request::{Path, read_json};
use crate::service::Served;
use crate::state::Shared;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct EditBody {
    filter: Option<String>,
    ids: Option<Vec<String>>,
    since: Option<String>,
    #[serde(default)]
    all: bool,
    #[serde(rename = "where")]
    condition: Option<String>,
    /// Values by JSON pointer, taken over as they are written.
    #[serde(default)]
    set: BTreeMap<String, Box<RawValue>>,
    #[serde(default)]
    unset: Vec<String>,
    #[serde(default)]
    set_headers: BTreeMap<String, String>,
    #[serde(default)]
    unset_headers: Vec<String>,
    payload: Option<PayloadBody>,
    was: Option<PayloadBody>,
    /// A payload for each letter, in place of a selection and one change for all.
    payloads: Option<Vec<LetterPayload>>,
    message_id: Option<MessageIdBody>,
    #[serde(default)]
    dry_run: bool,
    undo: Option<String>,
}

/// The new payload of one letter, and the one it was made from.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct LetterPayload {
    /// By its full id, as in `orders/17`.
    letter: String,
    payload: PayloadBody,
    was: PayloadBody,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
enum PayloadBody {
    Utf8(String),
    Base64(String),
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
enum MessageIdBody {
    Same,
    New,
}

pub(crate) async fn edit(
    State(shared): State<Shared>,
    Extension(actor): Extension<Actor>,
    Path(pipeline): Path<String>,
    headers: HeaderMap,
    body: Body,
) -> Result<Json<Value>, Problem> {
    let served = shared.service.find(&pipeline)?;
    let held = body::hold(&shared, &headers, body).await?;
    let body: EditBody = read_json(&held.bytes)?;
    let actions = &shared.service.actions;
    if let Some(id) = &body.undo {
        stands_alone(&held.bytes)?;
        let undone = actions.undo_edit(&served.handle, id, &actor.0).await?;
        return Ok(Json(json!(UndoneView::of(served, undone))));
    }
    let wish = EditWish { payloads: payloads(&body, LetterIds::of(&served.handle))?, ..wish(&body)? };
    let ids = match body.payloads {
        Some(payloads) => Some(payloads.into_iter().map(|one| one.letter).collect()),
        None => body.ids,
    };
    let given = Given { filter: body.filter, ids, since: body.since, all: body.all };
    let selection = given.clone().open(served.handle.now())?;
    let not_open = given.not_open(&served.handle).await?;
    let ids = selection.freeze(&served.handle).await?;
    let plan = if body.dry_run {
        actions.plan_edit(&served.handle, &ids, &wish).await?
    } else {
        actions.edit(&served.handle, &ids, &wish, &actor.0).await?
    };
    Ok(Json(json!(PlanView { not_open, ..PlanView::of(served, plan, body.dry_run) })))
}

/// An undo names all letters of its edit and has no dry run, so a field beside it would be ignored: refuse it instead.
fn stands_alone(body: &[u8]) -> Result<(), Problem> {
    let fields: BTreeMap<String, Box<RawValue>> = read_json(body)?;
    match fields.keys().find(|field| *field != "undo") {
        Some(field) => Err(Problem::bad_request(
            format!("`{field}` cannot be combined with `undo`"),
            "nothing was changed; send `undo` alone: it applies to all letters of that edit",
        )),
        None => Ok(()),
    }
}

/// What is asked for, checked before any letter is looked at.
fn wish(body: &EditBody) -> Result<EditWish, Problem> {
    let bad =
        |message: String| Problem::bad_request(message, "GET /v1/openapi.json shows the fields of an edit");
    let pointer = |field: &str, text: &str| {
        Pointer::parse(text)
            .filter(|pointer| !pointer.is_root())
            .ok_or_else(|| bad(format!("`{field}`: {text:?} is not a JSON pointer such as /currency")))
    };
    let value = |raw: &RawValue| {
        JsonText::parse(raw.get().as_bytes()).map_err(|fault| bad(format!("`set`: {fault}")))
    };
    let set = body.set.iter().map(|(at, raw)| Ok((pointer("set", at)?, value(raw)?)));
    let unset = body.unset.iter().map(|at| pointer("unset", at));
    let change = MessageChange {
        payload: body.payload.as_ref().map(bytes_of).transpose()?,
        set: set.collect::<Result<_, Problem>>()?,
        unset: unset.collect::<Result<_, Problem>>()?,
        set_headers: body.set_headers.clone().into_iter().collect(),
        unset_headers: body.unset_headers.clone(),
    };
    if change.is_empty() && body.payloads.is_none() {
        let message = "it is not said what shall change".to_owned();
        return Err(Problem::bad_request(
            message,
            "give `set`, `unset`, `set_headers`, `unset_headers`, `payload` or `payloads`, or `undo` to take an edit back",
        ));
    }
    if let Some(place) = change.changed_twice() {
        return Err(bad(format!("{place} is changed twice")));
    }
    if let Some(fault) = change.header_fault() {
        return Err(bad(format!("`set_headers`: {fault}")));
    }
    let condition = body.condition.as_deref().map(Condition::parse).transpose();
    let condition = condition.map_err(|error| bad(format!("`where`: {error}")))?;
    let ids = match body.message_id {
        None => MessageIds::Undecided,
        Some(MessageIdBody::Same) => MessageIds::Same,
        Some(MessageIdBody::New) => MessageIds::New,
    };
    let was = body.was.as_ref().map(bytes_of).transpose()?;
    Ok(EditWish { change, condition, was, payloads: None, ids })
}

/// The payloads of letters that were named one by one. They say which letters are meant, and what shall change.
fn payloads(body: &EditBody, ids: LetterIds<'_>) -> Result<Option<HashMap<u64, NewPayload>>, Problem> {
    let Some(all) = &body.payloads else { return Ok(None) };
    let hint = "`payloads` takes the place of a selection, of a condition and of every other change";
    let selects = body.filter.is_some() || body.ids.is_some() || body.since.is_some() || body.all;
    let changes =
        body.payload.is_some() || body.was.is_some() || !(body.set.is_empty() && body.unset.is_empty());
    if selects || changes || body.condition.is_some() {
        return Err(Problem::bad_request("`payloads` stands beside a selection or another change", hint));
    }
    let mut payloads = HashMap::with_capacity(all.len());
    for LetterPayload { letter, payload, was } in all {
        let Some(number) = ids.number(letter) else {
            let message = format!("`payloads`: {letter:?} is not the full id of a letter of this pipeline");
            return Err(Problem::bad_request(message, "write it like orders/17"));
        };
        let new = NewPayload { payload: bytes_of(payload)?, was: bytes_of(was)? };
        if payloads.insert(number, new).is_some() {
            return Err(Problem::bad_request(
                format!("`payloads` has two for {letter}"),
                "send one for each",
            ));
        }
    }
    Ok(Some(payloads))
}

fn bytes_of(payload: &PayloadBody) -> Result<Bytes, Problem> {
    match payload {
        PayloadBody::Utf8(text) => Ok(Bytes::copy_from_slice(text.as_bytes())),
        PayloadBody::Base64(text) => STANDARD.decode(text).map(Bytes::from).map_err(|error| {
            Problem::bad_request(
                format!("`payload`: not base64: {error}"),
                "send base64 with padding, or utf8",
            )
        }),
    }
}

/// What an edit did, or with `dry_run` would do.
#[derive(Debug, Serialize)]
struct PlanView {
    edit: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    edited: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    would_edit: Option<u64>,
    ambiguous: u64,
    unchanged: u64,
    not_json: SkippedView,
    refused: SkippedView,
    /// Letters that were named one by one and are not open.
    not_open: Vec<NotOpenView>,
    first: Option<FirstView>,
}

/// What an undo did.
#[derive(Debug, Serialize)]
struct UndoneView {
    restored: u64,
    skipped: u64,
    /// The letters that stay as they are, by reason.
    skipped_by_reason: BTreeMap<&'static str, SkippedView>,
}

impl UndoneView {
    fn of(served: &Served, undone: EditUndone) -> Self {
        let ids = LetterIds::of(&served.handle);
        let skipped = undone.skipped_count();
        let by_reason = undone.skipped.into_iter();
        let by_reason = by_reason.map(|(reason, letters)| (reason.name(), SkippedView::of(&ids, letters)));
        Self { restored: undone.restored, skipped, skipped_by_reason: by_reason.collect() }
    }
}

#[derive(Debug, Serialize)]
struct SkippedView {
    count: u64,
    letters: Vec<String>,
    why: Option<String>,
}

impl SkippedView {
    fn of(ids: &LetterIds<'_>, skipped: Skipped) -> Self {
        let letters = skipped.letters.iter().map(|letter| ids.text(*letter)).collect();
        Self { count: skipped.count, letters, why: skipped.why }
    }
}

#[derive(Debug, Serialize)]
struct FirstView {
    letter: String,
    differences: Vec<DifferenceView>,
}

#[derive(Debug, Serialize)]
struct DifferenceView {
    at: String,
    field: Option<String>,
    before: Option<String>,
    after: Option<String>,
}

impl PlanView {
    fn of(served: &Served, plan: EditPlan, dry_run: bool) -> Self {
        let ids = LetterIds::of(&served.handle);
        let skipped = |skipped: Skipped| SkippedView::of(&ids, skipped);
        Self {
            edit: plan.id,
            edited: (!dry_run).then_some(plan.letters),
            would_edit: dry_run.then_some(plan.letters),
            ambiguous: plan.ambiguous,
            unchanged: plan.unchanged,
            not_json: skipped(plan.not_json),
            refused: skipped(plan.refused),
            not_open: Vec::new(),
            first: plan.first.map(|(letter, differences)| FirstView {
                letter: ids.text(letter),
                differences: differences
                    .into_iter()
                    .map(|difference| DifferenceView::of(difference, &served.redaction))
                    .collect(),
            }),
        }
    }
}

impl DifferenceView {
    /// The value of a header that carries a secret is not shown, nor what the pipeline redacts.
    fn of(difference: Difference, redaction: &Redaction) -> Self {
        let Difference { at, field, before, after } = difference;
        let is_secret = at.strip_prefix("header ").is_some_and(is_secret_header) || redaction.hides(&at);
        let shown =
            |value: Option<String>| value.map(|value| if is_secret { "(hidden)".to_owned() } else { value });
        Self { at, field, before: shown(before), after: shown(after) }
    }
}
