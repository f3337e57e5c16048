//! Whether a worker that ended is started again, and after which wait. Pure: how it ended and how long it ran come in.

use std::fmt;
use std::time::Duration;

use crate::exit::Exit;

const WAIT_FIRST: Duration = Duration::from_secs(1);
const WAIT_MAX: Duration = Duration::from_secs(30);
/// A worker that ran so long was sound; the next death is a new story.
const SOUND_AFTER: Duration = Duration::from_mins(1);

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    Code(u8),
    Signal(u8),
}

/// What follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// The supervisor ends with this code.
    Leave(u8),
    Restart {
        after: Duration,
    },
}

/// What is remembered of the deaths so far.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Restarts {
    wait: Duration,
    storage_failed: bool,
}

impl Default for Restarts {
    fn default() -> Self {
        Self { wait: WAIT_FIRST, storage_failed: false }
    }
}

impl Restarts {
    /// What to do about a worker that nobody asked to end.
    pub fn next(&mut self, end: End, ran: Duration) -> Next {
        if ran >= SOUND_AFTER {
            *self = Self::default();
        }
        let is = |exit: Exit| end == End::Code(exit.code());
        // An end in good order, an answer that a person has to look at, a configuration that will be no better the next
        // time, and a worker that somebody interrupted by itself.
        if [Exit::Ok, Exit::Bad, Exit::Usage, Exit::Interrupted].into_iter().any(is) {
            return Next::Leave(end.code());
        }
        // Opening again is the recovery. If that fails too, the disk is broken, and going on would only hide it.
        if is(Exit::Storage) && std::mem::replace(&mut self.storage_failed, true) {
            return Next::Leave(end.code());
        }
        let after = self.wait;
        self.wait = WAIT_MAX.min(after * 2);
        Next::Restart { after }
    }
}

impl End {
    /// The exit code that tells the same, as shells count.
    pub const fn code(self) -> u8 {
        match self {
            Self::Code(code) => code,
            Self::Signal(signal) => signal.saturating_add(128),
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

/// Those that end processes; their numbers are the same on every Unix, bar SIGBUS.
fn signal_name(signal: u8) -> Option<&'static str> {
    Some(match signal {
        1 => "SIGHUP",
        2 => "SIGINT",
        3 => "SIGQUIT",
        4 => "SIGILL",
        6 => "SIGABRT",
        8 => "SIGFPE",
        9 => "SIGKILL, perhaps out of memory",
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
        for code in [70, 75, 101, 137, 255] {
            assert_eq!(seconds(Restarts::default().next(End::Code(code), SHORT)), 1, "{code}");
        }
    }

    #[test]
    fn failed_storage_is_opened_again_once() {
        let mut restarts = Restarts::default();
        assert_eq!(seconds(restarts.next(End::Code(74), SHORT)), 1);
        assert_eq!(seconds(restarts.next(End::Signal(9), SHORT)), 2, "something else in between");
        assert_eq!(restarts.next(End::Code(74), SHORT), Next::Leave(74));
        let mut restarts = Restarts::default();
        assert_eq!(seconds(restarts.next(End::Code(74), SHORT)), 1);
        assert_eq!(seconds(restarts.next(End::Code(74), Duration::from_hours(1))), 1, "another story");
    }

    #[test]
    fn an_end_is_told_in_words() {
        assert_eq!(End::Code(70).to_string(), "exit code 70 (ended by the watchdog)");
        assert_eq!(End::Code(101).to_string(), "exit code 101");
        assert_eq!(End::Signal(11).to_string(), "signal 11 (SIGSEGV)");
        assert_eq!((End::Signal(9).code(), End::Code(3).code()), (137, 3));
    }
}
