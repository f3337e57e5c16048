//! Groups of dead letters on Kafka: all members count the same, and a decision applies to all of them and survives
//! restarts.

mod support;

use std::time::Duration;

use redrive::internal::engine::groups::list::list;
use redrive::internal::engine::{
    Attempt, Deliver, GroupMark, GroupMarks, GroupState, GroupSummary, Grouping, Handling, History,
    KeepLetters, LetterChange, Query, Settlement, StoreOptions, Verdict,
};
use redrive_core::{Class, FailureKind, Fingerprint, GroupId, Meta, Reason};
use redrive_kafka::KafkaEngine;
use redrive_kafka::record::{CopyRecord, LetterMarks, Origin};
use support::drive::{at, messages, take};
use support::{World, wait, wait_durable};

const TIERS: [Duration; 1] = [Duration::from_secs(1)];

fn attempt(error: &str) -> Attempt {
    Attempt {
        number: 1,
        at: at(1),
        took_ms: 1,
        class: Class::Permanent,
        counted: true,
        ambiguous: false,
        error: error.to_owned(),
        kind: FailureKind::Other,
        code: None,
    }
}

/// Lets the next messages die, each with the error that `error` returns for its number.
fn kill(engine: &mut KafkaEngine, count: usize, now: u64, error: impl Fn(usize) -> String) {
    let taken = take(engine, at(now), count);
    let settlement = |(n, delivery): (usize, redrive::internal::engine::Delivery)| {
        let meta = Meta { attempts: 1, ..delivery.meta };
        let verdict = Verdict::Dead { reason: Reason::Permanent, meta, at: at(now) };
        Settlement { delivery, verdict, attempt: Some(attempt(&error(n))) }
    };
    let ticket = engine.settle(taken.into_iter().enumerate().map(settlement).collect()).unwrap();
    wait_durable(engine, ticket);
}

fn groups(engine: &mut KafkaEngine) -> Vec<GroupSummary> {
    list(engine, &GroupMarks::default(), true, at(100)).unwrap()
}

fn told(groups: &[GroupSummary]) -> Vec<(String, u64, GroupState)> {
    groups.iter().map(|group| (group.title().to_owned(), group.figures.open, group.state)).collect()
}

#[test]
fn members_count_the_same_groups_and_share_what_was_decided() {
    let mut world = World::new(2, &TIERS);
    world.cluster.member = None;
    let mut first = world.open_caught_up(StoreOptions::default());
    world.produce(&messages(0..5));
    kill(&mut first, 5, 1, |n| if n < 3 { format!("404 order {n} is gone") } else { "timeout".to_owned() });
    let expected = vec![
        ("404 order <n> is gone".to_owned(), 3, GroupState::Open),
        ("timeout".to_owned(), 2, GroupState::Open),
    ];
    assert_eq!(told(&groups(&mut first)), expected);

    let mut second = world.open(StoreOptions::default());
    wait("the second has read the letters", || {
        second.poll(&mut Vec::new()).unwrap();
        first.poll(&mut Vec::new()).unwrap();
        !second.condition().letters_loading && second.counts().letters_open == 5
    });
    assert_eq!(told(&groups(&mut second)), expected);
    let found = groups(&mut second);
    let gone = found[0].group();
    let mark = GroupMark {
        group: gone,
        handling: Handling::Resolved,
        at: at(50),
        by: "ops".to_owned(),
        note: Some("ticket 881".to_owned()),
        title: found[0].title().to_owned(),
    };
    second.mark_group(&mark).unwrap();
    wait("the first knows", || groups(&mut first)[0].state == GroupState::Resolved);

    // After all of its letters are discarded, the group stays, with its decision and its title.
    let letters = first.letters_in_group(gone, None, 10).unwrap();
    assert_eq!(first.change_letters(&LetterChange::Discard, &letters, at(60).into()).unwrap(), [true; 3]);
    assert_eq!(
        told(&groups(&mut first)),
        [
            ("timeout".to_owned(), 2, GroupState::Open),
            ("404 order <n> is gone".to_owned(), 0, GroupState::Resolved),
        ]
    );
    assert_eq!(first.oldest().unwrap().letter, Some(at(1)));
    second.close().unwrap();
    drop(second);
    first.close().unwrap();
    drop(first);

    // After a restart the new process learns the decision from the topic alone.
    let mut third = world.open_caught_up(StoreOptions::default());
    world.produce(&messages(5..6));
    kill(&mut third, 1, 70, |_| "404 order 77 is gone".to_owned());
    wait("the letters are read", || !third.condition().letters_loading);
    let found = groups(&mut third);
    let back = found.iter().find(|group| group.group() == gone).expect("the group is there");
    assert_eq!((back.state, back.figures.open), (GroupState::Regressed, 1));
    assert_eq!(back.mark.as_ref(), Some(&mark));
    third.close().unwrap();
}

