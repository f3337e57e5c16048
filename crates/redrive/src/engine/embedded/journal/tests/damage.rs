//! All kinds of damage: torn data is truncated, rot is reported, intact data is kept.

use super::*;
use crate::engine::embedded::disk::real::DiskFile;
use crate::engine::embedded::journal::frame::{HEADER_BYTES, KIND_LOG};
use crate::engine::embedded::journal::segment::{FORMAT_VERSION, SegmentHeader, file_name};

/// Some segments with several batches each, closed.
fn closed_log(segment_bytes: u64) -> SimDisk {
    let disk = SimDisk::new();
    let (mut log, _) = open(&disk, segment_bytes);
    for tag in (0..12).step_by(2) {
        write(&mut log, tag..tag + 2).unwrap();
        log.sync().unwrap();
    }
    log.close().unwrap();
    disk
}

/// Everything in `disk` is synced, so the power failure loses nothing.
fn copy(disk: &SimDisk) -> SimDisk {
    disk.power_cut(0)
}

fn names(disk: &SimDisk) -> Vec<String> {
    disk.list().unwrap()
}

fn must_fail(disk: &SimDisk, options: LogOptions) -> LogError {
    let before = names(disk);
    let Err(error) = Log::open(disk.clone(), options) else { panic!("the log was opened") };
    assert_eq!(names(disk), before, "a refused log is left as it is");
    error
}

#[test]
fn a_write_torn_at_any_byte_loses_only_what_was_not_synced() {
    for zeros_behind in [false, true] {
        let mut torn_at = 0;
        loop {
            let disk = SimDisk::new();
            let (mut log, _) = open(&disk, 1 << 20);
            write(&mut log, 0..4).unwrap();
            log.sync().unwrap();
            let last = write(&mut log, 4..8).unwrap();
            let (base, len) = (log.segments()[0].base, last.end - last.start);
            if torn_at == len {
                break;
            }
            drop(log);
            let file = disk.open(&names(&disk)[0]).unwrap();
            file.set_len(last.start - base + torn_at).unwrap();
            if zeros_behind {
                file.set_len(last.end - base).unwrap();
            }

            let (mut log, report) = open(&disk, 1 << 20);
            let kept = tags(&log);
            assert!(kept.starts_with(&all(0..4)) && all(0..8).starts_with(&kept), "torn at {torn_at}");
            assert!(report.rot.is_empty(), "a torn write is not rot");
            let found = if zeros_behind { last.end } else { last.start + torn_at };
            assert_eq!(report.cut_bytes, found - report.end, "torn at {torn_at}");
            write(&mut log, 8..9).unwrap();
            log.close().unwrap();
            let (log, report) = open(&disk, 1 << 20);
            assert_eq!((tags(&log), report.cut_bytes), ([kept, vec![8]].concat(), 0));
            torn_at += 1;
        }
    }
}

#[test]
fn a_flipped_bit_anywhere_in_a_closed_log_takes_one_frame_and_is_reported() {
    for segment_bytes in [400, 1 << 20] {
        let good = closed_log(segment_bytes);
        let (log, _) = open(&copy(&good), segment_bytes);
        let (frames, _) = everything(&log);
        let (end, segments) = (log.end(), log.segments());
        let mark = end - BATCH_HEADER_BYTES as u64;
        for segment in segments {
            for bit in 0..segment.len * 8 {
                let position = segment.base + bit / 8;
                let disk = copy(&good);
                disk.flip_bit(&file_name("j", segment.base), bit / 8, (bit % 8) as u8);
                let (mut log, report) = open(&disk, segment_bytes);

                let hit = frames.iter().find(|frame| {
                    (frame.position..frame.position + (HEADER_BYTES + frame.body.len()) as u64)
                        .contains(&position)
                });
                let expected: Vec<u64> = frames
                    .iter()
                    .map(|frame| frame.tag)
                    .filter(|tag| hit.is_none_or(|hit| hit.tag != *tag))
                    .collect();
                assert_eq!(tags(&log), expected, "bit {bit} of {segment:?}");
                assert_eq!(everything(&log).1, report.rot, "a scan tells the same as the open");
                if let Some(hit) = hit {
                    let [rot] = report.rot[..] else { panic!("bit {bit} of {segment:?}: {:?}", report.rot) };
                    assert_eq!((rot.position, rot.position + rot.len), (hit.position, hit.end()));
                    if position >= hit.position + 20 {
                        let header = rot.header.unwrap();
                        assert_eq!((header.kind, header.tag), (hit.kind, hit.tag));
                    }
                }
                let cut = if position >= mark { BATCH_HEADER_BYTES as u64 } else { 0 };
                assert_eq!((report.cut_bytes, report.end), (cut, end - cut), "bit {bit} of {segment:?}");
                write(&mut log, 50..51).unwrap();
                assert_eq!(tags(&log).last(), Some(&50));
            }
        }
    }
}

