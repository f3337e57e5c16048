//! Which framework wrote a dead letter.

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
    /// Anything else: the record itself is the message.
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
}
