//! The file of actions. A line is synced before the action is acknowledged, so a line torn by a crash was never
//! acknowledged: it is cut off and reported.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use redrive_core::Time;

use super::action::{Action, ActionKind, ActionStep};
use super::error::ActionError;
use super::shared::{LoggedAction, SharedActions, merged};
use super::unfinished::RunningAction;
use crate::engine::GroupMarks;
use crate::naming::{self, Naming};
use crate::owner_only;

const FILE: &str = "actions.ndjson";
/// The longest list that is returned.
const LIST_MAX: usize = 10_000;
/// Actions that are kept in memory if there is no file.
const MEMORY_MAX: usize = 10_000;
/// A longer line was not written by Redrive.
const LINE_BYTES_MAX: u64 = 256 << 20;

/// The file of actions. Clones are handles to the same file; without a directory the actions are kept in memory.
#[derive(Clone)]
pub(super) struct ActionLog {
    shared: Arc<SharedLog>,
}

struct SharedLog {
    naming: Naming,
    state: Mutex<LogState>,
    /// What other processes did to the same letters.
    group: SharedActions,
    faults: Vec<String>,
    /// Serializes discards and other changes, so that an action names exactly the letters it changes.
    changing: tokio::sync::Mutex<()>,
}

struct LogState {
    place: LogLocation,
    discards: NamedAction,
    edits: NamedAction,
    erasures: NamedAction,
    compactions: NamedAction,
    /// Actions of which no record says what was done: by kind and name, their pipelines and where their lines begin.
    unfinished: BTreeMap<(&'static str, String), (String, u64)>,
    /// Pipelines whose last word was `pause`.
    paused: BTreeSet<String>,
    /// The decisions about groups of letters, by pipeline.
    marks: BTreeMap<String, GroupMarks>,
}

/// The named actions of one kind: where the line of each begins, and the last number. An action of another process
/// that was finished here may have the same number as one of this process, so the key is the whole name.
#[derive(Default)]
struct NamedAction {
    lines: BTreeMap<String, u64>,
    last: u64,
}

impl NamedAction {
    fn add(&mut self, id: &str, number: u64, at: u64) {
        self.lines.insert(id.to_owned(), at);
        self.last = self.last.max(number);
    }

    fn next(&self) -> u64 {
        self.last.saturating_add(1)
    }
}

enum LogLocation {
    File {
        file: File,
        end: u64,
        failed: bool,
    },
    /// The latest actions, and how many older ones were dropped.
    Memory {
        lines: VecDeque<String>,
        before: u64,
    },
}

impl ActionLog {
    /// Opens or makes the file in `dir`.
    pub(super) fn open(dir: Option<&Path>, naming: Naming) -> Result<Self, ActionError> {
        let mut state = LogState {
            place: LogLocation::Memory { lines: VecDeque::new(), before: 0 },
            discards: NamedAction::default(),
            edits: NamedAction::default(),
            erasures: NamedAction::default(),
            compactions: NamedAction::default(),
            unfinished: BTreeMap::new(),
            paused: BTreeSet::new(),
            marks: BTreeMap::new(),
        };
        let mut faults = Vec::new();
        if let Some(dir) = dir {
            let path = dir.join(FILE);
            let file = owner_only::options().create(true).read(true).append(true).open(&path)?;
            File::open(dir)?.sync_all()?;
            let mut number = 0;
            let whole = walk(&file, 0, |at, line| {
                number += 1;
                match Action::from_line(line, false) {
                    Some(action) => state.index(&action, at),
                    None => faults.push(format!("{}: line {number} cannot be read", path.display())),
                }
                true
            })?;
            let len = file.metadata()?.len();
            if whole < len {
                let torn = len - whole;
                faults.push(format!(
                    "{}: {torn} bytes at the end were torn by a crash and are cut off; what they recorded was never acknowledged",
                    path.display()
                ));
                file.set_len(whole)?;
                file.sync_all()?;
            }
            state.place = LogLocation::File { file, end: whole, failed: false };
        }
        let changing = tokio::sync::Mutex::new(());
        let (state, group) = (Mutex::new(state), SharedActions::default());
        Ok(Self { shared: Arc::new(SharedLog { naming, state, group, faults, changing }) })
    }

    /// The name of this process among those that share its letters.
    pub(super) fn process_name(&self) -> String {
        self.shared.naming.prefix('a')
    }

    /// The actions of pipelines that several processes share.
    pub(super) fn group(&self) -> &SharedActions {
        &self.shared.group
    }

