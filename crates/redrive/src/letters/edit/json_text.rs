//! JSON as text: a value is found by its pointer and replaced in place, so that everything else keeps its spelling,
//! down to the digits of numbers and the order of fields.

use std::fmt;
use std::ops::Range;

use serde::de::IgnoredAny;

use super::json_scalars::{end_of_string, end_of_word, names, scalars};
use super::json_value::JsonValue;

/// Values nested more deeply are not read; serde_json has the same limit.
const VALUE_DEPTH_MAX: usize = 128;

/// A JSON pointer (RFC 6901): `/customer/email`, `/lines/0/sku`. The empty pointer means the whole document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pointer {
    tokens: Vec<String>,
}

impl Pointer {
    /// Parses a pointer; `None` if it is malformed.
    pub fn parse(text: &str) -> Option<Self> {
        let Some(rest) = text.strip_prefix('/') else {
            return text.is_empty().then(|| Self { tokens: Vec::new() });
        };
        let token = |token: &str| {
            let escapes =
                token.matches('~').count() == token.matches("~0").count() + token.matches("~1").count();
            escapes.then(|| token.replace("~1", "/").replace("~0", "~"))
        };
        Some(Self { tokens: rest.split('/').map(token).collect::<Option<_>>()? })
    }

    /// A pointer from the dotted form of filters: `customer.id`, `items.0.sku`.
    pub(in crate::letters) fn dotted(path: &str) -> Self {
        Self { tokens: path.split('.').map(str::to_owned).collect() }
    }

    /// Whether it points at the whole document.
    pub fn is_root(&self) -> bool {
        self.tokens.is_empty()
    }

    /// The name of the field, for a field of the outermost object.
    pub(super) fn only(&self) -> Option<&str> {
        if let [token] = &self.tokens[..] { Some(token) } else { None }
    }

    pub(super) fn child(&self, token: impl Into<String>) -> Self {
        let mut tokens = self.tokens.clone();
        tokens.push(token.into());
        Self { tokens }
    }

    pub(super) const ROOT: Self = Self { tokens: Vec::new() };
}

impl fmt::Display for Pointer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.tokens.iter().try_for_each(|token| write!(f, "/{}", token.replace('~', "~0").replace('/', "~1")))
    }
}

/// Why a text could not be changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum JsonFault {
    /// The payload is not JSON.
    #[error("it is not JSON: {0}")]
    NotJson(String),
    /// The pointer leads to no place that could be changed.
    #[error("{0} cannot be set: what would hold it is not an object, or an array without this index")]
    NoPlace(Pointer),
    /// The object or array that would hold the new value is missing.
    #[error("{0} does not exist in the payload")]
    Missing(Pointer),
}

/// A text that is known to be JSON.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JsonText {
    text: String,
}

/// One field of an object or one item of an array.
struct TextPart {
    /// Where the name of a field, or an item, begins.
    start: usize,
    name: String,
    value: Range<usize>,
}

/// The target of a pointer in a text.
enum FoundValue {
    Value(Range<usize>),
    /// The object or array exists, but not the field or item.
    Room {
        parent: Range<usize>,
        last: Option<usize>,
        name: Option<String>,
    },
    Nowhere,
}

impl JsonText {
    /// Reads a payload; it must be JSON in UTF-8.
    pub fn parse(payload: &[u8]) -> Result<Self, JsonFault> {
        let not_json = |why: String| JsonFault::NotJson(why);
        let text = std::str::from_utf8(payload).map_err(|error| not_json(error.to_string()))?;
        serde_json::from_str::<IgnoredAny>(text).map_err(|error| not_json(error.to_string()))?;
        Ok(Self { text: text.to_owned() })
    }

    /// The text, with all changes.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The text, with all changes.
    pub fn into_string(self) -> String {
        self.text
    }

    /// The value at a pointer, as spelled in the text.
    pub fn get(&self, pointer: &Pointer) -> Option<&str> {
        match self.find(pointer) {
            FoundValue::Value(range) => Some(&self.text[range]),
            FoundValue::Room { .. } | FoundValue::Nowhere => None,
        }
    }

    /// The value at a pointer, for comparison; `None` if there is none or it is nested too deeply.
    pub fn value(&self, pointer: &Pointer) -> Option<JsonValue> {
        match self.find(pointer) {
            FoundValue::Value(range) => self.read(&range, VALUE_DEPTH_MAX),
            FoundValue::Room { .. } | FoundValue::Nowhere => None,
        }
    }

