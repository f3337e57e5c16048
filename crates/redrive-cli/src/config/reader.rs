//! Reads typed values from a table, and collects all faults.

use std::time::Duration;

use redrive_core::policy::Word;
use redrive_core::{Pick, Ratio, duration};

use super::declared::Form;
use super::example;
use super::fault::Fault;
use super::keys::Keys;
use super::named::Named;
use super::tree::{At, Data, HUGE, Node, TreeEntry, TreeTable};

/// A value and its location.
#[derive(Clone, Debug, PartialEq)]
pub struct Set<T> {
    pub value: T,
    pub at: At,
}

/// One table of the settings with its path, and the part of the configuration it belongs to.
#[derive(Clone, Debug)]
pub struct Section<'t> {
    pub table: &'t TreeTable,
    pub path: String,
    /// The prefix of keys in messages: `backoff.` for the keys of `backoff`.
    prefix: String,
    part: Option<String>,
    keys: &'static Keys,
}

/// Collects faults while sections are read.
#[derive(Debug)]
pub struct SettingReader {
    keys: &'static Keys,
    pub faults: Vec<Fault>,
    /// Checks outside the text, to run later.
    pub(super) named: Vec<Named>,
}

impl<'t> Section<'t> {
    pub fn top(table: &'t TreeTable, keys: &'static Keys) -> Self {
        Self { table, path: String::new(), prefix: String::new(), part: None, keys }
    }

    /// The same table under another path, for a table that was not given.
    #[must_use]
    pub fn at_path(mut self, path: &str) -> Self {
        path.clone_into(&mut self.path);
        self
    }

    /// The same table as the start of a separate part: its keys are named without a prefix.
    #[must_use]
    pub fn part(mut self, part: impl Into<String>) -> Self {
        self.part = Some(part.into());
        self.prefix = String::new();
        self
    }

    pub fn part_name(&self) -> Option<&str> {
        self.part.as_deref()
    }

    pub fn get(&self, key: &str) -> Option<&'t TreeEntry> {
        self.table.get(key)
    }

    /// Where a key was given.
    pub fn at(&self, key: &str) -> Option<At> {
        self.get(key).map(|entry| entry.key_at.clone())
    }

    /// The name of a key in messages.
    pub fn name(&self, key: &str) -> String {
        format!("{}{key}", self.prefix)
    }

    /// The path of a key in the file.
    pub(super) fn path_of(&self, key: &str) -> String {
        if self.path.is_empty() { key.to_owned() } else { format!("{}.{key}", self.path) }
    }

    /// An example line for a key.
    pub(super) fn example(&self, key: &str) -> Option<String> {
        example::example(self.keys, &self.path_of(key), &self.name(key))
    }

    fn below(&self, key: &str, table: &'t TreeTable) -> Self {
        let path = self.path_of(key);
        Self {
            table,
            path,
            prefix: format!("{}{key}.", self.prefix),
            part: self.part.clone(),
            keys: self.keys,
        }
    }
}

impl SettingReader {
    pub fn new(keys: &'static Keys) -> Self {
        Self { keys, faults: Vec::new(), named: Vec::new() }
    }

    pub fn fault(&mut self, section: &Section<'_>, fault: Fault) {
        self.faults.push(fault.of(section.part_name()));
    }

    /// Reports every key that the table does not take.
    pub fn unknown_keys(&mut self, section: &Section<'_>) {
        let Some(known) = self.keys.of(&section.path) else { return };
        for entry in &section.table.entries {
            if known.contains(&entry.key.as_str()) {
                continue;
            }
            let key = &entry.key;
            let name = section.name(key);
            let fault = if let Some(fault) = secret_in_file(&section.path, key, &entry.key_at) {
                fault
            } else if let Some(meant) = self.keys.meant(&section.path, key) {
                let problem = format!("unknown key `{name}`; did you mean `{}`?", section.name(&meant));
                Fault::line(name, problem, "", vec![entry.key_at.clone()])
            } else if let Some(table) = self.keys.elsewhere(&section.path, key) {
                let problem = format!("unknown key `{name}`; `{key}` belongs into [{table}]");
                Fault::line(name, problem, "", vec![entry.key_at.clone()])
            } else {
                let problem = format!("unknown key `{name}`; there are {}", known.join(", "));
                Fault::line(name, problem, "", vec![entry.key_at.clone()])
            };
            self.fault(section, fault);
        }
    }

