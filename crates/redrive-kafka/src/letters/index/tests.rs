//! The index is the same however the reads of the two topics interleave, and its size is bounded.

use proptest::prelude::*;
use redrive_core::{Reason, SplitMix64};

use super::*;
use crate::letters::entry::DlqPosition;
use crate::letters::ids::IdHash;

/// A change of the index.
#[derive(Clone, Debug)]
enum IndexNote {
    LetterRecord(u64, LetterRecord, LearnedFrom),
    StateRecord(u64, StateRecord),
}

/// What happened to a letter, and what must be known about it in the end.
#[derive(Debug, Default)]
struct Story {
    dlq: Vec<IndexNote>,
    states: Vec<IndexNote>,
    /// What this process learns before it reads it.
    own: Vec<IndexNote>,
    truth: Vec<(u64, LetterState, u32, Vec<u64>, DlqPosition)>,
    twins: u64,
}

#[derive(Clone, Copy, Debug)]
enum TestStep {
    Discard,
    Undo,
    ReplayAndDie,
    ReplayAndSucceed,
    Replay,
}

fn steps() -> impl Strategy<Value = Vec<TestStep>> {
    let step = prop_oneof![
        2 => Just(TestStep::Discard),
        2 => Just(TestStep::Undo),
        3 => Just(TestStep::ReplayAndDie),
        1 => Just(TestStep::ReplayAndSucceed),
        1 => Just(TestStep::Replay),
    ];
    prop::collection::vec(step, 0..9)
}

/// Plays the life of one letter. `random` decides what is compacted away, what has a twin, and what is known early.
fn live(
    number: u64,
    steps: &[TestStep],
    random: &mut impl FnMut(u64) -> bool,
    offset: &mut i64,
    told: &mut Story,
) {
    let (mut generation, mut state, mut jobs) = (0_u32, LetterState::Open, Vec::<u64>::new());
    let mut first_place = DlqPosition::new(1, *offset);
    let mut park = |generation: u32, jobs: &[u64], told: &mut Story, random: &mut dyn FnMut(u64) -> bool| {
        let first = DlqPosition::new(1, *offset);
        for copy in 0..=u64::from(random(5)) {
            let place = DlqPosition::new(1, *offset);
            *offset += 1;
            let parked = LetterRecord {
                generation,
                place,
                at: place.offset() as u64,
                reason: Reason::MaxRetries,
                group: GroupId::from_number(1 + number % 3),
                dead_at: Time::from_millis(u64::from(generation)),
                id_hash: IdHash::of(&format!("o-{}", number % 5)),
                job: jobs.last().copied(),
                extent: Extent::Whole,
                moved: false,
            };
            told.twins += copy;
            told.dlq.push(IndexNote::LetterRecord(number, parked, LearnedFrom::Topic));
            if random(2) {
                told.own.push(IndexNote::LetterRecord(number, parked, LearnedFrom::Acknowledgement));
            }
        }
        first
    };
    park(0, &[], told, random);
    let mut compactable: Vec<StateRecord> = Vec::new();
    for (number_of_step, step) in steps.iter().enumerate() {
        let mut say = |state: LetterState, jobs: &[u64]| {
            compactable.push(StateRecord { generation, is: state, jobs: jobs.to_vec(), at: Time::ZERO });
        };
        match (step, state) {
            (TestStep::Discard, LetterState::Open) => {
                state = LetterState::Discarded;
                say(state, &jobs);
            }
            (TestStep::Undo, LetterState::Discarded) => {
                state = LetterState::Open;
                say(state, &jobs);
            }
            (TestStep::Replay | TestStep::ReplayAndDie | TestStep::ReplayAndSucceed, LetterState::Open) => {
                jobs.push(10 + number_of_step as u64);
                say(LetterState::Replaying, &jobs);
                state = LetterState::Replaying;
                if matches!(step, TestStep::ReplayAndSucceed) {
                    state = LetterState::Succeeded;
                    // The engine knows only the job whose copy it was.
                    say(state, &jobs[jobs.len() - 1..]);
                    if random(2) {
                        let early = StateRecord { generation, is: state, jobs: Vec::new(), at: Time::ZERO };
                        told.own.push(IndexNote::StateRecord(number, early));
                    }
                }
                if matches!(step, TestStep::ReplayAndDie) {
                    generation += 1;
                    state = LetterState::Open;
                    first_place = park(generation, &jobs, told, random);
                }
            }
            _ => {}
        }
    }
    let last = compactable.len().saturating_sub(1);
    for (at, state) in compactable.into_iter().enumerate() {
        if at == last || random(2) {
            told.states.push(IndexNote::StateRecord(number, state));
        }
    }
    told.truth.push((number, state, generation, jobs, first_place));
}

