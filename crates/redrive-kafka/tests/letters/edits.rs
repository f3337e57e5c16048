//! Edits of letters: durable, seen by other processes, replayed as edited, and undone by any process.

use redrive::internal::engine::{
    EditAnswer, Letter, LetterChange, LetterEdit, LetterState, LetterVersion, ReplayAnswer,
};
use redrive_core::Message;
use redrive_kafka::letters::KafkaLetters;
use redrive_kafka::record::CopyRecord;

use crate::fixture::{Fixture, NOW, eventually, job, state_of};

fn letter(letters: &KafkaLetters, number: u64) -> Letter {
    letters.letter(number).unwrap().expect("it is a letter")
}

fn payload(letters: &KafkaLetters, number: u64) -> String {
    String::from_utf8_lossy(letter(letters, number).message.payload().unwrap_or_default()).into_owned()
}

/// Returns an edit of the current version of a letter.
fn edit_of(letters: &KafkaLetters, number: u64, payload: &str) -> LetterEdit {
    let shown = letter(letters, number);
    let mut message = Message::builder(shown.message.id()).created(shown.message.created());
    if let Some(key) = shown.message.key() {
        message = message.key(key.to_vec());
    }
    let message = message.payload(payload.to_owned()).build().unwrap();
    LetterEdit { letter: number, from: LetterVersion::of(&shown), message }
}

#[test]
fn an_edit_survives_a_restart_is_seen_elsewhere_and_is_undone_there() {
    let fixture = Fixture::new("edit", 2);
    let numbers = fixture.park_many(2, 2);
    let mut letters = fixture.letters();
    let mut other = fixture.letters_at(&fixture.elsewhere("other"));
    let (first, second) = (numbers[0], numbers[3]);
    let original = letter(&letters, first).message;

    let edits = [edit_of(&letters, first, "fixed"), edit_of(&letters, second, "fixed too")];
    assert_eq!(letters.edit_letters("e-1", &edits, NOW).unwrap(), [EditAnswer::Done; 2]);
    // The change is visible at once, and an edit based on the earlier version is refused.
    assert_eq!(
        (payload(&letters, first).as_str(), letter(&letters, first).edits),
        ("fixed", vec!["e-1".into()])
    );
    assert_eq!(letters.edit_letters("e-2", &edits[..1], NOW).unwrap(), [EditAnswer::Changed]);
    assert_eq!(letters.message_before(first, "e-1").unwrap(), Some(original.clone()));
    let unknown = LetterEdit { letter: 999, ..edits[0].clone() };
    assert_eq!(letters.edit_letters("e-2", &[unknown], NOW).unwrap(), [EditAnswer::NotFound]);

    eventually("the other process sees it", || payload(&other, second) == "fixed too");
    let more = edit_of(&other, second, "fixed again");
    assert_eq!(other.edit_letters("e-3", &[more], NOW).unwrap(), [EditAnswer::Done]);
    // The first process learns of it before it changes anything.
    assert_eq!(
        letters.undo_edit("e-1", &[first, second], NOW).unwrap(),
        [EditAnswer::Done, EditAnswer::Changed]
    );
    assert_eq!(letter(&letters, first).message, original);
    assert_eq!(letters.change_letters(&LetterChange::Discard, &[second], NOW).unwrap(), [true]);
    let discarded = letters.undo_edit("e-3", &[second], NOW).unwrap();
    assert_eq!(discarded, [EditAnswer::NotOpen(LetterState::Discarded)]);
    assert_eq!(letters.change_letters(&LetterChange::Undo, &[second], NOW).unwrap(), [true]);
    drop((letters, other));

    let mut again = fixture.letters();
    assert_eq!(
        (letter(&again, first).message, letter(&again, first).edits),
        (original, Vec::<String>::new())
    );
    assert_eq!(payload(&again, second), "fixed again");
    assert_eq!(letter(&again, second).edits, ["e-1", "e-3"]);
    assert_eq!(again.undo_edit("e-3", &[second], NOW).unwrap(), [EditAnswer::Done]);
    assert_eq!(payload(&again, second), "fixed too");
    assert_eq!((again.counts().open, again.counts().unreadable), (4, 0));
    assert_eq!(state_of(&mut again, first), Some(LetterState::Open));
}

#[test]
fn what_is_replayed_is_the_edited_message_and_the_original_outlives_another_death() {
    let fixture = Fixture::new("edited-replay", 1);
    let parked = fixture.copy(0, 3);
    let number = parked.origin.number();
    fixture.park(&parked);
    let mut letters = fixture.letters();
    let edit = edit_of(&letters, number, "fixed");
    assert_eq!(letters.edit_letters("e-1", std::slice::from_ref(&edit), NOW).unwrap(), [EditAnswer::Done]);
    assert_eq!(letters.replay(&job(7), &[number], NOW).unwrap(), [ReplayAnswer::Replayed]);
    let published = fixture.copies(&fixture.topics.replay);
    assert_eq!(published.len(), 1);
    assert_eq!(published[0].1.message, edit.message);
    let replaying = letters.edit_letters("e-2", std::slice::from_ref(&edit), NOW).unwrap();
    assert_eq!(replaying, [EditAnswer::NotOpen(LetterState::Replaying)]);

    // It dies again as it was delivered.
    let again = Fixture::relapsed(&CopyRecord { message: edit.message.clone(), ..parked.clone() }, 7);
    let (partition, offset) = fixture.park(&again);
    letters.parked(partition, offset, &again);
    assert_eq!(
        (payload(&letters, number).as_str(), letter(&letters, number).edits),
        ("fixed", vec!["e-1".into()])
    );
    assert_eq!(letters.undo_edit("e-1", &[number], NOW).unwrap(), [EditAnswer::Done]);
    drop(letters);
    let mut letters = fixture.letters();
    assert_eq!(letter(&letters, number).message, parked.message);
    assert!(letter(&letters, number).edits.is_empty());
    assert_eq!(letters.replay(&job(8), &[number], NOW).unwrap(), [ReplayAnswer::Replayed]);
    let published = fixture.copies(&fixture.topics.replay);
    assert_eq!(published.last().map(|(_, copy)| &copy.message), Some(&parked.message));
}

#[test]
fn a_message_that_does_not_fit_beside_its_original_is_refused_and_the_others_are_edited() {
    let fixture = Fixture::new("large-edit", 1);
    let numbers = fixture.park_many(1, 3);
    let mut letters = fixture.letters();
    // Text that does not compress well.
    let word = |n: u64| format!("{:016x}", n.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let large: String = (1..150_000).map(word).collect();
    let edits = [("a", numbers[0]), (large.as_str(), numbers[1]), ("c", numbers[2])]
        .map(|(text, n)| edit_of(&letters, n, text));
    let answers = letters.edit_letters("e-1", &edits, NOW).unwrap();
    assert_eq!(answers, [EditAnswer::Done, EditAnswer::TooLarge, EditAnswer::Done]);
    assert_eq!((payload(&letters, numbers[0]), payload(&letters, numbers[2])), ("a".into(), "c".into()));
    assert!(letter(&letters, numbers[1]).edits.is_empty());
}
