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
