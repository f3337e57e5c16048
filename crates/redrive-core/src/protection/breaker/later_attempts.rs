//! Tracks which later attempts are in the breaker's window: each message once, with its latest outcome.

use std::time::Duration;

use crate::Time;

/// How many messages are remembered. If more are retried within a window, some may count twice, which does not matter
/// among so many.
const REMEMBERED_MAX: usize = 64;

#[derive(Clone, Debug, Default)]
pub(crate) struct Again {
    last: Vec<CountedMessage>,
    next: usize,
}

#[derive(Clone, Copy, Debug)]
struct CountedMessage {
    message: u64,
    counted_at: Time,
    failed: bool,
}

/// How an attempt changes the window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Noted {
    /// The message is not in the window yet.
    New,
    /// It is, with the same outcome.
    Same,
    /// It was, with the opposite outcome.
    Other { counted_at: Time },
}

impl Again {
    pub(crate) fn note(&mut self, message: u64, failed: bool, window: Duration, now: Time) -> Noted {
        let entry = CountedMessage { message, counted_at: now, failed };
        if let Some(known) = self.last.iter_mut().find(|known| known.message == message) {
            let counted_at = known.counted_at;
            if now < counted_at || now.since(counted_at) >= window {
                *known = entry;
                return Noted::New;
            }
            let was = std::mem::replace(&mut known.failed, failed);
            return if was == failed { Noted::Same } else { Noted::Other { counted_at } };
        }
        if self.last.len() < REMEMBERED_MAX {
            self.last.push(entry);
        } else {
            self.last[self.next] = entry;
            self.next = (self.next + 1) % REMEMBERED_MAX;
        }
        Noted::New
    }

    pub(crate) fn clear(&mut self) {
        self.last.clear();
        self.next = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WINDOW: Duration = Duration::from_secs(10);

    fn at(ms: u64) -> Time {
        Time::from_millis(1_800_000_000_000 + ms)
    }

    #[test]
    fn a_message_is_new_once_in_a_window() {
        let mut again = Again::default();
        assert_eq!(again.note(7, true, WINDOW, at(0)), Noted::New);
        assert_eq!(again.note(7, true, WINDOW, at(1_000)), Noted::Same);
        assert_eq!(again.note(7, false, WINDOW, at(2_000)), Noted::Other { counted_at: at(0) });
        assert_eq!(again.note(8, false, WINDOW, at(2_000)), Noted::New);
        assert_eq!(again.note(7, false, WINDOW, at(10_000)), Noted::New, "the window has passed");
        assert_eq!(again.note(7, false, WINDOW, at(9_000)), Noted::New, "a clock that was set back");
    }

    #[test]
    fn a_thousand_messages_take_no_more_room_than_it_has() {
        let mut again = Again::default();
        (0..1_000).for_each(|message| assert_eq!(again.note(message, true, WINDOW, at(0)), Noted::New));
        assert_eq!(again.last.len(), REMEMBERED_MAX);
        assert_eq!(again.note(999, true, WINDOW, at(0)), Noted::Same);
    }
}
