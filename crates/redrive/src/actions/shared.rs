//! The actions of pipelines whose letters several processes share. Each action is a record that all of them read, so
//! every process shows the same log and can undo the actions of another, even after that one is gone.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;

use super::action::{Action, ActionKind, ActionStep};
use super::unfinished::RunningAction;
use crate::engine::SharedRecords;

/// Prefix of all keys, followed by the record's id and then by a part number or [`RUNNING`].
const PREFIX: &str = "action/";
/// Key suffix of the mark that an action is being carried out.
const RUNNING: &str = "running";
/// Largest part, in bytes; by default a broker accepts one megabyte.
const PART_BYTES_MAX: usize = 256 << 10;
/// Actions of one pipeline that are shared; older ones remain only in the file of the process that recorded them.
const ACTIONS_MAX: usize = 2_000;
/// Bytes of the shared actions, which every process holds in memory.
const BYTES_MAX: usize = 32 << 20;

/// The shared records of each pipeline that has them.
pub(super) struct SharedActions {
    pipelines: Mutex<HashMap<String, Arc<dyn SharedRecords>>>,
    /// Distinguishes actions of the same millisecond.
    count: AtomicU64,
}

/// An action with the id of its record. Ids sort by time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LoggedAction {
    /// `None` if the action was not shared.
    pub record: Option<String>,
    pub action: Action,
}

impl Default for SharedActions {
    fn default() -> Self {
        // Starts at a random number, so that a restarted process does not reuse its earlier ids.
        let count = AtomicU64::new(RandomState::new().hash_one(PREFIX));
        Self { pipelines: Mutex::default(), count }
    }
}

impl SharedActions {
    /// Adds a pipeline; returns `false` if it was attached before.
    pub(super) fn attach(&self, pipeline: &str, records: Arc<dyn SharedRecords>) -> bool {
        self.pipelines().insert(pipeline.to_owned(), records).is_none()
    }

    /// Shares an action and returns the id of its record; `None` if its pipeline is not shared. With `is_running`,
    /// another process finishes the action unless [`RunningAction::end`] is called. Blocks.
    pub(super) fn write(
        &self,
        action: &Action,
        process: &str,
        is_running: bool,
    ) -> io::Result<Option<String>> {
        let Some(records) = self.of(&action.pipeline) else { return Ok(None) };
        let count = self.count.fetch_add(1, Ordering::Relaxed) as u32;
        let record = format!("{:015}-{process}{count:08x}", action.at.as_millis());
        let mut line = action.to_line(None);
        if line.len() > BYTES_MAX {
            // Too large for the memory of all members, so share it without ids; it can be undone only by this
            // process.
            line = Action { ids: Vec::new(), ..action.clone() }.to_line(None);
        }
        if is_running {
            records.write(&running_key(&record), Some(b"0")).map_err(io::Error::other)?;
        }
        let parts: Vec<&[u8]> = line.as_bytes().chunks(PART_BYTES_MAX).collect();
        // The first part is written last, so that a record is visible whole or not at all.
        for (number, part) in parts.iter().enumerate().rev() {
            records.write(&part_key(&record, number), Some(part)).map_err(io::Error::other)?;
        }
        trim(&*records);
        Ok(Some(record))
    }

    /// The handle that marks the action of this record as running.
    pub(super) fn running(&self, pipeline: &str, record: Option<&str>) -> RunningAction {
        RunningAction::new(self.of(pipeline).zip(record.map(running_key)))
    }

    /// The records of a pipeline's unfinished actions, with the last heartbeat of each.
    pub(super) fn unfinished(&self, pipeline: &str) -> Vec<(String, Bytes)> {
        let Some(records) = self.of(pipeline).filter(|records| records.is_known()) else { return Vec::new() };
        let record =
            |key: &str| Some(key.strip_prefix(PREFIX)?.strip_suffix(RUNNING)?.strip_suffix('/')?.to_owned());
        let all = records.records(PREFIX).into_iter();
        all.filter_map(|(key, said)| Some((record(&key)?, said))).collect()
    }

