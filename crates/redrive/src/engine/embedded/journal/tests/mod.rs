//! How the log behaves on a disk without faults.

mod damage;
mod files;
mod power;

use std::io::ErrorKind;
use std::ops::ControlFlow;

use super::*;
use crate::engine::embedded::disk::real::RealDisk;
use crate::engine::embedded::disk::sim::{SimDisk, SimOp};
use crate::engine::embedded::journal::frame::{Frame, Rot, frame_len};
use crate::engine::embedded::journal::reader::Scanned;

const STORE: [u8; 16] = *b"a store of tests";

pub(crate) fn options(segment_bytes: u64) -> LogOptions {
    LogOptions::new("j", segment_bytes, STORE)
}

pub(crate) fn open<D: Disk>(disk: &D, segment_bytes: u64) -> (Log<D>, OpenReport) {
    Log::open(disk.clone(), options(segment_bytes)).unwrap()
}

/// A body that identifies its tag and has its own length.
pub(crate) fn body(tag: u64) -> Vec<u8> {
    (0..5 + tag % 61).map(|i| (tag * 7 + i) as u8).collect()
}

pub(crate) fn write<D: Disk>(log: &mut Log<D>, tags: std::ops::Range<u64>) -> Result<Written, LogError> {
    let mut batch = log.batch()?;
    for tag in tags {
        batch.push_slices(1 + (tag % 3) as u8, 0, tag, &[&body(tag)]);
    }
    log.write(batch)
}

/// Everything in the log: the caller's frames and the damage.
pub(crate) fn everything<D: Disk>(log: &Log<D>) -> (Vec<Frame>, Vec<Rot>) {
    let (mut frames, mut rots) = (Vec::new(), Vec::new());
    let scanned = log.reader().scan(log.start(), u64::MAX, |scanned| {
        match scanned {
            Scanned::Frame(frame) => frames.push(frame),
            Scanned::Rot(rot) => rots.push(rot),
            Scanned::Batch(_) => {}
        }
        ControlFlow::Continue(())
    });
    assert_eq!(scanned.unwrap(), log.end());
    (frames, rots)
}

/// The tags in order, after checking that each body belongs to its tag.
pub(crate) fn tags<D: Disk>(log: &Log<D>) -> Vec<u64> {
    let (frames, _) = everything(log);
    for frame in &frames {
        assert_eq!(frame.body, body(frame.tag), "tag {}", frame.tag);
    }
    frames.iter().map(|frame| frame.tag).collect()
}

fn all(tags: std::ops::Range<u64>) -> Vec<u64> {
    tags.collect()
}

#[test]
fn what_was_written_is_read_back_after_reopening() {
    let dir = tempfile::tempdir().unwrap();
    let disk = RealDisk::new(dir.path()).unwrap();
    let (mut log, report) = open(&disk, 1 << 20);
    assert_eq!((report.cut_bytes, report.log_start), (0, 0));
    write(&mut log, 0..10).unwrap();
    log.sync().unwrap();
    write(&mut log, 10..11).unwrap();
    log.close().unwrap();

    let (mut log, report) = open(&disk, 1 << 20);
    assert_eq!(tags(&log), all(0..11));
    assert_eq!((report.cut_bytes, report.rot.len(), report.end), (0, 0, log.end()));
    write(&mut log, 11..12).unwrap();
    assert_eq!(tags(&log), all(0..12));
}

#[test]
fn positions_are_known_at_push_time_and_shared_memory_serves_the_frames() {
    let (mut log, _) = open(&SimDisk::new(), 1 << 20);
    let mut batch = log.batch().unwrap();
    batch.set_note(99);
    let first = batch.push(4, 1, 7, 3, |buf| buf.extend_from_slice(b"abc"));
    let second = batch.push_slices(5, 0, 8, &[b"de", b"", b"f"]);
    assert_eq!(second, first + frame_len(3) as u64);
    let written = log.write(batch).unwrap();

    let frame = written.frame(second).unwrap();
    assert_eq!((frame.kind, frame.tag, &frame.body[..]), (5, 8, &b"def"[..]));
    assert_eq!(frame, log.reader().read_frame(second).unwrap());
    assert_eq!(written.frame(written.end), None);
    let mut notes = Vec::new();
    let seen = log.reader().scan(written.start, written.end, |scanned| {
        if let Scanned::Batch(header) = scanned {
            notes.push((header.note, header.frames, header.durable_up_to));
        }
        ControlFlow::Continue(())
    });
    assert_eq!((seen.unwrap(), notes), (written.end, vec![(99, 2, written.start)]));
}

