//! Lists waiting messages on the dispatch thread, and carries out requests for single messages. The reply is sent
//! when the change is durable.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use redrive_core::{Meta, Reason, Time};
use tokio::sync::oneshot;

use crate::dispatch::{Machine, Withdrawn};
use crate::engine::{
    Claimed, Delivery, Engine, EngineError, Event, Letter, PendingAt, PendingMessage, PendingScan,
    PendingState, Settlement, Ticket, Verdict,
};

/// The sender for the reply.
pub(crate) type Reply = oneshot::Sender<Result<Steered, EngineError>>;

/// How long an engine at rest may take to make something durable.
const AT_REST_MAX: Duration = Duration::from_secs(30);
const AT_REST_STEP: Duration = Duration::from_micros(200);

/// A request for one waiting message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Steer {
    /// Make its next attempt now instead of at its due time.
    RetryNow,
    /// Dead-letter it with the reason `cancelled`.
    Cancel,
    /// Turn a message that a replay put back into its former letter.
    Recall(FormerLetter),
}

/// The state of a letter before a replay put it back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FormerLetter {
    reason: Reason,
    dead_at: Time,
    meta: Meta,
}

impl FormerLetter {
    pub(crate) fn of(letter: &Letter) -> Self {
        // The engine may have reset the attempts for the replay, so also count those in the history.
        let attempts = letter.history.attempts();
        let before = attempts.iter().rev().zip(attempts.iter().rev().skip(1));
        let last_life = 1 + before.take_while(|(later, earlier)| earlier.number < later.number).count();
        let counted = attempts.iter().rev().take(last_life).filter(|attempt| attempt.counted).count() as u32;
        let attempts = letter.meta.attempts.max(counted);
        Self { reason: letter.reason, dead_at: letter.dead_at, meta: Meta { attempts, ..letter.meta } }
    }

    /// Restores the letter. Being put back once more counts as a replay; if the message was attempted since, it died
    /// now.
    pub(crate) fn settlement(self, delivery: Delivery, now: Time) -> Settlement {
        let Meta { attempts, uncounted, replays, .. } = delivery.meta;
        let (meta, at) = if attempts == 0 && uncounted == 0 {
            (Meta { replays, ..self.meta }, self.dead_at)
        } else {
            (Meta { deferred: false, ..delivery.meta }, now)
        };
        let verdict = Verdict::Dead { reason: self.reason, meta, at };
        Settlement { delivery, verdict, attempt: None }
    }
}

/// The result of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Steered {
    /// The change is durable.
    Done,
    /// A handler runs, or its verdict is being written: nothing was changed.
    InFlight,
    /// It does not wait for a due time.
    Ready,
    /// It waits behind an earlier message of its key.
    KeyWait,
    /// It may have killed the process and waits for its turn to run alone.
    Suspect,
    /// It no longer exists, or waits elsewhere by now.
    NotThere,
}

/// A part of the pending messages, as listings go through them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Part {
    /// Messages that wait in the engine.
    Waiting(PendingState),
    /// Messages that were taken and hold no permit.
    Unstarted,
    /// Messages that hold a permit.
    Started,
}

/// Where the message with an id was found without a scan.
#[derive(Clone, Copy, Debug)]
pub(crate) enum FoundMessages {
    /// Its handler runs.
    Runs,
    /// It waits in the engine, in place, or for its turn.
    Waits(PendingAt),
    /// The engine would know where a message with this id waits, and none does; it may be ready.
    NotWaiting,
    /// The engine does not remember ids.
    Unknown,
}

/// Replies that wait until their change is durable.
#[derive(Debug, Default)]
pub(crate) struct DurableAnswers {
    decided: Vec<Reply>,
    given: VecDeque<(Ticket, Reply)>,
}

impl DurableAnswers {
    /// The requests decided since the last call were given to the engine.
    pub(crate) fn given(&mut self, ticket: Ticket) {
        self.given.extend(self.decided.drain(..).map(|reply| (ticket, reply)));
    }

    pub(crate) fn durable(&mut self, ticket: Ticket) {
        while let Some((_, reply)) = self.given.pop_front_if(|(given, _)| *given <= ticket) {
            // The caller may be gone.
            let _ = reply.send(Ok(Steered::Done));
        }
    }

    /// Carries out a request about one message.
    pub(crate) fn steer(
        &mut self,
        (at, how): (PendingAt, Steer),
        reply: Reply,
        machine: &mut Machine,
        engine: &mut dyn Engine,
        now: Time,
    ) {
        match taken(at, how, machine, engine, now) {
            Ok(Ok(delivery)) => {
                match how {
                    Steer::RetryNow => machine.make_due(delivery, now),
                    Steer::Cancel => machine.cancel(delivery, now),
                    Steer::Recall(former) => machine.recall(former.settlement(delivery, now)),
                }
                self.decided.push(reply);
            }
            Ok(Err(refused)) => drop(reply.send(Ok(refused))),
            Err(error) => drop(reply.send(Err(error))),
        }
    }
}

