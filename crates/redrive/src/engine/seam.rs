//! The seam: an engine hands out deliveries and settles batches of verdicts.
//!
//! One thread owns an engine and calls it; only [`Ingest`] handles are shared. Key order, the delay of retries and the
//! states of letters are kept below the seam, because each engine stores what waits in its own way. What an outcome means
//! is decided above it.

#![warn(missing_docs)]

use std::sync::Arc;
use std::time::Duration;

use redrive_core::{GroupId, Message, Meta, Reason, Time};

use super::condition::Condition;
use super::edit::{EditAnswer, LetterEdit};
use super::erase::{EraseAnswer, EraseOrder, WipeProgress};
use super::groups::{GroupFigures, GroupMark, GroupMarks, Grouping};
use super::history::{Attempt, History};
use super::import::{ForeignLetter, ImportAnswer};
use super::ingest::Ingest;
use super::key_line::KeyLine;
use super::letter::{Letter, LetterChange, LetterScan, LetterStanding, LetterState, ReplayAnswer, ReplayJob};
use super::message_state::MessageState;
use super::pending::{PendingAt, PendingScan, PendingState};
use super::shared_records::SharedRecords;
use super::store_notice::{StoreNotice, Upkeep};

pub use super::error::EngineError;
pub use super::place::SourcePlace;

/// Whether messages of one key wait for each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Ordering {
    /// Messages of one key are delivered in any order.
    #[default]
    None,
    /// No later message of a key starts before an earlier one is terminal; the order is that of acceptance. A message
    /// that was ingested with a delay joins its key's line when it comes due, a letter when it is replayed.
    Key,
}

/// What becomes of a key's followers when one of its messages is dead.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum AfterDead {
    /// The next message of the key goes on.
    #[default]
    Continue,
    /// Followers are parked as `key_blocked` until the letters of the key are replayed or discarded.
    BlockKey,
}

/// Where the code runs that delivers messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Execution {
    /// In this process, which it can end: whatever was running when a process died is a suspect.
    #[default]
    InProcess,
    /// In another process or on another machine. No message can end this process, so nobody is ever suspected.
    Elsewhere,
}

/// How the process before this one ended, as far as somebody has seen it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum LastEnd {
    /// Nobody knows: unless it ended cleanly, whatever was running is a suspect.
    #[default]
    Unknown,
    /// Somebody ended it from outside: a person, a deployment, the machine going down. What was running is not suspected
    /// of that.
    FromOutside,
}

impl LastEnd {
    /// From what a supervisor knows: the signal that ended the process, and whether the system has killed it for lack of
    /// memory. Signals that others send are from outside: HUP, INT, QUIT, KILL and TERM. A process that aborts, runs into a
    /// fault of its memory or exits with a code has done that itself.
    pub const fn of(signal: Option<i32>, out_of_memory: bool) -> Self {
        match signal {
            Some(1 | 2 | 3 | 9 | 15) if !out_of_memory => Self::FromOutside,
            _ => Self::Unknown,
        }
    }
}

/// What an engine needs to know of a pipeline.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct StoreOptions {
    /// Whether messages of one key wait for each other.
    pub ordering: Ordering,
    /// What becomes of a key's followers when one of its messages is dead.
    pub after_dead: AfterDead,
    /// How long an ingested id is remembered; `None` turns deduplication off.
    pub dedup: Option<Duration>,
    /// How long what is in flight may take once somebody else wants it; `None` leaves it to the engine. Only engines that
    /// share their messages with other processes ask.
    pub drain: Option<Duration>,
    /// Where the code runs that delivers messages.
    pub execution: Execution,
    /// How the process before this one ended.
    pub last_end: LastEnd,
    /// Which letters belong together; their fingerprints are stored with them.
    pub grouping: Grouping,
    /// The resolved policy, to be stored with letters; see [`super::letter_options`].
    pub letter_options: Option<Arc<str>>,
}

/// Names one delivery towards the engine that handed it out. Opaque to everybody else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Receipt {
    /// A partition, where the engine has them.
    pub lane: u32,
    /// Counts the times the lane was gained; a receipt of an older epoch settles nothing.
    pub epoch: u32,
    /// The message's number in its pipeline: the same whatever lane it waits in by now.
    pub seq: u64,
    /// Where the engine keeps it.
    pub at: u64,
}

