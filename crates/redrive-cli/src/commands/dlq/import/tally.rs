//! Counts records read and their results, to be printed at the end.

use std::collections::BTreeMap;

use redrive::internal::adopt::{Dialect, ForeignRecord, NotUnderstood, Understood};
use redrive_api::ImportedLetters;
use serde_json::{Value, json};

use super::offset_ranges::OffsetRanges;
use crate::exit::Failed;
use crate::output::{Output, count};

/// The maximum number of groups and topics counted separately.
const NAMES_MAX: usize = 10_000;
/// The maximum number of refused letters to name.
const PROBLEMS_MAX: usize = 1_000;
const PROBLEMS_SHOWN_MAX: usize = 20;

/// What the reader of a topic or a file found.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    pub read: u64,
    pub understood: u64,
    dialects: BTreeMap<Dialect, u64>,
    /// Topics that messages came from.
    origins: BTreeMap<String, u64>,
    not_understood: BTreeMap<NotUnderstood, OffsetRanges>,
    /// Messages that pointers refer to but that no longer exist.
    pub lost: OffsetRanges,
}

impl Tally {
    pub fn understood(&mut self, understood: &Understood) {
        self.understood += 1;
        *self.dialects.entry(understood.dialect).or_default() += 1;
        if let Some(origin) = &understood.origin
            && (self.origins.len() < NAMES_MAX || self.origins.contains_key(&origin.topic))
        {
            *self.origins.entry(origin.topic.clone()).or_default() += 1;
        }
    }

    pub fn not_understood(&mut self, why: NotUnderstood, record: &ForeignRecord<'_>) {
        self.not_understood.entry(why).or_default().add(record.topic, record.partition, record.offset);
    }

    /// Whether every record was parsed and every message found.
    pub fn is_whole(&self) -> bool {
        self.not_understood.is_empty() && self.lost.is_empty()
    }

    fn without_origin(&self) -> u64 {
        let missing = self.not_understood.iter().filter(|(why, _)| why.needs_source());
        missing.map(|(_, places)| places.count()).sum()
    }

    /// The topic that most messages came from.
    fn usual_origin(&self) -> Option<&str> {
        self.origins.iter().max_by_key(|(_, count)| **count).map(|(topic, _)| topic.as_str())
    }

    /// One line that sums up what was read.
    fn summary(&self, pipeline: &str) -> String {
        let mut parts = Vec::new();
        let by = match self.dialects.iter().next() {
            None => String::new(),
            Some((dialect, _)) if self.dialects.len() == 1 => format!(" ({})", dialect.reads()),
            Some(_) => {
                let each =
                    self.dialects.iter().map(|(dialect, n)| format!("{} {}", dialect.name(), count(*n)));
                format!(" ({})", each.collect::<Vec<_>>().join(", "))
            }
        };
        parts.push(format!("{} understood{by}", count(self.understood)));
        if let Some(source) = self.missing_source(pipeline) {
            let without = count(self.without_origin());
            parts.push(format!("{without} without origin headers → need --source {source}"));
        }
        let other: u64 =
            self.not_understood.values().map(OffsetRanges::count).sum::<u64>() - self.without_origin();
        if other > 0 {
            parts.push(format!("{} not understood", count(other)));
        }
        if !self.lost.is_empty() {
            parts.push(format!("{} gone from their topic", count(self.lost.count())));
        }
        format!("{} records read: {}", count(self.read), parts.join(", "))
    }

    /// The topic to suggest as the source of records that lack one, if there are any.
    pub fn missing_source(&self, pipeline: &str) -> Option<String> {
        (self.without_origin() > 0).then(|| self.usual_origin().unwrap_or(pipeline).to_owned())
    }

    /// Prints what was read from a topic.
    pub fn write(&self, pipeline: &str, out: &mut Output) -> Result<(), Failed> {
        out.line(&self.summary(pipeline))?;
        for (why, places) in &self.not_understood {
            out.line(&format!("  {} × {why}: {places}", count(places.count())))?;
        }
        if !self.lost.is_empty() {
            let lost = &self.lost;
            out.line(&format!("  {} × the message is gone: {lost}", count(lost.count())))?;
        }
        Ok(())
    }

    pub fn json(&self) -> Value {
        let not = self.not_understood.iter().map(|(why, places)| {
            json!({ "why": why.to_string(), "records": places.count(), "offsets": places.ranges().collect::<Vec<_>>() })
        });
        let dialects: BTreeMap<&str, u64> = self.dialects.iter().map(|(one, n)| (one.name(), *n)).collect();
        json!({
            "read": self.read,
            "understood": self.understood,
            "dialects": dialects,
            "without_origin": self.without_origin(),
            "not_understood": not.collect::<Vec<_>>(),
            "lost": self.lost.ranges().collect::<Vec<_>>(),
        })
    }
}

