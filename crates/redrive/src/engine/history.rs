//! The history of a message's failed attempts, kept in its stored form: appending an attempt does not parse earlier
//! ones.

#![warn(missing_docs)]

use std::borrow::Cow;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use redrive_core::{Class, FailureKind, Time};

/// The first attempt and this many of the latest ones are kept.
pub const LATEST_ATTEMPTS_MAX: usize = 8;
/// The maximum length of the stored error chain of an attempt.
pub const ERROR_BYTES_MAX: usize = 1024;
/// The maximum length of a failure's code.
pub const CODE_BYTES_MAX: usize = 64;

/// The maximum size of a history, however many attempts failed.
pub const HISTORY_BYTES_MAX: usize =
    (LATEST_ATTEMPTS_MAX + 1) * (FIXED_BYTES + ERROR_BYTES_MAX + CODE_BYTES_MAX + KIND_BYTES);

/// One failed attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attempt {
    /// Its number, counted from 1.
    pub number: u32,
    /// When it ended.
    pub at: Time,
    /// How long it took, in milliseconds.
    pub took_ms: u32,
    /// The class of the failure.
    pub class: Class,
    /// How it failed.
    pub kind: FailureKind,
    /// The receiver's own error code, such as `BadDeviceToken`; see [`crate::Failure::with_code`].
    pub code: Option<String>,
    /// Whether it used up one of the message's attempts.
    pub counted: bool,
    /// Whether the effect may have happened although the attempt failed.
    pub ambiguous: bool,
    /// The error and its causes, outermost first, joined by `: `.
    pub error: String,
}

/// The stored attempts, oldest first.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct History {
    raw: Bytes,
}

const FIXED_BYTES: usize = 4 + 8 + 4 + 1 + 1 + 2;

/// Where the byte with these bits stands, behind the class.
#[cfg(feature = "embedded")]
const FLAGS_AT: usize = 4 + 8 + 4 + 1;
const COUNTED: u8 = 1;
const AMBIGUOUS: u8 = 2;
/// Set if kind and code are stored. They come after the error but count towards its length: an earlier version reads
/// them as the end of the error text and still finds the next attempt.
const HAS_KIND: u8 = 4;
/// The bytes after the code: its length, the kind, the status.
const KIND_BYTES: usize = 1 + 1 + 2;

impl History {
    /// Wraps a stored history.
    pub fn from_raw(raw: Bytes) -> Self {
        Self { raw }
    }

    /// The stored form.
    pub fn raw(&self) -> &Bytes {
        &self.raw
    }

    /// Whether there are no attempts.
    pub fn is_empty(&self) -> bool {
        self.raw.is_empty()
    }

    /// Decodes the attempts. Stops silently at damaged bytes: the checksum of the frame has already reported them.
    pub fn attempts(&self) -> Vec<Attempt> {
        let mut rest = self.raw.clone();
        let mut attempts = Vec::new();
        while let Some((attempt, len)) = read(&rest) {
            rest.advance(len);
            attempts.push(attempt);
        }
        attempts
    }

    /// Returns this history with one more attempt. If it is full, the oldest attempt except the very first is
    /// dropped.
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

    /// The same attempts without the texts that may quote the message: errors and codes.
    #[must_use]
    pub fn without_texts(&self) -> Self {
        let silent = |attempt: Attempt| Attempt { error: String::new(), code: None, ..attempt };
        self.attempts()
            .into_iter()
            .map(silent)
            .fold(Self::default(), |history, attempt| history.with(&attempt))
    }
}

/// Overwrites the texts in a stored history with zeros; every length and number stays.
#[cfg(feature = "embedded")]
pub(crate) fn mask(raw: &mut [u8]) {
    let mut at = 0;
    while let Some(len) = length(&raw[at..]) {
        let kind = if raw[at + FLAGS_AT] & HAS_KIND == 0 { 0 } else { KIND_BYTES };
        let end = (at + len).saturating_sub(kind).max(at + FIXED_BYTES);
        raw[at + FIXED_BYTES..end].fill(0);
        at += len;
    }
    raw[at..].fill(0);
}

