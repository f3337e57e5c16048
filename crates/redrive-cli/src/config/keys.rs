//! Every declared key, by table. The parser reads no other.

use redrive_core::nearest::nearest;

use super::declared::{AFTER_SINKS, BEFORE_SINKS, Form, Setting, SettingTable};

/// Names that other systems use for the same settings.
const FOREIGN: &[(&str, &str)] = &[
    ("max_retries", "retries"),
    ("max_retry", "retries"),
    ("retry", "retries"),
    ("retry_count", "retries"),
    ("max_attempts", "attempts"),
    ("delays", "tiers"),
    ("retry_delays", "tiers"),
    ("backoff_base", "backoff"),
    ("backoff_cap", "backoff"),
    ("max_delay", "backoff"),
    ("workers", "concurrency"),
    ("parallelism", "concurrency"),
    ("max_in_flight", "concurrency"),
    ("time_to_live", "ttl"),
    ("expiry", "ttl"),
    ("order", "ordering"),
    ("path", "dir"),
    ("directory", "dir"),
    ("data_dir", "dir"),
    ("type", "kind"),
    ("address", "listen"),
    ("bind", "listen"),
    ("bootstrap_servers", "brokers"),
    ("group_id", "group"),
    ("topic", "source"),
    ("dedupe", "dedup"),
    ("target", "url"),
];

/// All tables: those of the configuration itself, and those that the sinks declare.
#[derive(Debug)]
pub struct Keys {
    declared: Vec<SettingTable>,
    tables: Vec<TableKeys>,
}

/// One table and its keys: settings and subtables.
#[derive(Debug)]
pub struct TableKeys {
    pub path: &'static str,
    pub keys: Vec<&'static str>,
}

impl Keys {
    /// All keys, including the tables that the sinks declare.
    pub(super) fn with_sinks(sinks: impl Iterator<Item = SettingTable>) -> Self {
        let own = |tables: &[&[SettingTable]]| tables.concat();
        let declared: Vec<SettingTable> =
            own(BEFORE_SINKS).into_iter().chain(sinks).chain(own(AFTER_SINKS)).collect();
        let mut keys = Self { declared: Vec::new(), tables: vec![TableKeys { path: "", keys: Vec::new() }] };
        for table in declared.iter().filter(|table| !table.header.is_open()) {
            keys.add(table.path);
            for setting in table.settings {
                keys.add_key(table.path, setting.key);
            }
        }
        for table in &declared {
            keys.add_to_parent(table.path);
        }
        Self { declared, ..keys }
    }

    fn add(&mut self, path: &'static str) {
        if self.of(path).is_none() {
            self.tables.push(TableKeys { path, keys: Vec::new() });
        }
    }

    fn add_key(&mut self, path: &'static str, key: &'static str) {
        let table = self.tables.iter_mut().find(|table| table.path == path);
        if let Some(table) = table.filter(|table| !table.keys.contains(&key)) {
            table.keys.push(key);
        }
    }

    /// A table is a key of its parent, which may have no header of its own.
    fn add_to_parent(&mut self, path: &'static str) {
        if path.is_empty() {
            return;
        }
        let (parent, key) = path.rsplit_once('.').unwrap_or(("", path));
        self.add(parent);
        self.add_key(parent, key);
        self.add_to_parent(parent);
    }

    /// The tables as they are declared, in the order of the default file.
    pub fn declared(&self) -> &[SettingTable] {
        &self.declared
    }

    pub fn tables(&self) -> &[TableKeys] {
        &self.tables
    }

    /// The keys of a table; `None` if it does not exist.
    pub fn of(&self, path: &str) -> Option<&[&'static str]> {
        self.tables.iter().find(|table| table.path == path).map(|table| table.keys.as_slice())
    }