    pub fn text(&mut self, section: &Section<'_>, key: &str) -> Option<Set<String>> {
        let entry = section.get(key)?;
        match &entry.node.data {
            Data::Text(text) => Some(Set { value: text.clone(), at: entry.node.at.clone() }),
            _ => self.wrong_kind(section, entry, "a text in quotes"),
        }
    }

    pub fn switch(&mut self, section: &Section<'_>, key: &str) -> Option<Set<bool>> {
        let entry = section.get(key)?;
        match &entry.node.data {
            Data::Switch(on) => Some(Set { value: *on, at: entry.node.at.clone() }),
            _ => self.wrong_kind(section, entry, "true or false"),
        }
    }

    /// Reads a whole number within the declared bounds.
    pub fn whole(&mut self, section: &Section<'_>, key: &str) -> Option<Set<u64>> {
        let entry = section.get(key)?;
        let declared = self.keys.form(&section.path_of(key)).and_then(Form::bounds);
        debug_assert!(declared.is_some(), "`{}` is not declared as a whole number", section.path_of(key));
        let (min, max) = declared.unwrap_or((0, u64::MAX));
        let bounds = min..=max;
        let number = match entry.node.data {
            Data::Whole(number) => number,
            Data::Other(HUGE) => i64::MAX,
            Data::Text(ref text) => {
                let meant = whole_of(text).filter(|number| bounds.contains(number));
                return self.wrong_kind_for(section, entry, "a whole number", meant.map(|n| n.to_string()));
            }
            _ => return self.wrong_kind(section, entry, "a whole number"),
        };
        let value = u64::try_from(number).ok().filter(|value| bounds.contains(value));
        if let (Some(value), Data::Whole(_)) = (value, &entry.node.data) {
            return Some(Set { value, at: entry.node.at.clone() });
        }
        let name = section.name(key);
        let too_small = u64::try_from(number).is_ok_and(|number| number < min) || number < 0;
        let fix = format!("{name} = {}", if too_small { min } else { max });
        let given =
            if matches!(entry.node.data, Data::Whole(_)) { format!(" = {number}") } else { String::new() };
        let problem = format!("`{name}{given}` must lie between {min} and {max}");
        self.fault(section, Fault::value(name, problem, fix, entry.node.at.clone()));
        None
    }

    /// The same for a 32-bit number.
    pub fn count(&mut self, section: &Section<'_>, key: &str) -> Option<u32> {
        self.whole(section, key).and_then(|set| u32::try_from(set.value).ok())
    }

    pub fn number(&mut self, section: &Section<'_>, key: &str) -> Option<Set<f64>> {
        let entry = section.get(key)?;
        let value = match entry.node.data {
            Data::Number(number) => number,
            Data::Whole(number) => number as f64,
            _ => return self.wrong_kind(section, entry, "a number"),
        };
        Some(Set { value, at: entry.node.at.clone() })
    }

    pub fn duration(&mut self, section: &Section<'_>, key: &str) -> Option<Set<Duration>> {
        let set = self.word(section, key, duration::parse)?;
        let declared = self.keys.form(&section.path_of(key)).and_then(Form::span);
        debug_assert!(declared.is_some(), "`{}` is not declared as a duration", section.path_of(key));
        let nearest = declared.map_or(set.value, |(min, max)| set.value.clamp(min, max));
        if nearest == set.value {
            return Some(set);
        }
        let (name, least) = (section.name(key), if nearest > set.value { "at least" } else { "at most" });
        let bound = duration::print(nearest);
        let problem = format!("`{name} = \"{}\"` must be {least} {bound}", duration::print(set.value));
        self.fault(section, Fault::value(&name, problem, format!("{name} = \"{bound}\""), set.at));
        None
    }

