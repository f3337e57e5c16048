//! Importing letters of messages that died in other systems.

#![warn(missing_docs)]

use redrive_core::{Fingerprint, Message, Meta};

use super::continued::ids_before;
use super::erase::is_tombstone;
use super::history::History;
use super::position::SourcePosition;

/// A dead letter of another program, or an exported one.
#[derive(Clone, Debug)]
pub struct ForeignLetter {
    /// The message.
    pub message: Message,
    /// The record it came from, if known.
    pub origin: Option<SourcePosition>,
    /// The summary of its attempts.
    pub meta: Meta,
    /// Its attempts.
    pub history: History,
}

/// The outcome of importing one letter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ImportAnswer {
    /// It is now a letter of this pipeline, in this group.
    Imported {
        /// The number of the letter; `None` in a dry run.
        number: Option<u64>,
        /// The group it belongs to.
        group: Fingerprint,
    },
    /// The pipeline already has a letter with the same message, or an earlier letter of this batch has it.
    Already {
        /// The number of the letter.
        number: Option<u64>,
    },
    /// It cannot be stored.
    Refused {
        /// The reason.
        why: String,
    },
}

/// Whether two letters have the same message: id, key and payload. Headers are not compared, because an export hides or
/// changes some of them. An erased letter matches every letter with its id or one of its earlier ids, so that erased
/// content cannot be imported again.
pub fn is_same(stored: &Message, other: &Message) -> bool {
    if is_tombstone(stored) {
        return stored.id() == other.id() || ids_before(stored.id()).any(|id| id == other.id());
    }
    stored.id() == other.id() && stored.key() == other.key() && stored.payload() == other.payload()
}

/// A number computed from the parts that [`is_same`] compares. It must never change: engines that number letters by it
/// store it. `salt` gives alternative numbers for the same message, in case one is taken.
pub fn content_hash(message: &Message, salt: u8) -> u64 {
    // FNV-1a over each part with its length, then mixed.
    let mut hash: u64 = 0xcbf2_9ce4_8422_2325;
    let mut feed = |byte: u8| hash = (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
    feed(salt);
    for part in [Some(message.id().as_bytes()), message.key(), message.payload()] {
        let len = part.map_or(u64::MAX, |part| part.len() as u64);
        len.to_le_bytes().into_iter().for_each(&mut feed);
        part.unwrap_or_default().iter().copied().for_each(&mut feed);
    }
    hash ^= hash >> 33;
    hash = hash.wrapping_mul(0xff51_afd7_ed55_8ccd);
    hash ^= hash >> 33;
    hash = hash.wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    hash ^ hash >> 33
}

#[cfg(test)]
mod tests {
    use redrive_core::{MessageBuilder, Time};

    use super::super::erase::{EraseOrder, tombstone};
    use super::*;

    fn built(builder: MessageBuilder) -> Message {
        builder.build().unwrap()
    }

    #[test]
    fn id_key_and_payload_make_a_message_and_headers_do_not() {
        let order = || Message::builder("o-1").key("c-7").payload("{}");
        let one = built(order());
        assert!(is_same(&one, &built(order().header("authorization", "(hidden)"))));
        assert_eq!(content_hash(&one, 0), content_hash(&built(order().header("a", "b")), 0));
        let others = [
            order().key("c-8"),
            order().payload("{ }"),
            Message::builder("o-2").key("c-7").payload("{}"),
            Message::builder("o-1").payload("{}"),
            Message::builder("o-1").key("c-7"),
            Message::builder("o-1").key("c-7{}").payload(""),
        ];
        for other in others.map(built) {
            assert!(!is_same(&one, &other), "{other:?}");
            assert_ne!(content_hash(&one, 0), content_hash(&other, 0), "{other:?}");
        }
        assert_ne!(content_hash(&one, 0), content_hash(&one, 1));
    }

    #[test]
    fn what_was_erased_does_not_come_back_under_an_id_that_it_had_before() {
        let order = EraseOrder { by: "ops".to_owned(), reason: "ticket 881".to_owned() };
        let edited = built(Message::builder("o-1~e-12").payload("{}"));
        let stone = tombstone(&edited, &order, Time::from_millis(7)).unwrap();
        for (id, is_known) in [("o-1", true), ("o-1~e-12", true), ("o-2", false)] {
            assert_eq!(is_same(&stone, &built(Message::builder(id).payload("other"))), is_known, "{id}");
        }
    }

    /// The hash is part of letter numbers on Kafka: a different one would import everything a second time.
    #[test]
    fn the_hash_stays_what_it_is() {
        let message = built(Message::builder("orders-dlt/0/17").key("c-7").payload("{}"));
        assert_eq!(content_hash(&message, 0), 0xe455_f270_f684_98be);
    }
}
