//! What the victim does until it is killed: everything a store can do, in an order that follows from a seed.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use redrive::internal::engine::embedded::{Embedded, Tuning, dir::EmbeddedStore};
use redrive::internal::engine::ingest::IngestAnswer;
use redrive::internal::engine::{
    Deliver, Delivery, EngineError, Event, Ingest, IngestError, KeepLetters, LetterChange, LetterState,
    NewMessage, Query, ReplayAnswer, ReplayJob, ReplayTarget, Ticket,
};
use tokio::sync::oneshot::{Receiver, error::TryRecvError};

use crate::acks::{AckFile, Line, Step};
use crate::plan;
use crate::settle;
use redrive_core::SplitMix64;

/// Beyond this number of deliveries in hand or offers in progress, the workload settles before it takes or offers more.
const OUT_MAX: usize = 64;

/// One pipeline in use.
struct Lane {
    name: &'static str,
    engine: EmbeddedStore,
    ingest: Arc<dyn Ingest>,
    hands: Vec<Delivery>,
    tickets: VecDeque<(Ticket, Vec<(u64, Step)>)>,
    answers: Vec<(Vec<String>, Receiver<IngestAnswer>)>,
}

/// Why a step failed.
enum StepFailure {
    /// The storage failed, so the store has stopped.
    Stopped(EngineError),
    /// Letters could not be read. The caller gets the error, and the store goes on.
    Unread(EngineError),
}

impl From<EngineError> for StepFailure {
    fn from(error: EngineError) -> Self {
        Self::Stopped(error)
    }
}

#[derive(Debug)]
pub struct Work<'a> {
    pub dir: &'a Path,
    pub acks: &'a Path,
    pub seed: u64,
    /// 0: until it is killed.
    pub steps: u64,
    /// The pipelines that are opened and used.
    pub pipelines: &'a [&'static str],
    pub tuning: Tuning,
}

impl Work<'_> {
    /// Runs the workload. A storage failure is returned as an error, after which nothing is acknowledged.
    pub fn run(&self) -> Result<(), EngineError> {
        let mut acks = AckFile::open(self.acks).expect("the file of acknowledgements opens");
        let mut random = SplitMix64::new(self.seed);
        // Ids differ between runs on the same directory.
        let run = plan::now().as_millis();
        let embedded = Embedded::open_with(self.dir, self.tuning)?;
        let mut lanes = Vec::new();
        for &name in self.pipelines {
            let engine = embedded.store(name, plan::options(name))?;
            let ingest = engine.ingest().expect("the embedded engine takes messages in");
            let (hands, tickets, answers) = (Vec::new(), VecDeque::new(), Vec::new());
            lanes.push(Lane { name, engine, ingest, hands, tickets, answers });
        }
        acks.say(&Line::Opened);
        let mut step = 0;
        while self.steps == 0 || step < self.steps {
            step += 1;
            let lane = &mut lanes[random.below(self.pipelines.len() as u64) as usize];
            match lane.step(&mut random, &format!("{run}-{step}"), &mut acks) {
                Ok(()) => {}
                Err(StepFailure::Unread(error)) => return Err(error),
                Err(StepFailure::Stopped(error)) => {
                    lane.must_be_stopped();
                    return Err(error);
                }
            }
        }
        for lane in &mut lanes {
            lane.finish(&mut acks)?;
        }
        acks.say(&Line::Closed);
        Ok(())
    }
}

impl Lane {
    fn step(&mut self, random: &mut SplitMix64, id: &str, acks: &mut AckFile) -> Result<(), StepFailure> {
        self.hear(acks)?;
        match random.below(20) {
            0..4 if self.answers.len() < OUT_MAX => self.offer(random, id, acks),
            4..10 if self.hands.len() < OUT_MAX => self.take(random, acks)?,
            10..17 => self.settle(random, acks)?,
            17 => {
                let replayed = self.replay(random, acks);
                self.asked(replayed, acks)?;
            }
            18 => {
                let discarded = self.discard(random, acks);
                self.asked(discarded, acks)?;
            }
            _ => std::thread::sleep(Duration::from_micros(random.below(2000))),
        }
        Ok(self.hear(acks)?)
    }