    /// The action of a record, with the ids of its letters.
    pub(super) fn recorded(&self, record: &str) -> Option<Action> {
        let mut found = self.find(true, |_| true).into_iter();
        found.find(|logged| logged.record.as_deref() == Some(record)).map(|logged| logged.action)
    }

    /// Actions of all shared pipelines, oldest first.
    pub(super) fn list(&self, is_meant: impl Fn(&Action) -> bool) -> Vec<LoggedAction> {
        let mut all = self.find(false, is_meant);
        all.sort_by_key(|logged| logged.action.at);
        all
    }

    /// The deciding record of a discard or an edit, with the ids of its letters.
    pub(super) fn named(&self, kind: ActionKind, id: &str) -> Option<Action> {
        let found = self.find(true, |action| action.action == kind && action.id.as_deref() == Some(id));
        found.into_iter().map(|logged| logged.action).max_by_key(Action::rank)
    }

    /// The letters of all discards of a pipeline after `discard`.
    pub(super) fn discarded_after(&self, discard: &Action) -> BTreeSet<u64> {
        self.letters(ActionKind::Discard, |action| {
            action.pipeline == discard.pipeline && action.at >= discard.at && action.id != discard.id
        })
    }

    /// The letters of which an edit was undone.
    pub(super) fn undone_letters(&self, edit: &str) -> BTreeSet<u64> {
        self.letters(ActionKind::EditUndo, |action| action.id.as_deref() == Some(edit))
    }

    fn letters(&self, kind: ActionKind, is_meant: impl Fn(&Action) -> bool) -> BTreeSet<u64> {
        let found = self.find(true, |action| action.action == kind && is_meant(action));
        found.into_iter().flat_map(|logged| logged.action.ids).collect()
    }

    fn find(&self, with_ids: bool, is_meant: impl Fn(&Action) -> bool) -> Vec<LoggedAction> {
        let pipelines: Vec<Arc<dyn SharedRecords>> = self.pipelines().values().cloned().collect();
        let mut found = Vec::new();
        for records in pipelines {
            for (record, parts) in by_record(records.records(PREFIX)) {
                let Some(text) = parts.text() else { continue };
                // Skip an action that this version cannot parse.
                let action = Action::from_line(text.trim_end(), with_ids).filter(|action| is_meant(action));
                found.extend(action.map(|action| LoggedAction { record: Some(record), action }));
            }
        }
        found
    }

    fn of(&self, pipeline: &str) -> Option<Arc<dyn SharedRecords>> {
        self.pipelines().get(pipeline).cloned()
    }

    fn pipelines(&self) -> MutexGuard<'_, HashMap<String, Arc<dyn SharedRecords>>> {
        self.pipelines.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Merges the actions of this process with those of all others: without duplicates, by time, the latest `limit` of
/// them. An action whose outcome was recorded is listed by its outcome only.
pub(super) fn merged(
    own: impl IntoIterator<Item = LoggedAction>,
    shared: Vec<LoggedAction>,
    limit: usize,
) -> Vec<Action> {
    let mut all: Vec<LoggedAction> = own.into_iter().collect();
    let known: HashSet<String> = all.iter().filter_map(|logged| logged.record.clone()).collect();
    all.extend(
        shared.into_iter().filter(|logged| logged.record.as_ref().is_none_or(|id| !known.contains(id))),
    );
    // Two members may have recorded the request and the outcome, and one clock may be behind, so order by time is not
    // enough.
    let is_done = |action: &Action| action.step == ActionStep::Done;
    // An undo is called like the discard that it takes back.
    let name = |action: &Action| (action.action, action.pipeline.clone(), action.id.clone());
    let done: HashSet<(ActionKind, String, Option<String>)> =
        all.iter().filter(|logged| is_done(&logged.action)).map(|logged| name(&logged.action)).collect();
    all.retain(|LoggedAction { action, .. }| {
        action.step != ActionStep::Asked || !done.contains(&name(action))
    });
    all.sort_by_key(|logged| logged.action.at);
    let mut listed: Vec<Action> = Vec::with_capacity(all.len());
    for LoggedAction { action, .. } in all {
        if action.is_outcome()
            && let Some(earlier) = listed.iter().rposition(|earlier| action.corrects(earlier))
        {
            if listed[earlier].rank() > action.rank() {
                continue;
            }
            listed.remove(earlier);
        }
        listed.push(action);
    }
    listed.split_off(listed.len().saturating_sub(limit))
}

/// The parts of one record, in order.
#[derive(Debug, Default)]
struct RecordParts {
    /// Whether the first part is there: it is written last and removed first.
    is_whole: bool,
    keys: Vec<String>,
    values: Vec<Bytes>,
}

impl RecordParts {
    fn text(&self) -> Option<String> {
        self.is_whole.then(|| String::from_utf8(self.values.concat()).ok()).flatten()
    }

