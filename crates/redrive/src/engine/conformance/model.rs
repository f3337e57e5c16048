//! All messages an engine has accepted, and what follows from its answers.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use redrive_core::{Message, Meta, Reason, Time};

use super::check::{Check, Violation, violation};
use super::situation::{LetterModel, LineMembership, Maybe, Position, Situation, Tracked, Wait};
use crate::engine::history::History;
use crate::engine::import::ForeignLetter;
use crate::engine::ingest::{Accepted, NewMessage};
use crate::engine::letter::{Letter, LetterState};
use crate::engine::pending::{PendingAt, PendingMessage, PendingState};
use crate::engine::seam::{Delivery, Settlement, StoreOptions, Ticket, Verdict};

#[derive(Debug)]
pub(super) struct Model {
    pub options: StoreOptions,
    pub messages: BTreeMap<u64, Tracked>,
    /// Offered, but the process died before the answer came.
    pub unanswered: Vec<(NewMessage, LineMembership)>,
    /// The number and time of the latest acceptance of each id.
    seen: BTreeMap<String, (u64, Time)>,
    /// The latest time that was ever passed to the engine.
    pub high_water: Time,
    pub gated: bool,
    pub numbers_rise: bool,
    /// See [`super::Harness::may_leave_twins`].
    pub twins: bool,
}

impl Model {
    pub(super) fn new(options: StoreOptions) -> Self {
        Self {
            options,
            messages: BTreeMap::new(),
            unanswered: Vec::new(),
            seen: BTreeMap::new(),
            high_water: Time::ZERO,
            gated: false,
            numbers_rise: true,
            twins: false,
        }
    }

    pub(super) fn standing_of(new: &NewMessage) -> LineMembership {
        if new.due.is_some() { LineMembership::NOT_JOINED } else { LineMembership::JOINED }
    }

    /// Records the answer to one offered message.
    pub(super) fn accepted(
        &mut self,
        new: &NewMessage,
        membership: LineMembership,
        answer: Accepted,
        now: Time,
    ) -> Check {
        let id = new.message.id().to_owned();
        if let Accepted::Duplicate { seq } = answer
            && !self.messages.contains_key(&seq)
        {
            self.adopt_unanswered(seq, new.message.id(), None)?;
        }
        let window = self.options.dedup.unwrap_or(Duration::ZERO);
        let known = self.seen.get(&id).copied();
        match (answer, known) {
            (Accepted::Duplicate { seq }, Some((known, at))) => {
                if seq != known || self.options.dedup.is_none() || now.since(at) >= window * 2 {
                    return violation(
                        "dedup",
                        format!("{id} was called a duplicate of {seq}, known is {known} of {at:?}"),
                    );
                }
            }
            (Accepted::Duplicate { seq }, None) => {
                return violation("dedup", format!("{id} is new, but was called a duplicate of {seq}"));
            }
            (Accepted::New { seq }, known) => {
                if let Some((first, at)) = known
                    && self.high_water.since(at) < window
                {
                    return violation(
                        "dedup",
                        format!("{id} was accepted as {seq}, and as {first} {at:?} before"),
                    );
                }
                let taken = if self.numbers_rise {
                    self.messages.last_key_value().is_some_and(|(last, _)| *last >= seq)
                } else {
                    self.messages.contains_key(&seq)
                };
                if taken {
                    return violation("ingest", format!("{seq} is not above every earlier number"));
                }
                let high_water = self.high_water;
                self.unanswered.retain(|(lost, _)| {
                    lost.message.id() != id || high_water.since(lost.message.created()) >= window
                });
                self.insert(seq, new, membership, now);
            }
        }
        Ok(())
    }