    /// What was wrong with the file when it was opened: a torn end, lines that cannot be read.
    pub(super) fn faults(&self) -> &[String] {
        &self.shared.faults
    }

    /// Whether the last recorded pause or resume of a pipeline was a pause. Pause it again after starting it.
    pub(super) fn is_paused(&self, pipeline: &str) -> bool {
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner).paused.contains(pipeline)
    }

    /// The decisions about the groups of a pipeline.
    pub(super) fn marks(&self, pipeline: &str) -> GroupMarks {
        let state = self.shared.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.marks.get(pipeline).cloned().unwrap_or_default()
    }

    /// Records an action; when this returns, it is on disk and shared with the other processes that have the letters.
    /// Make the change only after that.
    pub(super) async fn record(&self, action: Action) -> Result<(), ActionError> {
        self.record_with(action, false).await.map(drop)
    }

    /// Like [`Self::record`], for an action that another process finishes if this one is killed. The caller ends it.
    pub(super) async fn record_running(&self, action: Action) -> Result<RunningAction, ActionError> {
        self.record_with(action, true).await
    }

    async fn record_with(&self, action: Action, is_running: bool) -> Result<RunningAction, ActionError> {
        let shared = Arc::clone(&self.shared);
        let work = move || {
            // Not under the lock of the file: writing to a cluster may take seconds.
            let record = shared.group.write(&action, &shared.naming.prefix('a'), is_running)?;
            let mut state = shared.state.lock().unwrap_or_else(PoisonError::into_inner);
            state.append(&action, record.as_deref())?;
            Ok(shared.group.running(&action.pipeline, record.as_deref().filter(|_| is_running)))
        };
        let done = tokio::task::spawn_blocking(work).await;
        Ok(done.unwrap_or_else(|error| Err(std::io::Error::other(error)))?)
    }

    /// Records an action on disk only; blocking, for callers without a runtime.
    pub(super) fn record_now(&self, action: &Action) -> Result<(), ActionError> {
        Ok(self.shared.state.lock().unwrap_or_else(PoisonError::into_inner).append(action, None)?)
    }

    /// The latest `limit` actions since a time, of one pipeline if one is given, oldest first, without the ids of their
    /// letters.
    pub(super) async fn list(
        &self,
        pipeline: Option<&str>,
        since: Option<Time>,
        limit: usize,
    ) -> Result<Vec<Action>, ActionError> {
        let limit = limit.clamp(1, LIST_MAX);
        let shared = Arc::clone(&self.shared);
        let pipeline = pipeline.map(str::to_owned);
        let is_meant = move |action: &Action| {
            since.is_none_or(|since| action.at >= since)
                && pipeline.as_ref().is_none_or(|pipeline| action.pipeline == *pipeline)
        };
        self.with(move |state| {
            let mut own: VecDeque<LoggedAction> = VecDeque::new();
            state.each(|_, line| {
                let logged = Action::with_record(line, false);
                let Some((action, record)) = logged.filter(|(action, _)| is_meant(action)) else {
                    return true;
                };
                if action.is_outcome()
                    && let Some(planned) = own.iter().rposition(|earlier| action.corrects(&earlier.action))
                {
                    own.remove(planned);
                }
                own.push_back(LoggedAction { record, action });
                if own.len() > limit {
                    own.pop_front();
                }
                true
            })?;
            Ok(merged(own, shared.group.list(&is_meant), limit))
        })
        .await
    }

    /// The name of the next discard (`d`), edit (`e`), erasure (`x`) or compaction (`c`). The caller holds
    /// [`Self::alone`] until it has recorded the action, so that the name is not given twice.
    pub(super) fn next_name(&self, kind: char) -> String {
        let mut state = self.shared.state.lock().unwrap_or_else(PoisonError::into_inner);
        self.shared.naming.name(kind, state.named(kind).next())
    }

    /// A discard with the ids of its letters.
    pub(super) async fn discard_named(&self, id: &str) -> Result<Action, ActionError> {
        if let Some(found) = self.find_named('d', id).await? {
            return Ok(found);
        }
        let (naming, id) = (&self.shared.naming, id.to_owned());
        match naming::number('d', &id) {
            Some(number) if naming.name('d', number) != id => {
                Err(ActionError::Elsewhere { id, ours: naming.prefix('d') })
            }
            _ => Err(ActionError::NotFound(id)),
        }
    }

