//! Which messages may have crashed the process, which run alone, which are quarantined.
//!
//! After an unclean end every running message is a suspect, since it is not known which one was at fault. Suspects run
//! one at a time while other work goes on; a suspect whose run ends in any way is cleared. If the process dies again,
//! the suspect that was running is the likely cause, but other work was running too: its last run is exclusive. If the
//! process dies then, the suspect is quarantined: nothing else can have been the cause.
//!
//! Where recording which suspect runs is slow, a few are announced together. If it is unknown which of them ran, they
//! share the crash; since a shared crash is never the last one before a quarantine, no innocent message is quarantined.

use std::collections::VecDeque;

/// How a suspect may run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Run {
    /// As the only running suspect, alongside other work.
    Alone,
    /// With nothing else running.
    Exclusive,
}

/// The number of crashes that quarantines a message: the policy's threshold, but at least two, since a shared crash
/// never quarantines.
pub const fn quarantined_at(threshold: u32) -> u32 {
    if threshold < 2 { 2 } else { threshold }
}

/// Whether a message with this many crashes must not run again.
pub const fn is_quarantined(crashes: u32, threshold: u32) -> bool {
    crashes >= quarantined_at(threshold)
}

/// How a message with this many crashes runs.
pub const fn run_of(crashes: u32, threshold: u32) -> Run {
    if crashes + 1 >= quarantined_at(threshold) { Run::Exclusive } else { Run::Alone }
}

/// Suspects waiting for their turn. Bounded by what one process can have had in flight.
#[derive(Clone, Debug)]
pub struct Suspects<T> {
    threshold: u32,
    waiting: VecDeque<(T, u32)>,
    running: Option<Run>,
    cleared: u64,
}

impl<T> Suspects<T> {
    /// Creates an empty queue; `threshold` is the policy's number of crashes.
    pub fn new(threshold: u32) -> Self {
        Self { threshold, waiting: VecDeque::new(), running: None, cleared: 0 }
    }

    /// Adds a message whose `crashes` are too few to quarantine. Those with more crashes go first, since they hold up
    /// everything.
    pub fn suspect(&mut self, who: T, crashes: u32) {
        let at = self.waiting.iter().position(|(_, others)| *others < crashes).unwrap_or(self.waiting.len());
        self.waiting.insert(at, (who, crashes));
    }

    /// Whether nothing else may start: an exclusive run is running or next.
    pub fn wants_exclusive(&self) -> bool {
        self.running == Some(Run::Exclusive)
            || (self.running.is_none() && self.next_run() == Some(Run::Exclusive))
    }

    fn next_run(&self) -> Option<Run> {
        self.waiting.front().map(|(_, crashes)| run_of(*crashes, self.threshold))
    }

    /// How the next suspect would run; `None` while one is running.
    pub fn turn(&self) -> Option<Run> {
        if self.running.is_some() { None } else { self.next_run() }
    }

    /// The suspects whose turns are next, up to as many as may be announced together: an exclusive run is announced
    /// alone.
    pub fn in_turn(&self, most: usize) -> impl Iterator<Item = &T> {
        let most = if self.next_run() == Some(Run::Exclusive) { 1 } else { most };
        let waiting = self.waiting.iter().take_while(|_| self.running.is_none());
        waiting.take(most).map(|(who, _)| who)
    }

    /// Starts the next suspect. It must have been announced before.
    pub fn start(&mut self) -> Option<(T, u32)> {
        self.running = Some(self.turn()?);
        self.waiting.pop_front()
    }

    /// Removes the next suspect if `gone` says that it no longer exists.
    pub fn take_next_if(&mut self, gone: impl FnOnce(&T) -> bool) -> Option<T> {
        self.waiting.pop_front_if(|(who, _)| gone(who)).map(|(who, _)| who)
    }

    /// Removes a waiting suspect.
    pub fn take_if(&mut self, wanted: impl Fn(&T) -> bool) -> Option<T> {
        let at = self.waiting.iter().position(|(who, _)| wanted(who))?;
        self.waiting.remove(at).map(|(who, _)| who)
    }