fn write(raw: &mut BytesMut, attempt: &Attempt) {
    let error = shortened(&attempt.error, ERROR_BYTES_MAX);
    let code = start_of(attempt.code.as_deref().unwrap_or_default(), CODE_BYTES_MAX);
    let flag = |set: bool, bit: u8| if set { bit } else { 0 };
    raw.put_u32_le(attempt.number);
    raw.put_u64_le(attempt.at.as_millis());
    raw.put_u32_le(attempt.took_ms);
    raw.put_u8(attempt.class.code());
    raw.put_u8(HAS_KIND | flag(attempt.counted, COUNTED) | flag(attempt.ambiguous, AMBIGUOUS));
    raw.put_u16_le((error.len() + code.len() + KIND_BYTES) as u16);
    raw.put_slice(error.as_bytes());
    raw.put_slice(code.as_bytes());
    raw.put_u8(code.len() as u8);
    raw.put_u8(kind_number(attempt.kind));
    raw.put_u16_le(attempt.kind.status().unwrap_or_default());
}

/// Truncates a text to `max` bytes; a truncated one ends in `…`.
fn shortened(text: &str, max: usize) -> Cow<'_, str> {
    if text.len() <= max {
        return Cow::Borrowed(text);
    }
    Cow::Owned(format!("{}…", start_of(text, max - '…'.len_utf8())))
}

/// The first `max` bytes of a text, cut at a character boundary.
fn start_of(text: &str, max: usize) -> &str {
    let mut end = text.len().min(max);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

const fn kind_number(kind: FailureKind) -> u8 {
    match kind {
        FailureKind::Other => 0,
        FailureKind::Status(_) => 1,
        FailureKind::Timeout => 2,
        FailureKind::Refused => 3,
        FailureKind::Reset => 4,
        FailureKind::Dns => 5,
        FailureKind::Tls => 6,
        FailureKind::Proxy => 7,
    }
}

/// The length of the first attempt in `raw`, if it is complete.
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
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let said = &raw[FIXED_BYTES..len];
    let (error, kind, code) = if flags & HAS_KIND == 0 {
        let error = text(said);
        (error.clone(), kind_of_text(&error), None)
    } else {
        let (rest, [code_len, kind, status @ ..]) = said.split_last_chunk::<KIND_BYTES>()?;
        let (error, code) = rest.split_at_checked(rest.len().checked_sub(usize::from(*code_len))?)?;
        let kind = match kind {
            1 => FailureKind::Status(u16::from_le_bytes(*status)),
            2 => FailureKind::Timeout,
            3 => FailureKind::Refused,
            4 => FailureKind::Reset,
            5 => FailureKind::Dns,
            6 => FailureKind::Tls,
            7 => FailureKind::Proxy,
            // Also kinds that a later version may write.
            _ => FailureKind::Other,
        };
        (text(error), kind, Some(text(code)).filter(|code| !code.is_empty()))
    };
    let (counted, ambiguous) = (flags & COUNTED != 0, flags & AMBIGUOUS != 0);
    Some((Attempt { number, at, took_ms, class, kind, code, counted, ambiguous, error }, len))
}

