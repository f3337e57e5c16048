//! What each framework writes: a table of header names, and what is peculiar to it.

pub(super) mod connect;
pub(super) mod karafka;
pub(super) mod kip1191;
pub(super) mod plain;
pub(super) mod spring;
pub(super) mod streams;
pub(super) mod watermill;

use super::cause;
use super::dialect::Dialect;
use super::record::ForeignRecord;
use super::understood::{NotUnderstood, Origin, Understood};

/// The headers of a framework. Of several names for one thing, the first that is there counts.
pub(super) struct Names {
    /// For people.
    pub reads: &'static str,
    /// Beginnings of names that only this framework writes.
    pub marks: &'static [&'static str],
    pub topic: &'static [&'static str],
    pub partition: &'static [&'static str],
    pub offset: &'static [&'static str],
    pub id: &'static [&'static str],
    pub exception: &'static [&'static str],
    /// The exception inside of one that only says that something failed.
    pub inner_exception: &'static [&'static str],
    pub message: &'static [&'static str],
    pub stacktrace: &'static [&'static str],
    pub attempts: &'static [&'static str],
    pub created: &'static [&'static str],
}

impl Names {
    pub(super) const NONE: Self = Self {
        reads: "",
        marks: &[],
        topic: &[],
        partition: &[],
        offset: &[],
        id: &[],
        exception: &[],
        inner_exception: &[],
        message: &[],
        stacktrace: &[],
        attempts: &[],
        created: &[],
    };
}

/// Reads what the table says.
pub(super) fn read(
    dialect: Dialect,
    names: &Names,
    record: &ForeignRecord<'_>,
) -> Result<Understood, NotUnderstood> {
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
