//! A record of another framework's dead letter topic, and how its headers are read.

use redrive_core::Time;

use super::understood::NotUnderstood;

/// A header's name and value.
pub type Header<'a> = (&'a str, Option<&'a [u8]>);

/// A record as stored in its topic.
#[derive(Clone, Debug)]
pub struct ForeignRecord<'a> {
    pub topic: &'a str,
    pub partition: i32,
    pub offset: i64,
    /// When it was written.
    pub written: Option<Time>,
    pub key: Option<&'a [u8]>,
    pub value: Option<&'a [u8]>,
    pub headers: Vec<Header<'a>>,
}

impl<'a> ForeignRecord<'a> {
    /// The position, as in `orders-dlt/0/17`.
    pub fn place(&self) -> String {
        format!("{}/{}/{}", self.topic, self.partition, self.offset)
    }

    /// The value of the last header with one of these names, since each failure appends another. Earlier names take
    /// precedence.
    pub(super) fn last(&self, names: &[&'static str]) -> Option<(&'static str, &'a [u8])> {
        names.iter().find_map(|name| {
            let value = self.headers.iter().rev().find(|(given, _)| given == name)?.1?;
            Some((*name, value))
        })
    }

    /// Like [`Self::last`], as text. Invalid UTF-8 is replaced, because frameworks may cut error texts anywhere.
    pub(super) fn text(&self, names: &[&'static str]) -> Option<String> {
        let (_, value) = self.last(names)?;
        Some(String::from_utf8_lossy(value).into_owned()).filter(|text| !text.is_empty())
    }

    /// Like [`Self::last`], as a non-negative number.
    pub(super) fn number(&self, names: &[&'static str]) -> Result<Option<i64>, NotUnderstood> {
        let Some((header, value)) = self.last(names) else { return Ok(None) };
        match number(value, &[4, 8]).filter(|number| *number >= 0) {
            Some(number) => Ok(Some(number)),
            None => Err(NotUnderstood::Unreadable { header }),
        }
    }

    /// Like [`Self::last`], as milliseconds since 1970. An unreadable value counts as missing.
    pub(super) fn time(&self, names: &[&'static str]) -> Option<Time> {
        let (_, value) = self.last(names)?;
        // Spring writes some of them as a `BigInteger`, with as many bytes as needed.
        let millis = number(value, &[5, 6, 7, 8]).filter(|millis| *millis > 0)?;
        u64::try_from(millis).ok().map(Time::from_millis)
    }
}

/// Parses decimal digits, or big-endian bytes of one of `sizes`, as Java writes them: 4 for an `int`, 8 for a `long`.
/// A value that is all ASCII digits is decimal: as bytes it would be an impossible partition or offset.
fn number(value: &[u8], sizes: &[usize]) -> Option<i64> {
    if !value.is_empty() && value.iter().all(u8::is_ascii_digit) {
        return std::str::from_utf8(value).ok()?.parse().ok();
    }
    if value.len() > 8 || !sizes.contains(&value.len()) {
        return None;
    }
    let negative = value[0] & 0x80 != 0;
    let mut bytes = if negative { [0xff; 8] } else { [0; 8] };
    bytes[8 - value.len()..].copy_from_slice(value);
    Some(i64::from_be_bytes(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_digits_or_big_endian_bytes() {
        for (value, expected) in [
            (&b"1182"[..], Some(1182)),
            (b"0", Some(0)),
            (&[0, 0, 0, 7], Some(7)),
            (&[0, 0, 0, 0, 0, 0, 4, 158], Some(1182)),
            (&[255, 255, 255, 255], Some(-1)),
            (b"", None),
            (b"99999999999999999999", None),
            (&[0; 3], None),
            (&[0; 9], None),
        ] {
            assert_eq!(number(value, &[4, 8]), expected, "{value:?}");
        }
        assert_eq!(number(&[1, 139, 207, 229, 104, 123], &[5, 6]), Some(1_700_000_000_123));
    }
}
