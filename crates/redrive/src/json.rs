//! Typed payloads: JSON is parsed before the handler runs, and a payload that does not parse is a permanent failure.

use std::ops::Deref;

use redrive_core::Message;
use serde::de::DeserializeOwned;

use crate::failure::Failure;

/// The code of a failure whose payload does not parse.
pub(crate) const BAD_PAYLOAD: &str = "bad_payload";

/// A payload that was parsed as JSON; see [`crate::Pipeline::json_handler`].
///
/// ```
/// use redrive::{Json, Message};
///
/// #[derive(serde::Deserialize)]
/// struct Order {
///     total: u64,
/// }
///
/// let message = Message::builder("o-1").payload(r#"{"total": 1999}"#).build()?;
/// let Ok(order) = Json::<Order>::of(&message) else { panic!("it is an order") };
/// assert_eq!(order.total, 1999);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Json<T>(pub T);

impl<T> Deref for Json<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

/// The payload does not have the form that the handler expects.
#[derive(Debug, thiserror::Error)]
#[error("the payload cannot be read{}", .at.as_deref().map(|at| format!(" at `{at}`")).unwrap_or_default())]
pub struct PayloadError {
    /// The place of the error, as in `lines[0].sku`; `None` for the payload as a whole.
    pub at: Option<String>,
    /// What was found there, and what was expected.
    #[source]
    pub problem: serde_json::Error,
}

impl<T: DeserializeOwned> Json<T> {
    /// Parses the payload of a message. A missing payload is treated as empty, which is not JSON.
    ///
    /// The failure is permanent, since no retry makes a payload readable. It has the code `bad_payload` and a
    /// [`PayloadError`].
    pub fn of(message: &Message) -> Result<Self, Failure> {
        Self::read(message).map_err(|error| Failure::permanent(error).with_code(BAD_PAYLOAD))
    }

    fn read(message: &Message) -> Result<Self, PayloadError> {
        let text = message.payload().unwrap_or_default();
        let mut reader = serde_json::Deserializer::from_slice(text);
        let read = serde_path_to_error::deserialize(&mut reader).map_err(|error| {
            let at = Some(error.path().to_string()).filter(|path| path != ".");
            PayloadError { at, problem: error.into_inner() }
        })?;
        reader.end().map_err(|problem| PayloadError { at: None, problem })?;
        Ok(Self(read))
    }
}

#[cfg(test)]
mod tests {
    use redrive_core::Class;

    use super::*;

    #[derive(Debug, PartialEq, serde::Deserialize)]
    struct KeyOrder {
        id: String,
        lines: Vec<Line>,
    }

    #[derive(Debug, PartialEq, serde::Deserialize)]
    struct Line {
        sku: String,
        count: u32,
    }

    fn read(payload: &str) -> Result<Json<KeyOrder>, Failure> {
        Json::of(&Message::builder("o-1").payload(payload.to_owned()).build().unwrap())
    }

    #[test]
    fn a_payload_is_read_as_its_type() {
        let order = read(r#"{"id":"o-1","lines":[{"sku":"a","count":2}]}"#).unwrap();
        assert_eq!((order.id.as_str(), order.lines[0].count), ("o-1", 2));
    }

    #[test]
    fn a_payload_that_cannot_be_read_is_permanent_and_says_where() {
        for (payload, at, text) in [
            (
                r#"{"id":"o-1","lines":[{"sku":"a","count":"two"}]}"#,
                Some("lines[0].count"),
                "the payload cannot be read at `lines[0].count`: invalid type: string \"two\", expected u32",
            ),
            (r#"{"id":"o-1"}"#, None, "the payload cannot be read: missing field `lines`"),
            ("{} trailing", None, "the payload cannot be read: missing field `id`"),
            ("", None, "the payload cannot be read: EOF while parsing a value"),
        ] {
            let failure = read(payload).unwrap_err();
            let error = failure.downcast_ref::<PayloadError>().unwrap();
            assert_eq!(error.at.as_deref(), at, "{payload}");
            assert_eq!((failure.class(), failure.code()), (Class::Permanent, Some(BAD_PAYLOAD)));
            assert!(failure.chain().starts_with(text), "{}", failure.chain());
        }
        assert!(read(r#"{"id":"o-1","lines":[]} and more"#).is_err());
        let empty = Message::builder("o-1").build().unwrap();
        assert!(Json::<KeyOrder>::of(&empty).is_err());
    }
}
