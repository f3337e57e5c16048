//! Erasing dead letters: the content is removed from every copy that the engine owns, and a tombstone stays.

use redrive_core::message::MessageError;
use redrive_core::{Fingerprint, Message, Time};

use super::letter::LetterState;
use crate::timestamp;

/// Headers of a tombstone: when, by whom and why its letter was erased.
pub const ERASED_AT: &str = "redrive-erased-at";
pub const ERASED_BY: &str = "redrive-erased-by";
pub const ERASED_BECAUSE: &str = "redrive-erased-because";

/// The maximum length of names and reasons; longer ones are truncated.
const TEXT_BYTES_MAX: usize = 1_024;

/// Who erases letters, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EraseOrder {
    pub by: String,
    pub reason: String,
}

/// Why a letter was or was not erased.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EraseAnswer {
    Done,
    /// It is erased already.
    Already,
    NotFound,
    /// It is being replayed: its message is out for delivery and would come back as a letter if it died again.
    InReplay,
}

impl EraseAnswer {
    /// Why a letter in this state is not erased; `None` if it can be.
    pub const fn refusal(state: LetterState) -> Option<Self> {
        match state {
            LetterState::Open | LetterState::Succeeded | LetterState::Discarded => None,
            LetterState::Replaying => Some(Self::InReplay),
            LetterState::Erased => Some(Self::Already),
        }
    }
}

/// How far overwriting the stored copies of erased letters has come.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct WipeProgress {
    /// Parts of the storage still to be processed; zero once everything is done that can be done now.
    pub parts_left: u64,
    /// Records deleted from topics since the last report.
    pub deleted: u64,
    /// Where copies remain that the engine cannot overwrite, one sentence each.
    pub remains: Vec<String>,
}

/// The tombstone of a message: its id, its times, and headers that say when, by whom and why it was erased.
pub fn tombstone(message: &Message, order: &EraseOrder, now: Time) -> Result<Message, MessageError> {
    let text = |text: &str| text.as_bytes()[..text.floor_char_boundary(TEXT_BYTES_MAX)].to_vec();
    let mut builder = Message::builder(message.id()).created(message.created());
    if let Some(deadline) = message.deadline() {
        builder = builder.deadline(deadline);
    }
    builder
        .header(ERASED_AT, timestamp::print(now).into_bytes())
        .header(ERASED_BY, text(&order.by))
        .header(ERASED_BECAUSE, text(&order.reason))
        .build()
}

/// Whether this message is a tombstone.
pub fn is_tombstone(message: &Message) -> bool {
    message.payload().is_none() && message.headers().any(|(name, _)| name == ERASED_AT)
}

/// The group of an erased letter without its title: the letter stays in its group, but the title may quote the
/// content.
#[must_use]
pub fn untitled(mut group: Fingerprint) -> Fingerprint {
    group.title = String::new();
    group
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tombstone_has_the_id_and_says_who_erased_it_and_nothing_of_the_message() {
        let message = Message::builder("o-1").key("c-7").tenant("acme").header("a", "b").payload("secret");
        let message = message.created(Time::from_millis(5)).build().unwrap();
        let order = EraseOrder { by: "ops".to_owned(), reason: "é".repeat(2_000) };
        let stone = tombstone(&message, &order, Time::from_millis(1_700_000_000_000)).unwrap();
        assert!(is_tombstone(&stone) && !is_tombstone(&message));
        assert_eq!((stone.id(), stone.created()), ("o-1", Time::from_millis(5)));
        assert_eq!((stone.key(), stone.tenant(), stone.payload()), (None, None, None));
        let headers: Vec<_> = stone.headers().map(|(name, value)| (name, value.len())).collect();
        assert_eq!(headers, [(ERASED_AT, 24), (ERASED_BY, 3), (ERASED_BECAUSE, 1_024)]);
    }

    #[test]
    fn every_letter_but_one_in_a_replay_can_be_erased_once() {
        let refusals = LetterState::ALL.map(EraseAnswer::refusal);
        let (replaying, erased) = (Some(EraseAnswer::InReplay), Some(EraseAnswer::Already));
        assert_eq!(refusals, [None, replaying, None, None, erased]);
    }
}
