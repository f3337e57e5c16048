//! Letters as they leave: with the place they came from, and without what their pipeline redacts.

use redrive::internal::engine::place::Place;
use redrive::internal::letters::select::{LetterIds, Page, SelectError};
use redrive::letters::Selection;
use redrive::{Letter, Message};
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
    /// `original` is the message of before the first edit.
    pub(crate) fn of(
        served: &Served,
        letter: &Letter,
        original: Option<&Message>,
        with_payload: bool,
    ) -> Self {
        let redacts = !served.redaction.is_empty();
        let place = Some(Place::of(letter.id)).filter(|place| !place.is_made());
        let origin = served.source.as_ref().and_then(|topic| Some(format!("{topic}/{}", place?)));
        // The payload has to be in the view, or what other fields repeat of it would not be known.
        let view = LetterView {
            origin,
            original: original.map(|message| message.payload().map(view::payload)),
            original_headers: original.map(view::headers),
            ..view::letter(LetterIds::of(&served.handle), letter, with_payload || redacts)
        };
        if !redacts {
            return Self::Whole(Box::new(view));
        }
        let mut letter = view::redacted(&served.redaction, &view);
        if let Some(fields) = letter.as_object_mut().filter(|_| !with_payload) {
            fields.remove("payload");
        }
        Self::Redacted(letter)
    }
}

/// A page of letters, with their payloads if they are shown or needed to redact the rest.
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
