//! Every record is decoded as it was written, and a truncated one is rejected.

use super::*;

fn full() -> Stored {
    let meta = Meta {
        created: Time::from_millis(1),
        deadline: Some(Time::from_millis(2)),
        first_failed: Some(Time::from_millis(3)),
        last_crash: Some(Time::from_millis(4)),
        held_ms: 5,
        last_delay_ms: 6,
        attempts: 7,
        uncounted: 8,
        reconnects: 9,
        crashes: 10,
        replays: 11,
        deferred: false,
    };
    Stored {
        was: Was::Waiting { due: 12 },
        key: Some(13),
        due: Some(14),
        jobs: vec![15, 16],
        reason: Some(Reason::MaxRetries),
        state: Some(LetterState::Discarded),
        dead_at: 17,
        moved_from: 18,
        meta,
        history: Bytes::from_static(b"story"),
        group: Some(Fingerprint { version: 1, group: GroupId::from_number(19), title: "503 <n>".to_owned() }),
        options: Some(Bytes::from_static(b"{\"attempts\":4}")),
        replaced: vec![
            ReplacedWire { edit: "e-12".to_owned(), wire: Bytes::from_static(b"original") },
            ReplacedWire { edit: "e-k3x9q-13".to_owned(), wire: Bytes::new() },
        ],
        wire: Bytes::from_static(b"message"),
    }
}

fn again(stored: &Stored) -> Stored {
    let mut buf = BytesMut::new();
    stored.write(&mut buf);
    assert_eq!(buf.len(), stored.len_hint(), "the hint is the length, so that a batch never grows twice");
    Stored::read(buf.freeze()).expect("what was written can be read")
}

#[test]
fn every_field_of_a_stored_message_comes_back() {
    let bare = Stored {
        was: Was::Fresh,
        key: None,
        due: None,
        jobs: Vec::new(),
        reason: None,
        state: None,
        meta: Meta::default(),
        group: None,
        options: None,
        replaced: Vec::new(),
        ..full()
    };
    for stored in [full(), bare] {
        assert_eq!(format!("{:?}", again(&stored)), format!("{stored:?}"));
    }
}

/// A new version of fingerprints must not move stored letters to other groups.
#[test]
fn a_letter_that_was_stored_with_another_version_keeps_its_group() {
    let other = Fingerprint { version: 9, group: GroupId::from_number(77), title: "another".to_owned() };
    let stored = again(&Stored { group: Some(other.clone()), ..full() });
    let grouping = Grouping::default();
    assert_eq!(stored.fingerprint(&grouping, Reason::MaxRetries), other);
    let present = Stored { group: None, ..full() }.fingerprint(&grouping, Reason::MaxRetries);
    assert_ne!((present.version, present.group), (other.version, other.group));
}

#[test]
fn no_cut_of_a_stored_message_is_read_as_another_one() {
    let mut buf = BytesMut::new();
    full().write(&mut buf);
    let raw = buf.freeze();
    let head = raw.len() - full().wire.len();
    for cut in 0..head {
        assert!(Stored::read(raw.slice(..cut)).is_none(), "cut at {cut}");
    }
}

#[test]
fn lists_come_back_in_order() {
    let mut buf = BytesMut::new();
    let ended = [
        Ended { seq: 1, was: Was::Blocked, key: Some(2), letter: true },
        Ended { seq: 3, was: Was::Letter, key: None, letter: false },
    ];
    ended.iter().for_each(|ended| ended.write(&mut buf));
    assert_eq!(Ended::read_all(&buf.split().freeze()).collect::<Vec<_>>(), ended);
    let blocked = Blocked { seq: 1, was: Was::Fresh, key: 2, at: 3, len: 4 };
    blocked.write(&mut buf);
    assert_eq!(Blocked::read_all(&buf.split().freeze()).collect::<Vec<_>>(), [blocked]);
    let moved = LetterMoved { seq: 1, from: 2, to: 3, len: 4 };
    moved.write(&mut buf);
    assert_eq!(LetterMoved::read_all(&buf.split().freeze()).collect::<Vec<_>>(), [moved]);
    let seen = Seen { seq: 1, at: 2, id: Bytes::from_static(b"o-1") };
    seen.write(&mut buf);
    assert_eq!(Seen::read_all(buf.split().freeze()), [seen]);
    let copy = SlotCopy { state: LetterState::Succeeded, replays: 2, jobs: vec![7, 8] };
    copy.write(&mut buf);
    assert_eq!(SlotCopy::read(buf.split().freeze()), Some(copy));
}