    /// Reads a duration, or the word that stands for none.
    pub fn duration_or_off(&mut self, section: &Section<'_>, key: &str) -> Option<Set<Option<Duration>>> {
        let entry = section.get(key)?;
        let off = match self.keys.form(&section.path_of(key)) {
            Some(Form::SpanOr(_, _, off)) => off,
            _ => "",
        };
        if matches!(&entry.node.data, Data::Text(text) if text == off) {
            return Some(Set { value: None, at: entry.node.at.clone() });
        }
        let Some(set) = self.duration(section, key) else {
            let off = format!("{} = \"{off}\"", section.name(key));
            let fault = self.faults.last_mut().filter(|fault| fault.fix != off)?;
            fault.fix = format!("{}, or {off}", fault.fix);
            return None;
        };
        Some(Set { value: Some(set.value), at: set.at })
    }

    pub fn share(&mut self, section: &Section<'_>, key: &str) -> Option<Set<Ratio>> {
        let whole = Ratio::percent(100).basis_points();
        let at_most_whole =
            |text: &str| text.parse::<Ratio>().ok().filter(|share| share.basis_points() <= whole);
        self.word(section, key, |text| at_most_whole(text).ok_or(()))
    }

    /// Reads the location of a value in a message.
    pub fn pick(&mut self, section: &Section<'_>, key: &str) -> Option<Pick> {
        let set = self.text(section, key)?;
        let pick = set.value.parse();
        if pick.is_err() {
            let name = section.name(key);
            let problem = format!("`{name} = \"{}\"` is not a valid location in a message", set.value);
            // Not every key takes both kinds; the example in the default file is of a valid kind.
            let fix = section.example(key);
            let fix = fix.unwrap_or_else(|| "write it like json:/order_id or header:x-tenant".to_owned());
            self.fault(section, Fault::value(name, problem, fix, set.at));
        }
        pick.ok()
    }

    fn word<T: Word, E>(
        &mut self,
        section: &Section<'_>,
        key: &str,
        parse: impl Fn(&str) -> Result<T, E>,
    ) -> Option<Set<T>> {
        let set = self.text(section, key)?;
        if let Ok(value) = parse(&set.value) {
            return Some(Set { value, at: set.at });
        }
        let name = section.name(key);
        let problem = format!("`{name} = \"{}\"` is not {}", set.value, T::KIND);
        let words = format!("write it like {}", T::ACCEPTED);
        let fault = match section.example(key) {
            Some(example) => Fault::value(name, problem, example, set.at).note(words),
            None => Fault::value(name, problem, words, set.at),
        };
        self.fault(section, fault);
        None
    }

    /// Reads one of a few words.
    pub fn one_of<T: Copy>(
        &mut self,
        section: &Section<'_>,
        key: &str,
        words: &[(&str, T)],
    ) -> Option<Set<T>> {
        let set = self.text(section, key)?;
        let names: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
        let path = section.path_of(key);
        debug_assert_eq!(self.keys.form(&path).and_then(Form::words), Some(names.clone()), "{path}");
        if let Some((_, value)) = words.iter().find(|(word, _)| *word == set.value) {
            return Some(Set { value: *value, at: set.at });
        }
        let name = section.name(key);
        let near = redrive_core::nearest::nearest(&set.value, names.iter().copied());
        let problem = format!("`{name} = \"{}\"` is not one of {}", set.value, names.join(", "));
        let fix = format!("{name} = \"{}\"", near.unwrap_or(names[0]));
        self.fault(section, Fault::value(name, problem, fix, set.at));
        None
    }

    pub fn texts(&mut self, section: &Section<'_>, key: &str) -> Option<Set<Vec<Set<String>>>> {
        let entry = section.get(key)?;
        let Data::List(items) = &entry.node.data else {
            return self.wrong_kind(section, entry, "a list of texts");
        };
        let mut value = Vec::new();
        let mut right = true;
        for item in items {
            match &item.data {
                Data::Text(text) => value.push(Set { value: text.clone(), at: item.at.clone() }),
                _ => right = self.wrong_item(section, key, item),
            }
        }
        right.then_some(Set { value, at: entry.node.at.clone() })
    }

