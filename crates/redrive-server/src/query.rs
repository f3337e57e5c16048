//! Parses a query string into a struct of parameters; every fault names the parameter, its value and what to write.

use std::fmt::{self, Display};

use redrive_core::nearest::nearest;
use serde::de::value::MapDeserializer;
use serde::de::{self, DeserializeOwned, Deserializer, IntoDeserializer, Visitor};
use serde::forward_to_deserialize_any;

use crate::problem::Problem;

const HINT: &str = "GET /v1/openapi.json lists the parameters of each request";

/// Parses the pairs of a query string, already unescaped.
pub fn read<T: DeserializeOwned>(pairs: Vec<(String, String)>) -> Result<T, Problem> {
    let values = pairs.into_iter().map(|(name, value)| (name.clone(), Value { name, value }));
    T::deserialize(MapDeserializer::<_, QueryFault>::new(values)).map_err(|fault| fault.0)
}

/// The value of one parameter, with its name for faults.
struct Value {
    name: String,
    value: String,
}

impl Value {
    fn wrong(&self, wanted: &str, hint: impl Display) -> QueryFault {
        let Self { name, value } = self;
        // A cursor comes from the previous page; none is written by hand.
        if name == "cursor" {
            let message = format!("`cursor` is {value:?}, which is not a cursor of this list");
            return QueryFault(Problem::bad_request(
                message,
                "give the `next` of the page before, or leave it out",
            ));
        }
        QueryFault(Problem::bad_request(format!("`{name}` is {value:?}, which is not {wanted}"), hint))
    }
}

impl<'de> Deserializer<'de> for Value {
    type Error = QueryFault;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, QueryFault> {
        visitor.visit_string(self.value)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, QueryFault> {
        visitor.visit_some(self)
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, QueryFault> {
        match self.value.as_str() {
            "true" => visitor.visit_bool(true),
            "false" => visitor.visit_bool(false),
            _ => Err(self.wrong("true or false", format!("write `{}=true`, or leave it out", self.name))),
        }
    }

    fn deserialize_u64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, QueryFault> {
        // A page of zero items makes no sense.
        let least = u64::from(self.name == "limit");
        match self.value.parse() {
            Ok(number) if number >= least => visitor.visit_u64(number),
            _ => {
                let hint = format!("write a number such as `{}=100`, or leave it out", self.name);
                Err(self.wrong(&format!("a whole number from {least} on"), hint))
            }
        }
    }

    forward_to_deserialize_any! {
        i8 i16 i32 i64 i128 u8 u16 u32 u128 f32 f64 char str string bytes byte_buf unit unit_struct newtype_struct
        seq tuple tuple_struct map struct enum identifier ignored_any
    }
}

impl IntoDeserializer<'_, QueryFault> for Value {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

#[derive(Debug)]
struct QueryFault(Problem);

impl Display for QueryFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.message)
    }
}

impl std::error::Error for QueryFault {}

impl de::Error for QueryFault {
    fn custom<T: Display>(message: T) -> Self {
        Self(Problem::bad_request(format!("the query string: {message}"), HINT))
    }

    fn unknown_field(name: &str, known: &'static [&'static str]) -> Self {
        let hint = match (nearest(name, known.iter().copied()), known) {
            (Some(near), _) => format!("did you mean `{near}`?"),
            (None, []) => "leave it out; this request has no parameters".to_owned(),
            (None, known) => format!("there are {}", known.join(", ")),
        };
        Self(Problem::bad_request(format!("there is no parameter `{name}`"), hint))
    }

    fn missing_field(name: &'static str) -> Self {
        Self(Problem::bad_request(format!("the parameter `{name}` is missing"), HINT))
    }

    fn duplicate_field(name: &'static str) -> Self {
        Self(Problem::bad_request(format!("the parameter `{name}` is given twice"), "give it once"))
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    #[derive(Debug, Default, Deserialize, PartialEq)]
    #[serde(deny_unknown_fields, default)]
    struct AskedPage {
        filter: Option<String>,
        cursor: Option<u64>,
        limit: Option<usize>,
        payload: bool,
    }

    fn asked(pairs: &[(&str, &str)]) -> Result<AskedPage, Problem> {
        read(pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect())
    }

    #[test]
    fn parameters_are_read_by_their_types() {
        assert_eq!(asked(&[]).unwrap(), AskedPage::default());
        let all = asked(&[("filter", "17"), ("cursor", "9"), ("limit", "3"), ("payload", "true")]).unwrap();
        let wanted =
            AskedPage { filter: Some("17".to_owned()), cursor: Some(9), limit: Some(3), payload: true };
        assert_eq!(all, wanted);
    }

    #[test]
    fn a_fault_says_which_parameter_and_what_to_write() {
        for (name, value, message, hint) in [
            (
                "limit",
                "-1",
                "`limit` is \"-1\", which is not a whole number from 1 on",
                "write a number such as `limit=100`, or leave it out",
            ),
            (
                "limit",
                "0",
                "`limit` is \"0\", which is not a whole number from 1 on",
                "write a number such as `limit=100`, or leave it out",
            ),
            (
                "cursor",
                "x",
                "`cursor` is \"x\", which is not a cursor of this list",
                "give the `next` of the page before, or leave it out",
            ),
            (
                "payload",
                "1",
                "`payload` is \"1\", which is not true or false",
                "write `payload=true`, or leave it out",
            ),
            ("limt", "1", "there is no parameter `limt`", "did you mean `limit`?"),
            ("zzz", "1", "there is no parameter `zzz`", "there are filter, cursor, limit, payload"),
        ] {
            let problem = asked(&[(name, value)]).unwrap_err();
            assert_eq!((problem.message.as_str(), problem.hint.as_str()), (message, hint));
        }
        let twice = asked(&[("limit", "1"), ("limit", "2")]).unwrap_err();
        assert_eq!(twice.message, "the parameter `limit` is given twice");
    }
}