#[test]
fn rot_in_the_log_s_own_frames_is_told_apart_and_takes_no_frame() {
    let disk = closed_log(400);
    let second = file_name("j", open(&copy(&disk), 400).0.segments()[1].base);
    // The body of the segment header, then the body of the first batch header after it.
    let header_len = SegmentHeader::len_of("j");
    disk.flip_bit(&second, HEADER_BYTES as u64 + 3, 0);
    disk.flip_bit(&second, header_len + HEADER_BYTES as u64 + 3, 0);
    let (log, report) = open(&disk, 400);
    assert_eq!(tags(&log), all(0..12));
    assert_eq!(report.rot.len(), 2);
    assert!(report.rot.iter().all(|rot| rot.header.unwrap().kind == KIND_LOG));
}

#[test]
fn rot_in_the_last_durable_frame_and_a_torn_write_behind_it_are_told_apart() {
    let disk = SimDisk::new();
    let (mut log, _) = open(&disk, 1 << 20);
    let first = write(&mut log, 0..3).unwrap();
    log.sync().unwrap();
    let second = write(&mut log, 3..6).unwrap();
    let third = write(&mut log, 6..9).unwrap();
    drop(log);
    let name = &names(&disk)[0];
    let last_of_first = first.end - frame_len(body(2).len()) as u64;
    disk.flip_bit(name, last_of_first, 0);
    disk.flip_bit(name, second.start, 0);
    disk.flip_bit(name, third.start, 0);

    // The header of the second batch proved the first one durable; without it, everything from the damage on is torn.
    let (log, report) = open(&copy_unsynced(&disk), 1 << 20);
    assert_eq!(tags(&log), all(0..2));
    assert_eq!((report.rot.len(), report.end), (0, last_of_first));

    // If a header proves it, even one after the torn write, the damage below is rot and the end is cut there.
    disk.flip_bit(name, third.start, 0);
    let (log, report) = open(&disk, 1 << 20);
    assert_eq!(tags(&log), all(0..2));
    let [rot] = report.rot[..] else { panic!("{:?}", report.rot) };
    assert_eq!((rot.position, rot.position + rot.len), (last_of_first, first.end));
    assert_eq!((report.end, report.cut_bytes), (first.end, third.end - first.end));
}

fn copy_unsynced(disk: &SimDisk) -> SimDisk {
    let target = SimDisk::new();
    for name in names(disk) {
        let from = disk.open(&name).unwrap();
        let mut bytes = vec![0; from.len().unwrap() as usize];
        from.read_at(0, &mut bytes).unwrap();
        target.create(&name).unwrap().write_at(0, &bytes).unwrap();
    }
    target
}

/// The purpose of `mark`: without it, damage in the last batch cannot be told from a torn write.
#[test]
fn the_last_batch_of_an_unmarked_log_is_cut_at_damage_and_a_mark_saves_it() {
    for marked in [false, true] {
        let disk = SimDisk::new();
        let (mut log, _) = open(&disk, 1 << 20);
        let last = write(&mut log, 0..3).unwrap();
        log.sync().unwrap();
        if marked {
            log.mark().unwrap();
        }
        drop(log);
        disk.flip_bit(&names(&disk)[0], last.start, 0);
        let (log, report) = open(&disk, 1 << 20);
        assert_eq!(tags(&log), if marked { all(0..3) } else { vec![] });
        assert_eq!((report.rot.len(), report.cut_bytes > 0), if marked { (1, false) } else { (0, true) });
    }
}