/// The processor's answers to all batches.
#[derive(Clone, Debug, Default)]
pub struct Answered {
    pub imported: u64,
    pub already_there: u64,
    pub refused: u64,
    /// The origin of each refused letter, and the reason.
    problems: Vec<(String, String)>,
    /// The origin of each letter that was changed on import, and how.
    notes: Vec<(String, String)>,
    groups: BTreeMap<String, (String, u64)>,
}

impl Answered {
    /// Adds the answer to a batch whose lines came from `places`.
    pub fn add(&mut self, answer: ImportedLetters, places: &[String]) {
        self.imported += answer.imported;
        self.already_there += answer.already_there;
        self.refused += answer.refused;
        for (lines, named) in [(answer.problems, &mut self.problems), (answer.notes, &mut self.notes)] {
            let room = PROBLEMS_MAX.saturating_sub(named.len());
            let place = |line: usize| line.checked_sub(1).and_then(|line| places.get(line)).cloned();
            let lines = lines.into_iter().take(room);
            named.extend(lines.map(|one| (place(one.line).unwrap_or_default(), one.problem)));
        }
        for group in answer.groups {
            if self.groups.len() < NAMES_MAX || self.groups.contains_key(&group.id) {
                self.groups.entry(group.id).or_insert((group.error, 0)).1 += group.letters;
            }
        }
    }

    fn largest(&self) -> Option<(&String, &(String, u64))> {
        self.groups.iter().max_by_key(|(_, (_, letters))| *letters)
    }

    pub fn write(&self, dry_run: bool, out: &mut Output) -> Result<(), Failed> {
        let word = if dry_run { "would import" } else { "imported" };
        let refused =
            if self.refused > 0 { format!("   refused {}", count(self.refused)) } else { String::new() };
        out.line(&format!(
            "{word} {}   already there {}{refused}",
            count(self.imported),
            count(self.already_there)
        ))?;
        if let Some((_, (error, letters))) = self.largest() {
            let be = if dry_run { "would be" } else { "in" };
            let groups = match self.groups.len() {
                1 => "1 group".to_owned(),
                many => format!("{} groups", count(many as u64)),
            };
            out.line(&format!("{be} {groups}; largest: {} × {error}", count(*letters)))?;
        }
        for (place, problem) in self.problems.iter().take(PROBLEMS_SHOWN_MAX) {
            out.line(&format!("  refused {place}: {problem}"))?;
        }
        for (place, note) in self.notes.iter().take(PROBLEMS_SHOWN_MAX) {
            out.line(&format!("  changed {place}: {note}"))?;
        }
        Ok(())
    }

    pub fn json(&self) -> Value {
        let problems =
            self.problems.iter().map(|(place, problem)| json!({ "place": place, "problem": problem }));
        let notes = self.notes.iter().map(|(place, note)| json!({ "place": place, "note": note }));
        let groups = self.groups.iter();
        let groups =
            groups.map(|(id, (error, letters))| json!({ "id": id, "error": error, "letters": letters }));
        json!({
            "imported": self.imported,
            "already_there": self.already_there,
            "refused": self.refused,
            "problems": problems.collect::<Vec<_>>(),
            "notes": notes.collect::<Vec<_>>(),
            "groups": groups.collect::<Vec<_>>(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record<'a>(offset: i64, headers: Vec<(&'a str, Option<&'a [u8]>)>) -> ForeignRecord<'a> {
        ForeignRecord {
            topic: "orders-dlt",
            partition: 0,
            offset,
            written: None,
            key: None,
            value: Some(b"{}"),
            headers,
        }
    }

    /// As in story 15.
    #[test]
    fn the_summary_says_what_is_missing_and_how_to_give_it() {
        let mut tally = Tally { read: 12_441, ..Tally::default() };
        let headers: Vec<(&str, Option<&[u8]>)> = vec![
            ("kafka_dlt-original-topic", Some(b"orders")),
            ("kafka_dlt-original-partition", Some(&[0, 0, 0, 7])),
            ("kafka_dlt-original-offset", Some(&[0, 0, 0, 0, 0, 0, 4, 158])),
        ];
        let whole = record(0, headers);
        for _ in 0..12_402 {
            tally.understood(&Dialect::Spring.understand(&whole, false).unwrap());
        }
        for offset in 0..39 {
            let bare = record(offset, Vec::new());
            tally.not_understood(Dialect::Spring.understand(&bare, false).unwrap_err(), &bare);
        }
        assert_eq!(
            tally.summary("orders-pipeline"),
            "12,441 records read: 12,402 understood (kafka_dlt-original-topic/partition/offset, exception-fqcn, message), \
             39 without origin headers → need --source orders"
        );
        assert!(!tally.is_whole());
        assert_eq!(tally.json()["not_understood"][0]["offsets"], json!(["orders-dlt/0/0..38"]));
    }
}