    fn insert(&mut self, seq: u64, new: &NewMessage, membership: LineMembership, now: Time) {
        let message = new.message.clone();
        let latest = self.seen.entry(message.id().to_owned()).or_insert((seq, now));
        *latest = (*latest).max((seq, now));
        let wait = new.due.map_or(Wait::FRESH, |due| Wait::until(due, self.high_water));
        let meta = Meta { created: message.created(), deadline: message.deadline(), ..Meta::default() };
        let now = Situation { at: Position::Waiting(wait), meta, history: History::default(), letter: None };
        self.messages.insert(
            seq,
            Tracked {
                message,
                edits: Vec::new(),
                now,
                maybe: None,
                membership,
                twin: false,
                claimed: false,
                shown_early: None,
            },
        );
    }

    /// Records that a letter was imported.
    pub(super) fn imported(&mut self, seq: u64, letter: ForeignLetter, now: Time) -> Check {
        let last = self.messages.last_key_value().map(|(last, _)| *last);
        if self.messages.contains_key(&seq) || (self.numbers_rise && last >= Some(seq)) {
            return violation("import", format!("{seq} is a number that was given before, or below one"));
        }
        let dead = LetterModel {
            state: LetterState::Open,
            reason: Reason::Imported,
            dead_at: now,
            job: None,
            jobs: BTreeSet::new(),
        };
        let ForeignLetter { message, meta, history, .. } = letter;
        let now = Situation { at: Position::Letter, meta, history, letter: Some(dead) };
        self.messages.insert(
            seq,
            Tracked {
                message,
                edits: Vec::new(),
                now,
                maybe: None,
                membership: LineMembership::JOINED,
                twin: false,
                claimed: false,
                shown_early: None,
            },
        );
        Ok(())
    }

    /// Adopts a message that was accepted without an answer, when the engine shows it for the first time.
    fn adopt_unanswered(&mut self, seq: u64, id: &str, message: Option<&Message>) -> Check {
        let fits = |new: &NewMessage| new.message.id() == id && message.is_none_or(|m| *m == new.message);
        let Some(at) = self.unanswered.iter().position(|(new, _)| fits(new)) else {
            return violation("conservation", format!("{seq} ({id}) was never accepted"));
        };
        let (new, membership) = self.unanswered.remove(at);
        let accepted_at = new.message.created();
        self.insert(seq, &new, membership, accepted_at);
        Ok(())
    }

    /// The number and time of the latest acceptance of an id.
    pub(super) fn latest(&self, id: &str) -> Option<(u64, Time)> {
        self.seen.get(id).copied()
    }

    pub(super) fn tracked(&mut self, seq: u64) -> Result<&mut Tracked, Violation> {
        self.messages
            .get_mut(&seq)
            .ok_or_else(|| Violation::new("conservation", format!("{seq} was never accepted")))
    }

    /// Checks and records that the engine hands out a message.
    pub(super) fn started(&mut self, delivery: &Delivery, now: Time) -> Check {
        let seq = delivery.receipt.seq;
        if !self.messages.contains_key(&seq) {
            self.adopt_unanswered(seq, delivery.message.id(), Some(&delivery.message))?;
        }
        let tracked = self.tracked(seq)?;
        if tracked.message != delivery.message {
            return violation("round_trip", format!("{seq} came back as another message"));
        }
        if tracked.twin {
            return Ok(());
        }
        let before = tracked.clone();
        if !tracked.keep(|situation| situation.waiting().is_some()) {
            let what = format!("{seq} was handed out, but is {:?}", before.now.at);
            let in_flight = before.candidates().any(Situation::is_in_flight);
            return violation(if in_flight { "handed_out_once" } else { "no_resurrection" }, what);
        }
        if !tracked
            .keep(|s| s.waiting().is_some() && s.meta == delivery.meta && s.history == delivery.history)
        {
            let got = (delivery.meta, delivery.history.attempts());
            return violation("round_trip", format!("{seq} came as {got:?}, known is {before:?}"));
        }
        // Making a message due changes nothing else about it.
        let due_fits = |wait: &Wait| match (wait.due, delivery.due) {
            (None, None) => true,
            (Some(due), Some(told)) => due <= told && told <= wait.due_latest,
            _ => false,
        };
        if !tracked.keep(|s| s.waiting().is_some_and(due_fits)) {
            let what = format!("{seq} says it was due {:?}, but waits as {:?}", delivery.due, tracked.now.at);
            return violation("round_trip", what);
        }
        let Position::Waiting(wait) = tracked.now.at else { unreachable!("kept because it waits") };
        if wait.due.is_some_and(|due| due > now) && !wait.came_due {
            return violation("never_early", format!("{seq} started at {now:?}, due is {:?}", wait.due));
        }
        tracked.maybe = None;
        tracked.claimed = false;
        tracked.now.at = Position::InFlight(Wait { came_due: true, ..wait });
        self.check_line(seq)?;
        self.check_doom(delivery)
    }

