//! Letters of messages that died elsewhere: records of `T.DLQ` like any other, created once by whichever process.

use std::time::Duration;

use redrive::internal::engine::position::PartitionOffset;
use redrive::internal::engine::{
    ForeignLetter, ImportAnswer, LetterChange, LetterState, OnBehalf, ReplayAnswer, SourcePosition,
};
use redrive_core::{Message, Reason};

use redrive_kafka::letters::KafkaLetters;

use crate::fixture::{Fixture, NOW, eventually, job, state_of};

/// Returns a letter from this position, or without one.
fn foreign(fixture: &Fixture, place: Option<(&str, i32, u64)>, payload: &str) -> ForeignLetter {
    let copy = fixture.copy(0, 1);
    let id =
        place.map_or("o-1".to_owned(), |(topic, partition, offset)| format!("{topic}/{partition}/{offset}"));
    let message = Message::builder(id).key("c-1").payload(payload.to_owned()).header("trace", "at x");
    let origin =
        place.map(|(topic, partition, offset)| SourcePosition { topic: topic.into(), partition, offset });
    ForeignLetter { message: message.build().unwrap(), origin, meta: copy.meta, history: copy.history }
}

fn number(answer: &ImportAnswer) -> (bool, u64) {
    match answer {
        ImportAnswer::Imported { number, .. } => (true, number.unwrap()),
        ImportAnswer::Already { number } => (false, number.unwrap()),
        ImportAnswer::Refused { why } => panic!("{why}"),
    }
}

#[test]
fn letters_are_imported_once_by_all_processes_and_replayed_like_any_other() {
    let fixture = Fixture::new("imported", 2);
    let source = fixture.topics.source.clone();
    let all = [
        foreign(&fixture, Some((&source, 1, 42)), "{\"a\":1}"),
        foreign(&fixture, Some(("elsewhere", 0, 7)), "{\"b\":1}"),
        foreign(&fixture, None, "{\"c\":1}"),
    ];
    let mut letters = fixture.letters();
    let mut other = fixture.letters_at(&fixture.elsewhere("other"));
    let dry = letters.import(&all, true, NOW).unwrap();
    assert!(
        dry.iter().all(|answer| matches!(answer, ImportAnswer::Imported { number: None, .. })),
        "{dry:?}"
    );
    let by_ops = OnBehalf { at: NOW, by: Some("ops") };
    let first: Vec<_> = letters.import(&all, false, by_ops).unwrap().iter().map(number).collect();
    assert!(first.iter().all(|(is_new, _)| *is_new));
    assert_eq!(
        first[0].1,
        PartitionOffset { partition: 1, offset: 42 }.number(),
        "its place in the source is its number"
    );
    assert!(first[1..].iter().all(|(_, number)| PartitionOffset::of(*number).is_made()));
    assert_eq!(letters.counts().open, 3, "they are there at once");

    // The other process knows them before it changes anything, and nothing is written twice.
    let again: Vec<_> = other.import(&all, false, NOW).unwrap().iter().map(number).collect();
    assert_eq!(again, first.iter().map(|(_, number)| (false, *number)).collect::<Vec<_>>());
    let edited = foreign(&fixture, Some((&source, 1, 42)), "{\"a\":2}");
    let edited = number(&other.import(&[edited], false, NOW).unwrap()[0]);
    assert!(edited.0 && PartitionOffset::of(edited.1).is_made(), "another payload is another letter");
    eventually("the first process sees it", || letters.counts().open == 4);
    assert_eq!(fixture.copies(&fixture.topics.dlq).len(), 4);

    let shown = letters.letter(first[1].1).unwrap().unwrap();
    assert_eq!((shown.reason, shown.dead_at, shown.message.id()), (Reason::Imported, NOW, "elsewhere/0/7"));
    assert_eq!(letters.change_letters(&LetterChange::Discard, &[first[2].1], NOW).unwrap(), [true]);
    assert_eq!(letters.replay(&job(1), &[first[1].1], NOW).unwrap(), [ReplayAnswer::Replayed]);
    let replayed = fixture.copies(&fixture.topics.replay);
    assert_eq!(replayed.len(), 1);
    assert_eq!(replayed[0].1.message, shown.message);

    drop((letters, other));
    let mut restarted = fixture.letters();
    let states = first.iter().map(|(_, number)| state_of(&mut restarted, *number).unwrap());
    let expected = [LetterState::Open, LetterState::Replaying, LetterState::Discarded];
    assert_eq!(states.collect::<Vec<_>>(), expected);
    assert!(restarted.import(&all, false, NOW).unwrap().iter().all(|answer| !number(answer).0));
    assert_eq!(restarted.counts().twins, 0);
}