/// A payload may contain a copy of a journal, even of this one.
#[test]
fn a_copied_frame_inside_a_damaged_payload_is_not_taken_for_a_frame() {
    let disk = SimDisk::new();
    let (mut log, _) = open(&disk, 1 << 20);
    let copied = write(&mut log, 0..5).unwrap().bytes;
    let mut batch = log.batch().unwrap();
    let position = batch.push_slices(1, 0, 5, &[&copied]);
    log.write(batch).unwrap();
    write(&mut log, 6..7).unwrap();
    log.close().unwrap();
    disk.flip_bit(&names(&disk)[0], position + 4, 3);
    let (log, report) = open(&disk, 1 << 20);
    assert_eq!(tags(&log), [0, 1, 2, 3, 4, 6]);
    assert_eq!(report.rot[0].len, frame_len(copied.len()) as u64);
}

#[test]
fn damage_outside_of_what_is_verified_at_open_is_found_by_reading() {
    let disk = closed_log(400);
    let (log, _) = open(&copy(&disk), 400);
    let victim = everything(&log).0[1].clone();
    drop(log);
    disk.flip_bit(&names(&disk)[0], victim.position + HEADER_BYTES as u64, 0);
    let (log, report) = Log::open(disk, LogOptions { verify_from: u64::MAX, ..options(400) }).unwrap();
    assert!(report.rot.is_empty());
    assert_eq!(everything(&log).1.len(), 1);
    let Err(ReadError::Rot { header: Some(header), .. }) = log.reader().read_frame(victim.position) else {
        panic!("rot was not noticed")
    };
    assert_eq!((header.kind, header.tag), (victim.kind, victim.tag));
    let mut wanted = [(victim.position, 64), (victim.end(), 64)];
    let got = log.reader().read_many(&mut wanted);
    assert!(matches!(got[0], Err(ReadError::Rot { .. })) && got[1].is_ok());
}

#[test]
fn a_missing_segment_is_refused_and_accepted_only_when_asked() {
    for gone in [0, 1] {
        let disk = closed_log(250);
        let (log, _) = open(&copy(&disk), 250);
        let segments = log.segments();
        let (lost, kept): (Vec<_>, Vec<_>) = everything(&log)
            .0
            .into_iter()
            .map(|frame| (frame.position, frame.tag))
            .partition(|(position, _)| (segments[gone].base..segments[gone + 1].base).contains(position));
        assert!(!lost.is_empty());
        disk.remove(&file_name("j", segments[gone].base)).unwrap();
        disk.sync_dir().unwrap();

        let range = segments[gone].base..segments[gone + 1].base;
        let error = must_fail(&disk, options(250));
        let LogError::MissingSegment { from, to, .. } = error else { panic!("{error}") };
        assert_eq!(from..to, range);

        let accepting = LogOptions { accept_missing: true, ..options(250) };
        let (mut log, report) = Log::open(disk.clone(), accepting).unwrap();
        assert_eq!(report.missing, std::slice::from_ref(&range));
        let kept: Vec<u64> = kept.into_iter().map(|(_, tag)| tag).collect();
        assert_eq!(tags(&log), kept);
        write(&mut log, 70..71).unwrap();
        log.close().unwrap();
        // The accepted loss is permanent: the gap now reads as damage, or lies before the start.
        let (log, report) = open(&disk, 250);
        assert_eq!(tags(&log), [kept, vec![70]].concat());
        assert_eq!((report.rot.len(), report.log_start), if gone == 0 { (0, range.end) } else { (1, 0) });
    }
}

