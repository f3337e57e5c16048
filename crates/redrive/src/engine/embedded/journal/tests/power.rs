//! Thousands of power failures: everything synced is there, in order, and nothing else.

use redrive_core::SplitMix64;

use super::*;

/// What a checker outside of the disk remembers.
#[derive(Default)]
struct PowerWitness {
    /// Tag and position of everything written and not known to be lost.
    written: Vec<(u64, u64)>,
    durable: u64,
    start: u64,
    next_tag: u64,
}

impl PowerWitness {
    fn check(&mut self, log: &Log<SimDisk>, report: &OpenReport, seed: u64) {
        assert!(report.rot.is_empty(), "seed {seed}: a power cut is not rot: {:?}", report.rot);
        assert!(report.end >= self.durable, "seed {seed}: {} < {}", report.end, self.durable);
        assert!(log.start() >= self.start, "seed {seed}");
        let (found, _) = everything(log);
        assert!(found.iter().all(|frame| frame.body == body(frame.tag)), "seed {seed}");
        let found: Vec<_> = found.iter().map(|frame| (frame.tag, frame.position)).collect();
        let expected: Vec<_> = self
            .written
            .iter()
            .copied()
            .filter(|(_, position)| (log.start()..log.end()).contains(position))
            .collect();
        assert_eq!(found, expected, "seed {seed}");
        // Everything the log kept is durable now; what it truncated must never come back.
        self.written = expected;
        self.durable = log.durable();
        self.start = log.start();
    }
}

fn work(log: &mut Log<SimDisk>, witness: &mut PowerWitness, dice: &mut SplitMix64, steps: u64) {
    for _ in 0..steps {
        match dice.below(16) {
            0..=8 => {
                let mut batch = log.batch().unwrap();
                for _ in 0..dice.below(12) {
                    let tag = witness.next_tag;
                    witness.next_tag += 1;
                    witness.written.push((tag, batch.push_slices(1, 0, tag, &[&body(tag)])));
                }
                log.write(batch).unwrap();
            }
            9..=12 => witness.durable = log.sync().unwrap(),
            13 => log.mark().unwrap(),
            _ => {
                let segments = log.segments();
                let give_up = segments[dice.below(segments.len() as u64) as usize].base;
                log.advance_start(give_up).unwrap();
                witness.start = witness.start.max(give_up);
            }
        }
        witness.durable = witness.durable.max(log.durable());
    }
}

#[test]
fn after_thousands_of_power_cuts_in_a_row_everything_synced_is_there() {
    for seed in 0..2000 {
        let mut dice = SplitMix64::new(seed);
        let segment_bytes = [300, 1500, 6000][dice.below(3) as usize];
        let mut disk = SimDisk::new();
        let mut witness = PowerWitness::default();
        for cut in 0..5 {
            let (mut log, report) = Log::open(disk.clone(), options(segment_bytes))
                .unwrap_or_else(|error| panic!("seed {seed}, cut {cut}: {error}"));
            witness.check(&log, &report, seed);
            let steps = dice.below(20);
            work(&mut log, &mut witness, &mut dice, steps);
            drop(log);
            disk = disk.power_cut(dice.below(u64::MAX));
        }
        let (mut log, report) = open(&disk, segment_bytes);
        witness.check(&log, &report, seed);
        log.close().unwrap();
        let (log, report) = open(&disk, segment_bytes);
        assert_eq!(report.cut_bytes, 0, "seed {seed}: a closed log has nothing to cut");
        witness.check(&log, &report, seed);
    }
}

/// The process fails at any operation of the disk, with or without a power failure.
#[test]
fn a_failure_at_any_operation_and_a_power_cut_lose_nothing_that_was_synced() {
    let ops = [SimOp::Create, SimOp::Remove, SimOp::Write, SimOp::Sync, SimOp::SyncDir];
    for seed in 0..2000 {
        let mut dice = SplitMix64::new(seed);
        let mut disk = SimDisk::new();
        let (mut durable, mut start, mut written) = (0, 0, Vec::new());
        for round in 0..4 {
            let op = ops[dice.below(ops.len() as u64) as usize];
            disk.fail_next(op, 1 + dice.below(12), ErrorKind::Other);
            if let Ok((mut log, _)) = Log::open(disk.clone(), options(700)) {
                assert!(log.end() >= durable, "seed {seed}");
                let found: Vec<_> =
                    everything(&log).0.iter().map(|frame| (frame.tag, frame.position)).collect();
                written.retain(|(_, at)| (log.start()..log.end()).contains(at));
                assert_eq!(found, written, "seed {seed}");
                durable = log.durable();
                for step in 0..20 {
                    let Ok(mut batch) = log.batch() else { break };
                    for _ in 0..dice.below(6) {
                        let tag = round * 1000 + step * 10 + written.len() as u64 % 10;
                        written.push((tag, batch.push_slices(1, 0, tag, &[&body(tag)])));
                    }
                    let (end, frames) = (batch.start(), written.clone());
                    if log.write(batch).is_err() {
                        // The next open tells whether any of it reached the disk.
                        written = frames;
                        durable = durable.max(log.durable().min(end));
                        break;
                    }
                    if dice.below(2) == 0 && log.sync().is_err() {
                        break;
                    }
                    durable = durable.max(log.durable());
                    if dice.below(8) == 0 {
                        start = log.segments()[0].base.max(start);
                        let give_up = log.segments().len() / 2;
                        if log.advance_start(log.segments()[give_up].base).is_err() {
                            break;
                        }
                    }
                }
            }
            if dice.below(2) == 0 {
                disk = disk.power_cut(dice.below(u64::MAX));
            }
        }
        let (log, report) = open(&disk.power_cut(seed), 700);
        assert!(report.end >= durable && log.start() >= start, "seed {seed}");
        let found: Vec<_> = everything(&log).0.iter().map(|frame| (frame.tag, frame.position)).collect();
        written.retain(|(_, at)| (log.start()..log.end()).contains(at));
        assert_eq!(found, written, "seed {seed}");
    }
}