/// One letter has no fingerprint; another has one of a different version, which it keeps.
#[test]
fn a_letter_that_an_older_program_wrote_is_grouped_when_it_is_read() {
    let world = World::new(1, &TIERS);
    let copy = CopyRecord {
        message: messages(0..1).remove(0),
        meta: Meta { attempts: 1, ..Meta::default() },
        history: History::default().with(&attempt("404 order 17 is gone")),
        origin: Origin::of_number(world.pipeline.source.as_str().into(), 0),
        due: None,
        reason: Some(Reason::Permanent),
        dead_at: Some(at(3)),
        job: None,
        marks: LetterMarks::default(),
    };
    let mut engine = world.open_caught_up(StoreOptions::default());
    let topic = redrive_kafka::topics::Topics::of(&world.pipeline).dlq;
    support::write_copies(&topic, &format!("{}/0/0", world.pipeline.source), std::slice::from_ref(&copy));
    let other = Fingerprint { version: 9, group: GroupId::from_number(77), title: "another".to_owned() };
    let of_another_version = CopyRecord {
        origin: Origin::of_number(world.pipeline.source.as_str().into(), 1),
        dead_at: Some(at(4)),
        marks: LetterMarks { group: Some(other.clone()), ..LetterMarks::default() },
        ..copy.clone()
    };
    let place = format!("{}/0/1", world.pipeline.source);
    support::write_copies(&topic, &place, std::slice::from_ref(&of_another_version));
    wait("the letters are read", || engine.counts().letters_open == 2);
    let found = groups(&mut engine);
    let expected = Grouping::default().of(Reason::Permanent, Some(&attempt("404 order 99 is gone")));
    let mut told: Vec<_> = found.iter().map(|group| (group.group(), group.title())).collect();
    told.sort();
    let mut wanted = vec![(expected.group, "404 order <n> is gone"), (other.group, "another")];
    wanted.sort();
    assert_eq!(told, wanted, "the same error, and each in the group it was stored with");
    engine.close().unwrap();
}

/// Returns a distinct word for each number that a fingerprint does not take for a value.
fn word(mut number: usize) -> String {
    let mut word = String::from("word");
    for _ in 0..4 {
        word.push_str(["ba", "co", "du", "fe", "gi", "ho", "ku", "la", "me", "no"][number % 10]);
        number /= 10;
    }
    word
}

#[test]
fn beyond_a_thousand_groups_letters_are_counted_as_other_over_a_restart() {
    let world = World::new(1, &TIERS);
    let mut engine = world.open_caught_up(StoreOptions::default());
    world.produce(&messages(0..1_007));
    kill(&mut engine, 1_007, 1, |n| format!("no word for {}", word(n)));
    let look = |engine: &mut KafkaEngine, when: &str| {
        wait("the letters are read", || {
            engine.poll(&mut Vec::new()).unwrap();
            !engine.condition().letters_loading && engine.counts().letters_open == 1_007
        });
        let found = groups(engine);
        assert_eq!(found.len(), 1_001, "{when}");
        let other = found.iter().find(|group| group.group() == GroupId::OTHER).expect("there is `other`");
        assert_eq!(other.figures.open, 7, "{when}");
        assert_eq!(found.iter().map(|group| group.figures.open).sum::<u64>(), 1_007, "{when}");
        engine.close().unwrap();
    };
    look(&mut engine, "as they died");
    drop(engine);
    look(&mut world.open(StoreOptions::default()), "after a restart");
}
