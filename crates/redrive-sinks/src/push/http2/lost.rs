//! Why a request got no answer, and whether it may have been processed.

use crate::webhook::Trouble;

/// Why a request got no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lost {
    /// It could not be sent: there was no connection.
    Unsent(Trouble, String),
    /// The server did not process it: GOAWAY with a lower last stream, or REFUSED_STREAM. It can be sent again
    /// immediately on another connection.
    Unprocessed(&'static str),
    /// The connection or the stream broke after it was sent. It may have had its effect.
    Broken(&'static str),
}