impl Receipt {
    /// Tells messages apart, whatever hand-out this is: a retry may come from another lane than the first attempt.
    pub const fn number(&self) -> u64 {
        self.seq
    }
}

/// A message handed out for an attempt, with what is known of earlier ones.
#[derive(Clone, Debug)]
pub struct Delivery {
    /// Names it towards the engine.
    pub receipt: Receipt,
    /// The message.
    pub message: Message,
    /// What is known of its attempts.
    pub meta: Meta,
    /// Its attempts.
    pub history: History,
    /// When it was due; `None` for a fresh message.
    pub due: Option<Time>,
    /// When the process first had it, if that was later than its creation: it waited for nobody else before.
    pub arrived: Option<Time>,
    /// The record it came from, for engines that read a topic.
    pub origin: Option<SourcePlace>,
    /// Set if it must not be started but settled as dead for this reason: its bytes are damaged, or its key is blocked.
    pub doomed: Option<Reason>,
    /// Set if it was running when a process died: it runs alone, and is announced before.
    pub suspect: Option<Box<Suspect>>,
}

/// What an engine knows of a delivery that may have killed the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Suspect {
    /// Unclean ends while it ran. The first one it may have shared with everything else that ran then; a further one is
    /// its own, since it was announced before it ran.
    pub crashes: u32,
    /// The first unclean end.
    pub first_crash: Option<Time>,
    /// The last unclean end.
    pub last_crash: Option<Time>,
}

/// Whether a suspect may run now, as far as its engine is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Announced {
    /// Whoever comes after this process will know that it ran.
    Yes,
    /// That is being written. Ask again when the engine has called.
    NotYet,
    /// It is not ours any more.
    Gone,
}

/// What shall become of a delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Delivered.
    Done,
    /// Wait until `due`, remembered as `meta`.
    Retry {
        /// Not before this time.
        due: Time,
        /// What is known of its attempts now.
        meta: Meta,
    },
    /// It is a dead letter.
    Dead {
        /// Why.
        reason: Reason,
        /// What is known of its attempts now.
        meta: Meta,
        /// When it was given up.
        at: Time,
    },
    /// It was not started, or its end does not matter: back to where it came from, nothing counted.
    Release,
}

impl Verdict {
    /// Whether it says that the process survived the message: it ran and came back, or ended without running. A pill that
    /// is convicted has not.
    pub const fn clears(&self) -> bool {
        !matches!(self, Self::Release | Self::Dead { reason: Reason::PoisonPill, .. })
    }
}

/// How many of `room` places go to due messages and how many to fresh ones, when both could fill it: half and half, the
/// odd place by turns. What one side leaves over, the other gets.
pub fn share(room: usize, due: usize, fresh: usize, odd_to_due: bool) -> (usize, usize) {
    let half = room / 2 + usize::from(odd_to_due && !room.is_multiple_of(2));
    let due_places = due.min(half.max(room.saturating_sub(fresh)));
    (due_places, fresh.min(room - due_places))
}

/// A verdict on its way to the store, with the record of the attempt that led to it.
#[derive(Clone, Debug)]
pub struct Settlement {
    /// What was handed out.
    pub delivery: Delivery,
    /// What shall become of it.
    pub verdict: Verdict,
    /// The attempt that led to it.
    pub attempt: Option<Attempt>,
}

/// Names a batch given to [`Engine::settle`]. Tickets become durable in the order they were given, except for those behind
/// one that cannot be stored for now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ticket(pub u64);

/// What an engine has to say between two calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// This batch and all before it are durable.
    Durable(Ticket),
    /// This batch is durable, and one before it is not: something of that one cannot be stored for now.
    DurableAlone(Ticket),
    /// Of the `all` parts of the pipeline's work, `owned` are done here from now on; others have the rest. An engine that
    /// has all of it need not say so.
    Share {
        /// Parts that are done here.
        owned: u32,
        /// All parts.
        all: u32,
    },
}

impl Event {
    /// The batch that is durable, if it is about one.
    pub const fn durable(self) -> Option<Ticket> {
        if let Self::Durable(ticket) = self { Some(ticket) } else { None }
    }
}