    /// Checks a listed message against what is known about it.
    pub(super) fn check_pending(&mut self, shown: &PendingMessage) -> Check {
        let PendingAt { number, state, .. } = shown.at;
        if !self.messages.contains_key(&number) {
            self.adopt_unanswered(number, shown.message.id(), Some(&shown.message))?;
        }
        let tracked = self.tracked(number)?;
        let before = tracked.clone();
        if tracked.message != shown.message {
            return violation("pending", format!("{number} is listed as another message"));
        }
        let fits = |s: &Situation| {
            s.waiting().is_some_and(|wait| match state {
                PendingState::Ready => wait.due.is_none(),
                PendingState::Held | PendingState::Delayed => {
                    wait.due.is_some() && state == PendingState::timed(s.meta.deferred)
                }
                PendingState::KeyWait => true,
                PendingState::InFlight => false,
            }) && s.meta == shown.meta
                && s.history == shown.history
        };
        if !tracked.keep(fits) {
            return violation("pending", format!("listed is {shown:?}, known is {before:?}"));
        }
        Ok(())
    }

    /// Checks and records a claim: whatever the message waited for, it is now in flight and does not run.
    pub(super) fn claimed(&mut self, delivery: &Delivery) -> Check {
        let tracked = self.tracked(delivery.receipt.seq)?;
        let before = tracked.clone();
        if tracked.twin {
            return Ok(());
        }
        let fits =
            |s: &Situation| s.waiting().is_some() && s.meta == delivery.meta && s.history == delivery.history;
        if !tracked.keep(fits) || tracked.message != delivery.message {
            return violation("pending", format!("claimed was {delivery:?}, known is {before:?}"));
        }
        if let Position::Waiting(wait) = tracked.now.at {
            tracked.maybe = None;
            tracked.claimed = true;
            tracked.now.at = Position::InFlight(wait);
        }
        Ok(())
    }

    /// Records a verdict: it may hold from now on, and must hold once its ticket is durable.
    pub(super) fn settled(&mut self, settlement: &Settlement, ticket: Ticket) {
        let high_water = self.high_water;
        let Some(tracked) = self.messages.get_mut(&settlement.delivery.receipt.seq) else { return };
        if tracked.twin {
            return;
        }
        let Position::InFlight(wait) = tracked.now.at else { return };
        let mut then = tracked.now.clone();
        if let Some(attempt) = &settlement.attempt {
            then.history = then.history.with(attempt);
        }
        match settlement.verdict {
            Verdict::Release => then.at = Position::Waiting(wait),
            Verdict::Done => {
                then.at = Position::Done;
                if let Some(letter) = &mut then.letter {
                    letter.state = LetterState::Succeeded;
                }
            }
            Verdict::Retry { due, meta } => {
                then.at = Position::Waiting(Wait::until(due, high_water));
                then.meta = meta;
            }
            Verdict::Dead { reason, meta, at } => {
                then.at = Position::Letter;
                then.meta = meta;
                let before = then.letter.take();
                let job = before.as_ref().and_then(|letter| letter.job);
                let jobs = before.map(|letter| letter.jobs).unwrap_or_default();
                then.letter = Some(LetterModel { state: LetterState::Open, reason, dead_at: at, job, jobs });
            }
        }
        tracked.maybe = Some(Maybe { ticket: Some(ticket), then });
    }

