//! Letters are listed, viewed, discarded and reopened, by one process and as seen by another.

use redrive::internal::engine::{LetterChange, LetterState};
use redrive_core::Reason;
use redrive_kafka::letters::KafkaLetters;

use crate::fixture::{Fixture, LIMIT, NOW, eventually, ids, job, state_of, unavailable};

#[test]
fn letters_are_parked_listed_and_shown_with_their_story() {
    let fixture = Fixture::new("parked", 3);
    let copies: Vec<_> =
        [(0, 5), (2, 1), (2, 9)].map(|(partition, offset)| fixture.copy(partition, offset)).into();
    for copy in &copies {
        fixture.park(copy);
    }
    let letters = fixture.letters();
    let numbers: Vec<u64> = copies.iter().map(|copy| copy.origin.number()).collect();
    let listed = letters.letters(None, None, 10).unwrap();
    assert_eq!(ids(&listed), numbers);
    for (letter, copy) in listed.iter().zip(&copies) {
        assert_eq!((letter.state, letter.reason), (LetterState::Open, Reason::Permanent));
        assert_eq!(
            (&letter.message, letter.meta, &letter.history),
            (&copy.message, copy.meta, &copy.history)
        );
        assert_eq!((Some(letter.dead_at), letter.job), (copy.dead_at, None));
    }
    assert_eq!(ids(&letters.letters(None, Some(numbers[0]), 1).unwrap()), numbers[1..2]);
    assert_eq!(ids(&letters.letters(Some(LetterState::Discarded), None, 10).unwrap()), Vec::<u64>::new());
    let scan = letters.scan_letters(None, None, 10, 2).unwrap();
    assert_eq!((ids(&scan.letters), scan.next, scan.scanned), (numbers[..2].to_vec(), Some(numbers[1]), 2));
    let rest = letters.scan_letters(None, scan.next, 10, 2).unwrap();
    assert_eq!((ids(&rest.letters), rest.next), (numbers[2..].to_vec(), None));
    assert!(letters.letter(77).unwrap().is_none());
    assert_eq!(letters.counts().open, 3);
    // The one that died first, whatever its number.
    assert_eq!(letters.oldest(), copies.iter().filter_map(|copy| copy.dead_at).min());
}

#[test]
fn what_this_process_parks_is_seen_at_once_and_once() {
    let fixture = Fixture::new("own", 2);
    let mut letters = fixture.letters();
    let copy = fixture.copy(1, 4);
    let (partition, offset) = fixture.park(&copy);
    letters.parked(partition, offset, &copy);
    assert_eq!(state_of(&mut letters, copy.origin.number()), Some(LetterState::Open));
    // The mirror reads the record too; a letter behind it shows when it has.
    let marker = fixture.copy(1, 5);
    fixture.park(&marker);
    eventually("the mirror reads on", || letters.letter(marker.origin.number()).unwrap().is_some());
    assert_eq!((letters.counts().open, letters.counts().twins), (2, 0));
}

#[test]
fn a_discard_and_its_undo_survive_a_restart_and_are_seen_elsewhere() {
    let fixture = Fixture::new("discard", 2);
    let numbers = fixture.park_many(2, 3);
    let mut letters = fixture.letters();
    let mut other = fixture.letters_at(&fixture.elsewhere("other"));
    let asked = [numbers[0], numbers[4], numbers[4], 999];
    let discarded = letters.change_letters(&LetterChange::Discard, &asked, NOW).unwrap();
    assert_eq!(discarded, [true, true, false, false]);
    // The change is visible at once.
    assert_eq!((letters.counts().open, letters.counts().discarded), (4, 2));
    assert_eq!(letters.change_letters(&LetterChange::Discard, &numbers[..1], NOW).unwrap(), [false]);
    eventually("the other process sees it", || other.counts().discarded == 2);
    // The other process undoes one discard, and the first one learns of it before it changes anything.
    assert_eq!(other.change_letters(&LetterChange::Undo, &numbers[..2], NOW).unwrap(), [true, false]);
    assert_eq!(letters.change_letters(&LetterChange::Discard, &numbers[..1], NOW).unwrap(), [true]);
    assert_eq!(letters.change_letters(&LetterChange::Undo, &numbers[..1], NOW).unwrap(), [true]);
    drop((letters, other));
    let mut again = fixture.letters();
    assert_eq!(state_of(&mut again, numbers[0]), Some(LetterState::Open));
    assert_eq!(ids(&again.letters(Some(LetterState::Discarded), None, 9).unwrap()), [numbers[4]]);
}

