//! Finds the id or the tenant in a record without parsing it into a document.

use std::borrow::Cow;
use std::fmt;

use redrive_core::Pick;
use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::our_headers::Given;

/// A [`Pick`] whose pointer is split in advance.
#[derive(Clone, Debug)]
pub(super) enum PickedValue {
    Json(Vec<String>),
    Header(String),
}

impl PickedValue {
    pub(super) fn of(pick: &Pick) -> Self {
        let unescape = |step: &str| step.replace("~1", "/").replace("~0", "~");
        match pick {
            Pick::Json(pointer) => Self::Json(pointer.split('/').skip(1).map(unescape).collect()),
            Pick::Header(name) => Self::Header(name.clone()),
        }
    }

    /// Returns the text there. Integers are taken as written; other values count as not found.
    pub(super) fn find<'r>(&self, payload: Option<&'r [u8]>, headers: &[Given<'r>]) -> Option<Cow<'r, str>> {
        match self {
            Self::Json(steps) => in_json(steps, payload?),
            Self::Header(name) => {
                let (_, value) = headers.iter().find(|(given, _)| given.eq_ignore_ascii_case(name))?;
                std::str::from_utf8((*value)?).ok().map(Cow::Borrowed)
            }
        }
    }
}

fn in_json<'r>(steps: &[String], json: &'r [u8]) -> Option<Cow<'r, str>> {
    let mut found = None;
    let mut reader = serde_json::Deserializer::from_slice(json);
    // The walk ends with an error as soon as the value is found: the rest of the document does not matter.
    let _ = Follow { steps, found: &mut found }.deserialize(&mut reader);
    found
}

/// Follows the remaining steps and skips everything else.
struct Follow<'p, 'r> {
    steps: &'p [String],
    found: &'p mut Option<Cow<'r, str>>,
}

impl Follow<'_, '_> {
    fn leaf<E: Error>(self, text: impl FnOnce() -> String) -> Result<(), E> {
        if !self.steps.is_empty() {
            return Ok(());
        }
        *self.found = Some(Cow::Owned(text()));
        Err(E::custom(""))
    }
}

impl<'r> DeserializeSeed<'r> for Follow<'_, 'r> {
    type Value = ();

    fn deserialize<D: Deserializer<'r>>(self, reader: D) -> Result<(), D::Error> {
        reader.deserialize_any(self)
    }
}

impl<'r> Visitor<'r> for Follow<'_, 'r> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_map<A: MapAccess<'r>>(self, mut map: A) -> Result<(), A::Error> {
        let Some((step, steps)) = self.steps.split_first() else {
            return Err(A::Error::custom("not a text"));
        };
        while let Some(name) = map.next_key::<Cow<'r, str>>()? {
            if name == *step {
                map.next_value_seed(Follow { steps, found: &mut *self.found })?;
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'r>>(self, mut seq: A) -> Result<(), A::Error> {
        let Some((step, steps)) = self.steps.split_first() else {
            return Err(A::Error::custom("not a text"));
        };
        let mut index = 0_usize;
        loop {
            if *step == index.to_string() {
                if seq.next_element_seed(Follow { steps, found: &mut *self.found })?.is_none() {
                    break;
                }
            } else if seq.next_element::<IgnoredAny>()?.is_none() {
                break;
            }
            index += 1;
        }
        Ok(())
    }

    fn visit_borrowed_str<E: Error>(self, text: &'r str) -> Result<(), E> {
        if !self.steps.is_empty() {
            return Ok(());
        }
        *self.found = Some(Cow::Borrowed(text));
        Err(E::custom(""))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<(), E> {
        self.leaf(|| text.to_owned())
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<(), E> {
        self.leaf(|| number.to_string())
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<(), E> {
        self.leaf(|| number.to_string())
    }

    fn visit_f64<E: Error>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_bool<E: Error>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    fn at(pointer: &str, json: &str) -> Option<String> {
        let place = PickedValue::of(&Pick::Json(pointer.to_owned()));
        place.find(Some(json.as_bytes()), &[]).map(Cow::into_owned)
    }

    #[test]
    fn texts_and_whole_numbers_are_found_wherever_they_stand() {
        let json = r#"{"a":[{"b":"one"},{"b":"t\u0077o"}],"c/d":{"~":"three"},"n":18446744073709551615,"m":-5,"f":1.5}"#;
        assert_eq!(at("/a/1/b", json).as_deref(), Some("two"));
        assert_eq!(at("/c~1d/~0", json).as_deref(), Some("three"));
        assert_eq!(at("/n", json).as_deref(), Some("18446744073709551615"));
        assert_eq!(at("/m", json).as_deref(), Some("-5"));
        for none in ["/a/2/b", "/a/01/b", "/n/deeper", "/nothing", "/a", "/c~1d", "/f"] {
            assert_eq!(at(none, json), None, "{none}");
        }
        for broken in ["", "{", "[1", "\"a\"", "null"] {
            assert_eq!(at("/a", broken), None, "{broken}");
        }
        assert_eq!(at("/a", &"[".repeat(1_000_000)), None);
    }

    #[test]
    fn headers_are_found_whatever_their_case_and_the_first_counts() {
        let headers: [Given<'_>; 3] =
            [("X-Tenant", Some(b"acme")), ("x-tenant", Some(b"other")), ("none", None)];
        let find = |name: &str| {
            let place = PickedValue::of(&Pick::Header(name.to_owned()));
            place.find(None, &headers).map(Cow::into_owned)
        };
        assert_eq!(find("x-tenant").as_deref(), Some("acme"));
        assert_eq!(find("none"), None);
        assert_eq!(find("missing"), None);
    }
}
