//! The scrub: slowly reads all stored data, so that damage is found while a backup still has the data.

use std::ops::ControlFlow;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use redrive_core::Time;

use crate::engine::embedded::disk::real::{Disk, DiskFile};
use crate::engine::embedded::index::healing::Healing;
use crate::engine::embedded::index::tables::{IndexError, IndexTables};
use crate::engine::embedded::journal::error::ReadError;
use crate::engine::embedded::journal::reader::{Reader, Scanned};
use crate::engine::embedded::journal::segment;
use crate::engine::embedded::write::mailbox::Mailbox;
use crate::engine::store_notice::{StoreNotice, Upkeep};

const NAME: &str = "scrubbed";
/// The delay of the first scrub, because a store that was just opened has other things to do.
const FIRST_AFTER: Duration = Duration::from_mins(1);
/// The delay after a scrub that could not be finished.
const AGAIN_AFTER: Duration = Duration::from_hours(1);
/// How much is read between two pauses.
const PIECE_BYTES: u64 = 1 << 20;
/// The minimum rate, so that a small store is soon done.
const RATE_MIN: u64 = 4 << 20;
/// The maximum number of damaged places reported one by one; all are counted.
const TOLD_MAX: u64 = 100;

/// Bytes per second. Everything is read in a quarter of the time between two scrubs.
fn rate(bytes: u64, every: Duration) -> u64 {
    (bytes.saturating_mul(4) / every.as_secs().max(1)).max(RATE_MIN)
}

/// The time until the next scrub, given when the last one ended.
fn due_in(last: Option<Time>, now: Time, every: Duration) -> Duration {
    let since = last.map_or(every, |last| now.since(last));
    every.saturating_sub(since).max(FIRST_AFTER.min(every))
}

/// The state of scrubs, shared with the owner of the store.
#[derive(Debug, Default)]
pub(crate) struct Scrubbed {
    state: Mutex<ScrubState>,
}

#[derive(Debug, Default)]
struct ScrubState {
    bytes: u64,
    damaged: u64,
    last: Option<Time>,
    notices: Vec<StoreNotice>,
}

impl Scrubbed {
    fn state(&self) -> MutexGuard<'_, ScrubState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn take_notices(&self, out: &mut Vec<StoreNotice>) {
        out.append(&mut self.state().notices);
    }

    /// Adds the state of scrubs to the figures.
    pub(crate) fn add_to(&self, upkeep: Upkeep) -> Upkeep {
        let state = self.state();
        Upkeep { scrubbed_bytes: state.bytes, damaged: state.damaged, scrubbed: state.last, ..upkeep }
    }
}