fn tell(index: &mut Index, note: &IndexNote) {
    match note {
        IndexNote::LetterRecord(number, parked, told) => index.parked(*number, parked, *told),
        IndexNote::StateRecord(number, state) => index.state_is(*number, state),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn every_interleaving_of_the_two_topics_gives_the_same_index(
        lives in prop::collection::vec(steps(), 1..4),
        seed in any::<u64>(),
    ) {
        let mut source = SplitMix64::new(seed);
        let mut random = |of: u64| (source.draw() >> 11).is_multiple_of(of);
        let (mut told, mut offset) = (Story::default(), 0);
        for (number, steps) in lives.iter().enumerate() {
            live(number as u64 * 7, steps, &mut random, &mut offset, &mut told);
        }
        for _ in 0..8 {
            let mut index = Index::default();
            let mut streams = [told.dlq.iter(), told.states.iter(), told.own.iter()];
            let mut left: Vec<usize> = vec![0, 1, 2];
            while !left.is_empty() {
                let pick = left[usize::from(random(2)) % left.len()];
                let pick = if random(3) { left[left.len() - 1] } else { pick };
                match streams[pick].next() {
                    Some(note) => tell(&mut index, note),
                    None => left.retain(|stream| *stream != pick),
                }
            }
            prop_assert_eq!(index.counts.twins, told.twins);
            let mut counted = LetterTotals { twins: told.twins, ..LetterTotals::default() };
            for (number, state, generation, jobs, place) in &told.truth {
                let entry = index.get(*number).expect("it has a record");
                prop_assert_eq!(entry.state(), Some(*state), "letter {}", number);
                prop_assert_eq!((entry.generation(), entry.place()), (*generation, *place));
                prop_assert_eq!(entry.at(), place.offset() as u64);
                // The latest job is last; the order of the earlier ones does not matter.
                let mut known = entry.jobs().to_vec();
                prop_assert_eq!(known.last(), jobs.last());
                known.sort_unstable();
                prop_assert_eq!(&known, jobs);
                match state {
                    LetterState::Open => counted.open += 1,
                    LetterState::Replaying => counted.replaying += 1,
                    LetterState::Succeeded => counted.succeeded += 1,
                    LetterState::Discarded => counted.discarded += 1,
                    LetterState::Erased => counted.erased += 1,
                }
            }
            prop_assert_eq!(index.counts, counted);
            let open = |(number, state, generation, ..): &(u64, LetterState, u32, Vec<u64>, DlqPosition)| {
                (*state == LetterState::Open).then_some((*number, Time::from_millis(u64::from(*generation))))
            };
            let mut expected = OpenGroups::default();
            for (number, dead_at) in told.truth.iter().filter_map(open) {
                expected.enter(GroupId::from_number(1 + number % 3), dead_at, number);
            }
            let bare = |groups: &OpenGroups| {
                let mut figures = groups.figures(Time::ZERO);
                figures.iter_mut().for_each(|figures| figures.per_minute = 0);
                figures
            };
            prop_assert_eq!(bare(index.groups()), bare(&expected));
            prop_assert_eq!(index.groups().oldest(), expected.oldest());
            for id in 0..5 {
                let of_id = told.truth.iter().map(|(number, ..)| *number).filter(|number| number % 5 == id);
                let of_id: BTreeSet<u64> = of_id.collect();
                let found = index.letters_of(&format!("o-{id}"));
                prop_assert_eq!(found, Some(of_id.into_iter().collect()));
            }
        }
    }
}

fn parked(generation: u32, offset: i64) -> LetterRecord {
    LetterRecord {
        generation,
        place: DlqPosition::new(0, offset),
        at: offset as u64,
        reason: Reason::Permanent,
        group: GroupId::from_number(7),
        dead_at: Time::from_millis(offset as u64),
        id_hash: IdHash::of(&format!("o-{offset}")),
        job: None,
        extent: Extent::Whole,
        moved: false,
    }
}

#[test]
fn a_tombstone_stays_the_letter_wherever_a_copy_of_what_was_erased_lies() {
    let erased = StateRecord { generation: 0, is: LetterState::Erased, jobs: vec![], at: Time::ZERO };
    let stone = |offset| LetterRecord { moved: true, extent: Extent::Tombstone, ..parked(0, offset) };
    let moved = |offset| LetterRecord { moved: true, ..parked(0, offset) };
    let told = |records: &[LetterRecord]| {
        let mut index = Index::default();
        index.state_is(3, &erased);
        records.iter().for_each(|record| index.parked(3, record, LearnedFrom::Topic));
        (index.get(3).unwrap().place().offset(), index.overtaken_tombstones())
    };
    // A trimming that had read the letter before it was erased writes it again behind the tombstone.
    assert_eq!(told(&[parked(0, 1), stone(5), moved(9)]), (5, vec![3]));
    assert_eq!(told(&[parked(0, 1), moved(9), stone(5)]), (5, vec![3]), "its own copies are known first");
    assert_eq!(told(&[parked(0, 1), stone(5), moved(9), stone(12)]), (12, vec![]), "it was written again");
    assert_eq!(told(&[parked(0, 1), moved(9), stone(12)]), (12, vec![]));
    assert_eq!(told(&[parked(0, 1), moved(9)]), (9, vec![]), "its tombstone is still to be read");
}

#[test]
fn a_state_without_a_record_is_kept_but_not_shown() {
    let mut index = Index::default();
    let discarded = StateRecord { generation: 0, is: LetterState::Discarded, jobs: vec![], at: Time::ZERO };
    index.state_is(5, &discarded);
    assert!(index.get(5).is_none() && index.after(None).next().is_none());
    assert_eq!(index.counts, LetterTotals::default());
    index.parked(5, &parked(0, 1), LearnedFrom::Topic);
    assert_eq!(index.counts, LetterTotals { discarded: 1, ..LetterTotals::default() });
}

#[test]
fn a_letter_is_found_by_its_message_until_it_is_gone() {
    let mut index = Index::default();
    index.parked(5, &parked(0, 1), LearnedFrom::Topic);
    assert_eq!(index.letters_of("o-1"), Some(vec![5]));
    index.remove(5);
    assert_eq!(index.letters_of("o-1"), Some(Vec::new()));
    assert_eq!(size_of::<LetterEntry>(), 64, "its hash lies in a gap");
}

#[test]
fn the_oldest_letter_is_the_one_that_died_first_among_those_that_are_open() {
    let mut index = Index::default();
    let discarded = StateRecord { generation: 0, is: LetterState::Discarded, jobs: vec![], at: Time::ZERO };
    for number in 0..1_000 {
        index.parked(number, &parked(0, number.cast_signed()), LearnedFrom::Topic);
        if number < 900 {
            index.state_is(number, &discarded);
        }
    }
    assert_eq!(index.groups().oldest(), Some(Time::from_millis(900)));
    index.state_is(3, &StateRecord { is: LetterState::Open, ..discarded });
    assert_eq!(index.groups().oldest(), Some(Time::from_millis(3)));
    // A letter with a low number that died late, as after a replay.
    index.parked(3, &parked(1, 5_000), LearnedFrom::Topic);
    assert_eq!(index.groups().oldest(), Some(Time::from_millis(900)));
}

/// `cargo test -p redrive-kafka --release --lib letters::index -- --ignored --nocapture` prints the memory per letter.
#[test]
#[ignore = "a measurement: the memory of a million letters"]
fn a_million_letters_have_a_bound() {
    let resident = || {
        let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
        statm.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4096
    };
    // Keep the first index to the end, or the second would reuse its memory.
    let mut kept = Vec::new();
    for (what, replayed) in [("open", false), ("replayed once and dead again", true)] {
        let before = resident();
        let mut index = Index::default();
        for offset in 0..1_000_000_u64 {
            let number = (offset % 12) << 48 | (offset / 12 * 97);
            index.parked(number, &parked(0, offset.cast_signed()), LearnedFrom::Topic);
            if replayed {
                let state = StateRecord {
                    generation: 0,
                    is: LetterState::Replaying,
                    jobs: vec![1 << 62 | 7],
                    at: Time::ZERO,
                };
                index.state_is(number, &state);
                index.parked(number, &parked(1, offset.cast_signed() + 1_000_000), LearnedFrom::Topic);
            }
        }
        let bytes = (resident() - before) / 1_000_000;
        println!(
            "1,000,000 letters, {what}: {bytes} bytes of memory each; a entry has {}",
            size_of::<LetterEntry>()
        );
        assert!(bytes < if replayed { 320 } else { 200 }, "{bytes} bytes for each letter");
        assert_eq!(index.after(None).count(), 1_000_000);
        kept.push(index);
    }
}
