//! Compact lists of letter ids: `3-40,45,50-99`. Letters that die together have consecutive numbers.

/// The longest list that is parsed; a longer one is treated as damage.
const IDS_MAX: u64 = 10_000_000;

/// Formats sorted ids.
pub(super) fn print(ids: &[u64]) -> String {
    let mut parts = Vec::new();
    let mut rest = ids;
    while let Some(first) = rest.first() {
        let follow = |(step, id): &(u64, &u64)| first.checked_add(*step) == Some(**id);
        let len = (0..).zip(rest).take_while(follow).count();
        let last = rest[len - 1];
        parts.push(if len == 1 { first.to_string() } else { format!("{first}-{last}") });
        rest = &rest[len..];
    }
    parts.join(",")
}

/// Parses a list; `None` if it is malformed or too long.
pub(super) fn parse(text: &str) -> Option<Vec<u64>> {
    let mut ids = Vec::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (u64, u64) = (first.parse().ok()?, last.parse().ok()?);
        let len = last.checked_sub(first)?.checked_add(1)?;
        if len.saturating_add(ids.len() as u64) > IDS_MAX {
            return None;
        }
        ids.extend(first..=last);
    }
    Some(ids)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn neighbours_are_written_as_one_range() {
        assert_eq!(print(&[3, 4, 5, 9, u64::MAX]), format!("3-5,9,{}", u64::MAX));
        assert_eq!(parse("3-5,9"), Some(vec![3, 4, 5, 9]));
        for wrong in ["", "x", "5-3", "1,,2", "1-99999999999", "1-2-3"] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn every_list_comes_back(ids in prop::collection::btree_set(0u64..300, 1..120)) {
            let ids: Vec<u64> = ids.into_iter().collect();
            prop_assert_eq!(parse(&print(&ids)), Some(ids));
        }
    }
}