/// What a scrub reads.
#[derive(Debug)]
pub(crate) struct Scrub<D: Disk, S> {
    pub(crate) disk: D,
    pub(crate) logs: [(&'static str, Reader<D>); 2],
    pub(crate) index: Arc<Healing<S>>,
    pub(crate) scrubbed: Arc<Scrubbed>,
    pub(crate) every: Duration,
}

/// Why a scrub ended early.
enum ScrubStopped {
    /// The store is closed.
    Closed,
    Failed(String),
}

impl<D: Disk, S: IndexTables> Scrub<D, S> {
    /// Scrubs whenever it is due, until the mailbox is closed.
    pub(crate) fn run(self, stop: &Mailbox<()>, wake: &dyn Fn()) {
        self.scrubbed.state().last = read_last(&self.disk);
        let mut wait = due_in(self.scrubbed.state().last, wall(), self.every);
        loop {
            if stop.wait(Some(wait)).is_none() {
                return;
            }
            let began = Instant::now();
            wait = match self.pass(&mut |spent| stop.wait(Some(spent)).is_some()) {
                Ok((bytes, damaged)) => {
                    self.finished(bytes, damaged, began.elapsed());
                    self.every
                }
                Err(ScrubStopped::Closed) => return,
                Err(ScrubStopped::Failed(why)) => {
                    self.scrubbed.state().notices.push(StoreNotice::ScrubFailed { why });
                    AGAIN_AFTER.min(self.every)
                }
            };
            wake();
        }
    }

    fn finished(&self, bytes: u64, damaged: u64, took: Duration) {
        let now = wall();
        // If this is lost, the scrub is just repeated after a restart.
        let _ = write_last(&self.disk, now);
        let mut state = self.scrubbed.state();
        state.last = Some(now);
        state.damaged = damaged;
        state.notices.push(StoreNotice::Scrubbed { bytes, damaged, took });
    }

    /// Reads everything once. `pause` waits and says whether to go on. Returns the bytes read and the damaged places.
    fn pass(&self, pause: &mut dyn FnMut(Duration) -> bool) -> Result<(u64, u64), ScrubStopped> {
        let all: u64 = self.logs.iter().flat_map(|(_, log)| log.segments()).map(|(_, bytes)| bytes).sum();
        let rate = rate(all, self.every);
        let mut pace = ScrubPace { rate, piece: 0, total: 0, scrubbed: &self.scrubbed, pause };
        let mut damaged = 0;
        for (prefix, log) in &self.logs {
            for (base, _) in log.segments() {
                damaged += self.segment(prefix, log, base, damaged, &mut pace)?;
            }
        }
        let mut going_on = true;
        let verified = self.index.verify(&mut |bytes| {
            going_on = going_on && pace.read(bytes).is_ok();
            going_on
        });
        match verified {
            Err(IndexError::Damaged(why)) => self.index.report(why),
            Err(error) => return Err(ScrubStopped::Failed(error.to_string())),
            Ok(()) if !going_on => return Err(ScrubStopped::Closed),
            Ok(()) => {}
        }
        Ok((pace.total, damaged))
    }

    fn segment(
        &self,
        prefix: &'static str,
        log: &Reader<D>,
        base: u64,
        known: u64,
        pace: &mut ScrubPace<'_>,
    ) -> Result<u64, ScrubStopped> {
        let Some((_, len)) = log.segments().into_iter().find(|(here, _)| *here == base) else { return Ok(0) };
        let (mut from, to, mut damaged) = (base, base + len, 0);
        while from < to {
            let upto = to.min(from + PIECE_BYTES);
            let scanned = log.scan(from, upto, |scanned| {
                if let Scanned::Rot(rot) = scanned {
                    damaged += 1;
                    if known + damaged <= TOLD_MAX {
                        let file = segment::file_name(prefix, base);
                        let (position, bytes) = (rot.position, rot.len);
                        self.scrubbed.state().notices.push(StoreNotice::Damage { file, position, bytes });
                    }
                }
                ControlFlow::Continue(())
            });
            let next = match scanned {
                Ok(next) => next,
                // The cleaner has dropped the segment meanwhile.
                Err(ReadError::Missing { .. }) => return Ok(damaged),
                Err(error) => return Err(ScrubStopped::Failed(error.to_string())),
            };
            pace.read(next - from)?;
            from = next;
        }
        Ok(damaged)
    }
}

/// Keeps the rate and counts the bytes.
struct ScrubPace<'a> {
    rate: u64,
    piece: u64,
    total: u64,
    scrubbed: &'a Scrubbed,
    pause: &'a mut dyn FnMut(Duration) -> bool,
}

impl ScrubPace<'_> {
    fn read(&mut self, bytes: u64) -> Result<(), ScrubStopped> {
        self.total += bytes;
        self.piece += bytes;
        self.scrubbed.state().bytes += bytes;
        if self.piece < PIECE_BYTES {
            return Ok(());
        }
        let spent = Duration::from_secs_f64(self.piece as f64 / self.rate as f64);
        self.piece = 0;
        if (self.pause)(spent) { Ok(()) } else { Err(ScrubStopped::Closed) }
    }
}

fn wall() -> Time {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Time::from_millis(since.as_millis() as u64)
}

/// When the last scrub ended, if known.
fn read_last<D: Disk>(disk: &D) -> Option<Time> {
    let raw = disk.open(NAME).and_then(|file| file.read_vec(0, 16)).ok()?;
    let number = |at: usize| Some(u64::from_le_bytes(raw.get(at..at + 8)?.try_into().ok()?));
    let (time, again) = (number(0)?, number(8)?);
    (time == !again).then_some(Time::from_millis(time))
}

fn write_last<D: Disk>(disk: &D, time: Time) -> std::io::Result<()> {
    let is_there = disk.list()?.iter().any(|name| name == NAME);
    let file = if is_there { disk.open(NAME)? } else { disk.create(NAME)? };
    let time = time.as_millis();
    file.write_at(0, &[time.to_le_bytes(), (!time).to_le_bytes()].concat())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::embedded::disk::sim::SimDisk;

    const WEEK: Duration = Duration::from_hours(7 * 24);

    #[test]
    fn a_large_store_is_read_in_a_quarter_of_the_interval_and_a_small_one_soon() {
        assert_eq!(rate(1 << 20, WEEK), RATE_MIN);
        let terabyte = 1 << 40;
        let seconds = terabyte / rate(terabyte, WEEK);
        assert!((WEEK.as_secs() / 4).abs_diff(seconds) < 60, "{seconds}");
    }

    #[test]
    fn the_next_scrub_is_due_an_interval_after_the_last_one_also_after_a_restart() {
        let at = |days: u64| Time::from_millis(days * 86_400_000);
        assert_eq!(due_in(None, at(100), WEEK), FIRST_AFTER);
        assert_eq!(due_in(Some(at(98)), at(100), WEEK), Duration::from_hours(5 * 24));
        assert_eq!(due_in(Some(at(10)), at(100), WEEK), FIRST_AFTER);
        let disk = SimDisk::new();
        assert_eq!(read_last(&disk), None);
        write_last(&disk, at(7)).unwrap();
        write_last(&disk, at(98)).unwrap();
        assert_eq!(read_last(&disk), Some(at(98)));
        disk.flip_bit(NAME, 3, 1);
        assert_eq!(read_last(&disk), None);
    }
}
