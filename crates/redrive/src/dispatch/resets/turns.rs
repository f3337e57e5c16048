//! Turns of messages whose receiver closed the connection: one at a time at each endpoint, and the last run before a
//! quarantine with nothing else in flight there.
//!
//! Waiting takes no permit. Everything is bounded: how many messages wait and for how long, and how long and how
//! often an endpoint is reserved for one of them.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use redrive_core::Time;

/// Messages that may wait, in total and per endpoint. Beyond that a message runs like any other.
const WAITING_MAX: usize = 256;
const WAITING_PER_ENDPOINT_MAX: usize = 64;
/// How long a message waits for its turn before it runs like any other.
const WAIT_MAX: Duration = Duration::from_secs(30);
/// How long an endpoint is reserved while calls in flight drain …
const DRAIN_MAX: Duration = Duration::from_secs(5);
/// … and for the run itself.
const RUN_MAX: Duration = Duration::from_secs(5);
/// After a reservation the endpoint stays unreserved for this many times as long, so it is reserved at most a tenth
/// of the time.
const OTHERS_TIMES: u32 = 9;

/// What a message needs for its run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wants {
    /// A turn among the suspects, while other calls are in flight.
    Turn,
    /// Nothing else in flight at its endpoint.
    Alone,
}

/// A message that may start.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct NextMessage<T> {
    pub(super) who: T,
    /// The endpoint at which it has its turn; `None` if it waited too long and runs like any other.
    pub(super) turn: Option<u64>,
}

#[derive(Debug)]
pub(super) struct Turns<T> {
    lines: BTreeMap<u64, WaitingLine<T>>,
    waiting: usize,
    /// Endpoints whose reservation ended.
    freed: Vec<u64>,
}

#[derive(Debug)]
struct WaitingLine<T> {
    waiting: VecDeque<WaitingMessage<T>>,
    is_running: bool,
    /// Since when the endpoint is reserved, and for which phase.
    reserved: Option<(Reserved, Time)>,
    began: Time,
    /// The earliest start of the next reservation.
    free_until: Time,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reserved {
    Draining,
    Running,
}

#[derive(Debug)]
struct WaitingMessage<T> {
    who: T,
    wants: Wants,
    since: Time,
}

impl<T> Default for Turns<T> {
    fn default() -> Self {
        Self { lines: BTreeMap::new(), waiting: 0, freed: Vec::new() }
    }
}

impl<T> Turns<T> {
    /// The number of waiting messages.
    pub(super) fn len(&self) -> usize {
        self.waiting
    }

    /// Queues a message at an endpoint; returns it if the queue is full.
    pub(super) fn wait(&mut self, endpoint: u64, who: T, wants: Wants, now: Time) -> Result<(), T> {
        let own = self.lines.get(&endpoint).map_or(0, |line| line.waiting.len());
        if self.waiting >= WAITING_MAX || own >= WAITING_PER_ENDPOINT_MAX {
            return Err(who);
        }
        self.waiting += 1;
        self.lines
            .entry(endpoint)
            .or_insert_with(|| WaitingLine::new(now))
            .waiting
            .push_back(WaitingMessage { who, wants, since: now });
        Ok(())
    }

    /// Whether nothing else may start at this endpoint.
    pub(super) fn is_reserved(&self, endpoint: u64) -> bool {
        !self.lines.is_empty() && self.lines.get(&endpoint).is_some_and(|line| line.reserved.is_some())
    }

    /// The endpoints that are reserved for one message.
    pub(super) fn reserved(&self) -> impl Iterator<Item = u64> {
        self.lines.iter().filter(|(_, line)| line.reserved.is_some()).map(|(endpoint, _)| *endpoint)
    }

    /// The next message that may start, given the number of calls in flight at an endpoint.
    pub(super) fn next(&mut self, in_flight: impl Fn(u64) -> usize, now: Time) -> Option<NextMessage<T>> {
        if self.waiting == 0 {
            return None;
        }
        let next = self.lines.iter_mut().find_map(|(endpoint, line)| {
            let next = line.next(|| in_flight(*endpoint), now)?;
            Some(NextMessage { who: next.0, turn: next.1.then_some(*endpoint) })
        });
        self.waiting -= usize::from(next.is_some());
        next
    }

    /// The message whose turn it was has ended, or did not start.
    pub(super) fn over(&mut self, endpoint: u64, now: Time) {
        let Some(line) = self.lines.get_mut(&endpoint) else { return };
        line.is_running = false;
        if line.release(now) {
            self.freed.push(endpoint);
        }
    }

