//! Which framework wrote a dead letter.

use super::dialects::{self, Names};
use super::record::ForeignRecord;
use super::understood::{NotUnderstood, Understood};

/// The frameworks whose dead letters are understood.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Dialect {
    /// Spring for Apache Kafka (`DeadLetterPublishingRecoverer`, `@RetryableTopic`) and the Kafka binder of Spring Cloud
    /// Stream.
    Spring,
    /// Kafka Connect sinks.
    Connect,
    /// Kafka Streams (KIP-1034).
    Streams,
    /// Share groups of Kafka 4.4 (KIP-1191).
    Kip1191,
    /// The poison queue of Watermill.
    Watermill,
    Karafka,
    /// Anything else: the record is the message.
    Plain,
}

impl Dialect {
    pub const ALL: [Self; 7] = [
        Self::Spring,
        Self::Connect,
        Self::Streams,
        Self::Kip1191,
        Self::Watermill,
        Self::Karafka,
        Self::Plain,
    ];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Spring => "spring",
            Self::Connect => "connect",
            Self::Streams => "streams",
            Self::Kip1191 => "kip1191",
            Self::Watermill => "watermill",
            Self::Karafka => "karafka",
            Self::Plain => "plain",
        }
    }

    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|dialect| dialect.name() == name)
    }

    /// The headers it is understood by, for people.
    pub const fn reads(self) -> &'static str {
        self.names().reads
    }

    const fn names(self) -> &'static Names {
        match self {
            Self::Spring => &dialects::spring::NAMES,
            Self::Connect => &dialects::connect::NAMES,
            Self::Streams => &dialects::streams::NAMES,
            Self::Kip1191 => &dialects::kip1191::NAMES,
            Self::Watermill => &dialects::watermill::NAMES,
            Self::Karafka => &dialects::karafka::NAMES,
            Self::Plain => &dialects::plain::NAMES,
        }
    }

    /// The framework that wrote a record, by its headers. A record that went through several is of the last: each appends
    /// its headers.
    pub fn detect(record: &ForeignRecord<'_>) -> Option<Self> {
        let last = |dialect: &Self| {
            let marks = dialect.names().marks;
            let is_mark = |name: &str| marks.iter().any(|mark| name.starts_with(mark));
            record.headers.iter().rposition(|(name, _)| is_mark(name))
        };
        let frameworks = Self::ALL.into_iter().filter(|dialect| *dialect != Self::Plain);
        let found = frameworks.filter_map(|dialect| Some((last(&dialect)?, dialect)));
        let plain = || last(&Self::Plain).map(|_| Self::Plain);
        found.max_by_key(|(at, _)| *at).map(|(_, dialect)| dialect).or_else(plain)
    }

    /// What a record of this framework says. Without headers that say where its message came from it is understood only if
    /// `has_source`: somebody has said from which topic.
    pub fn understand(
        self,
        record: &ForeignRecord<'_>,
        has_source: bool,
    ) -> Result<Understood, NotUnderstood> {
        let understood = dialects::read(self, self.names(), record)?;
        let understood = match self {
            Self::Kip1191 => dialects::kip1191::complete(understood, record),
            Self::Watermill => dialects::watermill::complete(understood, record),
            _ => understood,
        };
        if understood.is_pointer && understood.origin.is_none() {
            return Err(NotUnderstood::LostPointer);
        }
        // Watermill names no partition and no offset, and a plain record nothing at all.
        let needs_origin = !matches!(self, Self::Watermill | Self::Plain);
        if needs_origin && understood.origin.is_none() && !has_source {
            return Err(NotUnderstood::NoOrigin { header: self.names().topic[0] });
        }
        Ok(understood)
    }

    /// The same, by the framework that the headers show.
    pub fn understand_any(record: &ForeignRecord<'_>, has_source: bool) -> Result<Understood, NotUnderstood> {
        match Self::detect(record) {
            Some(dialect) => dialect.understand(record, has_source),
            None if has_source => Self::Plain.understand(record, has_source),
            None => Err(NotUnderstood::NoDialect),
        }
    }
}