#[test]
fn a_shortened_middle_segment_is_refused_and_its_whole_frames_are_kept_when_accepted() {
    let disk = closed_log(400);
    let (log, _) = open(&copy(&disk), 400);
    let segments = log.segments();
    let victim = everything(&log).0.into_iter().rfind(|frame| frame.position < segments[1].base).unwrap();
    let file = disk.open(&file_name("j", 0)).unwrap();
    file.set_len(victim.position + 30).unwrap();
    file.sync_data().unwrap();

    let LogError::MissingSegment { from, to, .. } = must_fail(&disk, options(400)) else { panic!() };
    assert_eq!((from, to), (victim.position + 30, segments[1].base));
    let (log, report) = Log::open(disk, LogOptions { accept_missing: true, ..options(400) }).unwrap();
    assert_eq!(tags(&log), all(0..12).into_iter().filter(|tag| *tag != victim.tag).collect::<Vec<_>>());
    assert_eq!(report.rot[0].header.unwrap().tag, victim.tag, "the header tells whose body is gone");
}

#[test]
fn what_an_interrupted_removal_left_behind_is_removed_at_open() {
    let disk = SimDisk::new();
    let (mut log, _) = open(&disk, 600);
    for tag in 0..40 {
        write(&mut log, tag..tag + 1).unwrap();
    }
    let segments = log.segments();
    // The second removal fails: the first segment is gone, the others still exist.
    disk.fail_next(SimOp::Remove, 2, ErrorKind::Other);
    log.advance_start(segments[4].base).unwrap_err();
    drop(log);
    assert_eq!(names(&disk).len(), segments.len() - 1);
    assert_eq!(names(&disk)[0], file_name("j", segments[1].base), "the oldest goes first");
    let (log, report) = open(&disk, 600);
    assert_eq!((report.leftovers, report.log_start, report.missing.len()), (3, segments[4].base, 0));
    assert_eq!(names(&disk)[0], file_name("j", segments[4].base));
    assert_eq!(tags(&log).last(), Some(&39));
}

/// Otherwise the next open would find segments missing for no recorded reason.
#[test]
fn a_start_of_the_log_that_is_cut_off_with_a_torn_write_removes_nothing() {
    let disk = SimDisk::new();
    let (mut log, _) = open(&disk, 600);
    for tag in 0..20 {
        write(&mut log, tag..tag + 1).unwrap();
    }
    log.sync().unwrap();
    let torn = write(&mut log, 20..22).unwrap();
    let last = *log.segments().last().unwrap();
    disk.fail_next(SimOp::Sync, 1, ErrorKind::Other);
    log.advance_start(last.base).unwrap_err();
    drop(log);
    disk.flip_bit(&file_name("j", last.base), torn.start - last.base, 0);
    for _ in 0..2 {
        let (log, report) = open(&disk, 600);
        assert_eq!((tags(&log), report.log_start, report.leftovers), (all(0..20), 0, 0));
    }
}

#[test]
fn a_newer_format_another_store_and_a_renamed_file_are_refused_by_name() {
    let disk = SimDisk::new();
    let newer = SegmentHeader { version: FORMAT_VERSION + 1, ..options(0).segment_header(0, 0) };
    let name = file_name("j", 0);
    disk.create(&name).unwrap().write_at(0, &newer.encode()).unwrap();
    let error = must_fail(&disk, options(400)).to_string();
    let [found, ours] = [FORMAT_VERSION + 1, FORMAT_VERSION].map(|version| version.to_string());
    assert!(error.contains(&name) && error.contains(&found) && error.contains(&ours), "{error}");

    let disk = closed_log(400);
    let error = must_fail(&disk, LogOptions::new("j", 400, [1; 16]));
    assert!(matches!(&error, LogError::OtherStore { name } if *name == file_name("j", 0)), "{error}");

    let stray = disk.create(&file_name("j", 1 << 20)).unwrap();
    stray.write_at(0, &options(0).segment_header(0, 0).encode()).unwrap();
    let error = must_fail(&disk, options(400));
    assert!(matches!(&error, LogError::Renamed { says, .. } if *says == file_name("j", 0)), "{error}");
}

#[test]
fn files_of_others_and_logs_of_another_prefix_do_not_disturb() {
    let disk = closed_log(400);
    disk.create("j-notes.seg").unwrap();
    disk.create("LOCK").unwrap();
    let (mut letters, _) = Log::open(disk.clone(), LogOptions::new("j-letters", 400, STORE)).unwrap();
    write(&mut letters, 0..2).unwrap();
    letters.close().unwrap();
    assert_eq!(tags(&open(&disk, 400).0), all(0..12));
}
