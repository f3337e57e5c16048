//! Detects the framework of a record, and reads the record by that framework's table.

use super::cause;
use super::dialect::Dialect;
use super::frameworks::{self, Names};
use super::record::ForeignRecord;
use super::understood::{NotUnderstood, Origin, Understood};

impl Dialect {
    /// The headers that identify it and its origin, for display.
    pub const fn reads(self) -> &'static str {
        self.names().reads
    }

    const fn names(self) -> &'static Names {
        match self {
            Self::Spring => &frameworks::SPRING,
            Self::Connect => &frameworks::CONNECT,
            Self::Streams => &frameworks::STREAMS,
            Self::Kip1191 => &frameworks::KIP1191,
            Self::Watermill => &frameworks::WATERMILL,
            Self::Karafka => &frameworks::KARAFKA,
            Self::Plain => &frameworks::PLAIN,
        }
    }

    /// The framework that wrote a record, by its headers. If a record passed through several, the last one counts,
    /// because each appends its headers.
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

    /// Reads a record of this framework. If no header gives the message's origin, this works only if `has_source`,
    /// which says that the original topic is known.
    pub fn understand(
        self,
        record: &ForeignRecord<'_>,
        has_source: bool,
    ) -> Result<Understood, NotUnderstood> {
        let understood = read(self, self.names(), record)?;
        let understood = match self {
            Self::Kip1191 => frameworks::complete_kip1191(understood, record),
            _ => understood,
        };
        if understood.is_pointer && understood.origin.is_none() {
            return Err(NotUnderstood::LostPointer);
        }
        // Watermill records no partition or offset, and a plain record has no headers at all.
        let needs_origin = !matches!(self, Self::Watermill | Self::Plain);
        if needs_origin && understood.origin.is_none() && !has_source {
            let header = self.missing_of_origin(record).unwrap_or(self.names().topic[0]);
            return Err(NotUnderstood::NoOrigin { header });
        }
        Ok(understood)
    }

    /// The missing origin header, if the other ones are present.
    fn missing_of_origin(self, record: &ForeignRecord<'_>) -> Option<&'static str> {
        let parts = [self.names().topic, self.names().partition, self.names().offset];
        let is_there = |names: &[&'static str]| record.text(names).is_some();
        // Use the spelling of the header that is present.
        let spelling = parts.iter().find_map(|names| names.iter().position(|name| is_there(&[*name])))?;
        let missing = parts.into_iter().find(|names| !is_there(names))?;
        missing.get(spelling).or(missing.first()).copied()
    }

    /// Whether the record has all origin headers but one. That is damage, not a foreign record that happens to use
    /// the same names.
    pub fn lacks_one_of_origin(self, record: &ForeignRecord<'_>) -> bool {
        let parts = [self.names().topic, self.names().partition, self.names().offset];
        parts.into_iter().filter(|names| record.text(names).is_some()).count() == 2
    }

    /// Like [`Self::understand`], with the framework detected from the headers.
    pub fn understand_any(record: &ForeignRecord<'_>, has_source: bool) -> Result<Understood, NotUnderstood> {
        match Self::detect(record) {
            Some(dialect) => dialect.understand(record, has_source),
            None if has_source => Self::Plain.understand(record, has_source),
            None => Err(NotUnderstood::NoDialect),
        }
    }
}

/// Reads the headers of the table.
fn read(dialect: Dialect, names: &Names, record: &ForeignRecord<'_>) -> Result<Understood, NotUnderstood> {
    let partition = record.number(names.partition)?;
    let offset = record.number(names.offset)?;
    let origin = match (record.text(names.topic), partition, offset) {
        (Some(topic), Some(partition), Some(offset)) => {
            let header = names.partition.first().copied().unwrap_or_default();
            let partition = i32::try_from(partition).map_err(|_| NotUnderstood::Unreadable { header })?;
            Some(Origin { topic, partition, offset })
        }
        _ => None,
    };
    let died = cause::Died {
        exception: record.text(names.exception),
        inner_exception: record.text(names.inner_exception),
        message: record.text(names.message),
        stacktrace: record.text(names.stacktrace),
    };
    let attempts = record.number(names.attempts).ok().flatten();
    Ok(Understood {
        origin,
        message_id: record.text(names.id),
        exception: died.exception_name(),
        error: died.error(),
        attempts: attempts.and_then(|attempts| u32::try_from(attempts).ok()),
        created: record.time(names.created),
        failed_at: record.written,
        ..Understood::of(dialect)
    })
}
