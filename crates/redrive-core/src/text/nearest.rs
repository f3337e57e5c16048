//! Finds the name that was probably meant, for "did you mean" suggestions.

/// The closest of `names`, if it is close enough to suggest.
pub fn nearest<'a>(given: &str, names: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let close_enough = |distance: usize, name: &str| distance * 2 <= name.chars().count().max(2);
    names
        .into_iter()
        .map(|name| (distance(given, name), name))
        .filter(|(distance, name)| close_enough(*distance, name))
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, name)| name)
}

/// Levenshtein distance: how many letters to insert, delete or replace.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, letter_a) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, letter_b) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(letter_a != *letter_b);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances_are_counted_in_letters() {
        for (a, b, expected) in [
            ("", "", 0),
            ("a", "", 1),
            ("", "abc", 3),
            ("kitten", "sitting", 3),
            ("flaw", "lawn", 2),
            ("retrys", "retries", 2),
        ] {
            assert_eq!(distance(a, b), expected, "{a} {b}");
        }
    }

    #[test]
    fn a_slip_is_recognised_and_a_stranger_is_not() {
        let names = ["tiered", "tiered-short", "push"];
        assert_eq!(nearest("teired", names), Some("tiered"));
        assert_eq!(nearest("tiered-shrt", names), Some("tiered-short"));
        assert_eq!(nearest("pish", names), Some("push"));
        assert_eq!(nearest("banana", names), None);
        assert_eq!(nearest("", names), None);
    }
}
