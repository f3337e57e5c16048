//! A configuration file as a list of tables with one line per key, so that a printed fix can be applied.

use std::fmt::Write as _;
use std::ops::Range;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Document {
    tables: Vec<Table>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Table {
    path: String,
    /// `[[path]]`
    one_of_many: bool,
    entries: Vec<(String, String)>,
}

impl Document {
    /// Parses a file with one key per line. Inline tables become tables, so that each key can be changed alone.
    pub fn parse(text: &str) -> Self {
        let mut document = Self { tables: vec![Table::new("", false)] };
        let mut path = String::new();
        for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
            if let Some((key, value)) = line.split_once(" = ").filter(|_| !line.starts_with('[')) {
                document.set(&join(&path, key), value);
            } else {
                let one_of_many = line.starts_with("[[");
                line.trim_matches(['[', ']']).clone_into(&mut path);
                document.tables.push(Table::new(&path, one_of_many));
            }
        }
        document
    }

    pub fn text(&self) -> String {
        let mut text = String::new();
        for table in &self.tables {
            let _ = match (table.path.as_str(), table.one_of_many) {
                ("", _) => Ok(()),
                (path, true) => writeln!(text, "[[{path}]]"),
                (path, false) => writeln!(text, "[{path}]"),
            };
            for (key, value) in &table.entries {
                let _ = writeln!(text, "{key} = {value}");
            }
        }
        text
    }

    /// Sets the value under an absolute dotted key, replacing any earlier one.
    pub fn set(&mut self, path: &str, value: &str) {
        if let Some(entries) = inline_table(value) {
            self.remove(path);
            self.table_at(path);
            for (key, value) in entries {
                self.set(&join(path, &key), &value);
            }
            return;
        }
        self.tables.retain(|table| table.path.is_empty() || !is_within(&table.path, path));
        let (table, key) = split_last(path);
        let mut parent = table.clone();
        // Also remove a line that gives a parent table another value.
        while !parent.is_empty() {
            let (above, name) = split_last(&parent);
            if let Some(table) = self.tables.iter_mut().rev().find(|candidate| candidate.path == above) {
                table.entries.retain(|(key, _)| unquoted(key) != unquoted(&name));
            }
            parent = above;
        }
        let table = self.table_at(&table);
        match table.entries.iter_mut().find(|(name, _)| unquoted(name) == unquoted(&key)) {
            Some((_, old)) => value.clone_into(old),
            None => table.entries.push((key, value.to_owned())),
        }
    }

    /// Removes a key, or a table with everything below it.
    pub fn remove(&mut self, path: &str) -> Option<String> {
        self.tables.retain(|table| table.path.is_empty() || !is_within(&table.path, path));
        let (table, key) = split_last(path);
        let table = self.tables.iter_mut().rev().find(|candidate| candidate.path == table)?;
        let at = table.entries.iter().position(|(name, _)| unquoted(name) == unquoted(&key))?;
        Some(table.entries.remove(at).1)
    }

    pub fn rename(&mut self, from: &str, to: &str) {
        if let Some(value) = self.remove(from) {
            self.set(to, &value);
        }
    }

    /// The document with the bytes of a span of [`Document::text`] replaced.
    pub fn replaced(&self, span: &Range<usize>, with: &str) -> Self {
        let mut text = self.text();
        text.replace_range(span.clone(), with);
        Self::parse(&text)
    }

    fn table_at(&mut self, path: &str) -> &mut Table {
        let found = self.tables.iter().rposition(|table| table.path == path);
        let at = found.unwrap_or_else(|| {
            self.tables.push(Table::new(path, ["pipeline", "alert", "server.token"].contains(&path)));
            self.tables.len() - 1
        });
        &mut self.tables[at]
    }
}

impl Table {
    fn new(path: &str, one_of_many: bool) -> Self {
        Self { path: path.to_owned(), one_of_many, entries: Vec::new() }
    }
}

pub fn join(path: &str, key: &str) -> String {
    if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") }
}

fn is_within(path: &str, parent: &str) -> bool {
    path == parent || path.strip_prefix(parent).is_some_and(|rest| rest.starts_with('.'))
}

/// Splits off the last key of a dotted path; a quoted key may contain dots.
fn split_last(path: &str) -> (String, String) {
    let mut quoted = false;
    let mut dot = None;
    for (i, c) in path.char_indices() {
        match c {
            '"' => quoted = !quoted,
            '.' if !quoted => dot = Some(i),
            _ => {}
        }
    }
    match dot {
        Some(dot) => (path[..dot].to_owned(), path[dot + 1..].to_owned()),
        None => (String::new(), path.to_owned()),
    }
}

fn unquoted(key: &str) -> &str {
    key.trim_matches('"')
}

/// The entries of `{ a = 1, b = ["x", "y"] }`.
fn inline_table(value: &str) -> Option<Vec<(String, String)>> {
    let inside = value.strip_prefix('{')?.strip_suffix('}')?.trim();
    let (mut depth, mut quoted, mut from) = (0_i32, false, 0);
    let mut parts = Vec::new();
    for (i, c) in inside.char_indices() {
        match c {
            '"' => quoted = !quoted,
            '[' | '{' if !quoted => depth += 1,
            ']' | '}' if !quoted => depth -= 1,
            ',' if !quoted && depth == 0 => {
                parts.push(&inside[from..i]);
                from = i + 1;
            }
            _ => {}
        }
    }
    parts.push(&inside[from..]);
    let entries = parts.into_iter().filter_map(|part| part.trim().split_once(" = "));
    Some(entries.map(|(key, value)| (key.to_owned(), value.to_owned())).collect())
}
