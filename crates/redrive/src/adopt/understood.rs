//! What a record says of the message that died, or why that cannot be known.

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

/// What a record says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Understood {
    pub dialect: Dialect,
    pub origin: Option<Origin>,
    /// The message's id, where the framework gives it one.
    pub message_id: Option<String>,
    /// The full name of the exception.
    pub exception: Option<String>,
    /// The exception with its message, and its frames where they are known.
    pub error: Option<String>,
    pub attempts: Option<u32>,
    /// When the message was made.
    pub created: Option<Time>,
    /// When it died.
    pub failed_at: Option<Time>,
    /// Whether the record only points at the message, which is still in its topic.
    pub is_pointer: bool,
}

impl Understood {
    /// Nothing but that it is of this framework.
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

/// Why a record is not understood.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum NotUnderstood {
    /// No header says where it came from.
    NoOrigin { header: &'static str },
    /// A header is there, and is no number.
    Unreadable { header: &'static str },
    /// It only points at a message, and not in which topic.
    LostPointer,
    /// The name of a header is not text.
    BadHeaderName,
    /// No header is of a framework that is known.
    NoDialect,
}

impl NotUnderstood {
    /// Whether it is understood once the topic it came from is given.
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