/// How many messages are in which state right now. The first five are a partition: every message that is not terminal is
/// in exactly one of them. docs/lifecycle.md says what each means.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Counts {
    /// May start, and waits for a free place.
    pub ready: u64,
    /// Waits for its due time, or has come due and waits for a free place.
    pub delayed: u64,
    /// Like delayed, but because it was deferred: see [`Meta::deferred`].
    pub held: u64,
    /// Waits behind an earlier message of its key.
    pub key_wait: u64,
    /// Handed out, and not durably settled.
    pub in_flight: u64,
    /// Of those in flight, the ones whose verdict was given.
    pub settling: Settling,
    /// Open letters.
    pub letters_open: u64,
    /// Letters that were put back and are not delivered yet.
    pub letters_replaying: u64,
    /// Letters that were delivered after a replay.
    pub letters_succeeded: u64,
    /// Letters that were given up.
    pub letters_discarded: u64,
    /// Letters whose content is gone for good.
    pub letters_erased: u64,
    /// How many messages were ever accepted by what is counted here; zero where messages enter elsewhere.
    pub accepted: u64,
    /// Keys whose order could not be kept, since the engine was opened. Always zero on engines with one owner.
    pub key_order_voided: u64,
}

impl Counts {
    /// Messages that are not terminal.
    pub fn pending(&self) -> u64 {
        self.waiting() + self.in_flight
    }

    /// Of these, those that are not in flight.
    pub fn waiting(&self) -> u64 {
        self.ready + self.delayed + self.held + self.key_wait
    }

    /// The counts of a pipeline in which nothing may start: what would be ready or delayed is held. Who waits for its key
    /// still does.
    #[must_use]
    pub fn all_held(self) -> Self {
        Self { ready: 0, delayed: 0, held: self.held + self.ready + self.delayed, ..self }
    }

    /// The counts with every message where its verdict puts it, durable or not.
    #[must_use]
    pub fn as_decided(self) -> Self {
        let Settling { over, delayed, held } = self.settling;
        Self {
            delayed: self.delayed + delayed,
            held: self.held + held,
            in_flight: self.in_flight.saturating_sub(over + delayed + held),
            settling: Settling::default(),
            ..self
        }
    }

    /// The counts with at most `permits` in flight: a delivery without a permit was not started and is ready.
    #[must_use]
    pub fn in_flight_at_most(self, permits: u64) -> Self {
        let in_flight = self.in_flight.min(permits);
        Self { ready: self.ready + (self.in_flight - in_flight), in_flight, ..self }
    }
}

/// Deliveries whose verdict was given and is not durable yet, by where it puts them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Settling {
    /// Delivered, or dead.
    pub over: u64,
    /// To wait for their due time.
    pub delayed: u64,
    /// To be held.
    pub held: u64,
}

/// How old the oldest of its kind is, as far as the engine knows without a search.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Oldest {
    /// When the oldest message was made that waits, among those the engine would hand out next.
    pub pending: Option<Time>,
    /// When the letter died that has been open for longest.
    pub letter: Option<Time>,
}

/// When somebody asks for a change of letters, and who. An engine whose records others read writes the name beside them; the
/// log of actions is kept above the seam.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OnBehalf<'a> {
    /// When it was asked for.
    pub at: Time,
    /// Who asks, where that is known.
    pub by: Option<&'a str>,
}

impl From<Time> for OnBehalf<'_> {
    fn from(at: Time) -> Self {
        Self { at, by: None }
    }
}

/// Whether an engine hands out deliveries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TakeGate {
    /// Deliveries are handed out.
    Open,
    /// Nothing is taken and nothing is rewritten.
    Closed,
}

impl TakeGate {
    /// The gate of a pipeline that is paused, or is not.
    pub const fn of_pause(paused: bool) -> Self {
        if paused { Self::Closed } else { Self::Open }
    }

    /// Whether nothing is handed out.
    pub const fn is_closed(self) -> bool {
        matches!(self, Self::Closed)
    }
}

/// What becomes of a claim.
#[derive(Clone, Debug)]
pub enum Claimed {
    /// It is handed out to whoever asked, to be settled and not to be started. Nothing is noted as started.
    Taken(Box<Delivery>),
    /// It is being delivered, or its verdict is being written.
    InFlight,
    /// It is not there any more; look again.
    NotThere,
}

