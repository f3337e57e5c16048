//! Letters as the API returns them: with their origin, and without what their pipeline redacts.

use redrive::internal::engine::position::PartitionOffset;
use redrive::internal::letters::select::{LetterIds, Page, SelectError};
use redrive::letters::Selection;
use redrive::letters::redact::Secrets;
use redrive::{HandleError, Letter, Message};
use redrive_api::LetterView;
use serde::Serialize;
use serde_json::Value;

use super::view;
use crate::service::Served;

#[derive(Debug, Serialize)]
#[serde(untagged)]
pub(crate) enum ShownLetter {
    Whole(Box<LetterView>),
    Redacted(Value),
}

impl ShownLetter {
    /// Prepares a letter. `before` are the messages that its edits have replaced, if known; `original` is the first of
    /// them.
    pub(crate) fn of(
        served: &Served,
        letter: &Letter,
        before: &[Message],
        original: Option<&Message>,
        with_payload: bool,
    ) -> Self {
        let redacts = !served.redaction.is_empty();
        let place = Some(PartitionOffset::of(letter.id)).filter(|place| !place.is_made());
        let origin = served.source.as_ref().and_then(|topic| Some(format!("{topic}/{}", place?)));
        // The payload must be in the view: otherwise copies of its values in other fields would not be recognised.
        let view = LetterView {
            origin,
            original: original.map(|message| message.payload().map(view::payload)),
            original_headers: original.map(view::headers),
            ..view::letter(LetterIds::of(&served.handle), letter, with_payload || redacts)
        };
        if !redacts {
            return Self::Whole(Box::new(view));
        }
        let mut secrets = Secrets::default();
        before.iter().for_each(|message| secrets.add_message(message, &served.redaction));
        let mut shown = view::redacted(&served.redaction, &view, secrets);
        if let Some(fields) = shown.as_object_mut() {
            if is_our_title(letter) {
                fields.insert("group_error".to_owned(), Value::from(letter.group.title.clone()));
            }
            if !with_payload {
                fields.remove("payload");
            }
        }
        Self::Redacted(shown)
    }
}

/// Whether the title of its group does not derive from the text of a receiver or handler.
pub(crate) fn is_our_title(letter: &Letter) -> bool {
    letter.group.is_of_rule() || letter.history.attempts().is_empty()
}

/// The messages that the edits of a letter have replaced, the oldest first.
pub(crate) async fn messages_before(served: &Served, letter: &Letter) -> Result<Vec<Message>, HandleError> {
    let mut before = Vec::with_capacity(letter.edits.len());
    for edit in &letter.edits {
        before.extend(served.handle.message_before(letter.id, edit).await?);
    }
    Ok(before)
}

/// The same for each letter of a page, if needed for redaction.
pub(crate) async fn all_before(
    served: &Served,
    letters: &[Letter],
) -> Result<Vec<Vec<Message>>, HandleError> {
    let mut all = Vec::with_capacity(letters.len());
    for letter in letters {
        let is_needed = !served.redaction.is_empty() && !letter.edits.is_empty();
        all.push(if is_needed { messages_before(served, letter).await? } else { Vec::new() });
    }
    Ok(all)
}

/// A page of letters, with payloads if they are shown or needed for redaction.
pub(crate) async fn page_of(
    served: &Served,
    selection: &Selection,
    after: Option<u64>,
    limit: usize,
    with_payload: bool,
) -> Result<Page, SelectError> {
    if with_payload || !served.redaction.is_empty() {
        selection.page(&served.handle, after, limit).await
    } else {
        selection.page_without_payloads(&served.handle, after, limit).await
    }
}
