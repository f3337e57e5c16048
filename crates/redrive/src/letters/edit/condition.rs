//! The condition that selects the letters of an edit: `/region == "DE" and /amount > 100`.

use std::cmp::Ordering;

use serde::de::IgnoredAny;

use super::json_text::{JsonText, Pointer};
use super::json_value::JsonValue;
use crate::letters::redact::Redaction;

/// Comparisons that must all hold.
///
/// ```
/// use redrive::letters::edit::Condition;
///
/// assert!(Condition::parse("/currency == \"EUR\"").is_ok());
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Condition {
    terms: Vec<Term>,
}

#[derive(Clone, Debug, PartialEq)]
struct Term {
    pointer: Pointer,
    comparison: Comparison,
    with: JsonValue,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Comparison {
    Equal,
    NotEqual,
    AtLeast,
    AtMost,
    Above,
    Below,
}

/// Longer signs first, so that `>=` is not read as `>`.
const SIGNS: [(&str, Comparison); 6] = [
    ("==", Comparison::Equal),
    ("!=", Comparison::NotEqual),
    (">=", Comparison::AtLeast),
    ("<=", Comparison::AtMost),
    (">", Comparison::Above),
    ("<", Comparison::Below),
];

/// Why a condition cannot be parsed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ConditionError(String);

fn wrong<T>(problem: String) -> Result<T, ConditionError> {
    Err(ConditionError(problem))
}

impl Condition {
    /// Parses a condition such as `/region == "DE" and /amount > 100`.
    pub fn parse(text: &str) -> Result<Self, ConditionError> {
        let mut terms = Vec::new();
        let mut rest = text.trim();
        loop {
            let (term, after) = term(rest)?;
            terms.push(term);
            rest = after.trim_start();
            if rest.is_empty() {
                return Ok(Self { terms });
            }
            let Some(next) = rest.strip_prefix("and").filter(|next| next.starts_with(char::is_whitespace))
            else {
                return wrong(format!("`{rest}`: `and` is expected here"));
            };
            rest = next.trim_start();
        }
    }

    /// The first hidden value that could be guessed by bisection, because the condition compares it with `<` or `>`.
    /// Comparing for equality is allowed, since that needs knowledge of the value.
    pub fn guesses(&self, hidden: &Redaction) -> Option<String> {
        let is_range = |term: &&Term| !matches!(term.comparison, Comparison::Equal | Comparison::NotEqual);
        let mut ranges = self.terms.iter().filter(is_range).map(|term| term.pointer.to_string());
        ranges.find(|at| hidden.is_guessed_at(at))
    }

