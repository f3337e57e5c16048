//! `json:/order_id` or `header:x-tenant`: where in a message a value stands.

use std::fmt;

use super::fault::Fault;
use super::reader::{Reader, Section};

/// Where a value is taken from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pick {
    /// A JSON pointer (RFC 6901) into the payload.
    Json(String),
    /// A header of the message.
    Header(String),
}

impl Pick {
    pub fn parse(text: &str) -> Option<Self> {
        match text.split_once(':')? {
            ("json", pointer) if is_pointer(pointer) => Some(Self::Json(pointer.to_owned())),
            ("header", name) if !name.is_empty() && !name.contains(char::is_whitespace) => {
                Some(Self::Header(name.to_owned()))
            }
            _ => None,
        }
    }

    pub(super) fn read(reader: &mut Reader, section: &Section<'_>, key: &str) -> Option<Self> {
        let set = reader.text(section, key)?;
        let pick = Self::parse(&set.value);
        if pick.is_none() {
            let name = section.name(key);
            let problem = format!("`{name} = \"{}\"` does not say where the value stands", set.value);
            let fix = "write it like json:/order_id or header:x-tenant";
            reader.fault(section, Fault::value(name, problem, fix, set.at));
        }
        pick
    }
}

/// Empty (the whole payload) or parts that each begin with a slash; a tilde only as ~0 or ~1.
fn is_pointer(text: &str) -> bool {
    let begins = text.is_empty() || text.starts_with('/');
    let escapes =
        text.match_indices('~').all(|(i, _)| matches!(text.as_bytes().get(i + 1), Some(b'0' | b'1')));
    begins && escapes
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
    fn pointers_and_headers_are_read_and_written_back() {
        for text in ["json:/order_id", "json:", "json:/a~1b/0", "header:x-tenant"] {
            assert_eq!(Pick::parse(text).unwrap().to_string(), text);
        }
        for text in ["", "order_id", "json:order_id", "json:/a~2", "header:", "header:a b", "xml:/a"] {
            assert_eq!(Pick::parse(text), None, "{text}");
        }
    }
}
