//! The kind of failure of a call, for counting failures; independent of what is decided.

use std::fmt;
use std::str::FromStr;

/// How a call failed. Exhaustive on purpose: engines store it by number, so a new kind must be a compile error there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub enum FailureKind {
    /// An answer with this status.
    Status(u16),
    /// There was no answer in time.
    Timeout,
    /// No connection was made, or it broke before the request began to leave.
    Refused,
    /// The host name has no address.
    Dns,
    /// The TLS handshake failed, or one side rejected the other's certificate.
    Tls,
    /// A proxy on our side failed.
    Proxy,
    /// The connection broke after the request was sent.
    Reset,
    /// Any other failure, such as one that a handler reports.
    #[default]
    Other,
}

/// A kind of failure to count: `503`, `5xx`, `timeout`, `refused` (nothing arrived, or the connection broke) or
/// `other`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Counted {
    /// This HTTP status.
    Status(u16),
    /// All of one hundred: 5 means 500 to 599.
    Hundred(u8),
    /// It took too long.
    Timeout,
    /// Nothing arrived, or the connection broke.
    Refused,
    /// Any other failure.
    Other,
}

/// The text is not a kind of failure that can be counted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not a failure that can be counted; write it like 503, 5xx, timeout, refused or other")]
pub struct CountedError {
    /// The text as written.
    pub text: String,
}

impl FailureKind {
    /// The kind in one word, for logs; the number of a status is logged separately.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Status(_) => "status",
            Self::Timeout => "timeout",
            Self::Refused => "refused",
            Self::Dns => "dns",
            Self::Tls => "tls",
            Self::Proxy => "proxy",
            Self::Reset => "reset",
            Self::Other => "other",
        }
    }

    /// Parses a name; `status` needs its number.
    pub fn from_name(name: &str, status: Option<u16>) -> Option<Self> {
        match name {
            "status" => status.map(Self::Status),
            "timeout" => Some(Self::Timeout),
            "refused" => Some(Self::Refused),
            "dns" => Some(Self::Dns),
            "tls" => Some(Self::Tls),
            "proxy" => Some(Self::Proxy),
            "reset" => Some(Self::Reset),
            "other" => Some(Self::Other),
            _ => None,
        }
    }

    /// The status of the answer, if there was one.
    pub const fn status(self) -> Option<u16> {
        match self {
            Self::Status(status) => Some(status),
            Self::Timeout
            | Self::Refused
            | Self::Dns
            | Self::Tls
            | Self::Proxy
            | Self::Reset
            | Self::Other => None,
        }
    }

    /// Whether no connection was established to send the request on, so that the message cannot be the cause.
    pub const fn is_unconnected(self) -> bool {
        match self {
            Self::Refused | Self::Dns | Self::Tls | Self::Proxy => true,
            Self::Status(_) | Self::Timeout | Self::Reset | Self::Other => false,
        }
    }
}

impl Counted {
    /// Whether this setting counts a failure of this kind.
    pub fn matches(self, kind: FailureKind) -> bool {
        match (self, kind) {
            (Self::Status(status), FailureKind::Status(got)) => status == got,
            (Self::Hundred(hundred), FailureKind::Status(got)) => got / 100 == u16::from(hundred),
            (Self::Refused, kind) => kind.is_unconnected() || kind == FailureKind::Reset,
            (Self::Timeout, FailureKind::Timeout) | (Self::Other, FailureKind::Other) => true,
            _ => false,
        }
    }
}

impl FromStr for Counted {
    type Err = CountedError;

    fn from_str(text: &str) -> Result<Self, CountedError> {
        let wrong = || CountedError { text: text.to_owned() };
        match text {
            "timeout" => return Ok(Self::Timeout),
            "refused" => return Ok(Self::Refused),
            "other" => return Ok(Self::Other),
            _ => {}
        }
        if let Some(hundred) = text.strip_suffix("xx") {
            let hundred: u8 = hundred.parse().map_err(|_| wrong())?;
            return if (1..=5).contains(&hundred) { Ok(Self::Hundred(hundred)) } else { Err(wrong()) };
        }
        let status: u16 = text.parse().map_err(|_| wrong())?;
        if (100..=599).contains(&status) { Ok(Self::Status(status)) } else { Err(wrong()) }
    }
}

impl fmt::Display for Counted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Status(status) => write!(f, "{status}"),
            Self::Hundred(hundred) => write!(f, "{hundred}xx"),
            Self::Timeout => f.write_str("timeout"),
            Self::Refused => f.write_str("refused"),
            Self::Other => f.write_str("other"),
        }
    }
}

impl fmt::Display for FailureKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Status(status) => write!(f, "{status}"),
            _ => f.write_str(self.name()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_counted_is_read_and_written_back() {
        for text in ["503", "5xx", "4xx", "timeout", "refused", "other"] {
            assert_eq!(text.parse::<Counted>().unwrap().to_string(), text);
        }
        for text in ["", "50", "600", "9xx", "xx", "Timeout", "5XX"] {
            assert_eq!(text.parse::<Counted>().unwrap_err().text, text);
        }
    }

    #[test]
    fn a_kind_is_known_by_its_name_and_status() {
        use FailureKind::{Dns, Other, Proxy, Refused, Reset, Status, Timeout, Tls};
        for kind in [Status(503), Timeout, Refused, Dns, Tls, Proxy, Reset, Other] {
            assert_eq!(FailureKind::from_name(kind.name(), kind.status()), Some(kind));
        }
        assert_eq!(FailureKind::from_name("status", None), None);
        assert_eq!(FailureKind::from_name("503", Some(503)), None);
    }

    /// `counts = ["refused"]` covered all of these before each had its own name.
    #[test]
    fn refused_counts_everything_that_did_not_arrive_or_broke_off() {
        use FailureKind::{Dns, Other, Proxy, Refused, Reset, Status, Timeout, Tls};
        for kind in [Refused, Dns, Tls, Proxy, Reset] {
            assert!(Counted::Refused.matches(kind), "{kind}");
        }
        for kind in [Status(503), Timeout, Other] {
            assert!(!Counted::Refused.matches(kind), "{kind}");
        }
    }

    #[test]
    fn a_hundred_has_all_its_statuses() {
        assert!(Counted::Hundred(5).matches(FailureKind::Status(503)));
        assert!(!Counted::Hundred(5).matches(FailureKind::Status(429)));
        assert!(Counted::Status(503).matches(FailureKind::Status(503)));
        assert!(!Counted::Status(503).matches(FailureKind::Status(502)));
        assert!(Counted::Timeout.matches(FailureKind::Timeout));
        assert!(!Counted::Timeout.matches(FailureKind::Other));
    }
}