    fn read(&self, range: &Range<usize>, depth: usize) -> Option<JsonValue> {
        let inner = depth.checked_sub(1)?;
        let parts = self.parts(range).into_iter();
        match self.text.as_bytes()[range.start] {
            b'{' => parts
                .map(|part| Some((part.name, self.read(&part.value, inner)?)))
                .collect::<Option<_>>()
                .map(JsonValue::Fields),
            b'[' => {
                parts.map(|part| self.read(&part.value, inner)).collect::<Option<_>>().map(JsonValue::Items)
            }
            _ => JsonValue::scalar(&self.text[range.clone()]),
        }
    }

    /// Sets the value at a pointer: replaces an existing one, adds a field to an existing object, or appends to an
    /// array (`-`, or the index after the last).
    pub fn set(&mut self, pointer: &Pointer, value: &Self) -> Result<(), JsonFault> {
        match self.find(pointer) {
            FoundValue::Value(range) => self.text.replace_range(range, value.text.trim()),
            FoundValue::Room { parent, last, name } => {
                let name = name.map(|name| format!("{}:", serde_json::Value::String(name)));
                let comma = if last.is_some() { "," } else { "" };
                let new = format!("{comma}{}{}", name.unwrap_or_default(), value.text.trim());
                self.text.insert_str(last.unwrap_or(parent.start + 1), &new);
            }
            FoundValue::Nowhere => return Err(self.no_place(pointer)),
        }
        Ok(())
    }

    /// Why nothing can be set at a pointer.
    fn no_place(&self, pointer: &Pointer) -> JsonFault {
        let parents = pointer.tokens.split_last().map_or(&[][..], |(_, parents)| parents);
        let parent = Pointer { tokens: parents.to_vec() };
        match self.find(&parent) {
            FoundValue::Value(_) => JsonFault::NoPlace(pointer.clone()),
            FoundValue::Room { .. } | FoundValue::Nowhere => JsonFault::Missing(parent),
        }
    }

    /// Replaces every value that a reader might find at a pointer, since a name may occur repeatedly in an object.
    /// Returns the old values.
    pub fn replace_each(&mut self, pointer: &Pointer, value: &Self) -> Vec<Self> {
        let mut places = vec![self.value_at(0)];
        for token in &pointer.tokens {
            let parts = places.iter().flat_map(|place| self.parts(place));
            places = parts.filter(|part| part.name == *token).map(|part| part.value).collect();
        }
        let replaced =
            places.iter().map(|place| Self { text: self.text[place.clone()].to_owned() }).collect();
        for place in places.into_iter().rev() {
            self.text.replace_range(place, value.text.trim());
        }
        replaced
    }

    /// All values that are neither object nor array, as spelled in the text.
    pub fn scalars(&self) -> impl Iterator<Item = &str> {
        scalars(&self.text).into_iter().map(|range| &self.text[range])
    }

    /// The names of all fields, at every depth.
    pub fn names(&self) -> impl Iterator<Item = String> {
        let names = names(&self.text).into_iter();
        names.filter_map(|range| serde_json::from_str(&self.text[range]).ok())
    }

    /// Replaces values that are neither object nor array by what `with` returns for them, if anything.
    pub fn replace_scalars(&mut self, with: impl Fn(&str) -> Option<Self>) {
        let mut changed = String::with_capacity(self.text.len());
        let mut copied = 0;
        for range in scalars(&self.text) {
            if let Some(new) = with(&self.text[range.clone()]) {
                changed.push_str(&self.text[copied..range.start]);
                changed.push_str(new.text.trim());
                copied = range.end;
            }
        }
        changed.push_str(&self.text[copied..]);
        self.text = changed;
    }

    /// A text as a JSON string.
    pub fn string(text: &str) -> Self {
        Self { text: serde_json::Value::from(text).to_string() }
    }

    /// Removes the value at a pointer, if there is one.
    pub fn unset(&mut self, pointer: &Pointer) -> Result<(), JsonFault> {
        let Some((token, parents)) = pointer.tokens.split_last() else {
            return Err(JsonFault::NoPlace(pointer.clone()));
        };
        // A name may occur repeatedly in an object, and readers differ in which one they take, so remove them all.
        loop {
            let FoundValue::Value(parent) = self.find(&Pointer { tokens: parents.to_vec() }) else {
                return Ok(());
            };
            let parts = self.parts(&parent);
            let Some(at) = parts.iter().position(|part| part.name == *token) else { return Ok(()) };
            let gone = match (at.checked_sub(1).map(|before| &parts[before]), parts.get(at + 1)) {
                (_, Some(next)) => parts[at].start..next.start,
                (Some(before), None) => before.value.end..parts[at].value.end,
                (None, None) => parts[at].start..parts[at].value.end,
            };
            let is_item = self.text.as_bytes()[parent.start] == b'[';
            self.text.replace_range(gone, "");
            if is_item {
                return Ok(());
            }
        }
    }

