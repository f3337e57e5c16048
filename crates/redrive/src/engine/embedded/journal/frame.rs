//! A frame: the unit of the log, with one checksum for its header and one for its body.
//!
//! ```text
//! magic u16 | kind u8 | flags u8 | len u32 | tag u64 | header_crc u32 | body_crc u32 | body | zeros to 8 bytes
//! ```
//!
//! The header has its own checksum, so that kind and tag survive a damaged body. That checksum also covers the position
//! and the store: bytes that look like a frame but are in the wrong place (a journal copied into a payload, a sector
//! written to the wrong address) are not accepted as frames.

use bytes::{Buf, Bytes, BytesMut};

pub const HEADER_BYTES: usize = 24;
/// Far above the largest message; a greater length can only be damage.
pub const BODY_BYTES_MAX: usize = 64 * 1024 * 1024;
/// The kind of the log's own frames: batch headers and segment headers. Callers use 1 to 255.
pub const KIND_LOG: u8 = 0;
pub const ALIGN: usize = 8;

const MAGIC: [u8; 2] = [0xD7, 0x9E];
const SEALED: std::ops::Range<usize> = 0..16;

/// The bytes that a frame with a body of `body_len` takes in the log.
pub const fn frame_len(body_len: usize) -> usize {
    HEADER_BYTES + body_len.next_multiple_of(ALIGN)
}

/// A complete, verified frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    pub position: u64,
    pub kind: u8,
    pub flags: u8,
    pub tag: u64,
    pub body: Bytes,
}

impl Frame {
    /// The position of the next frame.
    pub fn end(&self) -> u64 {
        self.position + frame_len(self.body.len()) as u64
    }
}

/// A damaged range of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rot {
    pub position: u64,
    pub len: u64,
    /// Present if the header is intact and only the body is damaged.
    pub header: Option<RotHeader>,
}

impl Rot {
    /// Whether it may have been a caller's frame; the log's own frames carry no data.
    pub fn is_of_somebody(&self) -> bool {
        self.header.is_none_or(|header| header.kind != KIND_LOG)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RotHeader {
    pub kind: u8,
    pub flags: u8,
    pub tag: u64,
}

/// A header with a valid checksum.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) kind: u8,
    pub(crate) flags: u8,
    pub(crate) len: u32,
    pub(crate) tag: u64,
    body_crc: u32,
}

impl Header {
    pub(crate) fn total(&self) -> usize {
        frame_len(self.len as usize)
    }

    pub(crate) fn rot(&self) -> RotHeader {
        RotHeader { kind: self.kind, flags: self.flags, tag: self.tag }
    }

    pub(crate) fn body_is_right(&self, body: &[u8]) -> bool {
        crc32fast::hash(body) == self.body_crc
    }
}

/// Binds headers to their store and position.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Seal {
    salt: u32,
}

impl Seal {
    pub(crate) fn of_store(store_id: [u8; 16]) -> Self {
        Self { salt: crc32fast::hash(&store_id) }
    }

    /// The seal of segment headers, which must be readable before the store is known.
    pub(crate) fn of_any_store() -> Self {
        Self { salt: 0 }
    }

    fn header_crc(self, header: &[u8], position: u64) -> u32 {
        let mut sealed = [0; 24];
        sealed[..16].copy_from_slice(&header[SEALED]);
        sealed[16..].copy_from_slice(&position.to_le_bytes());
        let mut crc = crc32fast::Hasher::new_with_initial(self.salt);
        crc.update(&sealed);
        crc.finalize()
    }

    /// Decodes the header at the start of `bytes`, whose position in the log is `position`.
    #[inline]
    pub(crate) fn header(self, bytes: &[u8], position: u64) -> Option<Header> {
        if bytes.len() < HEADER_BYTES || bytes[..2] != MAGIC {
            return None;
        }
        let mut rest = &bytes[2..HEADER_BYTES];
        let (kind, flags) = (rest.get_u8(), rest.get_u8());
        let (len, tag) = (rest.get_u32_le(), rest.get_u64_le());
        let (header_crc, body_crc) = (rest.get_u32_le(), rest.get_u32_le());
        let right = len as usize <= BODY_BYTES_MAX && header_crc == self.header_crc(bytes, position);
        right.then_some(Header { kind, flags, len, tag, body_crc })
    }

