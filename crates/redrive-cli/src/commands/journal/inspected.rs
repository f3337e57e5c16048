//! A store and its log of subscriptions, as read, and as JSON.

use redrive::internal::engine::embedded::inspect::{Inspection, LogInspection};
use redrive::internal::subscriptions::check::SubscriptionLogCheck;
use serde_json::{Value, json};

/// A store and its log of subscriptions.
pub(super) struct Inspected {
    pub(super) store: Inspection,
    /// `None` if the sink has no subscriptions.
    pub(super) subscriptions: Option<SubscriptionLogCheck>,
}

impl Inspected {
    pub(super) fn is_damaged(&self) -> bool {
        self.store.is_damaged() || self.damaged_lines() > 0
    }

    pub(super) fn damaged_lines(&self) -> u64 {
        self.subscriptions.as_ref().map_or(0, |found| found.damaged)
    }

    pub(super) fn to_json(&self) -> Value {
        let inspection = &self.store;
        let subscriptions = self.subscriptions.as_ref().map(|found| {
            let damage = found
                .damage
                .iter()
                .map(|damage| json!({"line": damage.line, "offset": damage.offset, "bytes": damage.bytes}));
            json!({"file": found.path.display().to_string(), "bytes": found.bytes, "lines": found.lines,
                   "damaged": found.damaged, "damage": damage.collect::<Vec<_>>(),
                   "unfinished_bytes": found.unfinished_bytes})
        });
        let log = |log: &LogInspection| {
            let damage: Vec<Value> = log
                .damage
                .iter()
                .map(|damage| {
                    json!({"segment": damage.segment, "position": damage.position, "offset": damage.offset,
                           "bytes": damage.bytes, "kind": damage.was.map(|was| was.0), "number": damage.was.map(|was| was.1)})
                })
                .collect();
            let segments: Vec<Value> = log
                .segments
                .iter()
                .map(|segment| {
                    json!({"name": segment.name, "base": segment.base, "bytes": segment.bytes, "frames": segment.frames})
                })
                .collect();
            let frames: serde_json::Map<String, Value> = log
                .frames
                .iter()
                .map(|(kind, (frames, bytes))| {
                    ((*kind).to_owned(), json!({"frames": frames, "bytes": bytes}))
                })
                .collect();
            let missing: Vec<Value> =
                log.missing.iter().map(|range| json!({"from": range.start, "to": range.end})).collect();
            json!({"segments": segments, "frames": frames, "batches": log.batches, "damage": damage, "missing": missing,
                   "unfinished_bytes": log.unfinished_bytes, "leftovers": log.leftovers, "start": log.start, "end": log.end})
        };
        json!({
            "pipeline": inspection.pipeline,
            "path": inspection.path.display().to_string(),
            "format": inspection.format,
            "id": inspection.store_id,
            "owner": inspection.owner,
            "damaged": self.is_damaged(),
            "journal": log(&inspection.journal),
            "letter_log": log(&inspection.letter_log),
            "pending": inspection.pending,
            "letters": inspection.letters,
            "watermark": inspection.watermark,
            "index": inspection.index,
            "subscriptions": subscriptions,
        })
    }
}