    /// At most `max` values that contain no other values, with their pointers, in order.
    pub(super) fn leaves(&self, max: usize) -> Vec<(Pointer, &str)> {
        let mut leaves = Vec::new();
        let mut waiting = vec![(Pointer::ROOT, self.value_at(0))];
        while let Some((pointer, range)) = waiting.pop() {
            if leaves.len() == max {
                break;
            }
            let parts = self.parts(&range);
            if parts.is_empty() {
                leaves.push((pointer, &self.text[range]));
                continue;
            }
            waiting.extend(parts.into_iter().rev().map(|part| (pointer.child(part.name), part.value)));
        }
        leaves
    }

    fn find(&self, pointer: &Pointer) -> FoundValue {
        let mut value = self.value_at(0);
        for (depth, token) in pointer.tokens.iter().enumerate() {
            let parts = self.parts(&value);
            // Of fields with the same name, most readers take the last one.
            if let Some(part) = parts.iter().rfind(|part| part.name == *token) {
                value = part.value.clone();
                continue;
            }
            let is_last = depth + 1 == pointer.tokens.len();
            let last = parts.last().map(|part| part.value.end);
            return match self.text.as_bytes()[value.start] {
                b'{' if is_last => FoundValue::Room { parent: value, last, name: Some(token.clone()) },
                b'[' if is_last && (token == "-" || *token == parts.len().to_string()) => {
                    FoundValue::Room { parent: value, last, name: None }
                }
                _ => FoundValue::Nowhere,
            };
        }
        FoundValue::Value(value)
    }

    /// The fields or items of the value in this range; empty for any other value.
    fn parts(&self, range: &Range<usize>) -> Vec<TextPart> {
        let bytes = self.text.as_bytes();
        let is_object = bytes[range.start] == b'{';
        if !is_object && bytes[range.start] != b'[' {
            return Vec::new();
        }
        let mut parts = Vec::new();
        let mut at = self.skip_space(range.start + 1);
        while at < range.end - 1 {
            let start = at;
            let name = if is_object {
                let name = self.value_at(at);
                at = self.skip_space(name.end) + 1;
                serde_json::from_str(&self.text[name]).unwrap_or_default()
            } else {
                parts.len().to_string()
            };
            let value = self.value_at(at);
            at = self.skip_space(value.end);
            parts.push(TextPart { start, name, value });
            if bytes[at] == b',' {
                at = self.skip_space(at + 1);
            }
        }
        parts
    }

    fn skip_space(&self, at: usize) -> usize {
        let space = |byte: &&u8| matches!(byte, b' ' | b'\t' | b'\n' | b'\r');
        at + self.text.as_bytes()[at..].iter().take_while(space).count()
    }

