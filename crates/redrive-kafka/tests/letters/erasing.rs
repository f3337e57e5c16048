//! Erased letters: a tombstone at the end of the topic, seen by other processes, and nothing left in their local files.

use redrive::internal::engine::erase::is_tombstone;
use redrive::internal::engine::{
    EditAnswer, EraseAnswer, EraseOrder, LetterEdit, LetterState, LetterVersion, ReplayAnswer,
};
use redrive_core::Message;
use redrive_kafka::letters::{KafkaLetters, Rules};

use crate::fixture::{Fixture, NOW, eventually, job, state_of};

fn order() -> EraseOrder {
    EraseOrder { by: "ops".to_owned(), reason: "ticket 881".to_owned() }
}

fn is_erased(letters: &KafkaLetters, number: u64) -> bool {
    let letter = letters.letter(number).unwrap().expect("it is a letter");
    let texts = letter.history.attempts().iter().any(|attempt| !attempt.error.is_empty());
    letter.state == LetterState::Erased && is_tombstone(&letter.message) && !texts && letter.edits.is_empty()
}

#[test]
fn an_erased_letter_is_a_tombstone_for_everybody_and_also_after_a_restart() {
    let fixture = Fixture::new("erase", 2);
    let numbers = fixture.park_many(2, 2);
    let mut letters = fixture.letters();
    let other = fixture.letters_at(&fixture.elsewhere("other"));
    let (edited, replayed) = (numbers[0], numbers[1]);
    let shown = letters.letter(edited).unwrap().unwrap();
    let message = Message::builder(shown.message.id()).payload("edited").build().unwrap();
    let edit = LetterEdit { letter: edited, from: LetterVersion::of(&shown), message };
    assert_eq!(letters.edit_letters("e-1", &[edit], NOW).unwrap(), [EditAnswer::Done]);
    assert_eq!(letters.replay(&job(7), &[replayed], NOW).unwrap(), [ReplayAnswer::Replayed]);

    let answers = letters.erase_letters(&order(), &[edited, replayed, edited, 999], NOW).unwrap();
    assert_eq!(
        answers,
        [EraseAnswer::Done, EraseAnswer::InReplay, EraseAnswer::Already, EraseAnswer::NotFound]
    );
    eventually("the tombstone is read", || is_erased(&letters, edited));
    eventually("the other process reads it too", || is_erased(&other, edited));
    assert_eq!(letters.message_before(edited, "e-1").unwrap(), None, "the original is gone");
    assert_eq!(letters.erase_letters(&order(), &[edited], NOW).unwrap(), [EraseAnswer::Already]);
    assert_eq!((letters.counts().erased, letters.counts().unreadable, letters.counts().twins), (1, 0, 0));
    drop((letters, other));

    let mut again = fixture.letters();
    assert!(is_erased(&again, edited));
    assert_eq!((again.counts().erased, again.counts().open), (1, 2));
    assert_eq!(state_of(&mut again, replayed), Some(LetterState::Replaying));
    // The old record is deleted although open letters precede it, and the tombstone stays.
    let mut trimmer = again.trimmer(&fixture.cluster).with_rules(Rules::eager());
    assert!(trimmer.run(NOW).unwrap().deleted > 0);
    eventually("it is still there", || is_erased(&again, edited));
}

/// Records of `T.DLQ` that have a payload, by the numbers of their letters.
fn with_payload(fixture: &Fixture) -> Vec<u64> {
    let copies = fixture.copies(&fixture.topics.dlq);
    let told = copies.iter().filter(|(_, copy)| copy.message.payload().is_some());
    told.map(|(_, copy)| copy.origin.number()).collect()
}

#[test]
fn a_trimming_that_writes_a_letter_again_behind_its_tombstone_brings_nothing_back() {
    let fixture = Fixture::new("erase-race", 1);
    let numbers = fixture.park_many(1, 4);
    let mut letters = fixture.letters();
    let other = fixture.letters_at(&fixture.elsewhere("other"));
    let erased = numbers[1];
    // What another member read before the erasure, and writes again after it.
    let mut moved = fixture.copy(0, 1);
    moved.marks.moved = true;
    assert_eq!(letters.erase_letters(&order(), &[erased], NOW).unwrap(), [EraseAnswer::Done]);
    fixture.park(&moved);
    let seen = fixture.copies(&fixture.topics.dlq).len();
    assert_eq!(seen, 6);
    // A letter behind it, so that it is known when the copy was read.
    fixture.park(&fixture.copy(0, 9));
    for letters in [&letters, &other] {
        eventually("all is read", || letters.counts().open == 4);
        assert!(is_erased(letters, erased), "the tombstone counts");
    }
    // The usual trimming of any member: the copy is gone, without anybody asking for it.
    let mut trimmer = other.trimmer(&fixture.cluster);
    trimmer.run(NOW).unwrap();
    assert_eq!(with_payload(&fixture).iter().filter(|number| **number == erased).count(), 0);
    for letters in [&letters, &other] {
        eventually("nothing else is gone", || letters.counts().open == 4 && is_erased(letters, erased));
    }
    drop((letters, other, trimmer));
    let again = fixture.letters();
    assert!(is_erased(&again, erased));
    assert_eq!((again.counts().erased, again.counts().open, again.counts().twins), (1, 4, 0));
    let trimmed = again.trimmer(&fixture.cluster).run(NOW).unwrap();
    assert_eq!(trimmed.moved, 0, "once is enough");
}

#[test]
fn letters_are_erased_while_two_members_trim_and_none_of_them_comes_back() {
    let fixture = Fixture::new("erase-trims", 1);
    let numbers = fixture.park_many(1, 400);
    let mut letters = fixture.letters();
    let other = fixture.letters_at(&fixture.elsewhere("other"));
    // Every second one is done, so that each trimming writes the rest again.
    let done: Vec<u64> = numbers.iter().copied().step_by(2).collect();
    crate::leaving::succeed(&fixture, &mut letters, &done);
    let erased: Vec<u64> = numbers.iter().copied().skip(1).step_by(20).collect();
    let trimmers = [letters.trimmer(&fixture.cluster), other.trimmer(&fixture.cluster)];
    std::thread::scope(|scope| {
        for mut trimmer in trimmers {
            scope.spawn(move || {
                for _ in 0..4 {
                    trimmer.run_eagerly(crate::leaving::later()).unwrap();
                }
            });
        }
        for part in erased.chunks(5) {
            let answers = letters.erase_letters(&order(), part, NOW).unwrap();
            assert!(answers.iter().all(|answer| *answer == EraseAnswer::Done));
        }
    });
    eventually("the other has read it", || other.counts().erased == erased.len() as u64);
    for letters in [&letters, &other] {
        letters.trimmer(&fixture.cluster).run_eagerly(crate::leaving::later()).unwrap();
        assert!(erased.iter().all(|number| is_erased(letters, *number)));
    }
    let left = with_payload(&fixture);
    assert!(left.iter().all(|number| !erased.contains(number)), "{left:?}");
    let open = numbers.len() - done.len() - erased.len();
    eventually("the others are as they were", || letters.counts().open == open as u64);
}
