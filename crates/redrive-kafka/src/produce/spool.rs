//! Stores the whole copies of truncated letters in local files, because Kafka refuses them until a topic setting is
//! changed. They are offered again from time to time; once one is accepted, the letter is whole.
//!
//! It is a cache: without it the letters stay truncated, and their source records are whole for as long as the source
//! keeps them.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::ops::Bound;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use redrive::internal::engine::history::History;
use redrive_core::{Message, Meta, Reason, Time};
use serde::{Deserialize, Serialize};

use super::producer::Body;
use crate::record::origin_of;
use crate::record::{CopyRecord, LetterMarks, Origin, group};

/// Bounds of the spool; a letter beyond them stays truncated.
const RECORDS_MAX: usize = 10_000;
const BYTES_MAX: u64 = 1 << 30;
/// Records that are offered in one go.
const OFFERED_MAX: usize = 8;
/// Time until the next offer; it doubles each time nothing was accepted, up to the maximum.
const OFFER_AFTER: Duration = Duration::from_secs(30);
const OFFER_AFTER_MAX: Duration = Duration::from_mins(10);

/// A record as stored in a file.
#[derive(Serialize, Deserialize)]
struct SpooledRecord {
    topic: String,
    partition: i32,
    problem: String,
    /// Whether its truncated letter is in the topic. If not, an earlier version stored the only copy here.
    #[serde(default)]
    has_letter: bool,
    number: u64,
    origin: String,
    from: String,
    due: Option<u64>,
    reason: Option<String>,
    dead_at: Option<u64>,
    job: Option<u64>,
    #[serde(default)]
    group: Option<String>,
    #[serde(default)]
    options: Option<String>,
    created: u64,
    deadline: Option<u64>,
    /// attempts, uncounted, reconnects, crashes, replays
    counts: [u32; 5],
    last_crash: Option<u64>,
    first_failed: Option<u64>,
    held_ms: u64,
    last_delay_ms: u64,
    history: Vec<u8>,
    message: Vec<u8>,
}

/// A record from the spool, and its file.
#[derive(Debug)]
pub struct Spooled {
    pub path: PathBuf,
    pub topic: Arc<str>,
    pub partition: i32,
    pub body: Body,
    /// Whether its truncated letter is in the topic; if not, this is the only copy.
    pub has_letter: bool,
}

#[derive(Debug)]
pub struct Spool {
    dir: PathBuf,
    /// Sizes of the files by path.
    files: BTreeMap<PathBuf, u64>,
    bytes: u64,
    /// The file that was offered last.
    last: PathBuf,
    offer_at: Instant,
    wait: Duration,
    first_wait: Duration,
}

impl Spool {
    /// Opens the spool with the files of an earlier process.
    pub fn open(dir: PathBuf, now: Instant) -> Self {
        let files = fs::read_dir(&dir).into_iter().flatten().flatten();
        let files = files.filter(|file| file.path().extension().is_some_and(|extension| extension == "json"));
        let files: BTreeMap<PathBuf, u64> =
            files.map(|file| (file.path(), file.metadata().map_or(0, |metadata| metadata.len()))).collect();
        let bytes = files.values().sum();
        let last = PathBuf::new();
        Self { dir, files, bytes, last, offer_at: now, wait: OFFER_AFTER, first_wait: OFFER_AFTER }
    }

    pub fn len(&self) -> usize {
        self.files.len()
    }

    pub fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    /// Sets how soon a record is offered again; the default is half a minute.
    pub fn offer_every(&mut self, span: Duration, now: Instant) {
        (self.wait, self.first_wait, self.offer_at) = (span, span, now);
    }

