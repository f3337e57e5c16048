//! The handle to the subscriptions of a pipeline. Sinks ask it before a call and tell it what came back; the API shows it.

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

/// How often outdated records are looked for.
const SWEEP_EVERY: Duration = Duration::from_hours(1);
const SUBSCRIPTION_BYTES_MAX: usize = 8 * 1024;
/// Rows of one listing.
pub(crate) const LIST_MAX: usize = 1_000;

/// What is stored of an endpoint already.
pub type Known<'a> = &'a dyn Fn(EndpointId) -> Option<Arc<Stored>>;
/// Reads a subscription that is to be stored, or says what is wrong with it without showing it.
pub type Reader = Arc<dyn Fn(&Value, Known<'_>) -> Result<Registered, String> + Send + Sync>;
type Listener = Arc<dyn Fn(&Changed) + Send + Sync>;

/// The subscriptions of one pipeline. Clones share them. In memory until [`Self::open`].
#[derive(Clone)]
pub struct Subscriptions {
    shared: Arc<SharedTable>,
}

struct SharedTable {
    pipeline: String,
    table: Arc<Mutex<Table>>,
    writer: OnceLock<Writer>,
    reader: OnceLock<Reader>,
    /// The keys that the sink signs with, where there are such keys.
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

    /// Loads what is stored, and from now on writes every change there. Says what was wrong with it. Only the first store
    /// counts. Refused if its hashes were made with another key than that of [`Self::hash_with`].
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
        // Only the first one counts, and there is only one.
        let _ = self.shared.writer.set(writer);
        Ok(findings)
    }

    /// How subscriptions that are to be stored are read; the sink says so.
    pub fn read_with(&self, reader: Reader) {
        // Only the first one counts, and there is only one sink.
        let _ = self.shared.reader.set(reader);
    }

    /// Which key the endpoint hashes are made with: a text that identifies it and does not give it away. A table that was
    /// made with another one is not opened: it would know none of its endpoints.
    pub fn hash_with(&self, fingerprint: &str) {
        // Only the first one counts, and there is only one sink.
        let _ = self.shared.hash_key.set(fingerprint.to_owned());
    }

    /// Notes the key, twice where damage could take one: without it any key would open the table.
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
        // An older version noted none.
        if table.hash_key().is_none() {
            store.append(&[table.set_hash_key(given)])?;
        }
        // A store that holds what it is given can be damaged; of others it is said once.
        if table.hash_key_copies() < 2 && !store.is_empty() {
            store.append(&[table.set_hash_key(given)])?;
        }
        Ok(())
    }

    /// The public keys that the sink signs with.
    pub fn sign_with(&self, keys: impl IntoIterator<Item = String>) {
        // Only the first ones count, and there is only one sink.
        let _ = self.shared.signing_keys.set(keys.into_iter().collect());
    }

    /// Purges from now on wait in the table until [`Self::announced`]. Call it before [`Self::open`].
    pub fn announce_purges(&self) {
        self.table().announce_purges();
    }

    /// Purges that are durable and not announced, the oldest first, as the time of the purge and the endpoint.
    pub fn unannounced(&self, after: Option<(Time, EndpointId)>, limit: usize) -> Vec<(Time, EndpointId)> {
        self.table().unannounced(after, limit)
    }

    /// Details of an unannounced purge; `None` if it was undone.
    pub fn announcement(&self, purge: (Time, EndpointId)) -> Option<Changed> {
        self.table().announcement(purge)
    }

    /// The owner's system knows of a purge, or does not have to. Durable on return; otherwise it still waits, because others
    /// who follow the same store would wait for it in vain.
    pub async fn announced(&self, purge: (Time, EndpointId)) -> Result<(), EngineError> {
        let (effects, waiting) = self.table().announced(purge);
        let written = self.carry_out(effects).await;
        if written.is_err() {
            waiting.into_iter().for_each(|waiting| self.table().wait_again(purge, waiting));
        }
        written
    }

    /// How many lines of the log are damaged, as a check found.
    pub fn note_damage(&self, lines: u64) {
        self.shared.damaged.store(lines, Ordering::Relaxed);
    }

    /// Hears of every change that is made in this process, after it is durable.
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
            // It is called either way; not being durable only means that it is asked again.
            let _ = self.carry_out(effects).await;
        }
        admission
    }

    /// Takes note of what a push service said about an endpoint. Durable on return, or counted as unwritten.
    pub async fn answered(&self, endpoint: EndpointId, answer: Answer<'_>, now: Time) {
        let effects = self.table().answered(endpoint, answer, now);
        if !effects.entries.is_empty() {
            // What the service said stands. If it is not durable, the service is asked again after a restart.
            let _ = self.carry_out(effects).await;
        }
        self.sweep(now).await;
    }

    /// A stored subscription.
    pub fn stored(&self, id: &str) -> Option<Arc<Stored>> {
        self.table().stored(id)
    }

    /// Stores a subscription under an id, instead of the one that may be there. It is active from now on.
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

    /// Flags an endpoint, by its hash or the id of its subscription, to be watched.
    pub async fn flag(
        &self,
        name: &str,
        reason: &str,
        actor: &str,
        now: Time,
    ) -> Result<Listed, SubscriptionsError> {
        self.mark(name, SubscriptionState::Flagged, reason, actor, now).await
    }

    /// Purges an endpoint, by its hash or the id of its subscription.
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
            // People paste what they look at.
            let reason = redact::without_secrets(reason);
            let record = Record::new(standing, Cause::Operator, &reason, now).actor(actor);
            (endpoint, table.mark(endpoint, record, now))
        };
        self.carry_out(effects).await?;
        Ok(self.table().show(endpoint))
    }

    /// Whether an endpoint can be flagged or purged by this name.
    pub fn check_markable(&self, name: &str) -> Result<(), SubscriptionsError> {
        markable(&self.table(), name).map(drop)
    }

    /// Takes the flag or the purge of an endpoint back. If a person put it in place of an earlier flag, that holds again.
    pub async fn undo(&self, name: &str, now: Time) -> Result<Listed, SubscriptionsError> {
        let (endpoint, effects) = {
            let mut table = self.table();
            let endpoint = undoable(&table, name)?;
            (endpoint, table.undo(endpoint, now).ok_or_else(|| not_found(name))?)
        };
        self.carry_out(effects).await?;
        Ok(self.table().show(endpoint))
    }

    /// Whether there is a flag or a purge to take back.
    pub fn check_undoable(&self, name: &str) -> Result<(), SubscriptionsError> {
        undoable(&self.table(), name).map(drop)
    }

    /// How many endpoints were purged at `since` or later.
    pub fn purged_since(&self, since: Time) -> u64 {
        self.table().purged_since(since).len() as u64
    }

    /// Takes all purges back that happened at `since` or later. How many.
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

    /// Lets purging go on after the guard stopped it.
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

    /// Stored subscriptions and whatever is flagged or purged, in the order of their hashes.
    pub fn list(
        &self,
        standing: Option<SubscriptionState>,
        after: Option<EndpointId>,
        limit: usize,
    ) -> Vec<Listed> {
        self.table().list(standing, after, limit.min(LIST_MAX))
    }

    /// One endpoint, by its hash or the id of a subscription. `None` if it was never heard of: it is not stored, flagged
    /// or purged, and this process has not called it lately.
    pub fn show(&self, name: &str) -> Option<Listed> {
        let table = self.table();
        table.find(name).map(|endpoint| table.show(endpoint))
    }

    /// How many stored subscriptions were made with each VAPID key.
    pub fn keys(&self) -> BTreeMap<Option<String>, u64> {
        self.table().keys().clone()
    }

    /// VAPID keys that the sink does not have, with how many stored subscriptions were made with each.
    pub fn missing_keys(&self) -> Vec<(String, u64)> {
        let table = self.table();
        self.missing_keys_of(&table).map(|(key, count)| (key.to_owned(), count)).collect()
    }

    fn missing_keys_of<'a>(&'a self, table: &'a Table) -> impl Iterator<Item = (&'a str, u64)> {
        let signs_with = self.shared.signing_keys.get();
        let used = table.keys().iter().filter_map(|(key, count)| Some((key.as_deref()?, *count)));
        used.filter(move |(key, _)| signs_with.is_some_and(|keys| !keys.contains(*key)))
    }

    /// Forgets what is too old. Cheap unless an hour has passed.
    async fn sweep(&self, now: Time) {
        let swept = Time::from_millis(self.shared.swept_ms.load(Ordering::Relaxed));
        if now.since(swept) < SWEEP_EVERY {
            return;
        }
        self.shared.swept_ms.store(now.as_millis(), Ordering::Relaxed);
        let effects = self.table().sweep(now);
        let _ = self.carry_out(effects).await;
    }

    /// Makes a change durable, then tells of it. The lock is not held meanwhile.
    async fn carry_out(&self, effects: Effects) -> Result<(), EngineError> {
        let Effects { entries, changes } = effects;
        let sender = self.shared.writer.get().and_then(Writer::sender);
        let written = match sender {
            Some(sender) if !entries.is_empty() => writer::write(sender, entries).await,
            _ => Ok(()),
        };
        if !changes.is_empty() {
            // Also if it could not be written: it holds in this process.
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
