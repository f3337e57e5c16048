//! A pipeline from flags alone, or flags over a file: the same settings under the names of flags, through the same
//! validator.

use super::tree::{At, Data, Node, TreeTable};

/// What `redrive processor` takes instead of a file, or over one.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct ProcessorFlags {
    #[command(flatten)]
    pub engine: EngineFlags,
    #[command(flatten)]
    pub pipeline: PipelineFlags,
}

/// Where messages live and who may ask; these go over the file.
#[derive(Clone, Debug, Default, clap::Args)]
#[command(next_help_heading = "Engine and API, over the configuration")]
pub struct EngineFlags {
    /// Where messages are stored: memory, embedded or kafka
    #[arg(long, value_name = "ENGINE")]
    pub engine: Option<String>,
    /// The directory of the embedded engine
    #[arg(long, value_name = "DIR")]
    pub dir: Option<String>,
    /// Kafka brokers
    #[arg(long, value_name = "HOST:PORT", value_delimiter = ',')]
    pub brokers: Option<Vec<String>>,
    /// Kafka consumer group
    #[arg(long)]
    pub group: Option<String>,
    /// Static member id, so that it keeps its partitions after a restart
    #[arg(long)]
    pub member: Option<String>,
    /// Where a new Kafka group starts: earliest or latest
    #[arg(long)]
    pub start: Option<String>,
    /// How to handle missing Kafka topics: verify or create
    #[arg(long, value_name = "VERIFY|CREATE")]
    pub topics: Option<String>,
    /// Take on only a part of the work: source, or tiers (retries and replays)
    #[arg(long, value_name = "SOURCE|TIERS")]
    pub only: Option<String>,
    /// Address and port of the API
    #[arg(long, value_name = "ADDRESS")]
    pub listen: Option<String>,
}

/// A pipeline. Without --config these make one of their own; with it they go over the file's only pipeline, or over
/// the one that --name names.
#[derive(Clone, Debug, Default, clap::Args)]
#[command(next_help_heading = "A pipeline from flags")]
pub struct PipelineFlags {
    /// The name of the pipeline; `default` unless given
    #[arg(long)]
    pub name: Option<String>,
    /// The Kafka topic to consume
    #[arg(long, value_name = "TOPIC")]
    pub source: Option<String>,
    /// The webhook that gets the messages
    #[arg(long, value_name = "URL")]
    pub sink_url: Option<String>,
    /// A named set of settings; the other flags go over it
    #[arg(long)]
    pub profile: Option<String>,
    /// Where a message waits between attempts: blocking or non-blocking
    #[arg(long)]
    pub mode: Option<String>,
    /// How often a message is tried again after its first attempt
    #[arg(long, value_name = "RETRIES")]
    pub max_retries: Option<u32>,
    /// Delay steps, one per retry: 5s,30s,5m
    #[arg(long, value_name = "DELAYS", value_delimiter = ',')]
    pub tiers: Option<Vec<String>>,
    /// The first delay of an exponential backoff
    #[arg(long, value_name = "DELAY")]
    pub backoff_base: Option<String>,
    /// The longest delay of an exponential backoff
    #[arg(long, value_name = "DELAY")]
    pub backoff_cap: Option<String>,
    /// The same delay before every retry, instead of a growing one
    #[arg(long, value_name = "DELAY")]
    pub backoff_fixed: Option<String>,
    /// How delays are spread: none, full, equal, decorrelated, plus(50%), plus(1s) or around(10%)
    #[arg(long)]
    pub jitter: Option<String>,
    /// Whether permanent failures are dead-lettered at once: on or off
    #[arg(long, value_name = "ON|OFF")]
    pub classify: Option<String>,
    /// Whether messages of one key wait for each other: none or key
    #[arg(long)]
    pub ordering: Option<String>,
    /// How many attempts may run at once
    #[arg(long, value_name = "CALLS")]
    pub concurrency: Option<u32>,
    /// How long one attempt may take
    #[arg(long, value_name = "DURATION")]
    pub timeout: Option<String>,
    /// Time to live of a message
    #[arg(long, value_name = "DURATION")]
    pub ttl: Option<String>,
    /// Deliver to private and loopback addresses too, where each message brings its endpoint
    #[arg(long)]
    pub allow_private_addresses: bool,
}