    /// Classifies an error: a failed write has stopped the store by now, which `hear` reports; a failed read has not.
    fn asked(&mut self, result: Result<(), EngineError>, acks: &mut AckFile) -> Result<(), StepFailure> {
        let Err(error) = result else { return Ok(()) };
        self.hear(acks)?;
        match error {
            // The index is being rebuilt; a later query gets an answer.
            EngineError::Unavailable(_) => Ok(()),
            error => Err(StepFailure::Unread(error)),
        }
    }

    /// Writes down what the engine has acknowledged since the last call.
    fn hear(&mut self, acks: &mut AckFile) -> Result<(), EngineError> {
        let mut events = Vec::new();
        self.engine.poll(&mut events)?;
        let name = self.name;
        for durable in events.into_iter().filter_map(Event::durable) {
            while let Some((_, steps)) = self.tickets.pop_front_if(|(ticket, _)| *ticket <= durable) {
                for (seq, step) in steps {
                    acks.say(&line(name, seq, step, true));
                }
            }
        }
        let mut failed = None;
        self.answers.retain_mut(|(ids, answer)| match answer.try_recv() {
            Err(TryRecvError::Empty) => true,
            Err(TryRecvError::Closed) => {
                failed = Some("no answer".to_owned());
                false
            }
            Ok(Ok(accepted)) => {
                assert_eq!(accepted.len(), ids.len());
                for (accepted, id) in accepted.into_iter().zip(ids) {
                    let redrive::internal::engine::Accepted::New { seq } = accepted else {
                        panic!("{id}: a duplicate")
                    };
                    acks.say(&Line::Accepted { pipeline: name.into(), seq, id: id.clone() });
                }
                false
            }
            Ok(Err(IngestError::DiskFull { .. } | IngestError::Busy)) => false,
            Ok(Err(error)) => {
                failed = Some(error.to_string());
                false
            }
        });
        failed.map_or(Ok(()), |error| Err(EngineError::Storage(error)))
    }

    fn offer(&mut self, random: &mut SplitMix64, id: &str, acks: &mut AckFile) {
        let now = plan::now();
        let mut batch = Vec::new();
        let mut ids = Vec::new();
        for n in 0..=random.below(8) {
            let id = format!("{}-{id}-{n}", self.name);
            let key = (self.name == "keyed").then(|| format!("k{}", random.below(6)));
            let due = (key.is_none() && random.chance(15)).then(|| now.plus(Duration::from_millis(10)));
            batch.push(NewMessage { message: plan::message(&id, key.as_deref()), due });
            acks.say(&Line::Offer { pipeline: self.name.into(), id: id.clone(), key });
            ids.push(id);
        }
        self.answers.push((ids, self.ingest.submit(batch, now)));
    }

    fn take(&mut self, random: &mut SplitMix64, acks: &mut AckFile) -> Result<(), EngineError> {
        let first = self.hands.len();
        self.engine.take(plan::now(), 1 + random.below(12) as usize, &mut self.hands)?;
        for delivery in &self.hands[first..] {
            let (seq, id) = (delivery.receipt.seq, delivery.message.id().to_owned());
            acks.say(&Line::Taken { pipeline: self.name.into(), seq, id });
        }
        Ok(())
    }

    fn settle(&mut self, random: &mut SplitMix64, acks: &mut AckFile) -> Result<(), EngineError> {
        let count = (random.below(12) as usize + 1).min(self.hands.len());
        let now = plan::now();
        let mut steps = Vec::new();
        let mut released = Vec::new();
        let mut batch = Vec::new();
        for delivery in self.hands.drain(..count) {
            let seq = delivery.receipt.seq;
            let (step, settlement) = settle::any(random, delivery, now);
            batch.push(settlement);
            if step == Step::Released {
                released.push(seq);
            } else {
                acks.say(&line(self.name, seq, step, false));
                steps.push((seq, step));
            }
        }
        let ticket = self.engine.settle(batch)?;
        self.tickets.push_back((ticket, steps));
        for seq in released {
            acks.say(&line(self.name, seq, Step::Released, true));
        }
        Ok(())
    }

