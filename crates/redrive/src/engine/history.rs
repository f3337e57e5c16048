//! The story of a message's failed attempts, kept in its stored form: appending never parses what came before.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use redrive_core::{Class, Time};

/// The first attempt and this many of the latest are kept.
pub const LATEST_ATTEMPTS_MAX: usize = 8;
/// Longest stored error chain of one attempt.
pub const ERROR_BYTES_MAX: usize = 1024;

/// One failed attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attempt {
    /// Its number: 1 is the first call.
    pub number: u32,
    pub at: Time,
    pub took_ms: u32,
    pub class: Class,
    /// Whether it counted against the attempt budget.
    pub counted: bool,
    /// Whether the effect may have happened although the attempt failed.
    pub ambiguous: bool,
    /// The error and its causes, outermost first, joined by `: `.
    pub error: String,
}

/// All attempts that are kept, oldest first.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct History {
    raw: Bytes,
}

const FIXED_BYTES: usize = 4 + 8 + 4 + 1 + 1 + 2;

impl History {
    pub fn from_raw(raw: Bytes) -> Self {
        Self { raw }
    }

    pub fn raw(&self) -> &Bytes {
        &self.raw
    }

    pub fn is_empty(&self) -> bool {
        self.raw.is_empty()
    }

    /// Attempts as they were recorded. Damaged bytes end the walk: the frame's checksum has already spoken.
    pub fn attempts(&self) -> Vec<Attempt> {
        let mut rest = self.raw.clone();
        let mut attempts = Vec::new();
        while let Some((attempt, len)) = read(&rest) {
            rest.advance(len);
            attempts.push(attempt);
        }
        attempts
    }

    /// This history with one more attempt; beyond the bound the oldest but the very first is dropped.
    #[must_use]
    pub fn with(&self, attempt: &Attempt) -> Self {
        let mut ends = Vec::new();
        let mut at = 0;
        while let Some(len) = length(&self.raw[at..]) {
            at += len;
            ends.push(at);
        }
        let mut raw = BytesMut::with_capacity(self.raw.len() + FIXED_BYTES + attempt.error.len());
        if ends.len() > LATEST_ATTEMPTS_MAX {
            raw.put_slice(&self.raw[..ends[0]]);
            raw.put_slice(&self.raw[ends[ends.len() - LATEST_ATTEMPTS_MAX]..at]);
        } else {
            raw.put_slice(&self.raw[..at]);
        }
        write(&mut raw, attempt);
        Self { raw: raw.freeze() }
    }
}

fn write(raw: &mut BytesMut, attempt: &Attempt) {
    let mut end = attempt.error.len().min(ERROR_BYTES_MAX);
    while !attempt.error.is_char_boundary(end) {
        end -= 1;
    }
    raw.put_u32_le(attempt.number);
    raw.put_u64_le(attempt.at.as_millis());
    raw.put_u32_le(attempt.took_ms);
    raw.put_u8(attempt.class.code());
    raw.put_u8(u8::from(attempt.counted) | u8::from(attempt.ambiguous) << 1);
    raw.put_u16_le(end as u16);
    raw.put_slice(&attempt.error.as_bytes()[..end]);
}

/// The length of the first attempt in `raw`, if it is whole.
fn length(raw: &[u8]) -> Option<usize> {
    let error = u16::from_le_bytes([*raw.get(FIXED_BYTES - 2)?, *raw.get(FIXED_BYTES - 1)?]);
    let len = FIXED_BYTES + usize::from(error);
    (raw.len() >= len).then_some(len)
}

fn read(raw: &Bytes) -> Option<(Attempt, usize)> {
    let len = length(raw)?;
    let mut fixed = &raw[..FIXED_BYTES];
    let number = fixed.get_u32_le();
    let at = Time::from_millis(fixed.get_u64_le());
    let took_ms = fixed.get_u32_le();
    let class = Class::from_code(fixed.get_u8())?;
    let flags = fixed.get_u8();
    let error = String::from_utf8_lossy(&raw[FIXED_BYTES..len]).into_owned();
    Some((
        Attempt { number, at, took_ms, class, counted: flags & 1 != 0, ambiguous: flags & 2 != 0, error },
        len,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attempt(number: u32) -> Attempt {
        Attempt {
            number,
            at: Time::from_millis(u64::from(number) * 1000),
            took_ms: 12,
            class: Class::Transient,
            counted: number.is_multiple_of(2),
            ambiguous: number.is_multiple_of(3),
            error: format!("503 at try {number}: connection refused"),
        }
    }

    #[test]
    fn attempts_come_back_as_recorded() {
        let history = History::default().with(&attempt(1)).with(&attempt(2));
        assert_eq!(history.attempts(), [attempt(1), attempt(2)]);
    }

    #[test]
    fn the_first_and_the_latest_attempts_are_kept() {
        let history = (1..=50).fold(History::default(), |history, n| history.with(&attempt(n)));
        let numbers: Vec<_> = history.attempts().iter().map(|a| a.number).collect();
        assert_eq!(numbers, [1, 43, 44, 45, 46, 47, 48, 49, 50]);
    }

    #[test]
    fn a_long_error_is_cut_at_a_character() {
        let long = Attempt { error: "é".repeat(ERROR_BYTES_MAX), ..attempt(1) };
        let kept = History::default().with(&long).attempts().remove(0).error;
        assert_eq!(kept.len(), ERROR_BYTES_MAX);
    }
}
