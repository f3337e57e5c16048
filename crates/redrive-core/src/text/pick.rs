//! `json:/order_id` or `header:x-tenant`: the location of a value in a message.

use std::fmt;
use std::str::FromStr;

/// Where to take a value from. The caller decides how to use it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pick {
    /// A JSON pointer (RFC 6901) to a member of the payload.
    Json(String),
    /// A header of the message; case is ignored.
    Header(String),
}

/// The text is not a location in a message.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` does not name a place in a message; write it like json:/order_id or header:x-tenant")]
pub struct PickError {
    /// The text as written.
    pub text: String,
}

impl Pick {
    /// The top-level member of the payload that contains the value; `None` for a header.
    pub fn top_member(&self) -> Option<String> {
        let Self::Json(pointer) = self else { return None };
        let first = pointer.strip_prefix('/')?.split('/').next()?;
        Some(first.replace("~1", "/").replace("~0", "~"))
    }
}

impl FromStr for Pick {
    type Err = PickError;

    fn from_str(text: &str) -> Result<Self, PickError> {
        match text.split_once(':') {
            Some(("json", pointer)) if is_pointer(pointer) => Ok(Self::Json(pointer.to_owned())),
            Some(("header", name)) if !name.is_empty() && !name.contains(char::is_whitespace) => {
                Ok(Self::Header(name.to_owned()))
            }
            _ => Err(PickError { text: text.to_owned() }),
        }
    }
}

/// Whether this is a JSON pointer: parts that begin with a slash, with tildes only as ~0 or ~1. The empty pointer (the
/// whole payload) is rejected.
fn is_pointer(text: &str) -> bool {
    let escapes =
        text.match_indices('~').all(|(at, _)| matches!(text.as_bytes().get(at + 1), Some(b'0' | b'1')));
    text.starts_with('/') && escapes
}

impl fmt::Display for Pick {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Json(pointer) => write!(f, "json:{pointer}"),
            Self::Header(name) => write!(f, "header:{name}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pointer_begins_with_a_member_of_the_payload() {
        let top = |text: &str| text.parse::<Pick>().unwrap().top_member();
        assert_eq!(top("json:/order/id").as_deref(), Some("order"));
        assert_eq!(top("json:/a~1b~0c/0").as_deref(), Some("a/b~c"));
        assert_eq!(top("header:x-tenant"), None);
    }

    #[test]
    fn pointers_and_headers_are_read_and_written_back() {
        for text in ["json:/order_id", "json:/", "json:/a~1b/0", "header:x-tenant"] {
            assert_eq!(text.parse::<Pick>().unwrap().to_string(), text);
        }
        for text in ["", "order_id", "json:", "json:order_id", "json:/a~2", "header:", "header:a b", "xml:/a"]
        {
            let error = text.parse::<Pick>().unwrap_err().to_string();
            assert!(error.contains("header:x-tenant"), "{text}: {error}");
        }
    }
}
