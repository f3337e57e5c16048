//! Resolves a JSON pointer without building the document.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};

/// `/a/0/b`, as in RFC 6901.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct JsonPointer {
    steps: Vec<String>,
}

impl JsonPointer {
    /// A pointer from a [`Pick`](redrive_core::Pick), which has validated it.
    pub(super) fn of(text: &str) -> Self {
        let unescape = |step: &str| step.replace("~1", "/").replace("~0", "~");
        Self { steps: text.split('/').skip(1).map(unescape).collect() }
    }

    /// The text at this location, `None` if it does not exist. Fails if the document is not JSON, or the value is not a
    /// text.
    pub(super) fn text(&self, json: &[u8]) -> Result<Option<String>, serde_json::Error> {
        let mut reader = serde_json::Deserializer::from_slice(json);
        let found = Follow { steps: &self.steps }.deserialize(&mut reader)?;
        reader.end()?;
        Ok(found)
    }
}

/// Follows the remaining steps and skips everything else.
struct Follow<'p> {
    steps: &'p [String],
}

impl<'de> DeserializeSeed<'de> for Follow<'_> {
    type Value = Option<String>;

    fn deserialize<D: Deserializer<'de>>(self, reader: D) -> Result<Option<String>, D::Error> {
        reader.deserialize_any(self)
    }
}

impl Follow<'_> {
    /// Handles a value that is neither an object nor a list: an error where a text is expected, otherwise `None`.
    fn leaf<E: Error>(&self) -> Result<Option<String>, E> {
        if self.steps.is_empty() { Err(E::custom("not a text")) } else { Ok(None) }
    }
}

impl<'de> Visitor<'de> for Follow<'_> {
    type Value = Option<String>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Option<String>, A::Error> {
        let Some((step, steps)) = self.steps.split_first() else {
            return Err(A::Error::custom("not a text"));
        };
        let mut found = None;
        while let Some(name) = map.next_key::<String>()? {
            if name == *step {
                // Of members with the same name the last one counts, as in most parsers.
                found = map.next_value_seed(Follow { steps })?;
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(found)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Option<String>, A::Error> {
        let Some((step, steps)) = self.steps.split_first() else {
            return Err(A::Error::custom("not a text"));
        };
        let (mut found, mut index) = (None, 0_usize);
        loop {
            if *step == index.to_string() {
                let Some(element) = seq.next_element_seed(Follow { steps })? else { break };
                found = element;
            } else if seq.next_element::<IgnoredAny>()?.is_none() {
                break;
            }
            index += 1;
        }
        Ok(found)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Option<String>, E> {
        Ok(self.steps.is_empty().then(|| text.to_owned()))
    }

    fn visit_bool<E: Error>(self, _: bool) -> Result<Option<String>, E> {
        self.leaf()
    }

    fn visit_i64<E: Error>(self, _: i64) -> Result<Option<String>, E> {
        self.leaf()
    }

    fn visit_u64<E: Error>(self, _: u64) -> Result<Option<String>, E> {
        self.leaf()
    }

    fn visit_f64<E: Error>(self, _: f64) -> Result<Option<String>, E> {
        self.leaf()
    }

    fn visit_unit<E: Error>(self) -> Result<Option<String>, E> {
        self.leaf()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(pointer: &str, json: &str) -> Result<Option<String>, ()> {
        JsonPointer::of(pointer).text(json.as_bytes()).map_err(|_| ())
    }

    #[test]
    fn a_text_is_found_wherever_it_stands() {
        let json = r#"{"a":[{"b":"one"},{"b":"two"}],"c/d":{"~":"three"},"n":5,"":"empty"}"#;
        assert_eq!(at("/a/1/b", json), Ok(Some("two".into())));
        assert_eq!(at("/c~1d/~0", json), Ok(Some("three".into())));
        assert_eq!(at("/", json), Ok(Some("empty".into())));
        assert_eq!(at("/a/2/b", json), Ok(None));
        assert_eq!(at("/a/01/b", json), Ok(None));
        assert_eq!(at("/n/deeper", json), Ok(None));
        assert_eq!(at("/nothing", json), Ok(None));
    }

    #[test]
    fn what_is_not_a_text_or_not_json_is_an_error() {
        for json in
            [r#"{"a":1}"#, r#"{"a":null}"#, r#"{"a":{}}"#, r#"{"a":[]}"#, r#"{"a":"x""#, "", r#"{"a":"x"} y"#]
        {
            assert_eq!(at("/a", json), Err(()), "{json}");
        }
    }

    #[test]
    fn a_document_that_is_nested_without_end_is_an_error_and_no_overflow() {
        assert_eq!(at("/a", &"[".repeat(1_000_000)), Err(()));
        let nested = format!("{{\"x\":{}1{}}}", "[".repeat(100_000), "]".repeat(100_000));
        let _ = at("/a", &nested);
    }
}