/// Takes the delivery to settle, or returns why that is not possible.
fn taken(
    at: PendingAt,
    how: Steer,
    machine: &mut Machine,
    engine: &mut dyn Engine,
    now: Time,
) -> Result<Result<Delivery, Steered>, EngineError> {
    let is_it = |delivery: &Delivery| delivery.receipt.number() == at.number;
    if how == Steer::RetryNow
        && let Some(unstarted) = machine.unstarted().find(|delivery| is_it(delivery))
    {
        let is_suspect = unstarted.suspect.is_some();
        return Ok(Err(if is_suspect { Steered::Suspect } else { Steered::Ready }));
    }
    match machine.withdraw(at.number) {
        Withdrawn::Taken(delivery) => return Ok(Ok(*delivery)),
        Withdrawn::Running => return Ok(Err(Steered::InFlight)),
        Withdrawn::NotHere => {}
    }
    match claimed(at, how, engine, now)? {
        // Releasing it without a verdict keeps its suspicion.
        Ok(delivery) if how == Steer::RetryNow && delivery.suspect.is_some() => {
            machine.let_go(delivery);
            Ok(Err(Steered::Suspect))
        }
        claimed => Ok(claimed),
    }
}

fn claimed(
    at: PendingAt,
    how: Steer,
    engine: &mut dyn Engine,
    now: Time,
) -> Result<Result<Delivery, Steered>, EngineError> {
    match (how, at.state) {
        (Steer::RetryNow, PendingState::Ready) => return Ok(Err(Steered::Ready)),
        (Steer::RetryNow, PendingState::KeyWait) => return Ok(Err(Steered::KeyWait)),
        _ => {}
    }
    Ok(match engine.claim(&at, now)? {
        Claimed::Taken(delivery) => Ok(*delivery),
        Claimed::InFlight => Err(Steered::InFlight),
        Claimed::NotThere => Err(Steered::NotThere),
    })
}

/// Like [`DurableAnswers::steer`], for an engine that is not running. Polls it until the change is durable.
pub(crate) fn steer_at_rest(
    at: PendingAt,
    how: Steer,
    engine: &mut dyn Engine,
    now: Time,
) -> Result<Steered, EngineError> {
    let delivery = match claimed(at, how, engine, now)? {
        Ok(delivery) => delivery,
        Err(refused) => return Ok(refused),
    };
    let meta = Meta { deferred: false, ..delivery.meta };
    let is_suspect = delivery.suspect.is_some();
    let (verdict, steered) = match how {
        Steer::Recall(former) => (former.settlement(delivery.clone(), now).verdict, Steered::Done),
        Steer::RetryNow if is_suspect => (Verdict::Release, Steered::Suspect),
        Steer::RetryNow => (Verdict::Retry { due: now, meta }, Steered::Done),
        Steer::Cancel => (Verdict::Dead { reason: Reason::Cancelled, meta, at: now }, Steered::Done),
    };
    let given = engine.settle(vec![Settlement { delivery, verdict, attempt: None }])?;
    let until = Instant::now() + AT_REST_MAX;
    let mut events = Vec::new();
    while Instant::now() < until {
        engine.poll(&mut events)?;
        if events.drain(..).filter_map(Event::durable).any(|ticket| ticket >= given) {
            return Ok(steered);
        }
        std::thread::sleep(AT_REST_STEP);
    }
    Err(EngineError::Unavailable("it is not known whether the change was stored".to_owned()))
}

/// The messages of a part that the machine holds, by number.
pub(crate) fn held(part: Part, machine: &Machine, after: Option<(u64, u64)>, limit: usize) -> PendingScan {
    let mut found: Vec<PendingMessage> = match part {
        Part::Waiting(_) => Vec::new(),
        Part::Unstarted => machine.unstarted().map(|delivery| shown(delivery, PendingState::Ready)).collect(),
        Part::Started => machine.started().map(|delivery| shown(delivery, PendingState::InFlight)).collect(),
    };
    let scanned = found.len() as u64;
    found.retain(|message| after.is_none_or(|after| message.at.key > after));
    found.sort_unstable_by_key(|message| message.at.key);
    let next = found.get(limit).and(limit.checked_sub(1)).map(|last| found[last].at.key);
    found.truncate(limit);
    PendingScan { messages: found, next, scanned, unlisted: 0 }
}

fn shown(delivery: &Delivery, state: PendingState) -> PendingMessage {
    let number = delivery.receipt.number();
    PendingMessage {
        at: PendingAt { number, state, key: (number, 0) },
        message: delivery.message.clone(),
        meta: delivery.meta,
        history: delivery.history.clone(),
        due: delivery.due,
    }
}

/// Finds the message with this id, or else this number, among those that the machine holds.
pub(crate) fn find_held(id: &str, number: Option<u64>, machine: &Machine) -> Option<FoundMessages> {
    let by_id = |delivery: &&Delivery| delivery.message.id() == id;
    let by_number = |delivery: &&Delivery| Some(delivery.receipt.number()) == number;
    let all = || machine.started().chain(machine.unstarted());
    let number = all().find(by_id).or_else(|| all().find(by_number))?.receipt.number();
    if machine.runs(number) {
        return Some(FoundMessages::Runs);
    }
    let is_started = machine.started().any(|delivery| delivery.receipt.number() == number);
    let state = if is_started { PendingState::InFlight } else { PendingState::Ready };
    Some(FoundMessages::Waits(PendingAt { number, state, key: (number, 0) }))
}

/// Where the message with this id waits, as far as the engine knows without a scan.
pub(crate) fn locate(id: &str, engine: &mut dyn Engine) -> Result<FoundMessages, EngineError> {
    match engine.locate(id) {
        Ok(Some(at)) => Ok(FoundMessages::Waits(at)),
        Ok(None) => Ok(FoundMessages::NotWaiting),
        Err(EngineError::NotRemembered) => Ok(FoundMessages::Unknown),
        Err(error) => Err(error),
    }
}