#[test]
fn twins_are_one_letter_and_are_counted() {
    let fixture = Fixture::new("twins", 1);
    let copy = fixture.copy(0, 1);
    let first = fixture.park(&copy);
    fixture.park(&copy);
    let mut letters = fixture.letters();
    assert_eq!((letters.counts().open, letters.counts().twins), (1, 1));
    // The acknowledgement of the first one arrives again: nothing changes.
    letters.parked(first.0, first.1, &copy);
    assert_eq!((letters.counts().open, letters.counts().twins), (1, 1));
    letters.replay(&job(3), &[copy.origin.number()], NOW).unwrap();
    assert_eq!(fixture.copies(&fixture.topics.replay).len(), 1);
}

#[test]
fn records_that_are_not_ours_are_counted_and_left_alone() {
    let fixture = Fixture::new("foreign", 1);
    fixture.produce(&fixture.topics.dlq, Some(0), Some(b"k"), Some(b"not ours"), None);
    fixture.produce(&fixture.topics.dlq_state, None, Some(b"k"), Some(b"{}"), None);
    fixture.produce(&fixture.topics.dlq_state, None, Some(b"17"), Some(b"nonsense"), None);
    let numbers = fixture.park_many(1, 2);
    let letters = fixture.letters();
    assert_eq!(letters.counts().unreadable, 3);
    assert_eq!(ids(&letters.letters(None, None, 10).unwrap()), numbers);
}

#[test]
fn a_success_is_over_for_its_generation_only() {
    let fixture = Fixture::new("success", 1);
    let copy = fixture.copy(0, 1);
    fixture.park(&copy);
    let number = copy.origin.number();
    let mut letters = fixture.letters();
    letters.replay(&job(7), &[number], NOW).unwrap();
    let (key, value) = KafkaLetters::succeeded_state(number, 1, Some(7), NOW);
    fixture.produce(&fixture.topics.dlq_state, None, Some(key.as_bytes()), Some(&value), None);
    letters.succeeded(number, 1);
    assert_eq!(state_of(&mut letters, number), Some(LetterState::Succeeded));
    let standing = letters.letter_standings(7, &[number]).unwrap()[0].unwrap();
    assert_eq!((standing.in_job, standing.is_last_job, standing.replays), (true, true, 1));
    drop(letters);
    let mut again = fixture.letters();
    assert_eq!(state_of(&mut again, number), Some(LetterState::Succeeded));
    // A twin of the copy that succeeded died: that is a letter of its own generation.
    let twin = Fixture::relapsed(&copy, 7);
    fixture.park(&twin);
    eventually("the mirror reads it", || state_of(&mut again, number) == Some(LetterState::Open));
    // If the other twin succeeds only now, its state must not replace that of this letter.
    assert!(!again.wants_success(number, 1) && again.wants_success(number, 2));
    assert!(!again.wants_success(number, 0), "it was never replayed");
}

#[test]
fn what_cannot_be_written_is_told_within_a_bound_and_changes_nothing() {
    let mut fixture = Fixture::new("silent", 1);
    let numbers = fixture.park_many(1, 2);
    fixture.topics.replay = crate::broker::name("nowhere");
    let mut letters = fixture.letters();
    let began = std::time::Instant::now();
    let why = unavailable(letters.replay(&job(1), &numbers, NOW));
    assert!(why.contains("within 10 s"), "{why}");
    assert!(began.elapsed() < LIMIT);
    assert_eq!((letters.counts().open, letters.oldest()), (2, fixture.copy(0, 0).dead_at));
    // Nothing is left behind that would make the next change fail.
    assert_eq!(letters.change_letters(&LetterChange::Discard, &numbers, NOW).unwrap(), [true, true]);
    drop(letters);
    assert_eq!(fixture.letters().counts().discarded, 2);
}
