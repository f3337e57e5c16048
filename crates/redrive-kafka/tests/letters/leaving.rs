//! Resolved letters are deleted from the topic: a start reads only the others, and every process forgets the deleted
//! ones.

use std::time::Duration;

use redrive::internal::engine::{LetterChange, LetterState, ReplayAnswer};
use redrive_core::Time;
use redrive_kafka::letters::{KafkaLetters, Rules, Trimmed};
use redrive_kafka::topics::scan::Scan;

use crate::fixture::{Fixture, NOW, eventually, ids, job, state_of};

/// Long after everything was resolved.
pub fn later() -> Time {
    NOW.plus(Duration::from_hours(24))
}

/// Puts letters back and tells of their success, as the engine does.
pub fn succeed(fixture: &Fixture, letters: &mut KafkaLetters, numbers: &[u64]) {
    for part in numbers.chunks(100) {
        let answers = letters.replay(&job(7), part, NOW).unwrap();
        assert!(answers.iter().all(|answer| *answer == ReplayAnswer::Replayed));
    }
    for number in numbers {
        let (key, value) = KafkaLetters::succeeded_state(*number, 1, Some(7), NOW);
        let partition = (number >> 48) as i32;
        fixture.send(&fixture.topics.dlq_state, partition, key.as_bytes(), &value);
    }
    fixture.flush();
    let last = *numbers.last().unwrap();
    eventually("all successes are read", || {
        state_of(letters, last) == Some(LetterState::Succeeded) && letters.counts().replaying == 0
    });
}

pub fn lows(fixture: &Fixture) -> Vec<(i64, i64)> {
    let spans = Scan::new(&fixture.cluster).unwrap().spans(&fixture.topics.dlq).unwrap();
    spans.iter().map(|span| (span.low, span.end)).collect()
}

#[test]
fn a_start_reads_the_letters_that_are_left_and_others_forget_those_that_are_gone() {
    let fixture = Fixture::new("leaving", 2);
    let numbers = fixture.park_many(2, 1_000);
    let mut letters = fixture.letters();
    let elsewhere = fixture.letters_at(&fixture.elsewhere("other"));
    // The last ten of each partition stay open.
    let is_resolved = |number: &u64| number & 0xffff_ffff_ffff < 990;
    let resolved: Vec<u64> = numbers.iter().copied().filter(is_resolved).collect();
    succeed(&fixture, &mut letters, &resolved);
    let mut trimmer = letters.trimmer(&fixture.cluster);
    assert_eq!(
        trimmer.run(NOW).unwrap(),
        Trimmed::default(),
        "whoever looks at the replay sees them for a while"
    );
    assert_eq!(trimmer.run(later()).unwrap(), Trimmed { deleted: 1_980, moved: 0, gone: 1_980 });
    assert_eq!(lows(&fixture), [(990, 1_000); 2]);
    assert_eq!((letters.counts().open, letters.counts().succeeded), (20, 0));
    assert_eq!(letters.letter(resolved[0]).unwrap().map(|letter| letter.state), None);
    eventually("the other process forgets them too", || elsewhere.counts() == letters.counts());
    drop((letters, elsewhere));

    let mut again = fixture.letters();
    assert_eq!(ids(&again.letters(None, None, 100).unwrap()).len(), 20);
    assert_eq!((again.counts().open, again.counts().succeeded, again.counts().twins), (20, 0, 0));
    assert_eq!(trimmer.run(later()).unwrap(), Trimmed::default(), "once is enough");
    // The remaining letters can be replayed as usual.
    let left: Vec<u64> = ids(&again.letters(None, None, 100).unwrap());
    assert!(
        again.replay(&job(8), &left, NOW).unwrap().iter().all(|answer| *answer == ReplayAnswer::Replayed)
    );
}

#[test]
fn an_old_letter_that_holds_up_many_is_written_again_and_stays_one_letter() {
    let fixture = Fixture::new("moved", 1);
    let numbers = fixture.park_many(1, 200);
    let mut letters = fixture.letters();
    let elsewhere = fixture.letters_at(&fixture.elsewhere("other"));
    letters.change_letters(&LetterChange::Discard, &numbers[5..6], NOW).unwrap();
    let resolved: Vec<u64> = numbers.iter().copied().filter(|number| ![3, 5].contains(number)).collect();
    succeed(&fixture, &mut letters, &resolved);
    let before = letters.letter(3).unwrap().unwrap();
    let rules = Rules { move_gain_min: 50, ..Rules::default() };
    let trimmed = letters.trimmer(&fixture.cluster).with_rules(rules).run(later()).unwrap();
    assert_eq!(trimmed, Trimmed { deleted: 200, moved: 2, gone: 198 });
    assert_eq!(lows(&fixture), [(200, 202)]);
    eventually("the other process sees the same", || elsewhere.counts() == letters.counts());
    drop((letters, elsewhere));
    let mut again = fixture.letters();
    let after = again.letter(3).unwrap().expect("it is there");
    assert_eq!(format!("{after:?}"), format!("{before:?}"), "as it was");
    assert_eq!(state_of(&mut again, 5), Some(LetterState::Discarded));
    assert_eq!((again.counts().open, again.counts().discarded, again.counts().twins), (1, 1, 0));
    assert_eq!(again.change_letters(&LetterChange::Undo, &[5], NOW).unwrap(), [true]);
    assert_eq!(again.replay(&job(9), &[3, 5], NOW).unwrap(), [ReplayAnswer::Replayed; 2]);
}