/// The flags that set one key each, with the key. The tests check that faults name them.
pub(super) const FLAGS: &[(&str, &str)] = &[
    ("--engine", "kind"),
    ("--dir", "dir"),
    ("--brokers", "brokers"),
    ("--group", "group"),
    ("--member", "member"),
    ("--start", "start"),
    ("--topics", "topics"),
    ("--only", "only"),
    ("--listen", "listen"),
    ("--name", "name"),
    ("--source", "source"),
    ("--sink-url", "sink.webhook.url"),
    ("--profile", "profile"),
    ("--mode", "mode"),
    ("--max-retries", "retries"),
    ("--tiers", "tiers"),
    ("--backoff-base", "backoff.base"),
    ("--backoff-cap", "backoff.cap"),
    ("--backoff-fixed", "backoff.fixed"),
    ("--jitter", "jitter"),
    ("--classify", "classify"),
    ("--ordering", "ordering"),
    ("--concurrency", "concurrency"),
    ("--timeout", "timeout"),
    ("--ttl", "ttl"),
];

impl EngineFlags {
    pub(super) fn lay_over(&self, top: &mut TreeTable) {
        let texts = [
            ("engine", "kind", "--engine", &self.engine),
            ("engine", "dir", "--dir", &self.dir),
            ("engine", "group", "--group", &self.group),
            ("engine", "member", "--member", &self.member),
            ("engine", "start", "--start", &self.start),
            ("engine", "topics", "--topics", &self.topics),
            ("engine", "only", "--only", &self.only),
            ("server", "listen", "--listen", &self.listen),
        ];
        for (table, key, flag, value) in texts {
            if let Some(value) = value {
                lay(top, table, key, Data::Text(value.clone()), At::Flag(flag));
            }
        }
        if let Some(brokers) = &self.brokers {
            lay(top, "engine", "brokers", list(brokers, "--brokers"), At::Flag("--brokers"));
        }
    }
}

/// Puts a value into a table below the top. A file that has something else under the table's name keeps it, and the
/// parser says what is wrong with that.
pub(super) fn lay(top: &mut TreeTable, table: &str, key: &str, data: Data, at: At) {
    if let Some(table) = top.table_mut(table, at.clone()) {
        table.set(key, data, at);
    }
}

impl PipelineFlags {
    /// Whether any of them was given.
    pub fn any(&self) -> bool {
        self.texts().iter().any(|(.., value)| value.is_some())
            || self.max_retries.is_some()
            || self.concurrency.is_some()
            || self.tiers.is_some()
            || self.allow_private_addresses
    }

    fn texts(&self) -> [(&'static str, &'static str, Option<&String>); 13] {
        [
            ("name", "--name", self.name.as_ref()),
            ("source", "--source", self.source.as_ref()),
            ("sink.webhook.url", "--sink-url", self.sink_url.as_ref()),
            ("profile", "--profile", self.profile.as_ref()),
            ("mode", "--mode", self.mode.as_ref()),
            ("backoff.base", "--backoff-base", self.backoff_base.as_ref()),
            ("backoff.cap", "--backoff-cap", self.backoff_cap.as_ref()),
            ("backoff.fixed", "--backoff-fixed", self.backoff_fixed.as_ref()),
            ("jitter", "--jitter", self.jitter.as_ref()),
            ("classify", "--classify", self.classify.as_ref()),
            ("ordering", "--ordering", self.ordering.as_ref()),
            ("timeout", "--timeout", self.timeout.as_ref()),
            ("ttl", "--ttl", self.ttl.as_ref()),
        ]
    }