    fn bytes(&self) -> usize {
        self.values.iter().map(Bytes::len).sum()
    }
}

fn part_key(record: &str, number: usize) -> String {
    format!("{PREFIX}{record}/{number:04}")
}

fn running_key(record: &str) -> String {
    format!("{PREFIX}{record}/{RUNNING}")
}

fn by_record(parts: Vec<(String, Bytes)>) -> BTreeMap<String, RecordParts> {
    let mut records: BTreeMap<String, RecordParts> = BTreeMap::new();
    for (key, value) in parts {
        let Some((record, number)) = key.strip_prefix(PREFIX).and_then(|rest| rest.rsplit_once('/')) else {
            continue;
        };
        if number == RUNNING {
            continue;
        }
        let parts = records.entry(record.to_owned()).or_default();
        parts.is_whole |= number == "0000";
        parts.keys.push(key);
        parts.values.push(value);
    }
    records
}

/// Removes the oldest records beyond the bounds. If that fails, the next action tries again.
fn trim(records: &dyn SharedRecords) {
    let all = by_record(records.records(PREFIX));
    let sizes: Vec<usize> = all.values().map(RecordParts::bytes).collect();
    let surplus = surplus(&sizes);
    for key in all.into_values().take(surplus).flat_map(|parts| parts.keys) {
        if records.write(&key, None).is_err() {
            return;
        }
    }
}

/// Pure: how many of the oldest records to remove, given their sizes. The latest always stays.
fn surplus(sizes: &[usize]) -> usize {
    let mut bytes = 0;
    let fits = |size: &&usize| {
        bytes += **size;
        bytes <= BYTES_MAX
    };
    let stay = sizes.iter().rev().take(ACTIONS_MAX).take_while(fits).count();
    sizes.len() - stay.max(1).min(sizes.len())
}

#[cfg(test)]
mod tests {
    use redrive_core::Time;

    use super::*;
    use crate::engine::EngineError;

    /// Records shared by two logs.
    #[derive(Debug, Default)]
    struct RecordTable {
        records: Mutex<BTreeMap<String, Bytes>>,
    }

    impl SharedRecords for RecordTable {
        fn write(&self, key: &str, value: Option<&[u8]>) -> Result<(), EngineError> {
            let mut records = self.records.lock().unwrap();
            match value {
                Some(value) => drop(records.insert(key.to_owned(), Bytes::copy_from_slice(value))),
                None => drop(records.remove(key)),
            }
            Ok(())
        }

        fn records(&self, prefix: &str) -> Vec<(String, Bytes)> {
            let records = self.records.lock().unwrap();
            let found = records.iter().filter(|(key, _)| key.starts_with(prefix));
            found.map(|(key, value)| (key.clone(), value.clone())).collect()
        }

        fn is_known(&self) -> bool {
            true
        }
    }

    fn action(at: u64, kind: ActionKind, id: &str, ids: &[u64]) -> Action {
        let action = Action::new(Time::from_millis(at), "ops", kind, "orders").of(id, ids.len() as u64);
        Action { ids: ids.to_vec(), ..action }
    }

