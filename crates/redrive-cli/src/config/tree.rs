//! The settings as given, each with its location: in the file, a flag or a variable.
//!
//! Files, flags and the environment all use this form, so that one validator handles one kind of value.

use std::ops::Range;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// Where a value was given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum At {
    /// A byte range of the file.
    File(Range<usize>),
    /// `--tiers`
    Flag(&'static str),
    /// `REDRIVE_DIR`
    Variable(&'static str),
}

/// The name of a whole number beyond 64 bits.
pub const HUGE: &str = "a huge number";

#[derive(Clone, Debug, PartialEq)]
pub enum Data {
    Text(String),
    Whole(i64),
    Number(f64),
    Switch(bool),
    List(Vec<Node>),
    Table(TreeTable),
    /// Values that no key takes: dates, and numbers beyond 64 bits.
    Other(&'static str),
}

#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    pub data: Data,
    pub at: At,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct TreeTable {
    pub entries: Vec<TreeEntry>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct TreeEntry {
    pub key: String,
    pub key_at: At,
    pub node: Node,
}

impl TreeTable {
    /// Converts a parsed file, in the order of the file.
    pub fn of_file(table: &DeTable<'_>) -> Self {
        let mut entries: Vec<TreeEntry> = table
            .iter()
            .map(|(key, value)| TreeEntry {
                key: key.get_ref().to_string(),
                key_at: At::File(key.span()),
                node: Node::of_file(value),
            })
            .collect();
        entries.sort_by_key(|entry| match &entry.key_at {
            At::File(span) => span.start,
            At::Flag(_) | At::Variable(_) => usize::MAX,
        });
        Self { entries }
    }

    pub fn get(&self, key: &str) -> Option<&TreeEntry> {
        self.entries.iter().find(|entry| entry.key == key)
    }

    /// Sets the value of a key, replacing any earlier one.
    pub fn set(&mut self, key: &str, data: Data, at: At) {
        let entry = TreeEntry { key: key.to_owned(), key_at: at.clone(), node: Node { data, at } };
        match self.entries.iter_mut().find(|entry| entry.key == key) {
            Some(found) => *found = entry,
            None => self.entries.push(entry),
        }
    }

    pub fn remove(&mut self, key: &str) {
        self.entries.retain(|entry| entry.key != key);
    }

    /// The table under a key, created if missing. `None` if the key holds something else.
    pub fn table_mut(&mut self, key: &str, at: At) -> Option<&mut Self> {
        if self.get(key).is_none() {
            self.set(key, Data::Table(Self::default()), at);
        }
        let entry = self.entries.iter_mut().find(|entry| entry.key == key)?;
        match &mut entry.node.data {
            Data::Table(table) => Some(table),
            _ => None,
        }
    }
}

impl Node {
    fn of_file(value: &Spanned<DeValue<'_>>) -> Self {
        let data = match value.get_ref() {
            DeValue::String(text) => Data::Text(text.to_string()),
            DeValue::Integer(number) => {
                let digits = number.as_str().replace('_', "");
                i64::from_str_radix(&digits, number.radix()).map_or(Data::Other(HUGE), Data::Whole)
            }
            DeValue::Float(number) => number
                .as_str()
                .replace('_', "")
                .parse()
                .map_or(Data::Other("a number that cannot be read"), Data::Number),
            DeValue::Boolean(on) => Data::Switch(*on),
            DeValue::Datetime(_) => Data::Other("a date"),
            DeValue::Array(items) => Data::List(items.iter().map(Self::of_file).collect()),
            DeValue::Table(table) => Data::Table(TreeTable::of_file(table)),
        };
        Self { data, at: At::File(value.span()) }
    }

    /// The kind with its article, for "`key` must be …, not …".
    pub fn kind(&self) -> &'static str {
        match &self.data {
            Data::Text(_) => "a text",
            Data::Whole(_) => "a whole number",
            Data::Number(_) => "a number",
            Data::Switch(_) => "true or false",
            Data::List(_) => "a list",
            Data::Table(_) => "a table",
            Data::Other(kind) => kind,
        }
    }
}
