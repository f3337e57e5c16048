//! A point in time: RFC 3339 in JSON, [`Time`] in Rust.

use std::borrow::Cow;

use redrive_core::{Time, timestamp};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// A point in time, written as RFC 3339 in UTC with milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Instant(pub Time);

impl Default for Instant {
    fn default() -> Self {
        Self(Time::ZERO)
    }
}

impl From<Time> for Instant {
    fn from(time: Time) -> Self {
        Self(time)
    }
}

impl Serialize for Instant {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&timestamp::print(self.0))
    }
}

impl<'de> Deserialize<'de> for Instant {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        timestamp::parse(&text)
            .map(Self)
            .ok_or_else(|| de::Error::invalid_value(de::Unexpected::Str(&text), &"an RFC 3339 time"))
    }
}

impl JsonSchema for Instant {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Instant".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "format": "date-time" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_instant_is_written_as_it_is_read() {
        let at = Instant(Time::from_millis(1_794_778_805_120));
        let text = serde_json::to_string(&at).unwrap();
        assert_eq!(text, "\"2026-11-15T21:40:05.120Z\"");
        assert_eq!(serde_json::from_str::<Instant>(&text).unwrap(), at);
        let error = serde_json::from_str::<Instant>("\"yesterday\"").unwrap_err().to_string();
        assert!(error.contains("an RFC 3339 time"), "{error}");
    }
}
