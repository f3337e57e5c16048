//! A replay publishes each letter once, and reports those it did not publish.

use redrive::internal::engine::letter::{REPLAYS_MAX, ReplayTarget};
use redrive::internal::engine::{LetterState, ReplayAnswer, ReplayJob};
use redrive_kafka::letters::other_groups;
use redrive_kafka::record::CopyRecord;

use crate::fixture::{Fixture, NOW, eventually, job, state_of};

#[test]
fn each_letter_is_published_once_where_its_message_came_from() {
    let fixture = Fixture::new("once", 3);
    let numbers = fixture.park_many(3, 90);
    let mut letters = fixture.letters();
    let mut asked = numbers.clone();
    asked.push(numbers[7]);
    let mut answers = letters.replay(&job(7), &asked, NOW).unwrap();
    assert_eq!(answers.pop(), Some(ReplayAnswer::Already));
    assert!(answers.iter().all(|answer| *answer == ReplayAnswer::Replayed));
    assert_eq!((letters.counts().open, letters.counts().replaying), (0, 270));
    // A resumed job, and another one.
    let again = letters.replay(&job(7), &numbers, NOW).unwrap();
    assert!(again.iter().all(|answer| *answer == ReplayAnswer::Already));
    let other = letters.replay(&job(8), &numbers[..2], NOW).unwrap();
    assert_eq!(other, [ReplayAnswer::NotOpen(LetterState::Replaying); 2]);
    assert_eq!(letters.replay(&job(8), &[999], NOW).unwrap(), [ReplayAnswer::NotFound]);

    let copies = fixture.copies(&fixture.topics.replay);
    let mut published: Vec<u64> = copies.iter().map(|(_, copy)| copy.origin.number()).collect();
    published.sort_unstable();
    assert_eq!(published, numbers);
    for (partition, copy) in &copies {
        assert_eq!(*partition, copy.origin.partition);
        let parked = fixture.copy(copy.origin.partition, copy.origin.offset);
        let expected = CopyRecord {
            meta: parked.meta.replayed(),
            due: Some(job(7).due),
            reason: None,
            dead_at: None,
            job: Some(7),
            ..parked
        };
        assert_eq!(*copy, expected);
    }
}

#[test]
fn a_letter_that_dies_again_is_open_again_and_needs_force_after_three_times() {
    let fixture = Fixture::new("relapse", 1);
    let mut copy = fixture.copy(0, 3);
    let number = copy.origin.number();
    fixture.park(&copy);
    let mut letters = fixture.letters();
    for round in 1..=REPLAYS_MAX {
        let job = job(10 + u64::from(round));
        assert_eq!(letters.replay(&job, &[number], NOW).unwrap(), [ReplayAnswer::Replayed]);
        copy = Fixture::relapsed(&copy, job.id);
        let (partition, offset) = fixture.park(&copy);
        letters.parked(partition, offset, &copy);
        let letter = letters.letter(number).unwrap().unwrap();
        assert_eq!((letter.state, letter.meta.replays, letter.job), (LetterState::Open, round, Some(job.id)));
        assert_eq!(letters.replay(&job, &[number], NOW).unwrap(), [ReplayAnswer::Already]);
    }
    drop(letters);
    let mut letters = fixture.letters();
    let too_often = ReplayAnswer::TooOften { replays: REPLAYS_MAX };
    assert_eq!(letters.replay(&job(20), &[number], NOW).unwrap(), [too_often]);
    let forced = ReplayJob { force: true, ..job(20) };
    assert_eq!(letters.replay(&forced, &[number], NOW).unwrap(), [ReplayAnswer::Replayed]);
    for (id, last) in [(11, false), (12, false), (13, false), (20, true), (21, false)] {
        let standing = letters.letter_standings(id, &[number, 5]).unwrap();
        let known = standing[0].unwrap();
        assert_eq!((known.in_job, known.is_last_job), (id != 21, last), "job {id}");
        assert_eq!((known.state, known.replays, standing[1]), (LetterState::Replaying, 4, None));
    }
    let replays: Vec<u32> =
        fixture.copies(&fixture.topics.replay).iter().map(|(_, copy)| copy.meta.replays).collect();
    assert_eq!(replays, [1, 2, 3, 4]);
}

/// Groups of other kinds cannot be described, so they are listed for every topic; other tests may have left some.
fn others(fixture: &Fixture, topic: &str) -> Vec<String> {
    let mut groups = other_groups(&fixture.cluster, topic).unwrap();
    groups.retain(|group| !group.contains("a share group"));
    groups
}

#[test]
fn a_replay_onto_the_source_keeps_the_letters_number_and_names_who_else_reads_it() {
    let fixture = Fixture::new("source", 2);
    let numbers = fixture.park_many(2, 2);
    let mut letters = fixture.letters();
    assert_eq!(others(&fixture, &fixture.topics.source), Vec::<String>::new());
    let billing = commit_as(&fixture, "billing");
    assert_eq!(others(&fixture, &fixture.topics.source), [billing]);
    assert_eq!(others(&fixture, &fixture.topics.dlq), Vec::<String>::new());

    let to_source = ReplayJob { target: ReplayTarget::Source, ..job(5) };
    let answers = letters.replay(&to_source, &numbers, NOW).unwrap();
    assert!(answers.iter().all(|answer| *answer == ReplayAnswer::Replayed));
    assert!(fixture.copies(&fixture.topics.replay).is_empty());
    let mut copies = fixture.copies(&fixture.topics.source);
    copies.sort_by_key(|(_, copy)| copy.origin.number());
    let published: Vec<u64> = copies.iter().map(|(_, copy)| copy.origin.number()).collect();
    assert_eq!(published, numbers);
    assert!(
        copies.iter().all(|(partition, copy)| *partition == copy.origin.partition && copy.job == Some(5))
    );
    eventually("it is under way", || state_of(&mut letters, numbers[0]) == Some(LetterState::Replaying));
}

/// Commits an offset of the source for another group.
fn commit_as(fixture: &Fixture, name: &str) -> String {
    use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer};
    use rdkafka::{Offset, TopicPartitionList};
    let group = crate::broker::name(name);
    let consumer: BaseConsumer = fixture.cluster.reader().set("group.id", &group).create().unwrap();
    let mut list = TopicPartitionList::new();
    list.add_partition_offset(&fixture.topics.source, 1, Offset::Offset(0)).unwrap();
    consumer.commit(&list, CommitMode::Sync).unwrap();
    group
}
