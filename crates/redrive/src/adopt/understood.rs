//! What a record says about the message that died, or why it cannot be read.

use std::fmt;

use redrive_core::Time;

use super::dialect::Dialect;

/// The record that a message came from.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Origin {
    pub topic: String,
    pub partition: i32,
    pub offset: i64,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.topic, self.partition, self.offset)
    }
}

/// The contents of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Understood {
    pub dialect: Dialect,
    pub origin: Option<Origin>,
    /// The message's id, if the framework assigns one.
    pub message_id: Option<String>,
    /// The full name of the exception.
    pub exception: Option<String>,
    /// The exception with its message, and its frames if known.
    pub error: Option<String>,
    pub attempts: Option<u32>,
    /// When the message was made.
    pub created: Option<Time>,
    /// When it died.
    pub failed_at: Option<Time>,
    /// Whether the record only points at the message, which is still in its original topic.
    pub is_pointer: bool,
}

impl Understood {
    /// An empty record of this framework.
    pub(super) const fn of(dialect: Dialect) -> Self {
        Self {
            dialect,
            origin: None,
            message_id: None,
            exception: None,
            error: None,
            attempts: None,
            created: None,
            failed_at: None,
            is_pointer: false,
        }
    }
}

/// Why a record cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum NotUnderstood {
    /// A header with the message's origin is missing.
    NoOrigin { header: &'static str },
    /// A header is not a number.
    Unreadable { header: &'static str },
    /// The record only points at a message, and no header gives the position.
    LostPointer,
    /// The name of a header is not text.
    BadHeaderName,
    /// No header belongs to a known framework.
    NoDialect,
}

impl NotUnderstood {
    /// Whether it can be read once the original topic is given.
    pub const fn needs_source(self) -> bool {
        matches!(self, Self::NoOrigin { .. } | Self::NoDialect)
    }
}

impl fmt::Display for NotUnderstood {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoOrigin { header } => write!(f, "no header {header}"),
            Self::Unreadable { header } => write!(f, "the header {header} is not a number"),
            Self::LostPointer => {
                f.write_str("it has no payload, and no header names the record that holds the message")
            }
            Self::BadHeaderName => f.write_str("the name of a header is not text"),
            Self::NoDialect => f.write_str("no header of a known framework"),
        }
    }
}