    fn replay(&mut self, random: &mut SplitMix64, acks: &mut AckFile) -> Result<(), EngineError> {
        let now = plan::now();
        // An earlier process may have drawn the same random numbers, so mix in the time to get a new job.
        let job = random.draw() ^ now.as_millis().rotate_left(40);
        let ids = self.some_letters(LetterState::Open, random)?;
        for seq in &ids {
            acks.say(&line(self.name, *seq, Step::Replay { job }, false));
        }
        let due = now.plus(Duration::from_millis(random.below(10)));
        let request = ReplayJob { id: job, due, force: true, target: ReplayTarget::Pipeline };
        let answers = self.engine.replay(&request, &ids, now.into())?;
        for (seq, answer) in ids.iter().zip(&answers) {
            assert_eq!(*answer, ReplayAnswer::Replayed, "{} #{seq}", self.name);
            acks.say(&line(self.name, *seq, Step::Replay { job }, true));
        }
        let again = self.engine.replay(&request, &ids, now.into())?;
        assert!(again.iter().all(|answer| *answer == ReplayAnswer::Already), "a job replays once: {again:?}");
        self.hear(acks)
    }

    /// Discards some open letters, or undoes some discards.
    fn discard(&mut self, random: &mut SplitMix64, acks: &mut AckFile) -> Result<(), EngineError> {
        let (state, change, step) = if random.chance(70) {
            (LetterState::Open, LetterChange::Discard, Step::Discard)
        } else {
            (LetterState::Discarded, LetterChange::Undo, Step::Undo)
        };
        let ids = self.some_letters(state, random)?;
        for seq in &ids {
            acks.say(&line(self.name, *seq, step, false));
        }
        let changed = self.engine.change_letters(&change, &ids, plan::now().into())?;
        assert!(changed.iter().all(|changed| *changed), "a letter that was just listed can be changed");
        for seq in ids {
            acks.say(&line(self.name, seq, step, true));
        }
        self.hear(acks)
    }

    fn some_letters(&mut self, state: LetterState, random: &mut SplitMix64) -> Result<Vec<u64>, EngineError> {
        let mut letters = self.engine.letters(Some(state), None, 24)?;
        letters.retain(|_| random.chance(50));
        Ok(letters.into_iter().map(|letter| letter.id).collect())
    }

    fn finish(&mut self, acks: &mut AckFile) -> Result<(), EngineError> {
        while !self.tickets.is_empty() || !self.answers.is_empty() {
            self.hear(acks)?;
            std::thread::sleep(Duration::from_micros(100));
        }
        acks.say(&Line::Closing { pipeline: self.name.into() });
        self.engine.close()
    }

    /// Checks that nothing is acknowledged after the storage has failed.
    fn must_be_stopped(&mut self) {
        let message = NewMessage { message: plan::message("too-late", Some("k")), due: None };
        let answer = self.ingest.submit(vec![message], plan::now()).blocking_recv();
        assert!(!matches!(answer, Ok(Ok(_))), "accepted after the storage had failed");
        // An answer may arrive shortly before the engine itself reports the failure.
        let stopped = (0..1000).any(|_| {
            std::thread::sleep(Duration::from_millis(1));
            self.engine.poll(&mut Vec::new()).is_err()
        });
        assert!(stopped, "the engine goes on after the storage has failed");
    }
}

fn line(pipeline: &str, seq: u64, step: Step, acknowledged: bool) -> Line {
    Line::Step { pipeline: pipeline.into(), seq, step, acknowledged }
}