    fn two_logs() -> (SharedActions, SharedActions, Arc<RecordTable>) {
        let table = Arc::new(RecordTable::default());
        let (one, other) = (SharedActions::default(), SharedActions::default());
        one.attach("orders", Arc::clone(&table) as Arc<dyn SharedRecords>);
        other.attach("orders", Arc::clone(&table) as Arc<dyn SharedRecords>);
        (one, other, table)
    }

    #[test]
    fn every_process_finds_what_another_did_with_all_its_letters() {
        let (one, other, table) = two_logs();
        // Every second letter, so that the record has several parts.
        let letters: Vec<u64> = (0..200_000).map(|n| n * 2).collect();
        let discard = action(1_000, ActionKind::Discard, "d-aaaaa-1", &letters);
        one.write(&discard, "aaaaa", false).unwrap();
        assert!(table.records.lock().unwrap().len() > 3);
        assert_eq!(other.named(ActionKind::Discard, "d-aaaaa-1"), Some(discard.clone()));
        assert_eq!(other.named(ActionKind::Discard, "d-aaaaa-2"), None);
        let later = action(2_000, ActionKind::Discard, "d-bbbbb-1", &[2, 4]);
        other.write(&later, "bbbbb", false).unwrap();
        assert_eq!(one.discarded_after(&discard), BTreeSet::from([2, 4]));
        assert_eq!(one.discarded_after(&later), BTreeSet::new());
        let unshared = Action { pipeline: "mail".to_owned(), ..discard };
        assert_eq!(one.write(&unshared, "aaaaa", false).unwrap(), None);
    }

    #[test]
    fn a_record_without_its_first_part_is_not_known() {
        let (one, other, table) = two_logs();
        let letters: Vec<u64> = (0..200_000).map(|n| n * 2).collect();
        one.write(&action(1_000, ActionKind::Discard, "d-aaaaa-1", &letters), "aaaaa", false).unwrap();
        let first = table.records(PREFIX)[0].0.clone();
        table.write(&first, None).unwrap();
        assert_eq!(other.list(|_| true), []);
    }

    #[test]
    fn what_is_not_finished_is_known_until_it_is() {
        let (one, other, table) = two_logs();
        let discard = action(1_000, ActionKind::Discard, "d-aaaaa-1", &[1, 2]);
        let record = one.write(&discard, "aaaaa", true).unwrap().unwrap();
        assert_eq!(other.unfinished("orders"), [(record.clone(), Bytes::from("0"))]);
        assert_eq!(other.recorded(&record), Some(discard));
        assert_eq!(other.list(|_| true).len(), 1);
        table.write(&running_key(&record), None).unwrap();
        assert_eq!(other.unfinished("orders"), []);
        assert_eq!(other.unfinished("mail"), []);
    }

    #[test]
    fn a_list_has_each_action_once_by_time() {
        let (one, other, _) = two_logs();
        let logged =
            |record: Option<String>, action: &Action| LoggedAction { record, action: action.clone() };
        let alone = action(500, ActionKind::Pause, "old", &[]);
        let mine = action(1_000, ActionKind::Discard, "d-aaaaa-1", &[]);
        let theirs = action(900, ActionKind::Resume, "x", &[]);
        let record = one.write(&mine, "aaaaa", false).unwrap();
        other.write(&theirs, "bbbbb", false).unwrap();
        let own = [logged(None, &alone), logged(record, &mine)];
        let expected = [alone, theirs.clone(), mine.clone()];
        assert_eq!(merged(own.clone(), one.list(|_| true), 10), expected);
        assert_eq!(merged(own, one.list(|_| true), 2), expected[1..]);
        assert_eq!(merged([], other.list(|action| action.at >= Time::from_millis(950)), 10), [mine]);
    }