#[test]
fn batches_reuse_their_memory_once_nobody_reads_it() {
    let (mut log, _) = open(&SimDisk::new(), 1 << 20);
    write(&mut log, 0..50).unwrap();
    let first = write(&mut log, 0..50).unwrap().bytes.as_ptr();
    let again = (0..20).any(|_| write(&mut log, 0..50).unwrap().bytes.as_ptr() == first);
    assert!(again, "every batch got memory of its own");
}

#[test]
fn segments_roll_are_contiguous_and_a_scan_crosses_them() {
    let disk = SimDisk::new();
    let (mut log, _) = open(&disk, 1000);
    for tag in 0..60 {
        write(&mut log, tag..tag + 1).unwrap();
    }
    let segments = log.segments();
    assert!(segments.len() > 5);
    for pair in segments.windows(2) {
        assert_eq!(pair[0].base + pair[0].len, pair[1].base);
    }
    assert_eq!(tags(&log), all(0..60));

    let mut got = Vec::new();
    let stopped = log.reader().scan(segments[2].base, u64::MAX, |scanned| match scanned {
        Scanned::Frame(frame) => {
            got.push(frame);
            if got.len() < 20 { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        }
        _ => ControlFlow::Continue(()),
    });
    assert_eq!(stopped.unwrap(), got[19].end(), "a scan goes on where it was broken off");
    assert!(got.windows(2).all(|pair| pair[0].tag + 1 == pair[1].tag));
    drop(log);
    assert_eq!(tags(&open(&disk, 1000).0), all(0..60));
}

#[test]
fn a_frame_larger_than_the_read_size_is_scanned() {
    let (mut log, _) = open(&SimDisk::new(), 1 << 30);
    let large = vec![0x5A; 3 << 20];
    let mut batch = log.batch().unwrap();
    batch.push_slices(1, 0, 1, &[b"small"]);
    let position = batch.push_slices(1, 0, 2, &[&large]);
    batch.push_slices(1, 0, 3, &[b"small"]);
    log.write(batch).unwrap();
    let (frames, rots) = everything(&log);
    assert_eq!((frames.len(), rots.len()), (3, 0));
    assert_eq!(frames[1].body, large);
    assert_eq!(log.reader().read_frame(position).unwrap().body, large);
}

#[test]
fn read_many_returns_the_right_frames_in_order_across_segments_and_gaps() {
    let (mut log, _) = open(&SimDisk::new(), 200_000);
    let mut wanted = Vec::new();
    for tag in 0..2000 {
        let mut batch = log.batch().unwrap();
        let filler = vec![1; if tag % 50 == 0 { 80_000 } else { 10 }];
        batch.push_slices(9, 0, tag, &[&filler]);
        let position = batch.push_slices(1, 0, tag, &[&body(tag)]);
        log.write(batch).unwrap();
        wanted.push((position, frame_len(body(tag).len()) as u64));
    }
    let end = log.end();
    wanted.reverse();
    wanted.push((end + 800, 64));
    wanted[5].1 = 8;
    wanted[6].1 = 100_000;
    let mut frames = log.reader().read_many(&mut wanted);
    assert!(matches!(frames.pop(), Some(Err(ReadError::Missing { position })) if position == end + 800));
    let got: Vec<u64> = frames.into_iter().map(|frame| frame.unwrap().tag).collect();
    assert_eq!(got, all(0..2000));
}

#[test]
fn a_log_of_more_segments_than_may_be_open_is_read_in_any_order() {
    let disk = SimDisk::new();
    let (mut log, _) = open(&disk, 1);
    let mut positions = Vec::new();
    for tag in 0..200 {
        let mut batch = log.batch().unwrap();
        positions.push(batch.push_slices(1, 0, tag, &[&body(tag)]));
        log.write(batch).unwrap();
    }
    assert_eq!(log.segments().len(), 200);
    for step in 0..600 {
        let tag = step * 77 % 200;
        assert_eq!(log.reader().read_frame(positions[tag]).unwrap().tag, tag as u64);
    }
    assert_eq!(tags(&log), all(0..200));
}

#[test]
fn reading_where_no_frame_is_says_so() {
    let (mut log, _) = open(&SimDisk::new(), 1 << 20);
    let position = write(&mut log, 0..3).unwrap().start;
    let reader = log.reader();
    assert!(matches!(reader.read_frame(log.end()), Err(ReadError::Missing { .. })));
    assert!(matches!(reader.read_frame(position + 8), Err(ReadError::Rot { header: None, .. })));
}

#[test]
fn a_failed_write_stops_the_log_for_good_and_reopening_recovers() {
    let disk = SimDisk::new();
    let (mut log, _) = open(&disk, 1 << 20);
    write(&mut log, 0..3).unwrap();
    log.sync().unwrap();
    disk.fail_next(SimOp::Write, 1, ErrorKind::Other);
    assert!(matches!(write(&mut log, 3..6), Err(LogError::Io { .. })));
    assert!(matches!(log.batch(), Err(LogError::Poisoned { .. })));
    assert!(matches!(log.sync(), Err(LogError::Poisoned { .. })));
    assert!(matches!(log.mark(), Err(LogError::Poisoned { .. })));
    assert!(matches!(log.advance_start(0), Err(LogError::Poisoned { .. })));
    assert_eq!(tags(&log), all(0..3), "what was written can still be read");
    drop(log);

    let (mut log, report) = open(&disk, 1 << 20);
    assert!(report.cut_bytes > 0);
    let kept = tags(&log);
    assert!(kept.starts_with(&all(0..3)));
    write(&mut log, 6..7).unwrap();
    assert_eq!(tags(&open(&disk, 1 << 20).0), [kept, vec![6]].concat());
}

/// The kernel marks pages as clean after a failed sync: the data can still be read, later syncs succeed, and the next
/// power failure loses it. Whatever opening the log reports after that must be on disk all the same.
#[test]
fn a_failed_sync_is_never_retried_and_what_reopening_finds_is_made_durable() {
    let disk = SimDisk::new();
    let (mut log, _) = open(&disk, 1 << 20);
    write(&mut log, 0..3).unwrap();
    log.sync().unwrap();
    write(&mut log, 3..6).unwrap();
    disk.fail_next(SimOp::Sync, 1, ErrorKind::Other);
    assert!(matches!(log.sync(), Err(LogError::Io { .. })));
    let syncs = disk.syncs();
    assert!(matches!(log.sync(), Err(LogError::Poisoned { .. })));
    assert!(matches!(log.close(), Err(LogError::Poisoned { .. })));
    assert_eq!(disk.syncs(), syncs);

    assert_eq!(tags(&open(&disk, 1 << 20).0), all(0..6));
    for seed in 0..50 {
        assert_eq!(tags(&open(&disk.power_cut(seed), 1 << 20).0), all(0..6), "seed {seed}");
    }
}

#[test]
fn any_failure_while_rolling_stops_the_log_and_loses_nothing() {
    for op in [SimOp::Create, SimOp::Write, SimOp::Sync, SimOp::SyncDir] {
        let disk = SimDisk::new();
        let (mut log, _) = open(&disk, 500);
        write(&mut log, 0..20).unwrap();
        log.sync().unwrap();
        disk.fail_next(op, 1, ErrorKind::Other);
        assert!(log.batch().is_err(), "{op:?}");
        assert!(matches!(log.batch(), Err(LogError::Poisoned { .. })), "{op:?}");
        drop(log);
        let (mut log, _) = open(&disk, 500);
        write(&mut log, 20..21).unwrap();
        log.close().unwrap();
        assert_eq!(tags(&open(&disk, 500).0), all(0..21), "{op:?}");
    }
}

#[test]
fn a_full_disk_stops_the_log_and_it_goes_on_when_space_returns() {
    for room in 0..300 {
        let disk = SimDisk::new();
        let (mut log, _) = open(&disk, 1 << 20);
        write(&mut log, 0..3).unwrap();
        log.sync().unwrap();
        disk.fill(room);
        let Err(LogError::Io { source, .. }) = write(&mut log, 3..10) else { panic!("room {room}") };
        assert_eq!(source.kind(), ErrorKind::StorageFull);
        drop(log);
        // A store on a full disk can be opened: letters can be read and segments removed.
        let (log, _) = open(&disk, 1 << 20);
        assert!(tags(&log).starts_with(&all(0..3)), "room {room}");
        drop(log);
        disk.fill(None);
        let (mut log, _) = open(&disk, 1 << 20);
        write(&mut log, 10..11).unwrap();
        assert_eq!(tags(&open(&disk, 1 << 20).0).last(), Some(&10));
    }
}

#[test]
fn advancing_the_start_removes_whole_segments_and_survives_reopening() {
    let disk = SimDisk::new();
    let (mut log, _) = open(&disk, 600);
    for tag in 0..40 {
        write(&mut log, tag..tag + 1).unwrap();
    }
    let before = log.segments();
    let keep = before[3];
    assert!(log.advance_start(keep.base + 100).unwrap() > 0);
    assert_eq!(log.advance_start(keep.base).unwrap(), 0, "nothing more to remove");
    assert_eq!(log.start(), keep.base);
    assert_eq!(
        log.segments()[..],
        before[3..before.len() - 1].iter().copied().chain(log.segments().last().copied()).collect::<Vec<_>>()
            [..]
    );
    assert!(matches!(log.reader().read_frame(before[0].base + 80), Err(ReadError::Missing { .. })));
    let left = tags(&log);
    drop(log);
    let (log, report) = open(&disk, 600);
    assert_eq!((report.log_start, report.leftovers), (keep.base, 0));
    assert_eq!(tags(&log), left);
    assert_eq!(*left.last().unwrap(), 39);
}

#[test]
fn a_mark_is_written_once_and_only_when_there_is_something_to_tell() {
    let disk = SimDisk::new();
    let (log, _) = open(&disk, 1 << 20);
    let empty = log.end();
    drop(log);
    let (mut log, _) = open(&disk, 1 << 20);
    log.mark().unwrap();
    assert_eq!(log.end(), empty);
    write(&mut log, 0..1).unwrap();
    log.mark().unwrap();
    let unsynced = log.end();
    log.sync().unwrap();
    log.mark().unwrap();
    let marked = log.end();
    assert!(marked > unsynced && unsynced > empty);
    for _ in 0..3 {
        log.sync().unwrap();
        log.mark().unwrap();
    }
    assert_eq!(log.end(), marked, "an idle log does not grow");
    drop(log);
    let (mut log, _) = open(&disk, 1 << 20);
    log.mark().unwrap();
    assert_eq!(log.end(), marked, "nor does it grow by being opened");
}

#[test]
fn readers_in_other_threads_see_whole_frames_while_the_log_grows_and_shrinks() {
    let dir = tempfile::tempdir().unwrap();
    let (mut log, _) = open(&RealDisk::new(dir.path()).unwrap(), 20_000);
    let reader = log.reader();
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..2)
            .map(|_| {
                scope.spawn({
                    let reader = reader.clone();
                    move || {
                        let (mut at, mut next) = (0, 0);
                        while next < 3000 {
                            let walked = reader.scan(at, u64::MAX, |scanned| {
                                match scanned {
                                    Scanned::Frame(frame) => {
                                        assert!(frame.tag >= next && frame.body == body(frame.tag));
                                        next = frame.tag + 1;
                                    }
                                    Scanned::Rot(rot) => panic!("{rot:?}"),
                                    Scanned::Batch(_) => {}
                                }
                                ControlFlow::Continue(())
                            });
                            match walked {
                                Ok(next_at) => at = next_at,
                                // The segment was removed meanwhile.
                                Err(ReadError::Missing { .. }) => at = reader.start(),
                                Err(error) => panic!("{error}"),
                            }
                        }
                    }
                })
            })
            .collect();
        for tag in (0..3000).step_by(3) {
            write(&mut log, tag..tag + 3).unwrap();
            if tag % 600 == 0 {
                log.advance_start(log.end().saturating_sub(50_000)).unwrap();
            }
        }
        for thread in threads {
            thread.join().unwrap();
        }
    });
}