/// Derives the kind of an attempt stored before attempts had one. Sinks wrote the status as the first word of the
/// error: `503 Service Unavailable`. Only for data of earlier versions.
pub fn kind_of_text(error: &str) -> FailureKind {
    let end = error.find(|c: char| !c.is_ascii_digit()).unwrap_or(error.len());
    let status = if end == 3 { error[..3].parse().ok() } else { None };
    status.map_or(FailureKind::Other, FailureKind::Status)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn attempt(number: u32) -> Attempt {
        Attempt {
            number,
            at: Time::from_millis(u64::from(number) * 1000),
            took_ms: 12,
            class: Class::Transient,
            kind: [FailureKind::Status(503), FailureKind::Refused, FailureKind::Other][number as usize % 3],
            code: (number % 4 == 1).then(|| format!("E{number}")),
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
    fn without_texts_everything_but_errors_and_codes_stays() {
        let history = History::default().with(&attempt(1)).with(&attempt(2));
        let silent = |number| Attempt { error: String::new(), code: None, ..attempt(number) };
        assert_eq!(history.without_texts().attempts(), [silent(1), silent(2)]);
        let mut raw = history.raw().to_vec();
        mask(&mut raw);
        assert_eq!(raw.len(), history.raw().len());
        for (masked, told) in History::from_raw(raw.into()).attempts().iter().zip([attempt(1), attempt(2)]) {
            let same = Attempt { error: masked.error.clone(), code: masked.code.clone(), ..told.clone() };
            assert_eq!(*masked, same);
            let said = masked.error.bytes().chain(masked.code.iter().flat_map(|code| code.bytes()));
            assert!(said.clone().all(|byte| byte == 0));
            assert_eq!(said.count(), told.error.len() + told.code.map_or(0, |code| code.len()));
        }
    }

    #[test]
    fn every_kind_and_code_comes_back() {
        use FailureKind::{Dns, Other, Proxy, Refused, Reset, Status, Timeout, Tls};
        for kind in [Status(100), Status(599), Timeout, Refused, Dns, Tls, Proxy, Reset, Other] {
            for code in [None, Some("x".to_owned()), Some("c".repeat(CODE_BYTES_MAX))] {
                let told = Attempt { kind, code, error: "é".repeat(ERROR_BYTES_MAX / 2), ..attempt(1) };
                assert_eq!(History::default().with(&told).with(&told).attempts(), [told.clone(), told]);
            }
        }
    }

    /// In the format before attempts had a kind: no third flag, and nothing after the error.
    #[test]
    fn an_attempt_without_a_kind_gets_it_from_its_text() {
        for (error, kind) in [
            ("503", FailureKind::Status(503)),
            ("422 Unprocessable Entity: no_lines", FailureKind::Status(422)),
            ("503: gone away", FailureKind::Status(503)),
            ("5030 things", FailureKind::Other),
            ("got 503", FailureKind::Other),
            ("", FailureKind::Other),
        ] {
            let mut raw = BytesMut::new();
            raw.put_u32_le(2);
            raw.put_u64_le(1_700_000_000_000);
            raw.put_u32_le(12);
            raw.put_u8(Class::Transient.code());
            raw.put_u8(3);
            raw.put_u16_le(error.len() as u16);
            raw.put_slice(error.as_bytes());
            let history = History::from_raw(raw.freeze()).with(&attempt(3));
            let [old, new] = &history.attempts()[..] else { panic!("{history:?}") };
            assert_eq!((old.kind, &old.code, old.error.as_str()), (kind, &None, error));
            assert!(old.counted && old.ambiguous);
            assert_eq!(*new, attempt(3));
        }
    }

    /// Damage that the checksum missed must not bring the process down.
    #[test]
    fn bytes_that_make_no_sense_end_the_walk() {
        let whole = History::default().with(&attempt(1)).raw().clone();
        for cut in 0..whole.len() {
            History::from_raw(whole.slice(..cut)).attempts();
            let mut bent = whole.to_vec();
            bent[cut] = !bent[cut];
            History::from_raw(bent.into()).attempts();
        }
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
        assert!(kept.len() <= ERROR_BYTES_MAX && kept.ends_with("é…"), "it says that it was cut");
        let whole = Attempt { error: "x".repeat(ERROR_BYTES_MAX), ..attempt(1) };
        assert_eq!(History::default().with(&whole).attempts(), [whole]);
    }

    proptest! {
        /// Whatever the failures and texts, the history is bounded and its latest attempt is there.
        #[test]
        fn any_story_has_a_bound(errors in prop::collection::vec(("\\PC{0,40}", 0_usize..200, ".{0,90}"), 1..40)) {
            let mut history = History::default();
            for (n, (word, times, code)) in errors.iter().enumerate() {
                let told = Attempt { error: word.repeat(*times), code: Some(code.clone()), ..attempt(n as u32 + 1) };
                history = history.with(&told);
                prop_assert!(history.raw().len() <= HISTORY_BYTES_MAX);
                let last = history.attempts().pop().unwrap();
                prop_assert_eq!(last.number, told.number);
                let is_cut = told.error.len() > ERROR_BYTES_MAX;
                prop_assert_eq!(last.error.ends_with('…'), is_cut || told.error.ends_with('…'));
            }
        }
    }
}