    /// Ends and begins reservations as time passes.
    pub(super) fn tick(&mut self, now: Time) {
        if self.lines.is_empty() {
            return;
        }
        for (endpoint, line) in &mut self.lines {
            if line.is_reserved_too_long(now) && line.release(now) {
                self.freed.push(*endpoint);
            }
            line.reserve_if_wanted(now);
        }
        self.lines.retain(|_, line| !line.is_idle(now));
    }

    /// Endpoints whose reservation ended since the last call.
    pub(super) fn freed(&mut self) -> impl Iterator<Item = u64> + use<T> {
        std::mem::take(&mut self.freed).into_iter()
    }

    /// When time alone changes something, given whether a call could start.
    pub(super) fn next_wake(&self, can_start: bool) -> Option<Time> {
        self.lines.values().filter_map(|line| line.next_wake(can_start)).min()
    }

    /// Removes all waiting messages. A running one is not affected.
    pub(super) fn take_all(&mut self, now: Time) -> Vec<T> {
        self.waiting = 0;
        let mut all = Vec::new();
        for (endpoint, line) in &mut self.lines {
            all.extend(std::mem::take(&mut line.waiting).into_iter().map(|waiting| waiting.who));
            if !line.is_running && line.release(now) {
                self.freed.push(*endpoint);
            }
        }
        all
    }
}

impl<T> WaitingLine<T> {
    fn new(now: Time) -> Self {
        Self {
            waiting: VecDeque::new(),
            is_running: false,
            reserved: None,
            began: now,
            free_until: Time::ZERO,
        }
    }

    /// The message that may start, and whether it is its turn.
    fn next(&mut self, in_flight: impl Fn() -> usize, now: Time) -> Option<(T, bool)> {
        // A clock that was set back must not prolong the wait.
        let is_overdue = |one: &WaitingMessage<T>| now < one.since || now.since(one.since) >= WAIT_MAX;
        if self.waiting.front().is_some_and(is_overdue) {
            return self.waiting.pop_front().map(|one| (one.who, false));
        }
        if self.is_running {
            return None;
        }
        if let Some(at) = self.waiting.iter().position(|one| one.wants == Wants::Alone) {
            self.reserve_if_wanted(now);
            if in_flight() == 0 {
                if self.reserved.is_some() {
                    self.reserved = Some((Reserved::Running, now));
                }
                return self.start(at);
            }
            if self.reserved.is_some() {
                return None;
            }
        }
        let at = self.waiting.iter().position(|one| one.wants == Wants::Turn)?;
        self.start(at)
    }

    /// Reserves the endpoint if a message needs it alone and the last reservation was long enough ago.
    fn reserve_if_wanted(&mut self, now: Time) {
        let is_wanted = !self.is_running && self.waiting.iter().any(|one| one.wants == Wants::Alone);
        if is_wanted && self.reserved.is_none() && now >= self.free_until {
            (self.reserved, self.began) = (Some((Reserved::Draining, now)), now);
        }
    }

    fn start(&mut self, at: usize) -> Option<(T, bool)> {
        let one = self.waiting.remove(at)?;
        self.is_running = true;
        Some((one.who, true))
    }

    fn is_reserved_too_long(&self, now: Time) -> bool {
        self.reserved.is_some_and(|(what, since)| {
            now < since || now.since(since) >= if what == Reserved::Draining { DRAIN_MAX } else { RUN_MAX }
        })
    }

    /// Ends the reservation and sets the earliest next one. Returns whether there was one.
    fn release(&mut self, now: Time) -> bool {
        if self.reserved.take().is_none() {
            return false;
        }
        self.free_until = now.plus(now.since(self.began).saturating_mul(OTHERS_TIMES));
        true
    }

    fn is_idle(&self, now: Time) -> bool {
        self.waiting.is_empty() && !self.is_running && now >= self.free_until
    }

