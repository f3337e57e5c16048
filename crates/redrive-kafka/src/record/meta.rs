//! [`Meta`] as bytes, for local files that live no longer than the process: the spill files and the cache of letters.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use redrive::internal::engine::meta_codec;
use redrive_core::Meta;

pub(crate) use redrive::internal::engine::meta_codec::{get_time, put_time};

/// The size of every encoded [`Meta`].
pub(crate) const META_BYTES: usize = meta_codec::META_BYTES + 1;

pub(crate) fn put_meta(out: &mut BytesMut, meta: &Meta) {
    meta_codec::put_meta(out, meta);
    out.put_u8(u8::from(meta.deferred));
}

/// Returns `None` if there are too few bytes.
pub(crate) fn get_meta(bytes: &mut Bytes) -> Option<Meta> {
    if bytes.len() < META_BYTES {
        return None;
    }
    let meta = meta_codec::get_meta(bytes)?;
    Some(Meta { deferred: bytes.get_u8() != 0, ..meta })
}

/// Takes the next `len` bytes, if there are that many.
pub(crate) fn get_part(bytes: &mut Bytes, len: usize) -> Option<Bytes> {
    (bytes.len() >= len).then(|| bytes.split_to(len))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whether_it_is_deferred_comes_back_too() {
        for deferred in [false, true] {
            let meta = Meta { attempts: 3, deferred, ..Meta::default() };
            let mut out = BytesMut::new();
            put_meta(&mut out, &meta);
            let mut bytes = out.freeze();
            assert_eq!(bytes.len(), META_BYTES);
            assert_eq!(get_meta(&mut bytes.slice(1..)), None);
            assert_eq!(get_meta(&mut bytes), Some(meta));
        }
    }
}