    /// Records that this batch and all before it are durable.
    pub(super) fn durable(&mut self, ticket: Ticket) {
        let high_water = self.high_water;
        for tracked in self.messages.values_mut() {
            if tracked.maybe.as_ref().is_some_and(|maybe| maybe.ticket.is_some_and(|given| given <= ticket)) {
                tracked.resolve();
                renew(&mut tracked.now, high_water);
            }
            tracked.shown_early = tracked.shown_early.filter(|early| *early > ticket);
        }
    }

    /// Records a crash: messages in flight wait again, and verdicts that were not durable may hold or not.
    pub(super) fn crashed(&mut self) {
        self.gated = false;
        for tracked in self.messages.values_mut() {
            if let Position::InFlight(wait) = tracked.now.at {
                tracked.now.at = Position::Waiting(wait);
            }
            if self.twins && tracked.may_be_twins() {
                tracked.maybe = None;
                tracked.twin = true;
            }
            tracked.shown_early = None;
            if let Some(maybe) = &mut tracked.maybe {
                maybe.ticket = None;
                renew(&mut maybe.then, self.high_water);
            }
            if tracked.maybe.as_ref().is_some_and(|maybe| maybe.then == tracked.now) {
                tracked.maybe = None;
            }
            if tracked.membership.floating {
                // An engine may remember that it had joined its line, or let it join again.
                tracked.membership = LineMembership::NOT_JOINED;
            }
        }
    }

    /// Checks a listed letter against what is known about it.
    pub(super) fn check_letter(&mut self, shown: &Letter) -> Check {
        let tracked = self.tracked(shown.id)?;
        let before = tracked.clone();
        let settled = matches!(shown.state, LetterState::Open | LetterState::Discarded);
        let agrees = |s: &Situation| {
            s.letter.as_ref().is_some_and(|letter| {
                letter.state == shown.state
                    && letter.job == shown.job
                    && s.meta.replays == shown.meta.replays
                    && (!settled || (letter.reason, letter.dead_at) == (shown.reason, shown.dead_at))
                    && (!settled || (s.meta == shown.meta && s.history == shown.history))
            })
        };
        if tracked.twin && tracked.message == shown.message {
            return Ok(());
        }
        let edits_agree = tracked.edits.iter().map(|(edit, _)| edit).eq(&shown.edits);
        if !tracked.keep(agrees) || tracked.message != shown.message || !edits_agree {
            return violation("letters", format!("shown is {shown:?}, known is {before:?}"));
        }
        Ok(())
    }

    /// Checks the doom of a delivery: `key_blocked` requires a letter of its key that may be open, and is required if an earlier
    /// one certainly is.
    pub(super) fn check_doom(&self, delivery: &Delivery) -> Check {
        use crate::engine::seam::{AfterDead, DeliveryOrder};
        let blocking =
            self.options.ordering == DeliveryOrder::Key && self.options.after_dead == AfterDead::BlockKey;
        let mut must = false;
        let mut may = false;
        if let Some(key) = delivery.message.key()
            && blocking
        {
            let open = |s: &Situation| s.letter_state() == Some(LetterState::Open);
            for (seq, other) in self.messages.iter().filter(|(_, other)| other.is_key(key)) {
                must |= *seq < delivery.receipt.seq && !other.twin && other.candidates().all(open);
                may |= other.twin || other.candidates().any(open);
            }
        }
        match delivery.doomed {
            Some(Reason::KeyBlocked) if may => Ok(()),
            None if !must => Ok(()),
            doomed => violation("block_key", format!("{} came with doom {doomed:?}", delivery.receipt.seq)),
        }
    }
}

/// Pushes the due time behind everything read before it was written, as the writer may have done.
fn renew(situation: &mut Situation, high_water: Time) {
    if let Position::Waiting(Wait { due: Some(due), came_due: false, .. }) = situation.at {
        situation.at = Position::Waiting(Wait::until(due, high_water));
    }
}