    /// Stores the whole copy of a truncated letter. A failure is logged; the letter stays truncated then.
    pub fn keep(
        &mut self,
        topic: &str,
        partition: i32,
        whole: &CopyRecord,
        from: Option<&Origin>,
        problem: &str,
    ) {
        if self.files.len() >= RECORDS_MAX || self.bytes >= BYTES_MAX {
            tracing::error!(dir = %self.dir.display(), "the spool is full; the letter stays cut");
            return;
        }
        match self.write(topic, partition, whole, from, problem) {
            Ok((path, bytes)) => {
                self.bytes += bytes;
                self.files.insert(path, bytes);
            }
            Err(error) => {
                tracing::error!(dir = %self.dir.display(), %error, "the spool cannot be written; the letter stays cut");
            }
        }
    }

    fn write(
        &self,
        topic: &str,
        partition: i32,
        whole: &CopyRecord,
        from: Option<&Origin>,
        problem: &str,
    ) -> io::Result<(PathBuf, u64)> {
        let CopyRecord { message, meta, history, origin, due, reason, dead_at, job, marks } = whole;
        let millis = |time: &Option<Time>| time.map(Time::as_millis);
        let kept = SpooledRecord {
            topic: topic.to_owned(),
            partition,
            problem: problem.to_owned(),
            has_letter: true,
            number: origin.number(),
            origin: origin.topic.to_string(),
            from: from.map(Origin::to_string).unwrap_or_default(),
            due: millis(due),
            reason: reason.map(|reason| reason.name().to_owned()),
            dead_at: millis(dead_at),
            job: *job,
            group: marks.group.as_ref().map(group::write),
            options: marks.options.as_deref().map(str::to_owned),
            created: meta.created.as_millis(),
            deadline: millis(&meta.deadline),
            counts: [meta.attempts, meta.uncounted, meta.reconnects, meta.crashes, meta.replays],
            last_crash: millis(&meta.last_crash),
            first_failed: millis(&meta.first_failed),
            held_ms: meta.held_ms,
            last_delay_ms: meta.last_delay_ms,
            history: history.raw().to_vec(),
            message: message.wire().to_vec(),
        };
        fs::create_dir_all(&self.dir)?;
        let name = format!("{}-{}-{}.json", origin.number(), meta.replays, meta.attempts + meta.uncounted);
        let (path, unfinished) = (self.dir.join(&name), self.dir.join(format!("{name}.unfinished")));
        let bytes = serde_json::to_vec(&kept)?;
        let mut file =
            OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&unfinished)?;
        file.write_all(&bytes)?;
        file.sync_all()?;
        fs::rename(&unfinished, &path)?;
        File::open(&self.dir)?.sync_all()?;
        Ok((path, bytes.len() as u64))
    }

    /// Returns the next few records to offer, if it is time. A file that cannot be read stays in place.
    pub fn next_offers(&mut self, now: Instant) -> Vec<Spooled> {
        if self.files.is_empty() || now < self.offer_at {
            return Vec::new();
        }
        self.wait = (self.wait * 2).min(OFFER_AFTER_MAX.max(self.first_wait));
        self.offer_at = now + self.wait;
        let after = (Bound::Excluded(self.last.clone()), Bound::Unbounded);
        let mut next: Vec<PathBuf> =
            self.files.range(after).take(OFFERED_MAX).map(|(path, _)| path.clone()).collect();
        if next.is_empty() {
            next = self.files.keys().take(OFFERED_MAX).cloned().collect();
        }
        self.last = next.last().cloned().unwrap_or_default();
        next.iter().filter_map(|path| read(path)).collect()
    }

    /// Removes a record that was accepted, or is no longer needed. The others are offered soon.
    pub fn forget(&mut self, path: &Path, now: Instant) {
        if let Err(error) = fs::remove_file(path) {
            tracing::warn!(path = %path.display(), %error, "a file of the spool cannot be removed");
        }
        self.bytes -= self.files.remove(path).unwrap_or(0).min(self.bytes);
        (self.wait, self.offer_at) = (self.first_wait, now);
    }
}