    /// Lays the flags over a pipeline's table. What a flag says replaces whatever else said the same.
    pub(super) fn lay_over(&self, pipeline: &mut TreeTable) {
        let grows = self.backoff_base.is_some() || self.backoff_cap.is_some();
        match (self.tiers.is_some(), grows, self.backoff_fixed.is_some()) {
            (true, false, false) | (false, false, true) => {
                pipeline.remove("backoff");
                pipeline.remove("tiers");
            }
            (false, true, false) => {
                pipeline.remove("tiers");
                set_below(pipeline, "backoff.fixed", None);
            }
            _ => {}
        }
        if self.sink_url.is_some() {
            set_below(pipeline, "sink.webhook.endpoint", None);
        }
        if self.timeout.is_some() {
            set_below(pipeline, "sink.webhook.timeout", None);
        }
        for (key, flag, value) in self.texts() {
            if let Some(value) = value {
                set_below(pipeline, key, Some((Data::Text(value.clone()), At::Flag(flag))));
            }
        }
        if let Some(tiers) = &self.tiers {
            pipeline.set("tiers", list(tiers, "--tiers"), At::Flag("--tiers"));
        }
        if let Some(retries) = self.max_retries {
            pipeline.remove("attempts");
            pipeline.set("retries", Data::Whole(retries.into()), At::Flag("--max-retries"));
        }
        if let Some(concurrency) = self.concurrency {
            set_below(pipeline, "sink.webhook.concurrency", None);
            pipeline.set("concurrency", Data::Whole(concurrency.into()), At::Flag("--concurrency"));
        }
        if self.allow_private_addresses {
            let at = At::Flag("--allow-private-addresses");
            set_below(pipeline, "sink.webhook.allow_private_addresses", Some((Data::Switch(true), at)));
        }
    }
}

/// Sets or removes the value under a dotted key.
fn set_below(table: &mut TreeTable, key: &str, value: Option<(Data, At)>) {
    let Some((first, rest)) = key.split_once('.') else {
        match value {
            Some((data, at)) => table.set(key, data, at),
            None => table.remove(key),
        }
        return;
    };
    let at = match &value {
        Some((_, at)) => at.clone(),
        None if table.get(first).is_none() => return,
        None => At::Flag(""),
    };
    if let Some(below) = table.table_mut(first, at) {
        set_below(below, rest, value);
    }
}

fn list(items: &[String], flag: &'static str) -> Data {
    let item = |text: &String| Node { data: Data::Text(text.clone()), at: At::Flag(flag) };
    Data::List(items.iter().map(item).collect())
}

/// A message about a key, said about the flag that set it: `--max-retries 5` for `retries = 5`.
pub(super) fn in_words_of_flags(text: &str) -> String {
    let mut said = text.to_owned();
    for (flag, key) in FLAGS {
        said = said.replace(&format!("`{key}`"), &format!("`{flag}`"));
    }
    // Settings stand in backticks, or are what a fix is made of.
    let mut quoted = false;
    let parts = said.split('`').map(|part| {
        let flags = if quoted { setting_as_flag(part) } else { settings_as_flags(part) };
        quoted = !quoted;
        flags
    });
    parts.collect::<Vec<_>>().join("`")
}

fn settings_as_flags(text: &str) -> String {
    for between in [", or ", " and ", " instead of "] {
        if let Some((one, rest)) = text.split_once(between) {
            return format!("{}{between}{}", settings_as_flags(one), settings_as_flags(rest));
        }
    }
    setting_as_flag(text)
}

fn setting_as_flag(text: &str) -> String {
    let setting = text.split_once(" = ");
    let flag =
        setting.and_then(|(key, value)| Some((FLAGS.iter().find(|(_, known)| *known == key)?.0, value)));
    let Some((flag, value)) = flag else { return text.to_owned() };
    let value: String = value.chars().filter(|c| !"[]\"".contains(*c)).collect();
    format!("{flag} {}", value.replace(", ", ","))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_about_keys_become_messages_about_flags() {
        for (said_of_key, said_of_flag) in [
            ("`tiers` must grow", "`--tiers` must grow"),
            ("tiers = [\"5s\", \"30s\"]", "--tiers 5s,30s"),
            ("retries = 3", "--max-retries 3"),
            ("both `retries = 5` and 3 tiers are set", "both `--max-retries 5` and 3 tiers are set"),
            ("`jitter = \"fool\"` is not a jitter", "`--jitter fool` is not a jitter"),
            ("write it like 5s", "write it like 5s"),
            (
                "backoff.fixed = \"1s\" and retries = 3 instead of `tiers`",
                "--backoff-fixed 1s and --max-retries 3 instead of `--tiers`",
            ),
            ("keep `retries = 3` or `attempts = 4`", "keep `--max-retries 3` or `attempts = 4`"),
        ] {
            assert_eq!(in_words_of_flags(said_of_key), said_of_flag);
        }
    }
}