/// The seam. See the module's docs for who may call it.
pub trait Engine: Send + 'static {
    /// Hands out up to `room` deliveries that may start at `now`. When fresh and due messages both wait, they share the
    /// room half and half. Never blocks.
    fn take(&mut self, now: Time, room: usize, out: &mut Vec<Delivery>) -> Result<(), EngineError>;

    /// Like [`Engine::take`], but only what is due: fresh messages stay where they are. An engine that cannot tell them
    /// apart hands out nothing.
    fn take_due(&mut self, now: Time, room: usize, out: &mut Vec<Delivery>) -> Result<(), EngineError> {
        let _ = (now, room, out);
        Ok(())
    }

    /// Says durably, as far as a dying process is concerned, that the first of these suspects is about to run alone: if the
    /// process dies before it is settled, it has one crash more. The others have the next turns; an engine may announce
    /// them with it, and where it cannot tell later which of them ran, they share that crash. Never blocks; whoever was
    /// announced before has had its turn. Engines that know no suspects have nothing to do.
    fn announce(&mut self, next: &[Receipt], now: Time) -> Result<Announced, EngineError> {
        let _ = (next, now);
        Ok(Announced::Yes)
    }

    /// Keeps a reminder, a short text, for the next process, instead of the one before. It outlives the process, though perhaps not a
    /// power cut. Engines that have no place for it forget it.
    fn keep_reminder(&mut self, text: &[u8]) -> Result<(), EngineError> {
        let _ = text;
        Ok(())
    }

    /// The reminder that was kept last; empty if there is none.
    fn reminder(&mut self) -> Result<Vec<u8>, EngineError> {
        Ok(Vec::new())
    }

    /// Takes a batch of verdicts; it is durable once [`Event::Durable`] names its ticket. Never blocks.
    fn settle(&mut self, batch: Vec<Settlement>) -> Result<Ticket, EngineError>;

    /// Says what happened since the last call. Never blocks.
    fn poll(&mut self, out: &mut Vec<Event>) -> Result<(), EngineError>;

    /// What the store has to say about itself since the last call. Never blocks.
    fn notices(&mut self, out: &mut Vec<StoreNotice>) {
        let _ = out;
    }

    /// How often it repaired itself and how far it has checked itself.
    fn upkeep(&self) -> Upkeep {
        Upkeep::default()
    }

    /// The earliest moment at which time alone makes `take` hand out more; `None` if time changes nothing.
    fn next_due(&self) -> Option<Time>;

    /// Closes or opens the gate of this process: while it is closed nothing is taken and nothing is rewritten.
    fn gate(&mut self, gate: TakeGate);

    /// Closes or opens the gate of all processes that share the pipeline, for an operator who pauses or resumes it. An error
    /// means that nothing has changed.
    fn gate_all(&mut self, gate: TakeGate) -> Result<(), EngineError> {
        self.gate(gate);
        Ok(())
    }

    /// Whether the pipeline is paused for all processes that share it; `None` where a pause is kept outside of the engine.
    fn shared_pause(&self) -> Option<bool> {
        None
    }

    /// How many messages are in which state.
    fn counts(&self) -> Counts;

    /// How the engine stands beside its messages. Cheap: it is asked about as often as [`Engine::counts`].
    fn condition(&self) -> Condition {
        Condition::default()
    }

    /// The oldest of what waits and of the open letters. It is asked about once a second and may be approximate, but must
    /// be cheap: a look at what is at hand, never a walk through everything. An engine that cannot tell says so.
    fn oldest(&mut self) -> Result<Oldest, EngineError> {
        Ok(Oldest::default())
    }

    /// Where new messages enter; `None` if the engine's source is elsewhere (Kafka).
    fn ingest(&self) -> Option<Arc<dyn Ingest>>;

    /// Calls `wake` whenever `poll` or `take` may have something new. Called from any thread.
    fn on_wake(&mut self, wake: Arc<dyn Fn() + Send + Sync>);

    /// Letters in order of their id, after `after`, in `state` if one is given.
    fn letters(
        &mut self,
        state: Option<LetterState>,
        after: Option<u64>,
        limit: usize,
    ) -> Result<Vec<Letter>, EngineError>;

    /// Like [`Engine::letters`], but looks at no more than `look_max` letters, whatever their state, and says how far it
    /// came: a search for few among many must not hold up deliveries. It also ends once it holds [`SCAN_BYTES`].
    ///
    /// [`SCAN_BYTES`]: super::letter::SCAN_BYTES
    fn scan_letters(
        &mut self,
        state: Option<LetterState>,
        after: Option<u64>,
        limit: usize,
        look_max: usize,
    ) -> Result<LetterScan, EngineError>;

    /// One letter; `None` if there is none with this id.
    fn letter(&mut self, id: u64) -> Result<Option<Letter>, EngineError>;

    /// The numbers of the letters of messages with this id, in order, without a search. Others may be among them; none is
    /// missing. `None` if the engine has no index of ids, or finds too many: then the caller looks through all letters.
    fn letters_of(&mut self, id: &str) -> Result<Option<Vec<u64>>, EngineError> {
        let _ = id;
        Ok(None)
    }

    /// The groups that have open letters, in no order. Counted as letters come and go; never by a walk through them.
    fn groups(&mut self, now: Time) -> Result<Vec<GroupFigures>, EngineError> {
        let _ = now;
        Ok(Vec::new())
    }

    /// The numbers of open letters that are counted in this group, after `after` and in order.
    fn letters_in_group(
        &mut self,
        group: GroupId,
        after: Option<u64>,
        limit: usize,
    ) -> Result<Vec<u64>, EngineError> {
        let _ = (group, after, limit);
        Ok(Vec::new())
    }

    /// How many open letters of this group died after `since`, counted up to `max`.
    fn open_since(&mut self, group: GroupId, since: Time, max: u64) -> Result<u64, EngineError> {
        let _ = (group, since, max);
        Ok(0)
    }

    /// What was decided about groups, for all processes that share the pipeline; `None` where that is kept outside of the
    /// engine.
    fn group_marks(&self) -> Option<GroupMarks> {
        None
    }

    /// Groups about which something was decided: their letters are counted in them, however many groups there are, or a
    /// decision would be blind for what it is about.
    fn reserve_groups(&mut self, decided: &[GroupId]) {
        let _ = decided;
    }

    /// Keeps a decision about a group for all processes that share the pipeline. Durable on return. An engine whose
    /// decisions are kept outside has nothing to do.
    fn mark_group(&mut self, mark: &GroupMark) -> Result<(), EngineError> {
        let _ = mark;
        Ok(())
    }

    /// What all processes of the pipeline share: replay jobs, the action log. `None` where it has one process only.
    fn shared_records(&self) -> Option<Arc<dyn SharedRecords>> {
        None
    }

    /// Where the message with this id is. An id is known for the window of deduplication after it was accepted, and may
    /// be known for longer; if it was accepted again, the latest one is meant. Without such a window the answer is
    /// [`EngineError::NotRemembered`].
    fn message(&mut self, id: &str, now: Time) -> Result<Option<MessageState>, EngineError> {
        let _ = (id, now);
        Err(EngineError::NotRemembered)
    }

    /// The line of a key, where keys are ordered: whom its messages wait for, and how many wait. `None` if nothing of the
    /// key waits or runs. As with [`Engine::message`], who waits is found only where ids are remembered.
    fn key_line(&mut self, key: &[u8]) -> Result<Option<KeyLine>, EngineError> {
        let _ = key;
        Err(EngineError::NotRemembered)
    }

    /// Messages that wait in `state`, after the key `after`, in an order that is the engine's own. Looks at no more than
    /// `look_max` entries and holds about [`SCAN_BYTES`]: a listing must not hold up deliveries. What is handed out is
    /// known above the seam, so nobody asks here for what is in flight.
    ///
    /// [`SCAN_BYTES`]: super::letter::SCAN_BYTES
    fn scan_pending(
        &mut self,
        state: PendingState,
        after: Option<(u64, u64)>,
        limit: usize,
        look_max: usize,
    ) -> Result<PendingScan, EngineError>;

    /// Where the message with this id waits, without a search; `None` if it does not wait, or not where that can be known
    /// at once. Engines that do not remember ids answer [`EngineError::NotRemembered`].
    fn locate(&mut self, id: &str) -> Result<Option<PendingAt>, EngineError> {
        let _ = id;
        Err(EngineError::NotRemembered)
    }

    /// Takes one message out of where it waits, whatever it waits for, also while the gate is closed. The caller settles
    /// the delivery and does not start it: this is how a message is cancelled, or made due if it waits for its time. No
    /// later message of its key starts until it is settled.
    fn claim(&mut self, at: &PendingAt, now: Time) -> Result<Claimed, EngineError>;

    /// How letters stand towards a replay job; `None` where there is no such letter.
    fn letter_standings(&mut self, job: u64, ids: &[u64])
    -> Result<Vec<Option<LetterStanding>>, EngineError>;

    /// Puts letters back to be delivered, each at most once per job. Durable on return.
    fn replay(
        &mut self,
        job: &ReplayJob,
        ids: &[u64],
        asked: OnBehalf<'_>,
    ) -> Result<Vec<ReplayAnswer>, EngineError>;

    /// Discards open letters, or takes a discard back. Durable on return; `false` where the state did not allow it.
    fn change_letters(
        &mut self,
        change: &LetterChange,
        ids: &[u64],
        asked: OnBehalf<'_>,
    ) -> Result<Vec<bool>, EngineError>;

    /// Gives open letters new messages. The message before stays with the letter under the name of the edit. Durable on
    /// return.
    fn edit_letters(
        &mut self,
        edit: &str,
        letters: &[LetterEdit],
        asked: OnBehalf<'_>,
    ) -> Result<Vec<EditAnswer>, EngineError>;

    /// Gives open letters whose last edit is this one the message back that they had before it. Durable on return.
    fn undo_edit(
        &mut self,
        edit: &str,
        ids: &[u64],
        asked: OnBehalf<'_>,
    ) -> Result<Vec<EditAnswer>, EngineError>;

    /// The message that a letter had before one of its edits.
    fn message_before(&mut self, id: u64, edit: &str) -> Result<Option<Message>, EngineError>;

    /// Erases what letters said, except those in a replay: from now on only their tombstones are shown. Durable on return;
    /// [`Engine::wipe`] then overwrites the copies that are still stored.
    fn erase_letters(
        &mut self,
        order: &EraseOrder,
        ids: &[u64],
        now: Time,
    ) -> Result<Vec<EraseAnswer>, EngineError>;

    /// Goes on with overwriting the stored copies of erased letters, and says what is left to do. Never blocks: call it until
    /// nothing is. An engine that was opened after a crash goes on by itself.
    fn wipe(&mut self, now: Time) -> Result<WipeProgress, EngineError>;

    /// Makes letters of messages that died elsewhere, in the order given; they are open and died when it was asked for. A letter with the
    /// same message is not made again. Durable on return; a dry run only says what would become of each.
    fn import(
        &mut self,
        letters: Vec<ForeignLetter>,
        dry_run: bool,
        asked: OnBehalf<'_>,
    ) -> Result<Vec<ImportAnswer>, EngineError> {
        let _ = (letters, dry_run, asked);
        Err(EngineError::Unavailable("this engine takes no letters from elsewhere".to_owned()))
    }

    /// Makes everything given so far durable and marks the end as clean.
    fn close(&mut self) -> Result<(), EngineError>;
}

#[cfg(test)]
mod tests {
    use super::{LastEnd, share};

    #[test]
    fn only_signals_of_others_end_a_process_from_outside() {
        for signal in [1, 2, 3, 9, 15] {
            assert_eq!(LastEnd::of(Some(signal), false), LastEnd::FromOutside);
            assert_eq!(LastEnd::of(Some(signal), true), LastEnd::Unknown, "out of memory");
        }
        for signal in [None, Some(4), Some(6), Some(7), Some(8), Some(11)] {
            assert_eq!(LastEnd::of(signal, false), LastEnd::Unknown, "{signal:?}");
        }
    }

    #[test]
    fn fresh_and_due_share_the_room_and_waste_none() {
        assert_eq!(share(10, 100, 100, false), (5, 5));
        assert_eq!(share(10, 2, 100, false), (2, 8));
        assert_eq!(share(10, 100, 3, false), (7, 3));
        assert_eq!(share(10, 1, 1, true), (1, 1));
        assert_eq!(share(0, 5, 5, true), (0, 0));
    }

    #[test]
    fn a_single_place_goes_to_each_side_by_turns() {
        assert_eq!(share(1, 9, 9, true), (1, 0));
        assert_eq!(share(1, 9, 9, false), (0, 1));
    }
}
