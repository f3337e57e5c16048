//! Two processes change the same letters at the same time: their transactions fence each other, and each knows the
//! other's changes before it changes anything, even if its mirror is late.

use redrive::internal::engine::{LetterChange, LetterState, ReplayAnswer};

use crate::fixture::{Fixture, NOW, job};

#[test]
fn two_replays_of_the_same_letters_publish_each_once() {
    let fixture = Fixture::new("rivals", 2);
    let numbers = fixture.park_many(2, 120);
    let went: Vec<Vec<ReplayAnswer>> = std::thread::scope(|scope| {
        let rivals: Vec<_> = (1..=2_u64)
            .map(|rival| {
                let (fixture, numbers) = (&fixture, &numbers);
                scope.spawn(move || {
                    let cluster = fixture.late(&format!("rival-{rival}"));
                    let mut letters = fixture.letters_at(&cluster);
                    let mut answers = Vec::new();
                    for part in numbers.chunks(10) {
                        answers.extend(letters.replay(&job(rival), part, NOW).unwrap());
                    }
                    answers
                })
            })
            .collect();
        rivals.into_iter().map(|rival| rival.join().unwrap()).collect()
    });
    for (first, second) in went[0].iter().zip(&went[1]) {
        let one_each = matches!(
            (first, second),
            (ReplayAnswer::Replayed, ReplayAnswer::NotOpen(LetterState::Replaying))
                | (ReplayAnswer::NotOpen(LetterState::Replaying), ReplayAnswer::Replayed)
        );
        assert!(one_each, "{first:?} and {second:?}");
    }
    let mut published: Vec<u64> =
        fixture.copies(&fixture.topics.replay).iter().map(|(_, copy)| copy.origin.number()).collect();
    published.sort_unstable();
    assert_eq!(published, numbers);
}

#[test]
fn a_letter_is_either_discarded_or_replayed() {
    let fixture = Fixture::new("either", 1);
    let numbers = fixture.park_many(1, 60);
    let (replayed, discarded) = std::thread::scope(|scope| {
        let replays = scope.spawn(|| {
            let mut letters = fixture.letters_at(&fixture.late("replays"));
            let answers = numbers.chunks(5).map(|part| letters.replay(&job(1), part, NOW).unwrap());
            answers.flatten().map(|answer| answer == ReplayAnswer::Replayed).collect::<Vec<bool>>()
        });
        let discards = scope.spawn(|| {
            let mut letters = fixture.letters_at(&fixture.late("discards"));
            let discard = &LetterChange::Discard;
            // Start from the other end, so that they meet.
            let parts = numbers.rchunks(5).map(|part| letters.change_letters(discard, part, NOW).unwrap());
            let mut parts: Vec<Vec<bool>> = parts.collect();
            parts.reverse();
            parts.concat()
        });
        (replays.join().unwrap(), discards.join().unwrap())
    });
    for (number, (replayed, discarded)) in numbers.iter().zip(replayed.iter().zip(&discarded)) {
        assert!(replayed ^ discarded, "{number}: replayed {replayed}, discarded {discarded}");
    }
    let published = fixture.copies(&fixture.topics.replay).len();
    assert_eq!(published, replayed.iter().filter(|went| **went).count());
    let letters = fixture.letters();
    assert_eq!(
        (letters.counts().replaying, letters.counts().discarded),
        (published as u64, 60 - published as u64)
    );
}