    /// The range of the next value from `at` on.
    fn value_at(&self, at: usize) -> Range<usize> {
        let bytes = self.text.as_bytes();
        let start = self.skip_space(at);
        let mut depth = 0_usize;
        let mut at = start;
        loop {
            match bytes[at] {
                b'"' => at = end_of_string(bytes, at),
                b'{' | b'[' => {
                    depth += 1;
                    at += 1;
                }
                b'}' | b']' => {
                    depth -= 1;
                    at += 1;
                }
                b',' | b':' | b' ' | b'\t' | b'\n' | b'\r' => at += 1,
                _ => at = end_of_word(bytes, at),
            }
            if depth == 0 {
                return start..at;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::Value;

    use super::*;

    fn json(text: &str) -> JsonText {
        JsonText::parse(text.as_bytes()).unwrap()
    }

    fn at(pointer: &str) -> Pointer {
        Pointer::parse(pointer).unwrap()
    }

    fn set(text: &str, pointer: &str, value: &str) -> Result<String, JsonFault> {
        let mut changed = json(text);
        changed.set(&at(pointer), &json(value)).map(|()| changed.into_string())
    }

    fn unset(text: &str, pointer: &str) -> String {
        let mut changed = json(text);
        changed.unset(&at(pointer)).unwrap();
        changed.into_string()
    }

    #[test]
    fn only_the_value_changes_and_all_else_stays_as_it_was_written() {
        let order = r#"{ "id" : 18446744073709551617, "amount":19.990, "currency":"eur","tags":[ 1,"a" ] }"#;
        assert_eq!(
            set(order, "/currency", "\"EUR\"").unwrap(),
            r#"{ "id" : 18446744073709551617, "amount":19.990, "currency":"EUR","tags":[ 1,"a" ] }"#
        );
        assert_eq!(set(order, "/tags/1", "null").unwrap(), order.replace("\"a\"", "null"));
        assert_eq!(set(order, "/tags/-", "2").unwrap(), order.replace("\"a\" ]", "\"a\",2 ]"));
        assert_eq!(set(order, "/vat", "0.19").unwrap(), order.replace(" ] }", " ],\"vat\":0.19 }"));
        assert_eq!(set("{}", "/a", "1").unwrap(), "{\"a\":1}");
        assert_eq!(set(" [ ]", "/0", "1").unwrap(), " [1 ]");
        assert_eq!(set("1", "", "{}").unwrap(), "{}");
        assert_eq!(unset(order, "/currency"), order.replace("\"currency\":\"eur\",", ""));
        assert_eq!(unset(order, "/tags"), order.replace(",\"tags\":[ 1,\"a\" ]", ""));
        assert_eq!(unset(order, "/nothing/here"), order);
        assert_eq!(unset(r#"{"a":[1,2,3]}"#, "/a/1"), r#"{"a":[1,3]}"#);
        assert_eq!(unset(r#"{"a":1}"#, "/a"), "{}");
    }

    #[test]
    fn a_name_that_stands_twice_is_changed_where_readers_look_and_removed_everywhere() {
        let twice = r#"{"a":1,"b":2,"a":3}"#;
        assert_eq!(json(twice).get(&at("/a")), Some("3"));
        assert_eq!(set(twice, "/a", "4").unwrap(), r#"{"a":1,"b":2,"a":4}"#);
        assert_eq!(unset(twice, "/a"), r#"{"b":2}"#);
    }

    #[test]
    fn names_with_signs_in_them_are_found() {
        let odd = r#"{"a/b":{"m~n":"}],\"x"},"\u00e9":1}"#;
        assert_eq!(json(odd).get(&at("/a~1b/m~0n")), Some(r#""}],\"x""#));
        assert_eq!(json(odd).get(&at("/é")), Some("1"));
        assert_eq!(at("/a~1b/m~0n").to_string(), "/a~1b/m~0n");
        assert!(Pointer::parse("currency").is_none() && Pointer::parse("/a~2").is_none());
    }

    #[test]
    fn a_value_without_a_place_is_refused() {
        let refused = set("{}", "/lines/-", "1").unwrap_err();
        assert_eq!(refused.to_string(), "/lines does not exist in the payload");
        for pointer in ["/list/5", "/list/x", "/n/x"] {
            let refused = set(r#"{"list":[1],"n":1}"#, pointer, "1");
            assert_eq!(refused, Err(JsonFault::NoPlace(at(pointer))), "{pointer}");
        }
        assert!(matches!(JsonText::parse(b"plain"), Err(JsonFault::NotJson(_))));
        assert!(matches!(JsonText::parse(b"\xff"), Err(JsonFault::NotJson(_))));
        assert!(matches!(JsonText::parse(b""), Err(JsonFault::NotJson(_))));
    }

    fn value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            "[ -~é\"\\\\{},:]{0,8}".prop_map(Value::from),
        ];
        leaf.prop_recursive(3, 24, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::btree_map("[a-c/~\"]{1,2}", inner, 0..4)
                    .prop_map(|fields| Value::Object(fields.into_iter().collect())),
            ]
        })
    }

    proptest! {
        /// The text and the value stay equal through a change, compact or not.
        #[test]
        fn text_and_value_change_alike(document in value(), new in value(), pick in any::<prop::sample::Index>(), pretty: bool) {
            let text = if pretty { serde_json::to_string_pretty(&document).unwrap() } else { document.to_string() };
            let mut text = json(&text);
            let leaves: Vec<Pointer> = text.leaves(99).into_iter().map(|(pointer, _)| pointer).collect();
            let pointer = leaves[pick.index(leaves.len())].clone();
            let found: Value = serde_json::from_str(text.get(&pointer).unwrap()).unwrap();
            prop_assert_eq!(Some(&found), document.pointer(&pointer.to_string()));
            let mut changed = document.clone();
            *changed.pointer_mut(&pointer.to_string()).unwrap() = new.clone();
            text.set(&pointer, &json(&new.to_string())).unwrap();
            prop_assert_eq!(serde_json::from_str::<Value>(text.as_str()).unwrap(), changed);
            if !pointer.is_root() {
                text.unset(&pointer).unwrap();
                prop_assert!(serde_json::from_str::<Value>(text.as_str()).is_ok(), "{}", text.as_str());
            }
        }
    }
}