    /// The declaration of a setting.
    pub(super) fn setting(&self, path: &str, key: &str) -> Option<&'static Setting> {
        let table = self.declared.iter().find(|table| table.path == path)?;
        table.settings.iter().find(|setting| setting.key == key)
    }

    /// The form of the value at a path; for a key of an open table, the form of its values.
    pub(super) fn form(&self, path: &str) -> Option<Form> {
        let (table, key) = path.rsplit_once('.')?;
        if let Some(setting) = self.setting(table, key) {
            return Some(setting.form);
        }
        let (above, open) = table.rsplit_once('.')?;
        match self.setting(above, open)?.form {
            Form::Open(of) => Some(*of),
            _ => None,
        }
    }

    /// The key that was probably meant by `key` in the table `path`, as written there.
    pub fn meant(&self, path: &str, key: &str) -> Option<String> {
        let here = self.of(path)?;
        let lower = key.to_ascii_lowercase().replace('-', "_");
        if let Some(same) = here.iter().find(|name| **name == lower) {
            return Some((*same).to_owned());
        }
        if let Some((_, ours)) =
            FOREIGN.iter().find(|(foreign, ours)| *foreign == lower && here.contains(ours))
        {
            return Some((*ours).to_owned());
        }
        nearest(&lower, here.iter().copied()).map(str::to_owned)
    }

    /// The table that does take a misplaced key: `[server]` for `listen`.
    pub fn elsewhere(&self, path: &str, key: &str) -> Option<&'static str> {
        let mut others = self.tables.iter().filter(|table| table.path != path && table.keys.contains(&key));
        let first = others.next()?;
        // A key that several tables take does not help.
        others.next().is_none().then_some(first.path).filter(|path| !path.is_empty())
    }

    /// Whether a key has a plain value that is never a secret, so that its line may be shown.
    pub fn is_plain(&self, key: &str) -> bool {
        let last = key.rsplit('.').next().unwrap_or(key).trim();
        // A key in several tables counts as secret if it is in any of them, and a table can contain anything.
        let is_table = self.declared.iter().any(|table| table.path.split('.').any(|part| part == last));
        let mut forms = self.declared.iter().flat_map(|table| table.settings).filter(|one| one.key == last);
        let is_known = self.tables.iter().any(|table| table.keys.contains(&last));
        is_known && !is_table && forms.all(|setting| setting.form.is_plain())
    }

    /// Whether a message may show a line of the file. Only a line that sets a single plain key of ours: a line inside a
    /// multi-line text, a table of headers or an unknown key can contain anything.
    pub(super) fn may_be_shown(&self, whole: &str, line: &str) -> bool {
        let Some((key, value)) = line.split_once('=') else {
            return line.trim_start().starts_with('[');
        };
        let key = key.trim();
        let several_lines = whole.contains("\"\"\"") || whole.contains("'''");
        let credentials = value.contains('@');
        self.is_plain(key) && !several_lines && !credentials && !value.contains('{')
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::sinks::registry::KEYS;

    #[test]
    fn every_table_that_is_a_key_of_another_is_listed() {
        for table in KEYS.tables().iter().filter(|table| !table.path.is_empty()) {
            let (parent, key) = table.path.rsplit_once('.').unwrap_or(("", table.path));
            assert!(KEYS.of(parent).is_some_and(|keys| keys.contains(&key)), "{}", table.path);
        }
    }

    #[test]
    fn foreign_words_point_at_ours() {
        for (_, ours) in FOREIGN {
            assert!(KEYS.tables().iter().any(|table| table.keys.contains(ours)), "{ours}");
        }
        assert_eq!(KEYS.meant("pipeline", "max_retry").as_deref(), Some("retries"));
        assert_eq!(KEYS.meant("pipeline", "retrys").as_deref(), Some("retries"));
        assert_eq!(KEYS.meant("pipeline", "Hold-Max").as_deref(), Some("hold_max"));
        assert_eq!(KEYS.meant("pipeline", "xylophone"), None);
        assert_eq!(KEYS.meant("nowhere", "tiers"), None);
        assert_eq!(KEYS.elsewhere("", "listen"), Some("server"));
        assert_eq!(KEYS.elsewhere("", "name"), None, "several tables take it");
    }

    #[test]
    fn only_lines_with_a_plain_key_of_ours_are_shown() {
        let shown = |line: &str| KEYS.may_be_shown(line, line);
        assert!(shown("tiers = [\"30s\", \"5s\"]"));
        assert!(shown("  timeout = 5"));
        assert!(shown("[engine"));
        assert!(!shown("secret = \"hunter2\""));
        assert!(!shown("headers = { authorization = \"Bearer hunter2\" }"));
        assert!(!shown("authorization = \"Bearer hunter2\""));
        assert!(!shown("url = \"https://user:hunter2@example.com\""));
        assert!(!shown("hunter2"));
        assert!(!KEYS.may_be_shown("x = \"\"\"\nmode = hunter2\n\"\"\"", "mode = hunter2"));
    }
}