    fn wrong_item(&mut self, section: &Section<'_>, key: &str, item: &Node) -> bool {
        let name = section.name(key);
        let problem = format!("`{name}` must be a list of texts");
        let note = format!("this is {}", item.kind());
        let fix =
            example::with_unit(self.keys, &section.path, key, &item.data).or_else(|| section.example(key));
        let fix = fix.unwrap_or_else(|| "put it in quotes".to_owned());
        let fault = Fault::value(&name, problem, fix, item.at.clone()).note(note);
        self.fault(section, fault);
        false
    }

    pub fn table<'t>(&mut self, section: &Section<'t>, key: &str) -> Option<Section<'t>> {
        let entry = section.get(key)?;
        match &entry.node.data {
            Data::Table(table) => Some(section.below(key, table)),
            _ => self.wrong_kind(section, entry, "a table"),
        }
    }

    /// `[[key]]`: the tables in the order of the file, each with its location.
    pub fn tables<'t>(&mut self, section: &Section<'t>, key: &str) -> Vec<(Section<'t>, At)> {
        let Some(entry) = section.get(key) else { return Vec::new() };
        let Data::List(items) = &entry.node.data else {
            let name = section.name(key);
            let path = section.path_of(key);
            let problem = format!("`{name}` must be written [[{path}]], it may be there several times");
            let fault = Fault::line(&name, problem, format!("write [[{path}]]"), vec![entry.key_at.clone()]);
            self.fault(section, fault);
            return Vec::new();
        };
        let mut tables = Vec::new();
        for item in items {
            if let Data::Table(table) = &item.data {
                tables.push((section.below(key, table), item.at.clone()));
            } else {
                let name = section.name(key);
                let problem = format!("`{name}` must hold tables, this is {}", item.kind());
                let fix = format!("write [[{}]]", section.path_of(key));
                let fault = Fault::line(&name, problem, fix, vec![item.at.clone()]);
                self.fault(section, fault);
            }
        }
        tables
    }

    fn wrong_kind<T>(&mut self, section: &Section<'_>, entry: &TreeEntry, wanted: &str) -> Option<T> {
        let meant = match (&entry.node.data, wanted) {
            (Data::Text(text), "true or false") => {
                [("true", "true"), ("on", "true"), ("false", "false"), ("off", "false")]
                    .into_iter()
                    .find_map(|(word, meant)| (word == text).then(|| meant.to_owned()))
            }
            (Data::Switch(false), "a text in quotes") => example::off(self.keys, &section.path, &entry.key),
            (data, "a text in quotes") => example::with_unit(self.keys, &section.path, &entry.key, data),
            _ => None,
        };
        self.wrong_kind_for(section, entry, wanted, meant)
    }

    /// The same if the intended value is known.
    fn wrong_kind_for<T>(
        &mut self,
        section: &Section<'_>,
        entry: &TreeEntry,
        wanted: &str,
        meant: Option<String>,
    ) -> Option<T> {
        let name = section.name(&entry.key);
        let problem = format!("`{name}` must be {wanted}, not {}", entry.node.kind());
        let fix = match meant {
            Some(meant) => format!("{name} = {meant}"),
            None => section.example(&entry.key).unwrap_or_else(|| format!("make it {wanted}")),
        };
        self.fault(section, Fault::value(name, problem, fix, entry.node.at.clone()));
        None
    }
}

/// Reports a secret in place of a file name: a spelling hint would not help.
fn secret_in_file(path: &str, key: &str, at: &At) -> Option<Fault> {
    let secret = (path == "server.token" && ["secret", "token", "password", "value"].contains(&key))
        || (path == "server" && ["token_secret", "secret", "password"].contains(&key));
    secret.then(|| {
        let problem = format!("`{key}` would put a secret into the configuration; name a file that holds it");
        Fault::line(key, problem, "secret_file = \"/etc/redrive/token\"", vec![at.clone()])
    })
}

/// The number that a text means: `1k` is 1000, and so are `1,000` and `1_000`.
fn whole_of(text: &str) -> Option<u64> {
    let text = text.trim().replace(['_', ','], "");
    let (digits, unit) = match text.strip_suffix(['k', 'K']) {
        Some(digits) => (digits, 1_000),
        None => text.strip_suffix(['m', 'M']).map_or((text.as_str(), 1), |digits| (digits, 1_000_000)),
    };
    digits.parse::<u64>().ok().filter(|number| *number > 0)?.checked_mul(unit)
}