    /// A discard (`d`) or an edit (`e`) with the ids of its letters, whichever process made it.
    pub(super) async fn find_named(&self, kind: char, id: &str) -> Result<Option<Action>, ActionError> {
        let own = self.find_own(kind, id).await?;
        // The outcome of one that this process did not finish may have been recorded by another.
        if own.as_ref().is_some_and(|own| own.step != ActionStep::Asked) {
            return Ok(own);
        }
        let action = if kind == 'e' { ActionKind::Edit } else { ActionKind::Discard };
        let (shared, id) = (Arc::clone(&self.shared), id.to_owned());
        let found = self.with(move |_| Ok(shared.group.named(action, &id))).await?;
        // A shared record without ids had too many letters; only its own process can undo it.
        Ok(found.filter(|action| !action.ids.is_empty()).or(own))
    }

    /// Actions on a pipeline that this process has begun and not come to the end of, in their order, with the ids of their
    /// letters.
    pub(super) async fn unfinished(&self, pipeline: &str) -> Result<Vec<Action>, ActionError> {
        let pipeline = pipeline.to_owned();
        self.with(move |state| {
            let of_pipeline = state.unfinished.values().filter(|(of, _)| *of == pipeline);
            let mut places: Vec<u64> = of_pipeline.map(|(_, at)| *at).collect();
            places.sort_unstable();
            let mut found = Vec::new();
            for at in places {
                state.each_from(at, |_, line| {
                    found.extend(Action::from_line(line, true));
                    false
                })?;
            }
            Ok(found)
        })
        .await
    }

    /// Finds an action in the file of this process.
    async fn find_own(&self, kind: char, id: &str) -> Result<Option<Action>, ActionError> {
        let name = id.to_owned();
        let found = self
            .with(move |state| {
                let Some(at) = state.named(kind).lines.get(&name).copied() else { return Ok(None) };
                let mut found = None;
                state.each_from(at, |_, line| {
                    found = Action::from_line(line, true);
                    false
                })?;
                Ok(Some(found))
            })
            .await?;
        match found {
            None => Ok(None),
            Some(Some(action)) if action.id.as_deref() == Some(id) => Ok(Some(action)),
            Some(_) => Err(ActionError::Damaged(id.to_owned())),
        }
    }

    /// The letters of all later discards of the same pipeline.
    pub(super) async fn discarded_after(&self, discard: Action) -> Result<BTreeSet<u64>, ActionError> {
        let shared = Arc::clone(&self.shared);
        self.with(move |state| {
            let mut letters = shared.group.discarded_after(&discard);
            let Action { id: Some(id), pipeline, .. } = discard else { return Ok(letters) };
            // A discard of another process has no line in this file; the shared records list the later ones.
            let Some(from) = state.discards.lines.get(&id).copied() else { return Ok(letters) };
            state.each_from(from, |_, line| {
                // Most lines are not discards, so check the text before parsing it.
                if line.contains(ActionKind::Discard.name())
                    && let Some(action) = Action::from_line(line, true)
                    && action.action == ActionKind::Discard
                    && action.pipeline == pipeline
                    && action.id.as_ref() != Some(&id)
                {
                    letters.extend(action.ids);
                }
                true
            })?;
            Ok(letters)
        })
        .await
    }

    /// The letters of which an edit was undone.
    pub(super) async fn undone_letters(&self, edit: &str) -> Result<BTreeSet<u64>, ActionError> {
        let (shared, edit) = (Arc::clone(&self.shared), edit.to_owned());
        self.with(move |state| {
            let mut letters = shared.group.undone_letters(&edit);
            state.each(|_, line| {
                if line.contains(ActionKind::EditUndo.name())
                    && let Some(action) = Action::from_line(line, true)
                    && action.action == ActionKind::EditUndo
                    && action.id.as_ref() == Some(&edit)
                {
                    letters.extend(action.ids);
                }
                true
            })?;
            Ok(letters)
        })
        .await
    }

    /// The replay jobs of a pipeline whose start is recorded in the file of this process.
    pub(super) async fn recorded_replays(&self, pipeline: &str) -> Result<BTreeSet<String>, ActionError> {
        let pipeline = pipeline.to_owned();
        self.with(move |state| {
            let mut jobs = BTreeSet::new();
            state.each(|_, line| {
                if line.contains(ActionKind::Replay.name())
                    && let Some(action) = Action::from_line(line, false)
                    && action.action == ActionKind::Replay
                    && action.pipeline == pipeline
                {
                    jobs.extend(action.id);
                }
                true
            })?;
            Ok(jobs)
        })
        .await
    }

