//! Group ids: short enough to type, and the same in every process that sees the same failure.

use std::fmt;
use std::str::FromStr;

/// 40 bits of a hash, written `g` and eight letters or digits. Zero is the group `other`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GroupId(u64);

/// Crockford's alphabet: no two characters are easily confused.
const ALPHABET: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";
const CHARS: usize = 8;
const BITS: u32 = 40;
const OTHER: &str = "other";

impl GroupId {
    /// The group for letters beyond the limit on individually counted groups.
    pub const OTHER: Self = Self(0);

    /// Hashes these parts. The result must stay stable: it is stored.
    pub fn of(version: u8, parts: &[&str]) -> Self {
        // FNV-1a over the parts, each with its length so that no two lists look alike, then mixed: FNV alone leaves the
        // high bits of short texts alike.
        let mut hash: u64 = 0xcbf2_9ce4_8422_2325;
        let mut feed = |byte: u8| hash = (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        feed(version);
        for part in parts {
            (part.len() as u32).to_le_bytes().into_iter().for_each(&mut feed);
            part.bytes().for_each(&mut feed);
        }
        hash ^= hash >> 33;
        hash = hash.wrapping_mul(0xff51_afd7_ed55_8ccd);
        hash ^= hash >> 33;
        hash = hash.wrapping_mul(0xc4ce_b9fe_1a85_ec53);
        hash ^= hash >> 33;
        // Zero is reserved for `other`.
        Self((hash >> (64 - BITS)).max(1))
    }

    /// The number as stored.
    pub const fn number(self) -> u64 {
        self.0
    }

    /// Reads a stored number; bits beyond the size of an id are dropped.
    pub const fn from_number(number: u64) -> Self {
        Self(number & ((1 << BITS) - 1))
    }

    /// Whether this is `other`, which takes letters once there are too many groups.
    pub const fn is_other(self) -> bool {
        self.0 == 0
    }
}

impl fmt::Display for GroupId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_other() {
            return f.pad(OTHER);
        }
        let mut text = String::with_capacity(1 + CHARS);
        text.push('g');
        for at in (0..CHARS).rev() {
            text.push(ALPHABET[(self.0 >> (at * 5)) as usize & 31] as char);
        }
        f.pad(&text)
    }
}

/// The text is not a group id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a group is called `other`, or `g` and eight letters or digits, as `dlq groups` prints it")]
pub struct NoGroupId;

impl FromStr for GroupId {
    type Err = NoGroupId;

    fn from_str(text: &str) -> Result<Self, NoGroupId> {
        if text == OTHER {
            return Ok(Self::OTHER);
        }
        let chars = text.strip_prefix('g').filter(|chars| chars.len() == CHARS).ok_or(NoGroupId)?;
        let mut number = 0;
        for byte in chars.bytes() {
            let digit =
                ALPHABET.iter().position(|known| *known == byte.to_ascii_lowercase()).ok_or(NoGroupId)?;
            number = number << 5 | digit as u64;
        }
        if number == 0 { Err(NoGroupId) } else { Ok(Self(number)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_reads_back_as_it_is_printed() {
        for parts in [&["error", "a"][..], &["error", "b"], &["rule", "a"], &[]] {
            let id = GroupId::of(1, parts);
            assert_eq!(id.to_string().parse(), Ok(id));
            assert_eq!(id.to_string().len(), 9);
            assert_eq!(GroupId::from_number(id.number()), id);
        }
        assert_eq!("other".parse(), Ok(GroupId::OTHER));
        for odd in ["", "g", "g1", "g00000000", "gilovetea", "x12345678", "g123456789", "gé123456"] {
            assert_eq!(odd.parse::<GroupId>(), Err(NoGroupId), "{odd}");
        }
    }

    #[test]
    fn the_hash_is_stored_and_must_not_change() {
        assert_ne!(GroupId::of(1, &["ab", "c"]), GroupId::of(1, &["a", "bc"]));
        assert_ne!(GroupId::of(1, &["a"]), GroupId::of(2, &["a"]));
        let id = GroupId::of(
            1,
            &["error", "503 Service Unavailable", "transient", "max_retries", "503", "webhook"],
        );
        assert_eq!(id.to_string(), "gvzh7a868");
    }
}