    /// Appends a frame for `position`, whose body is written by `body`.
    pub(crate) fn push(
        self,
        buf: &mut BytesMut,
        position: u64,
        (kind, flags, tag): (u8, u8, u64),
        body: impl FnOnce(&mut BytesMut),
    ) {
        let start = buf.len();
        buf.resize(start + HEADER_BYTES, 0);
        body(buf);
        let body_start = start + HEADER_BYTES;
        assert!(buf.len() >= body_start, "a frame's body must only append to the buffer");
        let len = buf.len() - body_start;
        assert!(
            len <= BODY_BYTES_MAX,
            "a frame's body has {len} bytes, at most {BODY_BYTES_MAX} are allowed"
        );
        buf.resize(start + frame_len(len), 0);

        let body_crc = crc32fast::hash(&buf[body_start..body_start + len]);
        let header = &mut buf[start..body_start];
        header[..2].copy_from_slice(&MAGIC);
        header[2] = kind;
        header[3] = flags;
        header[4..8].copy_from_slice(&(len as u32).to_le_bytes());
        header[8..16].copy_from_slice(&tag.to_le_bytes());
        let header_crc = self.header_crc(header, position);
        header[16..20].copy_from_slice(&header_crc.to_le_bytes());
        header[20..24].copy_from_slice(&body_crc.to_le_bytes());
    }

    /// Decodes the frame at the start of `bytes` without copying; `None` if not even the header is valid.
    pub(crate) fn frame(self, bytes: &Bytes, position: u64) -> Option<Result<Frame, Rot>> {
        let header = self.header(bytes, position)?;
        let body_end = HEADER_BYTES + header.len as usize;
        if bytes.len() < body_end || !header.body_is_right(&bytes[HEADER_BYTES..body_end]) {
            return Some(Err(Rot { position, len: header.total() as u64, header: Some(header.rot()) }));
        }
        let body = bytes.slice(HEADER_BYTES..body_end);
        Some(Ok(Frame { position, kind: header.kind, flags: header.flags, tag: header.tag, body }))
    }
}

/// Whether a header may begin here: a cheap test before the checksum.
#[inline]
pub(crate) fn may_begin(bytes: &[u8]) -> bool {
    bytes.starts_with(&MAGIC)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(position: u64) -> Bytes {
        let mut buf = BytesMut::new();
        Seal::of_store([7; 16]).push(&mut buf, position, (3, 1, 42), |b| b.extend_from_slice(b"hello"));
        buf.freeze()
    }

    #[test]
    fn a_frame_reads_back_at_its_position_and_store_only() {
        let bytes = sample(64);
        assert_eq!(bytes.len(), frame_len(5));
        let frame = Seal::of_store([7; 16]).frame(&bytes, 64).unwrap().unwrap();
        assert_eq!((frame.kind, frame.flags, frame.tag, &frame.body[..]), (3, 1, 42, &b"hello"[..]));
        assert_eq!(frame.end(), 64 + 32);
        assert!(Seal::of_store([7; 16]).frame(&bytes, 72).is_none(), "a copy elsewhere is no frame");
        assert!(Seal::of_store([8; 16]).frame(&bytes, 64).is_none(), "another store's frame is no frame");
    }

    #[test]
    fn every_flipped_bit_is_noticed_and_kind_and_tag_survive_a_rotten_body() {
        let good = sample(64);
        for bit in 0..(HEADER_BYTES + 5) * 8 {
            let mut bytes = good.to_vec();
            bytes[bit / 8] ^= 1 << (bit % 8);
            let read = Seal::of_store([7; 16]).frame(&bytes.into(), 64);
            if bit / 8 < 20 {
                assert!(read.is_none(), "bit {bit}");
            } else {
                let rot = read.unwrap().unwrap_err();
                assert_eq!(rot.header, Some(RotHeader { kind: 3, flags: 1, tag: 42 }), "bit {bit}");
            }
        }
    }
}
