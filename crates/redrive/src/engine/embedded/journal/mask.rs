//! Overwrites the message content in the body of a frame. Lengths and numbers stay, so the frame is folded as before,
//! and a frame that a crash left half overwritten can be overwritten again.

use redrive_core::message;

use super::record::kind;
use crate::engine::history;
use crate::engine::letter::LetterState;

/// The offsets of these fields in a [`super::record::Stored`].
const HAS_AT: usize = 9;
const STATE_AT: usize = 27;
const JOBS_AT: usize = 112;
const HISTORY_AT: usize = 114;
const STORED_FIXED_BYTES: usize = 118;
const HAS_GROUP: u8 = 2;
const HAS_REPLACED: u8 = 4;
const HAS_OPTIONS: u8 = 8;
/// The same for an [`super::record::AcceptedBody`].
const ACCEPTED_FIXED_BYTES: usize = 16;

/// Whether frames of this kind contain a message; its number is their tag.
pub(crate) fn holds_message(kind: u8) -> bool {
    matches!(kind, kind::ACCEPTED | kind::WAITING | kind::DEAD | kind::MOVED)
}

/// Overwrites the message content in the body of a frame of this kind. Tombstones have none and stay as they are.
pub(crate) fn mask(kind: u8, body: &mut [u8]) {
    if !holds_message(kind) || is_tombstone(kind, body) {
        return;
    }
    let masked = if kind == kind::ACCEPTED {
        body.get_mut(ACCEPTED_FIXED_BYTES..).map(message::mask)
    } else {
        mask_stored(body)
    };
    if masked.is_none() {
        // It was unreadable before, and must not become a readable record.
        body.fill(0xff);
    }
}

fn is_tombstone(kind: u8, body: &[u8]) -> bool {
    kind == kind::DEAD && body.get(STATE_AT).is_some_and(|state| *state == LetterState::Erased.code())
}

/// Returns `None` if the lengths do not fit the body.
fn mask_stored(body: &mut [u8]) -> Option<()> {
    let (fixed, rest) = body.split_at_mut_checked(STORED_FIXED_BYTES)?;
    let has = fixed[HAS_AT];
    let jobs = usize::from(u16::from_le_bytes([fixed[JOBS_AT], fixed[JOBS_AT + 1]])) * 8;
    let history = u32_at(fixed, HISTORY_AT);
    let (_, rest) = rest.split_at_mut_checked(jobs)?;
    let (said, mut rest) = rest.split_at_mut_checked(history)?;
    history::mask(said);
    if has & HAS_GROUP != 0 {
        let (fixed, behind) = rest.split_at_mut_checked(11)?;
        let title = usize::from(u16::from_le_bytes([fixed[9], fixed[10]]));
        let (title, behind) = behind.split_at_mut_checked(title)?;
        title.fill(0);
        rest = behind;
    }
    if has & HAS_OPTIONS != 0 {
        let (len, behind) = rest.split_at_mut_checked(2)?;
        let (_, behind) = behind.split_at_mut_checked(usize::from(u16::from_le_bytes([len[0], len[1]])))?;
        rest = behind;
    }
    if has & HAS_REPLACED != 0 {
        let (count, mut behind) = rest.split_first_mut()?;
        for _ in 0..*count {
            let (name, after) = behind.split_first_mut()?;
            let (_, after) = after.split_at_mut_checked(usize::from(*name))?;
            let (len, after) = after.split_at_mut_checked(4)?;
            let (wire, after) = after.split_at_mut_checked(u32_at(len, 0))?;
            message::mask(wire);
            behind = after;
        }
        rest = behind;
    }
    message::mask(rest);
    Some(())
}

fn u32_at(bytes: &[u8], at: usize) -> usize {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]) as usize
}

#[cfg(test)]
mod tests {
    use bytes::{Bytes, BytesMut};
    use redrive_core::{Class, FailureKind, Fingerprint, GroupId, Message, Meta, Reason, Time};

    use super::*;
    use crate::engine::embedded::journal::record::{AcceptedBody, ReplacedWire, Stored, Was};
    use crate::engine::history::{Attempt, History};

    const SECRET: &str = "s3cr3t";

    fn secret_message() -> Message {
        let builder = Message::builder("o-1").key(SECRET).tenant(SECRET).header(SECRET, SECRET);
        builder.payload(format!("{{\"card\":\"{SECRET}\"}}")).build().unwrap()
    }

