//! The handle to the subscriptions of a pipeline. Sinks ask it before each call and report the answer; the API shows
//! it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use redrive_core::Time;
use redrive_core::text::redact;
use serde_json::Value;

use super::change::Changed;
use super::counts::Counts;
use super::decide::{Admission, Answer, Purge};
use super::error::{ID_BYTES_MAX, SubscriptionsError};
use super::record::{Cause, EndpointId, Record, SubscriptionState};
use super::store::SubscriptionStore;
use super::stored::{Registered, Stored};
use super::table::{Effects, Listed, Table};
use super::writer::{self, Writer};
use crate::engine::EngineError;

/// How often outdated records are removed.
const SWEEP_EVERY: Duration = Duration::from_hours(1);
const SUBSCRIPTION_BYTES_MAX: usize = 8 * 1024;
/// Maximum rows of one listing.
pub(crate) const LIST_MAX: usize = 1_000;

/// Looks up the stored subscription of an endpoint.
pub type Known<'a> = &'a dyn Fn(EndpointId) -> Option<Arc<Stored>>;
/// Reads a subscription to store, or returns an error that does not reveal it.
pub type Reader = Arc<dyn Fn(&Value, Known<'_>) -> Result<Registered, String> + Send + Sync>;
type Listener = Arc<dyn Fn(&Changed) + Send + Sync>;

/// The subscriptions of one pipeline. Clones share them. They are kept in memory only until [`Self::open`].
#[derive(Clone)]
pub struct Subscriptions {
    shared: Arc<SharedTable>,
}

struct SharedTable {
    pipeline: String,
    table: Arc<Mutex<Table>>,
    writer: OnceLock<Writer>,
    reader: OnceLock<Reader>,
    /// The public keys that the sink signs with, if it has keys.
    signing_keys: OnceLock<BTreeSet<String>>,
    hash_key: OnceLock<String>,
    listeners: Mutex<Vec<Listener>>,
    unwritten: AtomicU64,
    damaged: AtomicU64,
    swept_ms: AtomicU64,
}

impl Subscriptions {
    pub fn new(pipeline: &str, purge: Purge) -> Self {
        Self {
            shared: Arc::new(SharedTable {
                pipeline: pipeline.to_owned(),
                table: Arc::new(Mutex::new(Table::new(purge))),
                writer: OnceLock::new(),
                reader: OnceLock::new(),
                signing_keys: OnceLock::new(),
                hash_key: OnceLock::new(),
                listeners: Mutex::default(),
                unwritten: AtomicU64::new(0),
                damaged: AtomicU64::new(0),
                swept_ms: AtomicU64::new(0),
            }),
        }
    }

    /// Loads the store, and writes every change there from now on. Returns the problems it found. Call it once.
    /// Refused if the hashes were made with another key than that of [`Self::hash_with`].
    pub fn open(&self, mut store: Box<dyn SubscriptionStore>) -> Result<Vec<String>, EngineError> {
        let findings = {
            let mut table = self.table();
            let mut findings = store.load(&mut |loaded| table.load(loaded))?;
            findings.extend(table.doubts());
            self.check_hash_key(&mut table, &mut *store)?;
            findings
        };
        writer::compact(&mut *store, &self.shared.table)?;
        let table = Arc::downgrade(&self.shared.table);
        store.follow(Arc::new(move |entry| {
            if let Some(table) = table.upgrade() {
                table.lock().unwrap_or_else(PoisonError::into_inner).apply(&entry);
            }
        }));
        let writer = Writer::start(&self.shared.pipeline, store, &self.shared.table)?;
        // There is only one writer.
        let _ = self.shared.writer.set(writer);
        Ok(findings)
    }

    /// Sets how the sink reads subscriptions to store.
    pub fn read_with(&self, reader: Reader) {
        // There is only one sink.
        let _ = self.shared.reader.set(reader);
    }

    /// Sets the key of the endpoint hashes: a text that identifies the key without revealing it. A table with hashes
    /// of another key is not opened, since it would recognise none of its endpoints.
    pub fn hash_with(&self, fingerprint: &str) {
        // There is only one sink.
        let _ = self.shared.hash_key.set(fingerprint.to_owned());
    }

    /// Stores the fingerprint of the key, twice if damage could destroy one copy: without it any key would open the
    /// table.
    fn check_hash_key(
        &self,
        table: &mut Table,
        store: &mut dyn SubscriptionStore,
    ) -> Result<(), EngineError> {
        let Some(given) = self.shared.hash_key.get() else { return Ok(()) };
        let name = &self.shared.pipeline;
        if table.is_hash_key_lost() && table.len() > 0 {
            return Err(EngineError::Directory {
                problem: format!(
                    "the log of the subscriptions of pipeline `{name}` is damaged where it records which key they were hashed \
                     with, so it is unknown whether it is this one"
                ),
                fix: "restore `subscriptions.log`; if you are sure that the key is the same, give up the damaged lines with \
                      `redrive journal --pipeline NAME --accept-loss`",
            });
        }
        if table.hash_key().is_some_and(|known| known != given) {
            return Err(EngineError::Directory {
                problem: format!(
                    "the subscriptions of pipeline `{name}` were hashed with another key, so none of its purges would hold"
                ),
                fix: "restore the former `hash_key_file` (without one: `hash.key` in the engine's directory); \
                      docs/guide/push.md explains how to start over with a new key",
            });
        }
        // Older versions stored no fingerprint.
        if table.hash_key().is_none() {
            store.append(&[table.set_hash_key(given)])?;
        }
        // A log on disk can be damaged, so it gets two copies; a store that compacts itself has length 0 and gets one.
        if table.hash_key_copies() < 2 && !store.is_empty() {
            store.append(&[table.set_hash_key(given)])?;
        }
        Ok(())
    }

    /// Sets the public keys that the sink signs with.
    pub fn sign_with(&self, keys: impl IntoIterator<Item = String>) {
        // There is only one sink.
        let _ = self.shared.signing_keys.set(keys.into_iter().collect());
    }

    /// From now on purges wait in the table until [`Self::announced`]. Call it before [`Self::open`].
    pub fn announce_purges(&self) {
        self.table().announce_purges();
    }

    /// Durable purges that were not announced yet, the oldest first, each as the time of the purge and the endpoint.
    pub fn unannounced(&self, after: Option<(Time, EndpointId)>, limit: usize) -> Vec<(Time, EndpointId)> {
        self.table().unannounced(after, limit)
    }

    /// Details of an unannounced purge; `None` if it was undone.
    pub fn announcement(&self, purge: (Time, EndpointId)) -> Option<Changed> {
        self.table().announcement(purge)
    }

    /// Marks a purge as announced, or as not needing an announcement. Durable on return. After an error the
    /// announcement stays pending, because other processes with the same store would keep it pending for ever.
    pub async fn announced(&self, purge: (Time, EndpointId)) -> Result<(), EngineError> {
        let (effects, waiting) = self.table().announced(purge);
        let written = self.carry_out(effects).await;
        if written.is_err() {
            waiting.into_iter().for_each(|waiting| self.table().wait_again(purge, waiting));
        }
        written
    }

    /// Sets the number of damaged lines in the log, as found by a check.
    pub fn note_damage(&self, lines: u64) {
        self.shared.damaged.store(lines, Ordering::Relaxed);
    }

    /// Adds a listener for every change made in this process. It is called after the change is durable, or could not
    /// be stored.
    pub fn on_change(&self, listener: impl Fn(&Changed) + Send + Sync + 'static) {
        let mut listeners = self.shared.listeners.lock().unwrap_or_else(PoisonError::into_inner);
        listeners.push(Arc::new(listener));
    }

    pub fn pipeline(&self) -> &str {
        &self.shared.pipeline
    }

    /// Whether the endpoint is called. `registered`: when the subscriber registered, if the message says so.
    pub async fn admit(&self, endpoint: EndpointId, registered: Option<Time>, now: Time) -> Admission {
        let (admission, effects) = {
            let mut table = self.table();
            let admission = table.admit(endpoint, registered);
            let returned = (admission == Admission::Returned).then(|| table.returned(endpoint, now));
            (admission, returned)
        };
        if let Some(effects) = effects {
            // It is called either way. If this is not durable, the question only comes up again.
            let _ = self.carry_out(effects).await;
        }
        admission
    }

    /// Records the answer of a push service about an endpoint. Durable on return, or counted as unwritten.
    pub async fn answered(&self, endpoint: EndpointId, answer: Answer<'_>, now: Time) {
        let effects = self.table().answered(endpoint, answer, now);
        if !effects.entries.is_empty() {
            // The answer stands. If it is not durable, the service is asked again after a restart.
            let _ = self.carry_out(effects).await;
        }
        self.sweep(now).await;
    }

    /// The stored subscription with this id.
    pub fn stored(&self, id: &str) -> Option<Arc<Stored>> {
        self.table().stored(id)
    }

    /// Stores a subscription under an id, replacing an earlier one. It is active from now on.
    pub async fn register(
        &self,
        id: &str,
        subscription: &Value,
        now: Time,
    ) -> Result<Listed, SubscriptionsError> {
        let is_printable = !id.is_empty() && id.len() <= ID_BYTES_MAX && !id.chars().any(char::is_control);
        if !is_printable || id.parse::<EndpointId>().is_ok() {
            return Err(SubscriptionsError::Id);
        }
        let wrong = |problem: &str| SubscriptionsError::Subscription(problem.to_owned());
        let reader = self.shared.reader.get();
        let reader = reader.ok_or_else(|| wrong("the sink of this pipeline stores no subscriptions"))?;
        if subscription.to_string().len() > SUBSCRIPTION_BYTES_MAX {
            return Err(wrong("the subscription is longer than 8 KiB"));
        }
        let known = |endpoint| self.table().show(endpoint).stored;
        let registered = reader(subscription, &known).map_err(|problem| wrong(&problem))?;
        let endpoint = registered.endpoint;
        let stored = Stored::new(registered, now, subscription);
        let effects = self.table().register(id, stored, now).ok_or(SubscriptionsError::Full)?;
        self.carry_out(effects).await?;
        Ok(self.table().show(endpoint))
    }

    /// Removes a stored subscription; the endpoint's flag or purge is kept.
    pub async fn remove(&self, id: &str, now: Time) -> Result<(), SubscriptionsError> {
        let effects = self.table().remove(id, now).ok_or_else(|| not_found(id))?;
        Ok(self.carry_out(effects).await?)
    }

    /// Flags an endpoint, named by its hash or the id of its subscription.
    pub async fn flag(
        &self,
        name: &str,
        reason: &str,
        actor: &str,
        now: Time,
    ) -> Result<Listed, SubscriptionsError> {
        self.mark(name, SubscriptionState::Flagged, reason, actor, now).await
    }

    /// Purges an endpoint, named by its hash or the id of its subscription.
    pub async fn purge(
        &self,
        name: &str,
        reason: &str,
        actor: &str,
        now: Time,
    ) -> Result<Listed, SubscriptionsError> {
        self.mark(name, SubscriptionState::Purged, reason, actor, now).await
    }

    async fn mark(
        &self,
        name: &str,
        standing: SubscriptionState,
        reason: &str,
        actor: &str,
        now: Time,
    ) -> Result<Listed, SubscriptionsError> {
        let (endpoint, effects) = {
            let mut table = self.table();
            let endpoint = markable(&table, name)?;
            // Operators paste what they see, possibly with secrets.
            let reason = redact::without_secrets(reason);
            let record = Record::new(standing, Cause::Operator, &reason, now).actor(actor);
            (endpoint, table.mark(endpoint, record, now))
        };
        self.carry_out(effects).await?;
        Ok(self.table().show(endpoint))
    }

    /// Whether an endpoint with this name can be flagged or purged.
    pub fn check_markable(&self, name: &str) -> Result<(), SubscriptionsError> {
        markable(&self.table(), name).map(drop)
    }

    /// Undoes the flag or the purge of an endpoint. If an operator had replaced an earlier flag, that is restored.
    pub async fn undo(&self, name: &str, now: Time) -> Result<Listed, SubscriptionsError> {
        let (endpoint, effects) = {
            let mut table = self.table();
            let endpoint = undoable(&table, name)?;
            (endpoint, table.undo(endpoint, now).ok_or_else(|| not_found(name))?)
        };
        self.carry_out(effects).await?;
        Ok(self.table().show(endpoint))
    }

    /// Whether there is a flag or a purge to undo.
    pub fn check_undoable(&self, name: &str) -> Result<(), SubscriptionsError> {
        undoable(&self.table(), name).map(drop)
    }

    /// How many endpoints were purged at `since` or later.
    pub fn purged_since(&self, since: Time) -> u64 {
        self.table().purged_since(since).len() as u64
    }

    /// Undoes all purges that happened at `since` or later. Returns how many.
    pub async fn undo_since(&self, since: Time, now: Time) -> Result<u64, SubscriptionsError> {
        let (count, effects) = {
            let mut table = self.table();
            let purged = table.purged_since(since);
            let mut all = Effects::default();
            for id in &purged {
                table.undo(*id, now).into_iter().for_each(|one| all.and(one));
            }
            (purged.len() as u64, all)
        };
        self.carry_out(effects).await?;
        Ok(count)
    }

    /// Resumes purging after the guard stopped it.
    pub async fn resume(&self, now: Time) -> Result<(), SubscriptionsError> {
        let effects = self.table().resume(now).ok_or(SubscriptionsError::NotStopped)?;
        Ok(self.carry_out(effects).await?)
    }

    pub fn counts(&self, now: Time) -> Counts {
        let mut table = self.table();
        Counts {
            purge: table.purge_mode(),
            active: table.active(now),
            flagged: table.flagged(),
            purged: table.purged(),
            stored: table.stored_count() as u64,
            stopped: table.stopped(),
            is_full: table.is_full(),
            unwritten: self.shared.unwritten.load(Ordering::Relaxed),
            unannounced: if table.announces() { table.unannounced_count() } else { 0 },
            unannounced_since: table.unannounced_since().filter(|_| table.announces()),
            without_key: self.missing_keys_of(&table).map(|(_, count)| count).sum(),
            damaged: self.shared.damaged.load(Ordering::Relaxed),
        }
    }

    /// Stored subscriptions and all flagged or purged endpoints, in the order of their hashes.
    pub fn list(
        &self,
        standing: Option<SubscriptionState>,
        after: Option<EndpointId>,
        limit: usize,
    ) -> Vec<Listed> {
        self.table().list(standing, after, limit.min(LIST_MAX))
    }

    /// One endpoint, by its hash or the id of a subscription. `None` if it is unknown: it is not stored, flagged or
    /// purged, and this process has not called it lately.
    pub fn show(&self, name: &str) -> Option<Listed> {
        let table = self.table();
        table.find(name).map(|endpoint| table.show(endpoint))
    }

    /// The number of stored subscriptions by VAPID key.
    pub fn keys(&self) -> BTreeMap<Option<String>, u64> {
        self.table().keys().clone()
    }

    /// VAPID keys that the sink does not have, with the number of stored subscriptions made with each.
    pub fn missing_keys(&self) -> Vec<(String, u64)> {
        let table = self.table();
        self.missing_keys_of(&table).map(|(key, count)| (key.to_owned(), count)).collect()
    }

    fn missing_keys_of<'a>(&'a self, table: &'a Table) -> impl Iterator<Item = (&'a str, u64)> {
        let signs_with = self.shared.signing_keys.get();
        let used = table.keys().iter().filter_map(|(key, count)| Some((key.as_deref()?, *count)));
        used.filter(move |(key, _)| signs_with.is_some_and(|keys| !keys.contains(*key)))
    }

    /// Removes outdated records. Cheap unless an hour has passed.
    async fn sweep(&self, now: Time) {
        let swept = Time::from_millis(self.shared.swept_ms.load(Ordering::Relaxed));
        if now.since(swept) < SWEEP_EVERY {
            return;
        }
        self.shared.swept_ms.store(now.as_millis(), Ordering::Relaxed);
        let effects = self.table().sweep(now);
        let _ = self.carry_out(effects).await;
    }

    /// Makes a change durable, then notifies listeners. The lock is not held meanwhile.
    async fn carry_out(&self, effects: Effects) -> Result<(), EngineError> {
        let Effects { entries, changes } = effects;
        let sender = self.shared.writer.get().and_then(Writer::sender);
        let written = match sender {
            Some(sender) if !entries.is_empty() => writer::write(sender, entries).await,
            _ => Ok(()),
        };
        if !changes.is_empty() {
            // Even if it could not be written, because it holds in this process.
            self.table().are_durable(&changes);
        }
        if written.is_err() {
            self.shared.unwritten.fetch_add(changes.len().max(1) as u64, Ordering::Relaxed);
        }
        let listeners = self.shared.listeners.lock().unwrap_or_else(PoisonError::into_inner).clone();
        for changed in &changes {
            listeners.iter().for_each(|listener| listener(changed));
        }
        written
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.shared.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn markable(table: &Table, name: &str) -> Result<EndpointId, SubscriptionsError> {
    let endpoint = table.find(name).ok_or_else(|| not_found(name))?;
    if table.show(endpoint).standing() == SubscriptionState::Purged {
        return Err(SubscriptionsError::AlreadyPurged(name.to_owned()));
    }
    Ok(endpoint)
}

fn undoable(table: &Table, name: &str) -> Result<EndpointId, SubscriptionsError> {
    let endpoint = table.find(name).ok_or_else(|| not_found(name))?;
    match table.show(endpoint).record {
        Some(_) => Ok(endpoint),
        None => Err(SubscriptionsError::NotMarked(name.to_owned())),
    }
}

fn not_found(name: &str) -> SubscriptionsError {
    SubscriptionsError::NotFound(name.to_owned())
}

impl fmt::Debug for Subscriptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Subscriptions").field("pipeline", &self.shared.pipeline).finish_non_exhaustive()
    }
}
