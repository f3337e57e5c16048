//! Overwrites the frames of erased letters in a segment, in place: positions and lengths stay.

use std::collections::HashSet;
use std::io;

use super::frame::{HEADER_BYTES, Seal};
use super::mask::{holds_message, mask};
use super::scan::{Piece, Walk};
use super::segment::{self, SegmentHeader};
use crate::engine::embedded::disk::real::{Disk, DiskFile};

/// What to do with a frame of an erased letter whose checksum is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Torn {
    /// It is damage and stays recognisable as such: it is overwritten, and its checksum stays wrong.
    StaysDamaged,
    /// Below this position a crash has interrupted the overwriting, which is done again. Frames beyond it were never
    /// overwritten; opening the log decides about them.
    RedoBelow(u64),
}

/// The offset of the body's checksum in a frame's header. Nothing else in the header changes.
const BODY_CRC_AT: usize = 20;

/// Overwrites the content of messages with these numbers, in the frames of `[from, to)` of the segment that begins at
/// `base`. Returns how many frames were overwritten; durable once the file is synced.
pub(crate) fn wipe<F: DiskFile>(
    file: &F,
    seal: Seal,
    base: u64,
    (from, to): (u64, u64),
    letters: &HashSet<u64>,
    torn: Torn,
) -> io::Result<u64> {
    let mut walk = Walk::new(file, seal, base, from, to);
    let mut wiped = 0;
    while let Some(piece) = walk.next()? {
        let (position, body, is_damaged) = match piece {
            Piece::Frame(frame) if letters.contains(&frame.tag) && holds_message(frame.kind) => {
                let mut body = frame.body.to_vec();
                mask(frame.kind, &mut body);
                if body == frame.body {
                    continue;
                }
                (frame.position, body, false)
            }
            Piece::Bad(rot) => {
                let Some(header) = rot.header.filter(|header| letters.contains(&header.tag)) else {
                    continue;
                };
                let Some(mut body) = body_at(file, seal, base, rot.position)? else { continue };
                if !holds_message(header.kind) {
                    continue;
                }
                match torn {
                    Torn::RedoBelow(end) if rot.position < end => mask(header.kind, &mut body),
                    Torn::RedoBelow(_) => continue,
                    Torn::StaysDamaged => body.fill(0),
                }
                (rot.position, body, torn == Torn::StaysDamaged)
            }
            Piece::Frame(_) => continue,
        };
        let offset = position - base;
        if is_damaged {
            file.write_at(offset + HEADER_BYTES as u64, &body)?;
        } else {
            let mut bytes = crc32fast::hash(&body).to_le_bytes().to_vec();
            bytes.extend_from_slice(&body);
            file.write_at(offset + BODY_CRC_AT as u64, &bytes)?;
        }
        wiped += 1;
    }
    Ok(wiped)
}

/// The body of a frame with a wrong checksum, as far as it is in the file.
fn body_at<F: DiskFile>(file: &F, seal: Seal, base: u64, position: u64) -> io::Result<Option<Vec<u8>>> {
    let head = file.read_vec(position - base, HEADER_BYTES)?;
    let Some(header) = seal.header(&head, position) else { return Ok(None) };
    Ok(Some(file.read_vec(position - base + HEADER_BYTES as u64, header.len as usize)?))
}

/// Repeats the overwriting in all segments of a log that is not open: a crash may have left frames below `end` half
/// done.
pub(crate) fn wipe_closed<D: Disk>(
    disk: &D,
    prefix: &str,
    store_id: [u8; 16],
    letters: &HashSet<u64>,
    end: u64,
) -> io::Result<()> {
    let torn = Torn::RedoBelow(end);
    let (seal, header) = (Seal::of_store(store_id), SegmentHeader::len_of(prefix));
    for name in disk.list()? {
        let Some(base) = segment::base_of(prefix, &name) else { continue };
        let file = disk.open(&name)?;
        let len = file.len()?;
        if len > header && wipe(&file, seal, base, (base + header, base + len), letters, torn)? > 0 {
            file.sync_data()?;
        }
    }
    Ok(())
}