    /// The waiting suspects.
    pub fn waiting(&self) -> impl Iterator<Item = &T> {
        self.waiting.iter().map(|(who, _)| who)
    }

    /// Records the end of the running suspect; `cleared` unless it was dead-lettered.
    pub fn ended(&mut self, cleared: bool) {
        self.running = None;
        self.cleared += u64::from(cleared);
    }

    /// Whether a suspect is running.
    pub fn is_running(&self) -> bool {
        self.running.is_some()
    }

    /// Whether there are none, waiting or running.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.running.is_none()
    }

    /// How many there are, waiting or running.
    pub fn len(&self) -> usize {
        self.waiting.len() + usize::from(self.running.is_some())
    }

    /// How many ran and were cleared.
    pub fn cleared(&self) -> u64 {
        self.cleared
    }

    /// Takes all waiting suspects, to release them.
    pub fn take_all(&mut self) -> impl Iterator<Item = T> + use<T> {
        std::mem::take(&mut self.waiting).into_iter().map(|(who, _)| who)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_run_before_quarantine_is_exclusive() {
        assert_eq!((run_of(1, 3), run_of(2, 3)), (Run::Alone, Run::Exclusive));
        assert!(!is_quarantined(2, 3) && is_quarantined(3, 3));
        // However low the threshold: a shared crash never quarantines.
        assert!(!is_quarantined(1, 1) && is_quarantined(2, 1));
        assert_eq!(run_of(1, 1), Run::Exclusive);
    }

    #[test]
    fn one_runs_at_a_time_and_those_with_more_crashes_go_first() {
        let mut suspects = Suspects::new(3);
        suspects.suspect("a", 1);
        suspects.suspect("pill", 2);
        suspects.suspect("b", 1);
        assert!(suspects.wants_exclusive());
        assert_eq!(suspects.in_turn(9).collect::<Vec<_>>(), [&"pill"], "no other shares its last crash");
        assert_eq!(suspects.start(), Some(("pill", 2)));
        assert_eq!(suspects.in_turn(9).count(), 0);
        assert_eq!(suspects.start(), None, "one at a time");
        suspects.ended(true);
        assert!(!suspects.wants_exclusive());
        assert_eq!(suspects.in_turn(9).collect::<Vec<_>>(), [&"a", &"b"]);
        assert_eq!(suspects.in_turn(1).collect::<Vec<_>>(), [&"a"]);
        assert_eq!(suspects.start(), Some(("a", 1)));
        assert!(!suspects.wants_exclusive(), "beside other work");
        suspects.ended(true);
        assert_eq!(suspects.start(), Some(("b", 1)));
        suspects.ended(false);
        assert_eq!((suspects.cleared(), suspects.is_empty()), (2, true));
    }

    /// The whole scenario, with the pill at every place in the queue: three deaths, one quarantine, no innocent
    /// message.
    #[test]
    fn a_pill_among_many_costs_three_deaths_and_nobody_else() {
        for pill in 0..64_u32 {
            let (mut deaths, mut quarantined) = (0, Vec::new());
            // Messages that are not finished, with their crashes so far.
            let mut open: Vec<(u32, u32)> = (0..64).map(|id| (id, 0)).collect();
            let mut running: Vec<u32> = (0..64).collect();
            while !open.is_empty() {
                let mut suspects = Suspects::new(3);
                for (id, crashes) in &mut open {
                    *crashes += u32::from(running.contains(id));
                    if is_quarantined(*crashes, 3) {
                        quarantined.push(*id);
                    } else {
                        suspects.suspect(*id, *crashes);
                    }
                }
                open.retain(|(id, _)| !quarantined.contains(id));
                deaths += u32::from(!running.is_empty());
                running.clear();
                while let Some((id, _)) = suspects.start() {
                    if id == pill {
                        running.push(id);
                        break;
                    }
                    suspects.ended(true);
                    open.retain(|(other, _)| *other != id);
                }
            }
            assert_eq!((deaths, quarantined), (3, vec![pill]));
        }
    }
}