    #[test]
    fn an_edit_is_listed_with_its_outcome_alone_wherever_it_was_made() {
        let (one, other, _) = two_logs();
        let planned = action(1_000, ActionKind::Edit, "e-aaaaa-1", &[1, 2, 3]);
        let outcome = action(1_100, ActionKind::Edit, "e-aaaaa-1", &[1, 2]).note("3 planned");
        one.write(&planned, "aaaaa", false).unwrap();
        let record = one.write(&outcome, "aaaaa", false).unwrap();
        let without_ids = Action { ids: Vec::new(), ..outcome.clone() };
        let own = [LoggedAction { record, action: without_ids.clone() }];
        let merged_own = merged(own, one.list(|_| true), 10);
        assert_eq!(merged_own, std::slice::from_ref(&without_ids), "its own file has dropped the plan");
        assert_eq!(merged([], other.list(|_| true), 10), [without_ids]);
        assert_eq!(other.named(ActionKind::Edit, "e-aaaaa-1"), Some(outcome));
    }

    #[test]
    fn an_erasure_that_another_process_finished_is_listed_as_it_was_done_whoever_is_first_in_order() {
        let (one, other, _) = two_logs();
        let erase = action(1_000, ActionKind::Erase, "x-bbbbb-1", &[1, 2, 3]);
        let asked = Action { step: ActionStep::Asked, ..erase.clone() };
        one.write(&asked, "bbbbb", true).unwrap();
        assert_eq!(merged([], other.list(|_| true), 10)[0].step, ActionStep::Asked);
        let done = Action { step: ActionStep::Done, ids: vec![1, 2], letters: 2, ..erase };
        for process in ["aaaaa", "ccccc"] {
            other.write(&done, process, false).unwrap();
            let listed = merged([], one.list(|_| true), 10);
            assert_eq!(
                listed.iter().map(|one| (one.step, one.letters)).collect::<Vec<_>>(),
                [(ActionStep::Done, 2)]
            );
        }
    }

    /// A process that was only slow continues after another has recorded the outcome it saw.
    #[test]
    fn of_two_outcomes_the_one_with_more_letters_counts_whoever_is_first_in_order() {
        for (early, late) in [("aaaaa", "bbbbb"), ("bbbbb", "aaaaa")] {
            let (one, other, _) = two_logs();
            let edit = action(1_000, ActionKind::Edit, "e-aaaaa-1", &[1, 2, 3]);
            one.write(&Action { step: ActionStep::Asked, ..edit.clone() }, "aaaaa", true).unwrap();
            let some = Action { step: ActionStep::Done, ids: vec![1], letters: 1, ..edit.clone() };
            let all = Action { step: ActionStep::Done, ..edit };
            other.write(&some, early, false).unwrap();
            one.write(&all, late, false).unwrap();
            assert_eq!(other.named(ActionKind::Edit, "e-aaaaa-1"), Some(all));
            let listed = merged([], other.list(|_| true), 10);
            assert_eq!(listed.iter().map(|one| one.letters).collect::<Vec<_>>(), [3]);
        }
    }

    #[test]
    fn the_oldest_go_when_there_are_too_many_or_they_are_too_large() {
        assert_eq!(surplus(&[]), 0);
        assert_eq!(surplus(&[100; ACTIONS_MAX]), 0);
        assert_eq!(surplus(&[100; ACTIONS_MAX + 3]), 3);
        assert_eq!(surplus(&[BYTES_MAX / 2, BYTES_MAX / 2, BYTES_MAX / 2]), 1);
        assert_eq!(surplus(&[10, BYTES_MAX + 1]), 1, "the latest stays");
        let (one, other, table) = two_logs();
        for n in 0..ACTIONS_MAX as u64 {
            let line = action(n, ActionKind::Pause, "x", &[]).to_line(None);
            table.write(&part_key(&format!("{n:015}-a-aaaaa-{n:08x}"), 0), Some(line.as_bytes())).unwrap();
        }
        for n in [3_000, 3_001] {
            one.write(&action(n, ActionKind::Pause, "x", &[]), "a-aaaaa-", false).unwrap();
        }
        assert_eq!(table.records.lock().unwrap().len(), ACTIONS_MAX);
        assert_eq!(other.list(|_| true)[0].action.at, Time::from_millis(2));
    }
}
