//! Explains which field of a JSON object is wrong, its value and what is expected. Used after parsing failed: normal
//! parsing goes directly through serde_json, whose errors name neither the field nor what to write.

use std::fmt::{self, Display};

use redrive_core::nearest::nearest;
use serde::Deserialize;
use serde::de::value::MapDeserializer;
use serde::de::{self, Deserializer, Expected, IntoDeserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

/// The maximum length of a value repeated in a fault.
const GIVEN_CHARS_MAX: usize = 40;

/// A fault in one field, and what to write instead.
#[derive(Debug)]
pub struct FieldFault {
    pub message: String,
    pub hint: Option<String>,
    /// Whether the field does not exist.
    pub is_unknown: bool,
}

impl FieldFault {
    fn new(message: String, hint: Option<String>) -> Self {
        Self { message, hint, is_unknown: false }
    }
}

/// The first field that prevents `text` from being a `T`, if `text` is a JSON object and a field is the reason.
pub fn find<'de, T: Deserialize<'de>>(text: &'de [u8]) -> Option<FieldFault> {
    let Fields(fields) = serde_json::from_slice(text).ok()?;
    T::deserialize(MapDeserializer::new(fields.into_iter())).err()
}

/// The fields of an object, in order and unparsed.
struct Fields<'de>(Vec<(String, Field<'de>)>);

impl<'de> Deserialize<'de> for Fields<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct InOrder;
        impl<'de> Visitor<'de> for InOrder {
            type Value = Fields<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Fields<'de>, A::Error> {
                let mut fields = Vec::new();
                while let Some((name, raw)) = map.next_entry::<String, &RawValue>()? {
                    fields.push((name.clone(), Field { name, raw }));
                }
                Ok(Fields(fields))
            }
        }
        deserializer.deserialize_map(InOrder)
    }
}

/// The value of one field, with its name for faults.
struct Field<'de> {
    name: String,
    raw: &'de RawValue,
}

impl Field<'_> {
    fn wrong(&self, wanted: &str, example: &str) -> FieldFault {
        let (name, given) = (&self.name, shortened(self.raw.get()));
        let hint = (!example.is_empty()).then(|| format!("write it like \"{name}\": {example}"));
        FieldFault::new(format!("`{name}` is {given}, which is not {wanted}"), hint)
    }
}

fn shortened(given: &str) -> String {
    match given.char_indices().nth(GIVEN_CHARS_MAX) {
        Some((end, _)) => format!("{}…", &given[..end]),
        None => given.to_owned(),
    }
}

/// Parses the value like serde_json, but reports faults in our words.
macro_rules! read_as {
    ($($method:ident: $wanted:expr, $example:expr;)*) => {
        $(fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, FieldFault> {
            let read = serde_json::Deserializer::from_str(self.raw.get()).$method(visitor);
            read.map_err(|_| self.wrong($wanted, $example))
        })*
    };
}

impl<'de> Deserializer<'de> for Field<'de> {
    type Error = FieldFault;

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, FieldFault> {
        if self.raw.get() == "null" { visitor.visit_none() } else { visitor.visit_some(self) }
    }

    /// The visitor describes what it expects.
    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, FieldFault> {
        let wanted = (&visitor as &dyn Expected).to_string();
        let read = serde_json::Deserializer::from_str(self.raw.get()).deserialize_any(visitor);
        read.map_err(|_| self.wrong(&wanted, ""))
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, FieldFault> {
        // `RawValue` is parsed this way.
        let read =
            serde_json::Deserializer::from_str(self.raw.get()).deserialize_newtype_struct(name, visitor);
        read.map_err(|_| self.wrong("a JSON value", ""))
    }

    read_as! {
        deserialize_bool: "true or false", "true";
        deserialize_f64: "a number", "5";
        deserialize_u64: "a whole number from 0 on", "5";
        deserialize_str: "a string", "\"…\"";
        deserialize_string: "a string", "\"…\"";
        deserialize_seq: "an array of strings", "[\"…\"]";
    }

    serde::forward_to_deserialize_any! {
        i8 i16 i32 i64 i128 u8 u16 u32 u128 f32 char bytes byte_buf unit unit_struct
        tuple tuple_struct map struct enum identifier ignored_any
    }
}

impl<'de> IntoDeserializer<'de, FieldFault> for Field<'de> {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

impl Display for FieldFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for FieldFault {}

impl de::Error for FieldFault {
    fn custom<T: Display>(message: T) -> Self {
        Self::new(message.to_string(), None)
    }

    fn unknown_field(name: &str, known: &'static [&'static str]) -> Self {
        let hint = match nearest(name, known.iter().copied()) {
            Some(near) => format!("did you mean `{near}`?"),
            None => format!("the fields are {}.", known.join(", ")),
        };
        Self { is_unknown: true, ..Self::new(format!("there is no field `{name}`"), Some(hint)) }
    }

    fn missing_field(name: &'static str) -> Self {
        Self::new(format!("the field `{name}` is missing"), None)
    }

    fn duplicate_field(name: &'static str) -> Self {
        Self::new(format!("the field `{name}` is given twice"), Some("give it once".to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    #[allow(dead_code, reason = "only read")]
    struct Wish {
        pipeline: String,
        filter: Option<String>,
        ids: Option<Vec<String>>,
        rate: Option<f64>,
        #[serde(default)]
        all: bool,
    }

    fn fault(text: &str) -> Option<(String, String)> {
        find::<Wish>(text.as_bytes()).map(|fault| (fault.message, fault.hint.unwrap_or_default()))
    }

    #[test]
    fn a_fault_says_the_field_what_was_given_and_what_is_wanted() {
        for (text, message, hint) in [
            (r#"{"rate":"5/h"}"#, "`rate` is \"5/h\", which is not a number", "write it like \"rate\": 5"),
            (r#"{"filter":{}}"#, "`filter` is {}, which is not a string", "write it like \"filter\": \"…\""),
            (
                r#"{"all":"yes"}"#,
                "`all` is \"yes\", which is not true or false",
                "write it like \"all\": true",
            ),
            (
                r#"{"ids":"a"}"#,
                "`ids` is \"a\", which is not an array of strings",
                "write it like \"ids\": [\"…\"]",
            ),
            (
                r#"{"ids":[1]}"#,
                "`ids` is [1], which is not an array of strings",
                "write it like \"ids\": [\"…\"]",
            ),
            (
                r#"{"pipeline":null}"#,
                "`pipeline` is null, which is not a string",
                "write it like \"pipeline\": \"…\"",
            ),
            ("{}", "the field `pipeline` is missing", ""),
            (r#"{"piplein":1}"#, "there is no field `piplein`", "did you mean `pipeline`?"),
            (r#"{"all":true,"all":true}"#, "the field `all` is given twice", "give it once"),
        ] {
            assert_eq!(fault(text), Some((message.to_owned(), hint.to_owned())), "{text}");
        }
        let long = fault(&format!(r#"{{"rate":"{}"}}"#, "ü".repeat(90))).unwrap().0;
        assert_eq!(long.chars().filter(|c| *c == 'ü').count(), GIVEN_CHARS_MAX - 1, "{long}");
    }

    #[test]
    fn there_is_no_fault_where_the_fields_are_right_or_are_none() {
        for text in [r#"{"pipeline":"a","filter":null,"rate":5}"#, "[]", "{", "7"] {
            assert_eq!(fault(text), None, "{text}");
        }
    }
}
