//! Decides whether a worker that ended is restarted, and after which wait. Pure: how it ended and how long it ran are
//! arguments.

use std::fmt;
use std::time::Duration;

use crate::exit::Exit;

const WAIT_FIRST: Duration = Duration::from_secs(1);
const WAIT_MAX: Duration = Duration::from_secs(30);
/// The longest wait after a storage failure: it needs a person, so each attempt is logged.
const STORAGE_WAIT_MAX: Duration = Duration::from_mins(5);
/// A worker that ran this long was healthy: after its next death the waits start again with the shortest.
const SOUND_AFTER: Duration = Duration::from_mins(1);

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    Code(u8),
    Signal(u8),
}

/// What the supervisor does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// The supervisor ends with this code.
    Leave(u8),
    Restart {
        after: Duration,
    },
}

/// The history of deaths.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Restarts {
    wait: Duration,
    /// A worker ran long enough before: the service is in use.
    was_sound: bool,
}

impl Default for Restarts {
    fn default() -> Self {
        Self { wait: WAIT_FIRST, was_sound: false }
    }
}

impl Restarts {
    /// Decides about a worker that ended by itself. A service that has run is never given up: the cause (a disk, a
    /// configuration being edited, a lack of files) may be repaired without anybody thinking of this process.
    pub fn next(&mut self, end: End, ran: Duration) -> Next {
        if ran >= SOUND_AFTER {
            *self = Self { was_sound: true, ..Self::default() };
        }
        let is = |exit: Exit| end == End::Code(exit.code());
        // A clean exit, a result that a person has to look at, or a worker that was interrupted directly.
        let is_over = [Exit::Ok, Exit::Bad, Exit::Interrupted].into_iter().any(is);
        // Started with a wrong configuration: report it at once.
        let is_refused = is(Exit::Usage) && !self.was_sound;
        if is_over || is_refused {
            return Next::Leave(end.code());
        }
        Next::Restart { after: self.back_off(if is(Exit::Storage) { STORAGE_WAIT_MAX } else { WAIT_MAX }) }
    }

    /// Handles a worker that could not be started. Returns how long to wait, or `None` unless a worker was
    /// healthy before.
    pub fn not_started(&mut self) -> Option<Duration> {
        self.was_sound.then(|| self.back_off(WAIT_MAX))
    }

    fn back_off(&mut self, max: Duration) -> Duration {
        let after = self.wait.min(max);
        self.wait = max.min(after * 2);
        after
    }
}

impl End {
    /// The equivalent exit code, by the convention of shells.
    pub const fn code(self) -> u8 {
        match self {
            Self::Code(code) => code,
            Self::Signal(signal) => signal.saturating_add(128),
        }
    }
}

impl End {
    /// What ended it, as far as known; `out_of_memory` is set if the kernel counts kills for lack of memory.
    pub const fn by(self, out_of_memory: Option<bool>) -> &'static str {
        match (self, out_of_memory) {
            (Self::Signal(9), Some(true)) => "the kernel, out of memory",
            (Self::Signal(9), None) => "another process, or the kernel (out of memory)",
            (Self::Signal(1 | 2 | 3 | 9 | 15), _) => "another process",
            (Self::Signal(_) | Self::Code(_), _) => "itself",
        }
    }
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Code(code) => match Exit::ALL.into_iter().find(|exit| exit.code() == code) {
                Some(exit) => write!(f, "exit code {code} ({})", exit.meaning()),
                None => write!(f, "exit code {code}"),
            },
            Self::Signal(signal) => match signal_name(signal) {
                Some(name) => write!(f, "signal {signal} ({name})"),
                None => write!(f, "signal {signal}"),
            },
        }
    }
}

/// The name of a signal that ends processes; their numbers are the same on every Unix, except SIGBUS.
fn signal_name(signal: u8) -> Option<&'static str> {
    Some(match signal {
        1 => "SIGHUP",
        2 => "SIGINT",
        3 => "SIGQUIT",
        4 => "SIGILL",
        6 => "SIGABRT",
        8 => "SIGFPE",
        9 => "SIGKILL",
        11 => "SIGSEGV",
        15 => "SIGTERM",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHORT: Duration = Duration::from_secs(2);

    fn seconds(next: Next) -> u64 {
        match next {
            Next::Restart { after } => after.as_secs(),
            Next::Leave(code) => panic!("left with {code}"),
        }
    }

    #[test]
    fn waits_double_up_to_half_a_minute_and_begin_again_after_a_sound_run() {
        let mut restarts = Restarts::default();
        let waits: Vec<u64> = (0..7).map(|_| seconds(restarts.next(End::Signal(9), SHORT))).collect();
        assert_eq!(waits, [1, 2, 4, 8, 16, 30, 30]);
        assert_eq!(seconds(restarts.next(End::Signal(11), Duration::from_mins(1))), 1);
        assert_eq!(seconds(restarts.next(End::Code(101), SHORT)), 2);
    }

    #[test]
    fn an_end_that_a_restart_cannot_better_is_passed_on() {
        for code in [0, 1, 2, 130] {
            assert_eq!(Restarts::default().next(End::Code(code), SHORT), Next::Leave(code));
        }
        for code in [70, 74, 75, 101, 137, 255] {
            assert_eq!(seconds(Restarts::default().next(End::Code(code), SHORT)), 1, "{code}");
        }
    }

    #[test]
    fn storage_that_keeps_failing_is_tried_again_for_ever_and_ever_more_slowly() {
        let mut restarts = Restarts::default();
        let waits: Vec<u64> = (0..12).map(|_| seconds(restarts.next(End::Code(74), SHORT))).collect();
        assert_eq!(waits, [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300, 300]);
        assert_eq!(seconds(restarts.next(End::Signal(9), SHORT)), 30, "something else is tried sooner");
        assert_eq!(seconds(restarts.next(End::Code(74), Duration::from_hours(1))), 1, "another story");
    }

    #[test]
    fn a_service_that_ran_is_not_given_up_for_a_configuration_that_is_being_edited() {
        let mut restarts = Restarts::default();
        assert!(restarts.not_started().is_none());
        assert_eq!(seconds(restarts.next(End::Signal(9), Duration::from_hours(1))), 1);
        assert_eq!(seconds(restarts.next(End::Code(2), SHORT)), 2);
        assert_eq!(seconds(restarts.next(End::Code(2), SHORT)), 4);
        assert_eq!(restarts.not_started(), Some(Duration::from_secs(8)));
        assert_eq!(restarts.next(End::Code(0), SHORT), Next::Leave(0), "but an end in good order is one");
    }

    #[test]
    fn who_ended_it_is_told_as_far_as_it_is_known() {
        assert_eq!(End::Signal(9).by(Some(true)), "the kernel, out of memory");
        assert_eq!(End::Signal(9).by(Some(false)), "another process");
        assert_eq!(End::Signal(9).by(None), "another process, or the kernel (out of memory)");
        assert_eq!(
            End::Signal(15).by(Some(true)),
            "another process",
            "it was another one that was out of memory"
        );
        assert_eq!([End::Signal(6), End::Signal(11), End::Code(70)].map(|end| end.by(None)), ["itself"; 3]);
    }

    #[test]
    fn an_end_is_told_in_words() {
        assert_eq!(End::Code(70).to_string(), "exit code 70 (ended by the watchdog)");
        assert_eq!(End::Code(101).to_string(), "exit code 101");
        assert_eq!(End::Signal(11).to_string(), "signal 11 (SIGSEGV)");
        assert_eq!((End::Signal(9).code(), End::Code(3).code()), (137, 3));
    }
}