    fn next_wake(&self, can_start: bool) -> Option<Time> {
        let reserved = self
            .reserved
            .map(|(what, since)| since.plus(if what == Reserved::Draining { DRAIN_MAX } else { RUN_MAX }));
        let overdue = self.waiting.front().filter(|_| can_start).map(|one| one.since.plus(WAIT_MAX));
        let wants_alone = self.waiting.iter().any(|one| one.wants == Wants::Alone);
        let free = (wants_alone && !self.is_running && reserved.is_none()).then_some(self.free_until);
        reserved.into_iter().chain(overdue).chain(free).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: u64 = 1;

    fn at(ms: u64) -> Time {
        Time::from_millis(1_800_000_000_000 + ms)
    }

    #[expect(clippy::unnecessary_wraps, reason = "compared with what `next` returns")]
    fn turn(who: u32) -> Option<NextMessage<u32>> {
        Some(NextMessage { who, turn: Some(HERE) })
    }

    #[test]
    fn one_runs_at_a_time_at_an_endpoint_and_endpoints_do_not_wait_for_each_other() {
        let mut turns = Turns::default();
        turns.wait(HERE, 1, Wants::Turn, at(0)).unwrap();
        turns.wait(HERE, 2, Wants::Turn, at(0)).unwrap();
        turns.wait(2, 3, Wants::Turn, at(0)).unwrap();
        assert_eq!(turns.next(|_| 9, at(0)), turn(1));
        assert_eq!(turns.next(|_| 9, at(0)), Some(NextMessage { who: 3, turn: Some(2) }));
        assert_eq!(turns.next(|_| 9, at(0)), None);
        assert!(!turns.is_reserved(HERE), "beside other work");
        turns.over(HERE, at(100));
        assert_eq!((turns.next(|_| 9, at(100)), turns.len()), (turn(2), 0));
    }

    #[test]
    fn who_needs_the_endpoint_alone_waits_until_nothing_else_is_in_flight() {
        let mut turns = Turns::default();
        turns.wait(HERE, 1, Wants::Alone, at(0)).unwrap();
        assert_eq!(turns.next(|_| 3, at(0)), None);
        assert!(turns.is_reserved(HERE) && !turns.is_reserved(2));
        assert_eq!(turns.next(|_| 0, at(50)), turn(1));
        assert!(turns.is_reserved(HERE));
        turns.over(HERE, at(150));
        assert!(!turns.is_reserved(HERE));
        assert_eq!(turns.freed().collect::<Vec<_>>(), [HERE]);
    }

    #[test]
    fn an_endpoint_is_reserved_for_a_few_seconds_and_a_tenth_of_the_time() {
        let mut turns = Turns::default();
        turns.wait(HERE, 1, Wants::Alone, at(0)).unwrap();
        assert_eq!(turns.next(|_| 3, at(0)), None);
        turns.tick(at(4_999));
        assert!(turns.is_reserved(HERE));
        turns.tick(at(5_000));
        assert!(!turns.is_reserved(HERE), "what is under way takes too long");
        assert_eq!(turns.next(|_| 3, at(5_000)), None, "its turn comes, but not at once");
        assert!(!turns.is_reserved(HERE));
        // If nothing else happens to be in flight, it may run without a reservation.
        assert_eq!(turns.next(|_| 0, at(6_000)), turn(1));
        assert!(!turns.is_reserved(HERE));
        turns.over(HERE, at(6_100));
        turns.wait(HERE, 2, Wants::Alone, at(49_999)).unwrap();
        assert_eq!((turns.next(|_| 1, at(49_999)), turns.is_reserved(HERE)), (None, false));
        assert_eq!((turns.next(|_| 1, at(50_000)), turns.is_reserved(HERE)), (None, true));
        assert_eq!(turns.next(|_| 0, at(50_010)), turn(2));
        turns.tick(at(55_010));
        assert!(!turns.is_reserved(HERE), "a run that takes longer is not alone any more");
    }

    #[test]
    fn who_waited_too_long_runs_like_any_other() {
        let mut turns = Turns::default();
        turns.wait(HERE, 1, Wants::Turn, at(0)).unwrap();
        turns.wait(HERE, 2, Wants::Turn, at(0)).unwrap();
        assert_eq!(turns.next(|_| 0, at(0)), turn(1));
        assert_eq!(turns.next_wake(true), Some(at(30_000)));
        assert_eq!(turns.next_wake(false), None);
        assert_eq!(turns.next(|_| 0, at(29_999)), None);
        assert_eq!(turns.next(|_| 0, at(30_000)), Some(NextMessage { who: 2, turn: None }));
    }

    #[test]
    fn nobody_waits_beyond_the_bounds() {
        let mut turns = Turns::default();
        let waits = (0..1_000).filter(|who| turns.wait(HERE, *who, Wants::Turn, at(0)).is_ok()).count();
        assert_eq!(waits, WAITING_PER_ENDPOINT_MAX);
        let waits = (0..1_000).filter(|who| turns.wait(10 + *who, 0, Wants::Turn, at(0)).is_ok()).count();
        assert_eq!((waits, turns.len()), (WAITING_MAX - WAITING_PER_ENDPOINT_MAX, WAITING_MAX));
        assert_eq!(turns.take_all(at(0)).len(), WAITING_MAX);
        turns.tick(at(1));
        assert!(turns.lines.is_empty() && turns.len() == 0);
    }
}