fn read(path: &Path) -> Option<Spooled> {
    let kept: SpooledRecord = serde_json::from_slice(&fs::read(path).ok()?).ok()?;
    let time = |millis: Option<u64>| millis.map(Time::from_millis);
    let [attempts, uncounted, reconnects, crashes, replays] = kept.counts;
    let copy = CopyRecord {
        message: Message::from_wire(kept.message.into()).ok()?,
        meta: Meta {
            created: Time::from_millis(kept.created),
            deadline: time(kept.deadline),
            attempts,
            uncounted,
            reconnects,
            crashes,
            replays,
            last_crash: time(kept.last_crash),
            first_failed: time(kept.first_failed),
            held_ms: kept.held_ms,
            last_delay_ms: kept.last_delay_ms,
            deferred: false,
        },
        history: History::from_raw(kept.history.into()),
        origin: origin_of(kept.number, &Arc::from(kept.origin)),
        due: time(kept.due),
        reason: kept.reason.as_deref().and_then(Reason::from_name),
        dead_at: time(kept.dead_at),
        job: kept.job,
        marks: LetterMarks {
            group: kept.group.and_then(|group| group::read(group.as_bytes())),
            options: kept.options.map(Arc::from),
            ..LetterMarks::default()
        },
    };
    let body = Body::Copy { copy: Box::new(copy), from: Origin::parse(&kept.from) };
    let (topic, partition, has_letter) = (kept.topic.into(), kept.partition, kept.has_letter);
    Some(Spooled { path: path.to_owned(), topic, partition, body, has_letter })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn copy(number: u64) -> CopyRecord {
        CopyRecord {
            message: Message::builder("o-1").key("k").payload("{}").build().unwrap(),
            meta: Meta { attempts: 3, first_failed: Some(Time::from_millis(7)), ..Meta::default() },
            history: History::default(),
            origin: origin_of((3 << 48) + number, &"orders".into()),
            due: Some(Time::from_millis(5)),
            reason: Some(Reason::MaxRetries),
            dead_at: None,
            job: Some(4),
            marks: LetterMarks::default(),
        }
    }

    #[test]
    fn what_is_kept_comes_back_whole() {
        let (dir, now) = (tempfile::tempdir().unwrap(), Instant::now());
        let path = dir.path().join("spool");
        let mut spool = Spool::open(path.clone(), now);
        assert!(spool.is_empty() && spool.next_offers(now).is_empty());
        let from = Origin::parse("orders/3/99");
        spool.keep("orders.DLQ", 3, &copy(99), from.as_ref(), "too large");
        let mut next = Spool::open(path.clone(), now);
        let back = next.next_offers(now).pop().unwrap();
        let Body::Copy { copy: again, from: told } = back.body else { panic!("a message") };
        assert_eq!((*again, told, &*back.topic, back.partition), (copy(99), from, "orders.DLQ", 3));
        assert!(back.has_letter);
        next.forget(&back.path, now);
        assert!(next.is_empty() && Spool::open(path, now).is_empty());
    }

    #[test]
    fn records_are_offered_by_turns_and_ever_more_seldom() {
        let (dir, mut now) = (tempfile::tempdir().unwrap(), Instant::now());
        let mut spool = Spool::open(dir.path().join("spool"), now);
        (0..12).for_each(|n| spool.keep("orders.DLQ", 3, &copy(n), None, "too large"));
        let first = spool.next_offers(now);
        assert_eq!((first.len(), spool.next_offers(now).len()), (OFFERED_MAX, 0));
        now += OFFER_AFTER * 2;
        let second = spool.next_offers(now);
        assert_eq!(second.len(), 4);
        assert!(second.iter().all(|one| first.iter().all(|other| other.path != one.path)));
        now += OFFER_AFTER * 2;
        assert!(spool.next_offers(now).is_empty(), "twice as long by now");
        spool.forget(&first[0].path, now);
        assert_eq!(
            spool.next_offers(now).len(),
            OFFERED_MAX,
            "one was taken: the others are offered at once"
        );
    }
}
