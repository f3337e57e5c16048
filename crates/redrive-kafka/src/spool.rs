//! Records that Kafka will not take: too large, or forbidden. They are kept in files until somebody has changed that.
//!
//! A spooled message is settled: its partition goes on. At each start it is offered again.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use redrive::engine::history::History;
use redrive_core::{Message, Meta, Reason, Time};
use serde::{Deserialize, Serialize};

use crate::produce::Body;
use crate::record::{CopyRecord, Origin};
use crate::waiting::origin_of;

/// A record as it is kept.
#[derive(Serialize, Deserialize)]
struct Kept {
    topic: String,
    partition: i32,
    problem: String,
    number: u64,
    origin: String,
    from: String,
    due: Option<u64>,
    reason: Option<String>,
    dead_at: Option<u64>,
    job: Option<u64>,
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

/// A record out of the spool, and the file it is in.
#[derive(Debug)]
pub struct Spooled {
    pub path: PathBuf,
    pub topic: Arc<str>,
    pub partition: i32,
    pub body: Body,
}

#[derive(Debug)]
pub struct Spool {
    dir: PathBuf,
}

impl Spool {
    pub fn new(dir: PathBuf) -> Self {
        Self { dir }
    }

    /// Keeps a copy that was refused. Durable on return.
    pub fn keep(&self, topic: &str, partition: i32, body: &Body, problem: &str) -> io::Result<PathBuf> {
        let Body::Copy { copy, from } = body else {
            return Err(io::Error::other("only messages are kept"));
        };
        let CopyRecord { message, meta, history, origin, due, reason, dead_at, job } = &**copy;
        let millis = |time: &Option<Time>| time.map(Time::as_millis);
        let kept = Kept {
            topic: topic.to_owned(),
            partition,
            problem: problem.to_owned(),
            number: origin.number(),
            origin: origin.topic.to_string(),
            from: from.as_ref().map(Origin::to_string).unwrap_or_default(),
            due: millis(due),
            reason: reason.map(|reason| reason.name().to_owned()),
            dead_at: millis(dead_at),
            job: *job,
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
        let mut file =
            OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&unfinished)?;
        file.write_all(&serde_json::to_vec(&kept)?)?;
        file.sync_all()?;
        fs::rename(&unfinished, &path)?;
        File::open(&self.dir)?.sync_all()?;
        Ok(path)
    }

    /// Everything that is kept. A file that cannot be read is left where it is.
    pub fn all(&self) -> Vec<Spooled> {
        let Ok(files) = fs::read_dir(&self.dir) else { return Vec::new() };
        let paths = files.filter_map(|file| Some(file.ok()?.path()));
        let paths = paths.filter(|path| path.extension().is_some_and(|extension| extension == "json"));
        paths.filter_map(|path| read(&path)).collect()
    }
}

fn read(path: &Path) -> Option<Spooled> {
    let kept: Kept = serde_json::from_slice(&fs::read(path).ok()?).ok()?;
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
    };
    let body = Body::Copy { copy: Box::new(copy), from: Origin::parse(&kept.from) };
    Some(Spooled { path: path.to_owned(), topic: kept.topic.into(), partition: kept.partition, body })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_comes_back_whole() {
        let dir = tempfile::tempdir().unwrap();
        let spool = Spool::new(dir.path().join("spool"));
        assert!(spool.all().is_empty());
        let copy = CopyRecord {
            message: Message::builder("o-1").key("k").payload("{}").build().unwrap(),
            meta: Meta { attempts: 3, first_failed: Some(Time::from_millis(7)), ..Meta::default() },
            history: History::default(),
            origin: origin_of((3 << 48) + 99, &"orders".into()),
            due: Some(Time::from_millis(5)),
            reason: Some(Reason::MaxRetries),
            dead_at: None,
            job: Some(4),
        };
        let body = Body::Copy { copy: Box::new(copy.clone()), from: Origin::parse("orders/3/99") };
        spool.keep("orders.DLQ", 3, &body, "too large").unwrap();
        let mut all = spool.all();
        let back = all.pop().unwrap();
        let Body::Copy { copy: again, from } = back.body else { panic!("a message") };
        assert_eq!(
            (*again, from, &*back.topic, back.partition),
            (copy, Origin::parse("orders/3/99"), "orders.DLQ", 3)
        );
        fs::remove_file(back.path).unwrap();
        assert!(spool.all().is_empty());
    }
}
