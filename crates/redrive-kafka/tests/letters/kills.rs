//! A process with a running replay is killed again and again: every letter is published once.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::time::Duration;

use redrive::internal::engine::{LetterState, ReplayAnswer};
use redrive_core::SplitMix64;
use redrive_kafka::letters::KafkaLetters;

use crate::fixture::{Fixture, NOW, job};

const JOB: u64 = 77;

/// Environment variable with the parameters of the child, in one line.
const TOLD: &str = "REDRIVE_LETTERS_CHILD";

fn kills() -> usize {
    std::env::var("REDRIVE_REPLAY_KILLS").ok().and_then(|kills| kills.parse().ok()).unwrap_or(20)
}

#[test]
fn a_replay_that_is_killed_twenty_times_publishes_every_letter_once() {
    let seed: u64 = match std::env::var("REDRIVE_SEED") {
        Ok(seed) => seed.parse().unwrap(),
        Err(_) => u64::from(std::process::id()) << 20 | u64::from(NOW.as_millis() as u32 >> 12),
    };
    println!("REDRIVE_SEED={seed}");
    let mut source = SplitMix64::new(seed);
    let mut random = move |below: u64| (source.draw() >> 11) % below;
    let fixture = Fixture::new("kills", 2);
    let numbers = fixture.park_many(2, 1_500);
    let told = format!(
        "{} {} {} {}",
        fixture.cluster.brokers[0],
        fixture.cluster.group,
        fixture.pipeline.name,
        fixture.cluster.state_dir.join("child").display()
    );
    let (mut inside, mut before, kills) = (0, 0, kills());
    for _ in 0..kills {
        let mut child = child(&told);
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        // Some die while they start, most while they replay.
        if random(5) == 0 {
            std::thread::sleep(Duration::from_millis(random(400)));
            before += 1;
        } else {
            let parts = lines.by_ref().map_while(Result::ok).filter(|line| line == "part");
            let wanted = random(12) as usize;
            let seen = parts.take(wanted).count();
            assert_eq!(seen, wanted, "the child did not come so far");
            std::thread::sleep(Duration::from_micros(random(30_000)));
        }
        child.kill().unwrap();
        child.wait().unwrap();
        let over = lines.map_while(Result::ok).any(|line| line == "over");
        inside += usize::from(!over);
    }
    let last = child(&told).wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&last.stdout).into_owned();
    assert!(last.status.success() && said.contains("over"), "{said}");
    let (mut committed, mut all) = (0, 0);
    fixture.read(&fixture.topics.replay, |_| committed += 1);
    fixture.read_as(&fixture.topics.replay, "read_uncommitted", |_| all += 1);
    println!("killed {kills} times, {before} before it began, {inside} before it was over");
    println!("{} copies were written in transactions that never were committed", all - committed);

    let mut published: BTreeMap<u64, u32> = BTreeMap::new();
    for (_, copy) in fixture.copies(&fixture.topics.replay) {
        assert_eq!((copy.job, copy.meta.replays), (Some(JOB), 1));
        *published.entry(copy.origin.number()).or_default() += 1;
    }
    let once: BTreeMap<u64, u32> = numbers.iter().map(|number| (*number, 1)).collect();
    assert_eq!(published, once);
    let letters = fixture.letters();
    let standings = letters.letter_standings(JOB, &numbers).unwrap();
    let in_job = |standing: &redrive::internal::engine::LetterStanding| {
        standing.state == LetterState::Replaying && standing.in_job && standing.is_last_job
    };
    assert!(standings.iter().all(|standing| standing.as_ref().is_some_and(in_job)));
}

fn child(told: &str) -> std::process::Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "kills::child_of_the_kills", "--ignored", "--nocapture"])
        .env(TOLD, told)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

/// Resumes the job from the first letter, fifteen at a time, as a job that has lost its progress would.
#[test]
#[ignore = "the child of another test"]
fn child_of_the_kills() {
    let told = std::env::var(TOLD).expect("started by its parent");
    let told: Vec<&str> = told.split(' ').collect();
    let dir = std::path::Path::new(told[3]);
    let mut cluster = crate::broker::cluster(dir);
    (cluster.brokers, cluster.group) = (vec![told[0].to_owned()], told[1].to_owned());
    let pipeline = crate::broker::pipeline(told[2]);
    let topics = redrive_kafka::topics::Topics::of(&pipeline);
    let mut letters = KafkaLetters::open(&cluster, &pipeline, &topics).unwrap();
    assert!(letters.wait_until_loaded(std::time::Instant::now() + crate::fixture::LIMIT));
    let say = |what: &str| {
        println!("\n{what}");
        std::io::stdout().flush().unwrap();
    };
    let all = letters.letters(None, None, 10_000).unwrap();
    let left: Vec<u64> = all.iter().map(|letter| letter.id).collect();
    for part in left.chunks(15) {
        let answers = letters.replay(&job(JOB), part, NOW).unwrap();
        assert!(
            answers.iter().all(|a| matches!(a, ReplayAnswer::Replayed | ReplayAnswer::Already)),
            "{answers:?}"
        );
        say("part");
    }
    say("over");
}
