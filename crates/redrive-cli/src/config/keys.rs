//! Every key there is, by table. The parser reads no key that is not here, and the default file names each.

use redrive_core::nearest::nearest;

/// One table and the keys it takes.
#[derive(Clone, Copy, Debug)]
pub struct TableKeys {
    /// As in the file: `pipeline.sink.webhook`.
    pub path: &'static str,
    pub keys: &'static [&'static str],
}

/// Tables of the configuration itself whose keys are the user's own: header names, statuses, settings of a client library.
const OWN_OPEN: [&str; 3] = ["alert.headers", "engine.kafka", "pipeline.attempts_for"];

/// All tables but those of sinks, which are declared with each sink.
const OWN: &[TableKeys] = &[
    TableKeys { path: "", keys: &["engine", "server", "pipeline", "alert"] },
    TableKeys {
        path: "engine",
        keys: &[
            "kind",
            "dir",
            "scrub",
            "brokers",
            "group",
            "member",
            "start",
            "topics",
            "state_dir",
            "only",
            "kafka",
        ],
    },
    TableKeys { path: "server", keys: &["listen", "reads", "tls_cert_file", "tls_key_file", "token"] },
    TableKeys { path: "server.token", keys: &["name", "scopes", "secret_file"] },
    TableKeys {
        path: "pipeline",
        keys: &[
            "name",
            "source",
            "id",
            "tenant",
            "profile",
            "tiers",
            "backoff",
            "retries",
            "attempts",
            "attempts_for",
            "replay_attempts",
            "jitter",
            "retry_after_jitter",
            "retry_after_max",
            "retry_after_shared_max",
            "ttl",
            "cap_ttl_share",
            "hold_max",
            "ordering",
            "after_dead",
            "classify",
            "mode",
            "concurrency",
            "timeout",
            "max_pending",
            "dedup",
            "outage_gate",
            "budget",
            "breaker",
            "crash",
            "guard",
            "auto_replay",
            "group",
            "log_delivered",
            "sink",
        ],
    },
    TableKeys { path: "pipeline.backoff", keys: &["base", "multiplier", "cap", "fixed"] },
    TableKeys {
        path: "pipeline.budget",
        keys: &["retries_per_minute", "share_of_successes", "on_exhausted"],
    },
    TableKeys {
        path: "pipeline.breaker",
        keys: &["enabled", "fast", "slow", "cooldown", "cooldown_max", "probes"],
    },
    TableKeys { path: "pipeline.breaker.fast", keys: &["window", "failures", "min"] },
    TableKeys { path: "pipeline.breaker.slow", keys: &["window", "failures", "counts", "action"] },
    TableKeys { path: "pipeline.crash", keys: &["threshold", "window"] },
    TableKeys { path: "pipeline.guard", keys: &["share", "over", "times_baseline"] },
    TableKeys { path: "pipeline.auto_replay", keys: &["enabled", "rate", "healthy_for", "age_max"] },
    TableKeys { path: "pipeline.group", keys: &["match", "as"] },
    TableKeys {
        path: "alert",
        keys: &[
            "on",
            "pipelines",
            "webhook",
            "headers",
            "command",
            "every",
            "timeout",
            "dead_letters",
            "within",
            "oldest_letter",
            "queue_depth",
        ],
    },
];

/// Words of other systems for the same thing.
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

/// Every table there is: those of the configuration itself, and those that the sinks declare.
#[derive(Debug)]
pub struct Keys {
    tables: Vec<TableKeys>,
    open_tables: Vec<&'static str>,
}

impl Keys {
    /// With the sinks' names, their tables, and those of them whose keys are the user's own.
    pub fn with_sinks(
        names: &'static [&'static str],
        tables: impl Iterator<Item = TableKeys>,
        open_tables: impl Iterator<Item = &'static str>,
    ) -> Self {
        let sink = TableKeys { path: "pipeline.sink", keys: names };
        Self {
            tables: OWN.iter().copied().chain([sink]).chain(tables).collect(),
            open_tables: OWN_OPEN.into_iter().chain(open_tables).collect(),
        }
    }

    pub fn tables(&self) -> &[TableKeys] {
        &self.tables
    }

    /// Tables whose keys are the user's own.
    pub fn open_tables(&self) -> &[&'static str] {
        &self.open_tables
    }

    /// The keys of a table; `None` for a table there is not.
    pub fn of(&self, path: &str) -> Option<&'static [&'static str]> {
        self.tables.iter().find(|table| table.path == path).map(|table| table.keys)
    }

    /// What somebody probably meant by `key` in the table `path`, as it is written there.
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

    /// The table that takes a key which stands in the wrong one: `[server]` for `listen`.
    pub fn elsewhere(&self, path: &str, key: &str) -> Option<&'static str> {
        let mut others = self.tables.iter().filter(|table| table.path != path && table.keys.contains(&key));
        let first = others.next()?;
        // A key that several tables take is no hint.
        others.next().is_none().then_some(first.path).filter(|path| !path.is_empty())
    }

    /// Whether a key holds a plain value that is never a secret, so that its line may be shown.
    pub fn is_plain(&self, key: &str) -> bool {
        let last = key.rsplit('.').next().unwrap_or(key).trim();
        let known = self.tables.iter().any(|table| table.keys.contains(&last));
        // Tables hold anything, and the path of an address is a secret with many services.
        let may_hold_secrets = [
            "headers",
            "auth",
            "kafka",
            "webhook",
            "stdout",
            "webpush",
            "apns",
            "fcm",
            "sink",
            "token_url",
            "server",
            "pipeline",
            "engine",
            "token",
            "url",
            "alert",
            "command",
        ];
        known && !may_hold_secrets.contains(&last)
    }

    /// Whether a line of the file may appear in a message. Only a line that sets a single plain key of ours may: a line in
    /// the middle of a text of several lines, a table of headers or an unknown key can hold anything.
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
        for path in KEYS.open_tables() {
            let (parent, key) = path.rsplit_once('.').unwrap_or(("", path));
            assert!(KEYS.of(parent).is_some_and(|keys| keys.contains(&key)), "{path}");
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