    fn stored() -> Stored {
        let attempt = Attempt {
            number: 3,
            at: Time::from_millis(7),
            took_ms: 12,
            class: Class::Permanent,
            kind: FailureKind::Status(422),
            code: Some(SECRET.to_owned()),
            counted: true,
            ambiguous: false,
            error: format!("422 {SECRET}"),
        };
        Stored {
            was: Was::Waiting { due: 17 },
            key: Some(99),
            due: Some(18),
            jobs: vec![4, 5],
            reason: Some(Reason::Permanent),
            state: None,
            dead_at: 55,
            moved_from: 3,
            meta: Meta { attempts: 3, ..Meta::default() },
            history: History::default().with(&attempt).with(&attempt).raw().clone(),
            group: Some(Fingerprint { version: 1, group: GroupId::from_number(7), title: SECRET.to_owned() }),
            options: Some(Bytes::from_static(b"{\"attempts\":4}")),
            replaced: vec![
                ReplacedWire { edit: "e-1".to_owned(), wire: secret_message().wire().clone() },
                ReplacedWire { edit: "e-12".to_owned(), wire: secret_message().wire().clone() },
            ],
            wire: secret_message().wire().clone(),
        }
    }

    fn bytes_of(stored: &Stored) -> Vec<u8> {
        let mut buf = BytesMut::new();
        stored.write(&mut buf);
        buf.to_vec()
    }

    fn says(body: &[u8], text: &str) -> bool {
        body.windows(text.len()).any(|part| part == text.as_bytes())
    }

    #[test]
    fn nothing_of_the_message_stays_and_every_number_does() {
        let mut body = bytes_of(&stored());
        assert!(says(&body, SECRET));
        mask(kind::DEAD, &mut body);
        assert!(!says(&body, SECRET) && !says(&body, "card") && !says(&body, "422 "));
        let (masked, plain) = (Stored::read(Bytes::from(body)).unwrap(), stored());
        assert_eq!(
            (masked.was, masked.key, masked.due, masked.jobs),
            (plain.was, plain.key, plain.due, plain.jobs)
        );
        assert_eq!(masked.options, plain.options);
        assert_eq!((masked.reason, masked.dead_at, masked.meta), (plain.reason, plain.dead_at, plain.meta));
        let edits: Vec<_> = masked.replaced.iter().map(|version| version.edit.as_str()).collect();
        assert_eq!(edits, ["e-1", "e-12"]);
        assert_eq!(masked.group.map(|group| group.group), plain.group.map(|group| group.group));
        assert_eq!(Message::from_wire(masked.wire).unwrap().id(), "o-1");
        let attempts = History::from_raw(masked.history).attempts();
        assert!(attempts.iter().all(|attempt| attempt.kind == FailureKind::Status(422)));
    }

    #[test]
    fn an_accepted_message_keeps_its_id_and_its_times() {
        let mut buf = BytesMut::new();
        let (due, at) = (Some(Time::from_millis(5)), Time::from_millis(6));
        AcceptedBody::write(&mut buf, due, at, secret_message().wire());
        let mut body = buf.to_vec();
        mask(kind::ACCEPTED, &mut body);
        assert!(!says(&body, SECRET));
        let masked = AcceptedBody::read(Bytes::from(body)).unwrap();
        assert_eq!((masked.due, masked.at), (Some(5), 6));
        assert_eq!(Message::from_wire(masked.wire).unwrap().id(), "o-1");
    }

    /// A power failure may leave any mixture of old and new bytes.
    #[test]
    fn a_half_masked_frame_becomes_the_same_when_it_is_masked_again() {
        let plain = bytes_of(&stored());
        let mut whole = plain.clone();
        mask(kind::WAITING, &mut whole);
        for cut in 0..plain.len() {
            for (first, second) in [(&plain, &whole), (&whole, &plain)] {
                let mut torn = [&first[..cut], &second[cut..]].concat();
                mask(kind::WAITING, &mut torn);
                assert_eq!(torn, whole, "torn at {cut}");
            }
        }
    }

    #[test]
    fn a_tombstone_and_frames_without_a_message_stay_as_they_are() {
        let stone = bytes_of(&Stored { state: Some(LetterState::Erased), ..stored() });
        let mut body = stone.clone();
        mask(kind::DEAD, &mut body);
        assert_eq!(body, stone);
        let mut list = 17_u64.to_le_bytes().to_vec();
        mask(kind::DONE, &mut list);
        assert_eq!(list, 17_u64.to_le_bytes());
    }

    #[test]
    fn a_body_whose_lengths_do_not_fit_is_overwritten_as_a_whole() {
        for len in [0, 5, STORED_FIXED_BYTES, 300] {
            let mut body = vec![0xee; len];
            mask(kind::WAITING, &mut body);
            assert!(body.iter().all(|byte| *byte == 0xff) && Stored::read(Bytes::from(body)).is_none());
        }
    }
}
