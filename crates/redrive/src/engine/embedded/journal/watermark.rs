//! The watermark: how far both logs are durable, recorded outside of them.
//!
//! A log that was cut short or lost cannot tell so itself. So the positions are written here after every sync, before
//! callers are answered. That write is not synced but survives the process; it is synced when a segment begins, when
//! letters were moved, once a second, and at a clean end. So a power failure takes at most the last second of it, and
//! it never claims more than is true.
//!
//! Two slots are written alternately, each in its own sector, so that a torn write leaves the other intact.

use std::io;

use crate::engine::embedded::disk::real::{Disk, DiskFile};

pub const NAME: &str = "watermark";
const MAGIC: &[u8; 8] = b"rdwater1";
const SLOT_OFFSETS: [u64; 2] = [0, 4096];
const NUMBERS: usize = 8;
const SLOT_BYTES: usize = MAGIC.len() + (NUMBERS + 1) * 8 + 4;

/// The range of positions of a log that must exist.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Extent {
    pub start: u64,
    pub end: u64,
}

/// How far the logs are durable, as recorded in the watermark.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WatermarkState {
    pub journal: Extent,
    pub letters: Extent,
    /// All message numbers are lower.
    pub next_seq: u64,
    /// The number of letters ever moved to the letter log.
    pub letters_moved: u64,
    /// Data of messages below this number was lost, so one without a trace need not have succeeded.
    pub doubtful_below: u64,
    /// The process that writes here; a different number means that there are two.
    pub owner: u64,
}

impl WatermarkState {
    fn numbers(&self) -> [u64; NUMBERS] {
        [
            self.journal.start,
            self.journal.end,
            self.letters.start,
            self.letters.end,
            self.next_seq,
            self.letters_moved,
            self.doubtful_below,
            self.owner,
        ]
    }

    fn of_numbers(numbers: [u64; NUMBERS]) -> Self {
        let [start, end, letters_start, letters_end, next_seq, letters_moved, doubtful_below, owner] =
            numbers;
        Self {
            journal: Extent { start, end },
            letters: Extent { start: letters_start, end: letters_end },
            next_seq,
            letters_moved,
            doubtful_below,
            owner,
        }
    }
}

#[derive(Debug)]
pub struct Watermark<F> {
    file: F,
    salt: u32,
    turn: u64,
    /// The turn number in the other slot.
    before: Option<u64>,
    state: WatermarkState,
    unsynced: bool,
}

/// The result of looking for a watermark.
#[derive(Debug)]
pub enum Found<F> {
    Whole(Watermark<F>),
    /// The file exists but is not readable.
    Damaged,
    Nothing,
}

impl<F: DiskFile> Watermark<F> {
    pub fn open<D: Disk<File = F>>(disk: &D, store_id: &[u8; 16]) -> io::Result<Found<F>> {
        if !disk.list()?.iter().any(|name| name == NAME) {
            return Ok(Found::Nothing);
        }
        let (file, salt) = (disk.open(NAME)?, crc32fast::hash(store_id));
        let [first, second] = slots(&file, salt)?;
        let (newer, older) = if first.map(|found| found.0) >= second.map(|found| found.0) {
            (first, second)
        } else {
            (second, first)
        };
        Ok(match newer {
            Some((turn, state)) => {
                let before = older.map(|found| found.0);
                Found::Whole(Self { file, salt, turn, before, state, unsynced: false })
            }
            None => Found::Damaged,
        })
    }

    /// Creates or rewrites the file, durably.
    pub fn create<D: Disk<File = F>>(
        disk: &D,
        store_id: &[u8; 16],
        state: WatermarkState,
    ) -> io::Result<Self> {
        let is_there = disk.list()?.iter().any(|name| name == NAME);
        let file = if is_there { disk.open(NAME)? } else { disk.create(NAME)? };
        let salt = crc32fast::hash(store_id);
        let mut made = Self { file, salt, turn: 0, before: None, state, unsynced: true };
        made.write()?;
        made.write()?;
        made.sync()?;
        disk.sync_dir()?;
        Ok(made)
    }

    pub fn state(&self) -> WatermarkState {
        self.state
    }

    /// Records what is durable now. Survives the process at once, and a power failure after [`Self::sync`].
    pub fn note(&mut self, state: WatermarkState) -> io::Result<()> {
        if state == self.state {
            return Ok(());
        }
        self.state = state;
        self.unsynced = true;
        self.write()
    }

    pub fn is_unsynced(&self) -> bool {
        self.unsynced
    }

    pub fn sync(&mut self) -> io::Result<()> {
        if self.unsynced {
            self.file.sync_data()?;
            self.unsynced = false;
        }
        Ok(())
    }

    /// Records the final state at a clean end, in both slots.
    pub fn close(&mut self, state: WatermarkState) -> io::Result<()> {
        self.note(state)?;
        self.write()?;
        self.unsynced = true;
        self.sync()
    }