    /// Holds back other discards for as long as it lives.
    pub(super) async fn alone(&self) -> tokio::sync::MutexGuard<'_, ()> {
        self.shared.changing.lock().await
    }

    /// Runs `work` on the file in a thread that may block.
    async fn with<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut LogState) -> std::io::Result<T> + Send + 'static,
    ) -> Result<T, ActionError> {
        let shared = Arc::clone(&self.shared);
        let work = move || work(&mut shared.state.lock().unwrap_or_else(PoisonError::into_inner));
        let done = tokio::task::spawn_blocking(work).await;
        Ok(done.unwrap_or_else(|error| Err(std::io::Error::other(error)))?)
    }
}

impl LogState {
    fn index(&mut self, action: &Action, at: u64) {
        match action.action {
            ActionKind::Pause => drop(self.paused.insert(action.pipeline.clone())),
            ActionKind::Resume => drop(self.paused.remove(&action.pipeline)),
            _ => {}
        }
        if let Some(mark) = &action.mark {
            self.marks.entry(action.pipeline.clone()).or_default().set(mark.clone());
        }
        let Some(id) = action.id.as_deref() else { return };
        // An undo is called like the discard that it takes back.
        let name = (action.action.name(), id.to_owned());
        match action.step {
            ActionStep::Whole => {}
            ActionStep::Asked => drop(self.unfinished.insert(name, (action.pipeline.clone(), at))),
            ActionStep::Done => drop(self.unfinished.remove(&name)),
        }
        let kind = match action.action {
            ActionKind::Discard => 'd',
            ActionKind::Edit => 'e',
            ActionKind::Erase => 'x',
            ActionKind::Compact => 'c',
            _ => return,
        };
        if let Some(number) = naming::number(kind, id) {
            self.named(kind).add(id, number, at);
        }
    }

    fn named(&mut self, kind: char) -> &mut NamedAction {
        match kind {
            'e' => &mut self.edits,
            'x' => &mut self.erasures,
            'c' => &mut self.compactions,
            _ => &mut self.discards,
        }
    }

    fn append(&mut self, action: &Action, record: Option<&str>) -> std::io::Result<()> {
        let line = action.to_line(record);
        let at = match &mut self.place {
            LogLocation::Memory { lines, before } => {
                if lines.len() == MEMORY_MAX {
                    lines.pop_front();
                    *before += 1;
                    self.discards.lines.retain(|_, at| *at >= *before);
                    self.edits.lines.retain(|_, at| *at >= *before);
                    self.erasures.lines.retain(|_, at| *at >= *before);
                    self.compactions.lines.retain(|_, at| *at >= *before);
                }
                lines.push_back(line);
                *before + lines.len() as u64 - 1
            }
            LogLocation::File { file, end, failed } => {
                if *failed {
                    return Err(std::io::Error::other("an earlier write failed; start again after a repair"));
                }
                // After a failure the end of the file is in an unknown state, so nothing is appended after it.
                *failed = true;
                file.write_all(line.as_bytes())?;
                file.sync_data()?;
                *failed = false;
                let at = *end;
                *end += line.len() as u64;
                at
            }
        };
        self.index(action, at);
        Ok(())
    }

    fn each(&self, line: impl FnMut(u64, &str) -> bool) -> std::io::Result<()> {
        self.each_from(0, line)
    }

    /// Calls `line` for each line from `from` on, until it returns `false`.
    fn each_from(&self, from: u64, mut line: impl FnMut(u64, &str) -> bool) -> std::io::Result<()> {
        match &self.place {
            LogLocation::Memory { lines, before } => {
                for (at, text) in (*before..).zip(lines).skip_while(|(at, _)| *at < from) {
                    if !line(at, text.trim_end()) {
                        break;
                    }
                }
                Ok(())
            }
            LogLocation::File { file, .. } => walk(file, from, line).map(drop),
        }
    }
}

/// Calls `line` for each whole line until it returns `false`; returns where the last line read ends.
fn walk(file: &File, from: u64, mut line: impl FnMut(u64, &str) -> bool) -> std::io::Result<u64> {
    let mut file = file;
    file.seek(SeekFrom::Start(from))?;
    let mut reader = BufReader::with_capacity(1 << 16, file);
    let (mut at, mut raw) = (from, Vec::new());
    loop {
        raw.clear();
        let len = reader.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut raw)? as u64;
        if raw.last() != Some(&b'\n') {
            return Ok(at);
        }
        let text = String::from_utf8_lossy(&raw[..raw.len() - 1]);
        let go_on = line(at, &text);
        at += len;
        if !go_on {
            return Ok(at);
        }
    }
}