    /// Whether a payload matches. A missing value is equal to nothing.
    pub fn holds(&self, payload: &JsonText) -> bool {
        self.terms.iter().all(|term| {
            let found = payload.value(&term.pointer);
            match (&found, term.comparison) {
                (found, Comparison::NotEqual) => found.as_ref() != Some(&term.with),
                (None, _) => false,
                (Some(found), Comparison::Equal) => *found == term.with,
                (Some(found), comparison) => order(found, &term.with).is_some_and(|order| match comparison {
                    Comparison::AtLeast => order != Ordering::Less,
                    Comparison::AtMost => order != Ordering::Greater,
                    Comparison::Above => order == Ordering::Greater,
                    Comparison::Below => order == Ordering::Less,
                    Comparison::Equal | Comparison::NotEqual => false,
                }),
            }
        })
    }
}

/// Parses one comparison; returns it with the rest of the text.
fn term(text: &str) -> Result<(Term, &str), ConditionError> {
    let end =
        text.find(|c: char| c.is_whitespace() || matches!(c, '=' | '!' | '<' | '>')).unwrap_or(text.len());
    let (pointer, rest) = text.split_at(end);
    let Some(pointer) = Pointer::parse(pointer).filter(|pointer| !pointer.is_root()) else {
        return wrong(format!("`{pointer}` is not a JSON pointer; write it like /region == \"DE\""));
    };
    let rest = rest.trim_start();
    let sign = SIGNS.iter().find_map(|(sign, comparison)| Some((*comparison, rest.strip_prefix(sign)?)));
    let Some((comparison, rest)) = sign else {
        return wrong(format!("after `{pointer}` one of == != >= <= > < is expected"));
    };
    let mut values = serde_json::Deserializer::from_str(rest).into_iter::<IgnoredAny>();
    let is_json = matches!(values.next(), Some(Ok(_)));
    let (value, after) = rest.split_at(if is_json { values.byte_offset() } else { 0 });
    let with = JsonText::parse(value.as_bytes()).ok().and_then(|json| json.value(&Pointer::ROOT));
    let Some(with) = with else {
        let rest = rest.trim();
        return wrong(format!("`{rest}` is not JSON; a text needs quotes: {pointer} == \"{rest}\""));
    };
    Ok((Term { pointer, comparison, with }, after))
}

/// Compares two numbers or two texts; other values have no order.
fn order(found: &JsonValue, with: &JsonValue) -> Option<Ordering> {
    match (found, with) {
        (JsonValue::Number(found), JsonValue::Number(with)) => Some(found.cmp(with)),
        (JsonValue::Text(found), JsonValue::Text(with)) => Some(found.cmp(with)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holds(condition: &str, payload: &str) -> bool {
        Condition::parse(condition).unwrap().holds(&JsonText::parse(payload.as_bytes()).unwrap())
    }

    #[test]
    fn where_values_are_hidden_none_is_compared_by_size() {
        let hidden = Redaction::at(vec![Pointer::parse("/email").unwrap()]);
        let guesses = |text: &str| Condition::parse(text).unwrap().guesses(&hidden);
        assert_eq!(guesses("/email >= \"m\""), Some("/email".to_owned()));
        assert_eq!(guesses("/note == \"x\" and /copy < 5"), Some("/copy".to_owned()), "it may repeat it");
        assert_eq!(guesses("/email == \"eve@example.com\" and /amount != 1"), None);
        assert_eq!(Condition::parse("/email > \"m\"").unwrap().guesses(&Redaction::default()), None);
        let push = Redaction::of_receivers(&["/endpoint"]);
        let guesses = |text: &str| Condition::parse(text).unwrap().guesses(&push);
        assert_eq!((guesses("/endpoint > \"h\"").is_some(), guesses("/ttl > 60")), (true, None));
    }

    #[test]
    fn all_comparisons_must_hold() {
        let order = r#"{"region":"DE","amount":1999,"vat":0.19,"paid":null,"id":9007199254740993}"#;
        for meant in [
            "/region == \"DE\"",
            "/region==\"DE\" and /amount >= 1999",
            "/region != \"FR\" and /amount<2000 and /vat > 0.18",
            "/paid == null",
            "/amount == 1999.0",
            "/missing != 1",
            "/id == 9007199254740993 and /id != 9007199254740992",
            "/region > \"DD\"",
        ] {
            assert!(holds(meant, order), "{meant}");
        }
        for not in ["/region == \"de\"", "/missing == null", "/missing > 1", "/region > 1", "/amount <= 1998"]
        {
            assert!(!holds(not, order), "{not}");
        }
    }

    /// These used to be compared as floats beyond 64 bits, and an edit changed letters that did not match.
    #[test]
    fn numbers_beyond_64_bits_are_compared_by_all_their_digits() {
        let payload = r#"{"n":12345678901234567890124,"big":1e400,"price":19.990000000000000001,"all":[12345678901234567890124]}"#;
        for meant in [
            "/n == 12345678901234567890124",
            "/n > 12345678901234567890123",
            "/n != 12345678901234567890123",
            "/big > 1e308",
            "/big == 10e399",
            "/price > 19.99",
            "/all == [ 12345678901234567890124.0 ]",
        ] {
            assert!(holds(meant, payload), "{meant}");
        }
        for not in ["/n == 12345678901234567890123", "/price == 19.99", "/all == [12345678901234567890123]"] {
            assert!(!holds(not, payload), "{not}");
        }
    }

    #[test]
    fn a_mistake_says_what_is_expected() {
        for (text, problem) in [
            ("region == 1", "`region` is not a JSON pointer; write it like /region == \"DE\""),
            ("/region", "after `/region` one of == != >= <= > < is expected"),
            ("/region = 1", "after `/region` one of == != >= <= > < is expected"),
            ("/region == DE", "`DE` is not JSON; a text needs quotes: /region == \"DE\""),
            ("/a == 1 or /b == 2", "`or /b == 2`: `and` is expected here"),
            ("", "`` is not a JSON pointer; write it like /region == \"DE\""),
        ] {
            assert_eq!(Condition::parse(text).unwrap_err().to_string(), problem, "{text}");
        }
    }
}