    /// Whether no other process has written here since. Opening the store writes to the slot that is next.
    pub fn is_ours(&self) -> io::Result<bool> {
        let offset = SLOT_OFFSETS[((self.turn + 1) % 2) as usize];
        let found = read(&self.file.read_vec(offset, SLOT_BYTES)?, self.salt);
        // A damaged slot does not indicate another owner.
        Ok(found.is_none_or(|(turn, _)| Some(turn) == self.before))
    }

    fn write(&mut self) -> io::Result<()> {
        self.before = Some(self.turn);
        self.turn += 1;
        let mut raw = Vec::with_capacity(SLOT_BYTES);
        raw.extend_from_slice(MAGIC);
        raw.extend_from_slice(&self.turn.to_le_bytes());
        self.state.numbers().iter().for_each(|number| raw.extend_from_slice(&number.to_le_bytes()));
        let checksum = checksum(self.salt, &raw);
        raw.extend_from_slice(&checksum.to_le_bytes());
        self.file.write_at(SLOT_OFFSETS[(self.turn % 2) as usize], &raw)
    }
}

type Slot = Option<(u64, WatermarkState)>;

/// The content of the intact slots.
fn slots<F: DiskFile>(file: &F, salt: u32) -> io::Result<[Slot; 2]> {
    let [first, second] = SLOT_OFFSETS.map(|offset| file.read_vec(offset, SLOT_BYTES));
    Ok([read(&first?, salt), read(&second?, salt)])
}

fn read(raw: &[u8], salt: u32) -> Slot {
    let (body, sum) = raw.split_last_chunk::<4>().filter(|_| raw.len() == SLOT_BYTES)?;
    if checksum(salt, body) != u32::from_le_bytes(*sum) {
        return None;
    }
    let rest = body.strip_prefix(MAGIC)?;
    let mut numbers = rest.chunks_exact(8).map(|raw| u64::from_le_bytes(raw.try_into().unwrap_or_default()));
    let turn = numbers.next()?;
    let mut state = [0; NUMBERS];
    for slot in &mut state {
        *slot = numbers.next()?;
    }
    Some((turn, WatermarkState::of_numbers(state)))
}

fn checksum(salt: u32, raw: &[u8]) -> u32 {
    let mut crc = crc32fast::Hasher::new_with_initial(salt);
    crc.update(raw);
    crc.finalize()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::embedded::disk::sim::{SimDisk, SimFile};

    const STORE: [u8; 16] = [7; 16];

    fn state_at(end: u64) -> WatermarkState {
        WatermarkState { journal: Extent { start: 0, end }, next_seq: end / 10, ..WatermarkState::default() }
    }

    fn open(disk: &SimDisk) -> Option<Watermark<SimFile>> {
        match Watermark::open(disk, &STORE).unwrap() {
            Found::Whole(watermark) => Some(watermark),
            Found::Damaged | Found::Nothing => None,
        }
    }

    #[test]
    fn the_last_word_is_found_after_the_process_and_the_synced_one_after_a_power_cut() {
        let disk = SimDisk::new();
        let mut watermark = Watermark::create(&disk, &STORE, state_at(10)).unwrap();
        watermark.note(state_at(100)).unwrap();
        watermark.sync().unwrap();
        for end in [200, 300, 400] {
            watermark.note(state_at(end)).unwrap();
        }
        assert_eq!(open(&disk).unwrap().state(), state_at(400));
        for seed in 0..100 {
            let end = open(&disk.power_cut(seed)).expect("never both slots").state().journal.end;
            assert!(end >= 100, "{end}");
        }
    }

    #[test]
    fn a_flipped_bit_costs_one_slot_and_a_clean_end_has_two() {
        let disk = SimDisk::new();
        let mut watermark = Watermark::create(&disk, &STORE, state_at(10)).unwrap();
        watermark.close(state_at(500)).unwrap();
        for offset in SLOT_OFFSETS {
            for byte in 0..SLOT_BYTES as u64 {
                let disk = disk.power_cut(1);
                disk.flip_bit(NAME, offset + byte, (byte % 8) as u8);
                assert_eq!(open(&disk).unwrap().state(), state_at(500), "{offset} {byte}");
            }
        }
    }

    #[test]
    fn another_store_and_another_owner_are_noticed() {
        let disk = SimDisk::new();
        let mut ours = Watermark::create(&disk, &STORE, WatermarkState { owner: 1, ..state_at(10) }).unwrap();
        ours.note(WatermarkState { owner: 1, ..state_at(20) }).unwrap();
        assert!(ours.is_ours().unwrap());
        let mut theirs = open(&disk).unwrap();
        theirs.note(WatermarkState { owner: 2, ..state_at(30) }).unwrap();
        assert!(!ours.is_ours().unwrap());
        assert!(matches!(Watermark::open(&disk, &[8; 16]).unwrap(), Found::Damaged));
        assert!(matches!(Watermark::open(&SimDisk::new(), &STORE).unwrap(), Found::Nothing));
    }
}
