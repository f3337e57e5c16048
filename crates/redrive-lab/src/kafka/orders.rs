//! Identifies the order of a record. The ids of the workload are at a fixed position, so only a number has to be
//! parsed.

const BEFORE: &[u8] = br#"{"order_id":"o-"#;

/// The number of the order in this payload; `None` if it is not one of ours.
pub fn number(payload: &[u8]) -> Option<u64> {
    let digits = payload.strip_prefix(BEFORE)?;
    let mut number = 0_u64;
    for (count, byte) in digits.iter().enumerate() {
        match byte {
            b'0'..=b'9' => number = number.checked_mul(10)?.checked_add(u64::from(byte - b'0'))?,
            b'"' if count > 0 => return Some(number),
            _ => return None,
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::order;

    #[test]
    fn the_number_of_every_order_is_read_back() {
        for i in [0, 7, 10, 999, 12_345_678, u64::MAX] {
            assert_eq!(number(order::payload(i).as_bytes()), Some(i));
        }
        for other in ["", "{}", r#"{"order_id":"o-"#, r#"{"order_id":"o-""#, r#"{"order_id":"o-x""#] {
            assert_eq!(number(other.as_bytes()), None, "{other}");
        }
    }
}
