//! Truncates a copy that Kafka will never accept as it is, because it is too large or invalid, to a dead letter.
//!
//! The letter holds everything known about the message and the beginning of its payload, and names the source record,
//! which is whole. So nothing depends on the local disk; the spool keeps the whole copy only to complete the letter
//! once the topic accepts it. A copy for a tier becomes a letter too: what cannot be written cannot wait.

use std::sync::Arc;

use rdkafka::error::RDKafkaErrorCode;
use redrive::internal::engine::Attempt;
use redrive_core::{Class, FailureKind, Message, MessageParts, Reason, Time};

use super::after::{AfterWrite, CopyKind, Mark};
use super::producer::{Body, Production};
use super::targets::TargetTopic;
use crate::clock::wall_time;
use crate::record::{CopyRecord, LetterMarks, Origin};

/// How much of the payload is kept at first; if the letter is still too large, nothing is.
const PAYLOAD_BYTES: usize = 16 * 1024;
/// Longer keys and headers are left out at first; if the letter is still too large, all of them are.
const KEY_BYTES: usize = 4 * 1024;
const HEADERS_BYTES: usize = 16 * 1024;

/// How much of a copy is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Beginning,
    Bare,
}

/// Returns the next stage for a copy; `None` if there is nothing left to truncate.
fn next_stage(copy: &CopyRecord) -> Option<Stage> {
    let Some(_) = copy.marks.cut else { return Some(Stage::Beginning) };
    let message = &copy.message;
    let is_bare =
        message.payload().is_none_or(<[u8]>::is_empty) && message.headers_or_null().next().is_none();
    (!is_bare || message.key().is_some()).then_some(Stage::Bare)
}

/// Returns the truncated letter of a copy.
fn cut(copy: &CopyRecord, stage: Stage, problem: &str) -> Option<CopyRecord> {
    let message = &copy.message;
    let whole = copy.marks.cut.unwrap_or(message.payload().map_or(0, <[u8]>::len) as u64);
    let (payload_max, key_max, headers_max) = match stage {
        Stage::Beginning => (PAYLOAD_BYTES, KEY_BYTES, HEADERS_BYTES),
        Stage::Bare => (0, 0, 0),
    };
    let header_bytes = |(name, value): (&str, Option<&[u8]>)| name.len() + value.map_or(0, <[u8]>::len);
    let keeps_headers = message.headers_or_null().map(header_bytes).sum::<usize>() <= headers_max;
    let left: Message = MessageParts {
        id: message.id(),
        key: message.key().filter(|key| key.len() <= key_max),
        payload: message.payload().map(|payload| &payload[..payload.len().min(payload_max)]),
        tenant: message.tenant(),
        headers: message.headers_or_null().filter(|_| keeps_headers),
        created: message.created(),
        deadline: message.deadline(),
    }
    .encode()
    .ok()?;
    // Only the first time. It is for people, among the errors of the attempts.
    let history = if copy.marks.cut.is_some() {
        copy.history.clone()
    } else {
        copy.history.with(&Attempt {
            number: copy.meta.attempts,
            at: wall_time(),
            took_ms: 0,
            class: Class::Permanent,
            kind: FailureKind::Other,
            code: None,
            counted: false,
            ambiguous: false,
            error: format!(
                "Kafka refuses the record of {whole} bytes: {problem}; the whole record is {}",
                copy.origin
            ),
        })
    };
    Some(CopyRecord {
        message: left,
        history,
        marks: LetterMarks { cut: Some(whole), ..copy.marks.clone() },
        ..copy.clone()
    })
}

/// A truncated letter, and what has to be done besides writing it.
#[derive(Debug)]
pub(super) struct Truncated {
    pub letter: Production<AfterWrite>,
    /// The whole copy and the record it replaces, when it is truncated for the first time.
    pub to_spool: Option<(CopyRecord, Option<Origin>)>,
    /// The due time, if it was a retry.
    pub was_retry: Option<Time>,
}

/// Truncates a refused copy to a letter; `None` if there is nothing left to truncate.
pub(super) fn truncated(
    production: &Production<AfterWrite>,
    letters: &TargetTopic,
    code: RDKafkaErrorCode,
) -> Option<Truncated> {
    let Body::Copy { copy, from } = &production.body else { return None };
    let AfterWrite::Mark(mark) = &production.then else { return None };
    let stage = next_stage(copy)?;
    let mut whole = (**copy).clone();
    let mut was_retry = None;
    if let CopyKind::Retry { due } = mark.kind {
        was_retry = Some(due);
        whole = CopyRecord { due: None, reason: Some(Reason::Corrupt), dead_at: Some(wall_time()), ..whole };
    }
    let left = cut(&whole, stage, &code.to_string())?;
    let (topic, partition) = (Arc::clone(&letters.name), letters.partition(whole.origin.partition));
    if stage == Stage::Beginning {
        tracing::error!(
            place = %whole.origin, bytes = left.marks.cut, to = %production.topic, %code,
            "Kafka refuses a record for good; it becomes a dead letter that is cut, and the whole of it goes to the spool"
        );
    }
    let body = Body::Copy { copy: Box::new(left), from: from.clone() };
    let then = AfterWrite::Mark(Mark { kind: CopyKind::Letter, ..*mark });
    Some(Truncated {
        letter: Production { topic, partition, body, then },
        to_spool: (stage == Stage::Beginning).then(|| (whole, from.clone())),
        was_retry,
    })
}

#[cfg(test)]
mod tests {
    use redrive::internal::engine::History;
    use redrive_core::Meta;

    use super::*;
    use crate::record::origin_of;

    fn copy(payload: usize, header: usize) -> CopyRecord {
        let message = Message::builder("o-1").key("k").payload(vec![b'p'; payload]);
        CopyRecord {
            message: message.header("x-src", "s".repeat(header)).build().unwrap(),
            meta: Meta { attempts: 2, ..Meta::default() },
            history: History::default(),
            origin: origin_of((3 << 48) + 99, &"orders".into()),
            due: None,
            reason: Some(Reason::Permanent),
            dead_at: None,
            job: None,
            marks: LetterMarks::default(),
        }
    }

    #[test]
    fn a_letter_keeps_what_tells_it_apart_and_the_beginning_of_its_payload() {
        let whole = copy(1_000_000, 10);
        let left = cut(&whole, Stage::Beginning, "too large").unwrap();
        assert_eq!(
            (left.message.id(), left.message.key(), left.marks.cut),
            ("o-1", Some(&b"k"[..]), Some(1_000_000))
        );
        assert_eq!(left.message.payload().map(<[u8]>::len), Some(PAYLOAD_BYTES));
        assert_eq!(left.message.headers().count(), 1);
        let told = left.history.attempts().pop().unwrap().error;
        assert!(told.contains("1000000 bytes") && told.contains("orders/3/99"), "{told}");
        assert_eq!(next_stage(&left), Some(Stage::Bare));
    }

    #[test]
    fn what_is_still_too_large_loses_all_but_its_name() {
        let whole = copy(100, 200_000);
        let left = cut(&whole, Stage::Beginning, "too large").unwrap();
        assert_eq!(left.message.headers().count(), 0, "they are what is too large");
        let bare = cut(&left, Stage::Bare, "too large").unwrap();
        assert_eq!((bare.message.id(), bare.message.key(), bare.marks.cut), ("o-1", None, Some(100)));
        assert_eq!(bare.message.payload().map(<[u8]>::len), Some(0));
        assert_eq!(bare.history.attempts().len(), 1, "it is told once");
        assert_eq!(next_stage(&bare), None);
    }
}