#[test]
fn what_was_imported_and_replayed_is_not_imported_again_for_a_month() {
    let fixture = Fixture::new("remembered", 1);
    let source = fixture.topics.source.clone();
    let all = [
        foreign(&fixture, Some((&source, 0, 42)), "{\"a\":1}"),
        foreign(&fixture, Some((&source, 0, 43)), "{\"b\":1}"),
        foreign(&fixture, None, "{\"c\":1}"),
    ];
    let mut letters = fixture.letters();
    let first: Vec<_> = letters.import(&all, false, NOW).unwrap().iter().map(number).collect();
    let numbers: Vec<u64> = first.iter().map(|(_, number)| *number).collect();
    // One of them dies again here, so that its reason is another one.
    assert_eq!(letters.replay(&job(6), &numbers[1..2], NOW).unwrap(), [ReplayAnswer::Replayed]);
    let replayed = fixture.copies(&fixture.topics.replay).remove(0).1;
    let again = redrive_kafka::record::CopyRecord {
        reason: Some(Reason::MaxRetries),
        dead_at: Some(NOW.plus(Duration::from_hours(1))),
        due: None,
        ..replayed
    };
    fixture.park(&again);
    eventually("it died again", || state_of(&mut letters, numbers[1]) == Some(LetterState::Open));
    letters.replay(&job(7), &numbers, NOW).unwrap();
    for (number, replays) in numbers.iter().zip([1, 2, 1]) {
        let (key, value) = KafkaLetters::succeeded_state(*number, replays, Some(7), NOW);
        fixture.send(&fixture.topics.dlq_state, 0, key.as_bytes(), &value);
    }
    fixture.flush();
    eventually("all succeeded", || letters.counts().succeeded == 3);

    let mut trimmer = letters.trimmer(&fixture.cluster);
    let mut import = |days: u32| {
        let now = NOW.plus(Duration::from_hours(24) * days);
        trimmer.run_eagerly(now).unwrap();
        letters.import(&all, false, now).unwrap().iter().map(number).collect::<Vec<_>>()
    };
    let remembered: Vec<_> = numbers.iter().map(|number| (false, *number)).collect();
    assert_eq!(import(1), remembered);
    assert_eq!(import(30), remembered, "for as long as the guide says");
    assert_eq!(import(32), first, "after that nothing is known of them");
}

/// Text that no codec makes small.
fn incompressible(len: usize) -> String {
    let mut state = 7_u64;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        char::from(b'0' + (state >> 58) as u8)
    };
    (0..len).map(|_| next()).collect()
}

/// Sets the maximum record size of a topic.
fn bound_records(topic: &str, bytes: &str) {
    use rdkafka::admin::{AdminClient, AdminOptions, AlterConfig, ResourceSpecifier};
    let mut client = rdkafka::ClientConfig::new();
    client.set("bootstrap.servers", crate::broker::address());
    let admin: AdminClient<rdkafka::client::DefaultClientContext> = client.create().unwrap();
    // The change replaces all settings of the topic.
    let change = AlterConfig::new(ResourceSpecifier::Topic(topic))
        .set("retention.ms", "-1")
        .set("retention.bytes", "-1")
        .set("max.message.bytes", bytes);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let done = runtime.block_on(admin.alter_configs([&change], &AdminOptions::new())).unwrap();
    done.into_iter().for_each(|done| drop(done.unwrap()));
}

#[test]
fn more_letters_than_a_transaction_takes_and_one_that_kafka_refuses() {
    let fixture = Fixture::new("many-imported", 2);
    // An operator lowered the limit.
    bound_records(&fixture.topics.dlq, "1179648");
    let source = fixture.topics.source.clone();
    let mut all: Vec<_> = (0..250)
        .map(|n| foreign(&fixture, Some((&source, (n % 2) as i32, n)), &format!("{{\"n\":{n}}}")))
        .collect();
    all.insert(130, foreign(&fixture, Some((&source, 0, 9_999)), &incompressible(4 << 20)));
    let mut letters = fixture.letters();
    let answers = letters.import(&all, false, NOW).unwrap();
    let refused: Vec<_> = answers
        .iter()
        .enumerate()
        .filter(|(_, answer)| matches!(answer, ImportAnswer::Refused { .. }))
        .collect();
    assert_eq!(refused.len(), 1, "{refused:?}");
    assert_eq!(refused[0].0, 130);
    assert_eq!(letters.counts().open, 250);
}
