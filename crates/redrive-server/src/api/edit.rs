//! Edits of open letters: planned with `dry_run`, applied, and undone by name.

use std::collections::{BTreeMap, HashMap};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use redrive::actions::{EditPlan, EditWish, NewPayload, Skipped};
use redrive::internal::letters::json_text::JsonText;
use redrive::internal::letters::select::LetterIds;
use redrive::letters::edit::{Condition, Difference, MessageChange, MessageIds, Pointer};
use redrive::letters::redact::{REDACTED, Redaction, Secrets};
use redrive_api::{
    DifferenceView, Edit, EditAnswer, EditUndone, Edited, FirstEdited, LetterPayload, MessageIdChoice,
    Payload, SkippedLetters,
};
use redrive_core::text::secret_header::is_secret_header;
use serde_json::value::RawValue;

use super::change::{Change, JsonBody};
use super::selection;
use super::shown::messages_before;
use crate::answer::Json;
use crate::problem::Problem;
use crate::request::read_json;
use crate::service::Served;

pub(crate) async fn edit(
    Change { shared, served, actor }: Change,
    JsonBody { value: mut body, held }: JsonBody<Edit>,
) -> Result<Json<EditAnswer>, Problem> {
    let actions = &shared.service.actions;
    if let Some(id) = &body.undo {
        stands_alone(&held.bytes)?;
        let undone = actions.undo_edit(&served.handle, id, &actor.0).await?;
        return Ok(Json(EditAnswer::Undone(undone_view(&served, undone))));
    }
    if !served.redaction.is_empty() && quotes_the_mask(&body) {
        return Err(Problem::bad_request(
            "the payload has redacted values: it would put the mask in their place",
            "nothing was changed; use `set` and `unset`, which change the payload that is stored",
        ));
    }
    let wish = EditWish { payloads: payloads(&body, LetterIds::of(&served.handle))?, ..wish(&body)? };
    if let Some(place) = wish.condition.as_ref().and_then(|one| one.guesses(&served.redaction)) {
        return Err(selection::guess(&place));
    }
    let mut letters = body.take_selection();
    if let Some(payloads) = body.payloads {
        letters.ids = Some(payloads.into_iter().map(|one| one.letter).collect());
    }
    let (ids, not_open) = selection::freeze(letters, &served).await?;
    let plan = if body.dry_run {
        actions.plan_edit(&served.handle, &ids, &wish).await?
    } else {
        actions.edit(&served.handle, &ids, &wish, &actor.0).await?
    };
    let secrets = match &plan.first {
        Some((letter, _)) if !served.redaction.is_empty() => secrets_of(&served, *letter).await?,
        _ => Secrets::default(),
    };
    let view = edited_view(&served, plan, body.dry_run, &secrets);
    Ok(Json(EditAnswer::Edited(Edited { not_open, ..view })))
}

/// Whether a new payload was derived from one shown with redacted values.
fn quotes_the_mask(body: &Edit) -> bool {
    let each = body.payloads.iter().flatten().flat_map(|one| [&one.payload, &one.was]);
    let mut payloads = body.payload.iter().chain(&body.was).chain(each);
    payloads.any(|payload| matches!(payload, Payload::Utf8(text) if text.contains(REDACTED)))
}

/// The values of a letter that must not be shown, from all its versions.
async fn secrets_of(served: &Served, letter: u64) -> Result<Secrets, Problem> {
    let mut secrets = Secrets::default();
    if let Some(letter) = served.handle.letter(letter).await? {
        let before = messages_before(served, &letter).await?;
        before.iter().chain([&letter.message]).for_each(|one| secrets.add_message(one, &served.redaction));
    }
    Ok(secrets)
}

/// Refuses other fields beside an undo: it affects all letters of its edit and has no dry run, so they would be
/// ignored.
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

/// The requested edit, validated before any letter is read.
fn wish(body: &Edit) -> Result<EditWish, Problem> {
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
        let message = "no change given".to_owned();
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
        Some(MessageIdChoice::Same) => MessageIds::Same,
        Some(MessageIdChoice::New) => MessageIds::New,
    };
    let was = body.was.as_ref().map(bytes_of).transpose()?;
    Ok(EditWish { change, condition, was, payloads: None, ids })
}

/// Payloads for individually named letters. They select the letters and give their new content.
fn payloads(body: &Edit, ids: LetterIds<'_>) -> Result<Option<HashMap<u64, NewPayload>>, Problem> {
    let Some(all) = &body.payloads else { return Ok(None) };
    let hint = "`payloads` takes the place of a selection, of a condition and of every other change";
    let selects = body.filter.is_some() || body.ids.is_some() || body.since.is_some() || body.all;
    let changes =
        body.payload.is_some() || body.was.is_some() || !(body.set.is_empty() && body.unset.is_empty());
    if selects || changes || body.condition.is_some() {
        return Err(Problem::bad_request(
            "`payloads` cannot be combined with a selection or another change",
            hint,
        ));
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

fn bytes_of(payload: &Payload) -> Result<Bytes, Problem> {
    match payload {
        Payload::Utf8(text) => Ok(Bytes::copy_from_slice(text.as_bytes())),
        Payload::Base64(text) => STANDARD.decode(text).map(Bytes::from).map_err(|error| {
            Problem::bad_request(
                format!("`payload`: not base64: {error}"),
                "send base64 with padding, or utf8",
            )
        }),
    }
}

fn undone_view(served: &Served, undone: redrive::actions::EditUndone) -> EditUndone {
    let ids = LetterIds::of(&served.handle);
    let skipped = undone.skipped_count();
    let by_reason = undone.skipped.into_iter();
    let by_reason = by_reason.map(|(reason, letters)| (reason.name().to_owned(), skipped_view(ids, letters)));
    EditUndone { restored: undone.restored, skipped, skipped_by_reason: by_reason.collect() }
}

fn edited_view(served: &Served, plan: EditPlan, dry_run: bool, secrets: &Secrets) -> Edited {
    let ids = LetterIds::of(&served.handle);
    Edited {
        edit: plan.id,
        edited: (!dry_run).then_some(plan.letters),
        would_edit: dry_run.then_some(plan.letters),
        ambiguous: plan.ambiguous,
        unchanged: plan.unchanged,
        not_json: skipped_view(ids, plan.not_json),
        refused: skipped_view(ids, plan.refused),
        not_open: Vec::new(),
        first: plan.first.map(|(letter, differences)| FirstEdited {
            letter: ids.text(letter),
            differences: differences
                .into_iter()
                .map(|difference| difference_view(difference, &served.redaction, secrets))
                .collect(),
        }),
    }
}

fn skipped_view(ids: LetterIds<'_>, skipped: Skipped) -> SkippedLetters {
    let letters = skipped.letters.iter().map(|letter| ids.text(*letter)).collect();
    SkippedLetters { count: skipped.count, letters, why: skipped.why }
}

/// The difference without the values of secret headers and what the pipeline redacts.
fn difference_view(difference: Difference, redaction: &Redaction, secrets: &Secrets) -> DifferenceView {
    let Difference { at, field, before, after } = difference;
    let is_in = |value: &Option<String>| value.as_ref().is_some_and(|value| secrets.without(value).is_some());
    let is_secret = at.strip_prefix("header ").is_some_and(is_secret_header)
        || redaction.hides(&at)
        || is_in(&before)
        || is_in(&after);
    let shown =
        |value: Option<String>| value.map(|value| if is_secret { "(hidden)".to_owned() } else { value });
    DifferenceView { at, field, before: shown(before), after: shown(after) }
}
