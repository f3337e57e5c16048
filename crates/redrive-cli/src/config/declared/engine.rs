//! The declarations of `[engine]` and of the settings passed on to librdkafka. A table below `[engine]` belongs to the
//! engine of that name.

use std::time::Duration;

use super::super::engine::EngineKind;
use super::super::kafka::{MissingTopics, Part, StartAt};
use super::form::Form::{File, SpanOr, Text, Texts, Words};
use super::form::words;
use super::table::{Header, Setting, SettingTable};

#[rustfmt::skip] // one line for each setting
pub(super) const TABLES: &[SettingTable] = &[
    SettingTable {
        path: "engine",
        header: Header::Active,
        about: "",
        settings: &[
            Setting::default("kind", Words(|| words(&EngineKind::WORDS)), r#""embedded""#, "where messages are stored").flag("--engine", "ENGINE"),
            Setting::default("dir", File, r#""./redrive-data""#, "directory of the embedded engine; one process at a time").flag("--dir", "DIR"),
            Setting::default("scrub", SpanOr(Duration::from_hours(1), Duration::from_hours(24 * 366), "off"), r#""7d""#, "how often all stored data is read in the background to verify it, or \"off\"").only("embedded"),
            Setting::example("brokers", Texts, r#"["kafka-1:9092"]"#, "Kafka bootstrap brokers").only("kafka").flag("--brokers", "HOST:PORT"),
            Setting::example("group", Text, r#""orders-delivery""#, "Kafka consumer group").only("kafka").flag("--group", "GROUP"),
            Setting::example("member", Text, r#""redrive-0""#, "static membership: a restarted process gets its partitions back").only("kafka").flag("--member", "MEMBER"),
            Setting::example("start", Words(|| words(&StartAt::WORDS)), r#""latest""#, "where a new group starts reading; must be set").only("kafka").flag("--start", "EARLIEST|LATEST"),
            Setting::default("topics", Words(|| words(&MissingTopics::WORDS)), r#""verify""#, "what to do about missing topics: verify (refuse to start) | create").only("kafka").flag("--topics", "VERIFY|CREATE"),
            Setting::default("state_dir", File, r#""./redrive-data""#, "local files: look-ahead, a mirror of the letters, replay jobs; Kafka holds the truth. `dir` is the same setting").only("kafka"),
            Setting::default("only", Words(|| words(&Part::WORDS)), r#""everything""#, "which part of the work this process takes: everything | source (first attempts) | tiers (retries and replays)").only("kafka").flag("--only", "SOURCE|TIERS"),
        ],
    },
    SettingTable {
        path: "engine.kafka",
        header: Header::ExampleOpen,
        about: "passed to librdkafka unchanged",
        settings: &[
            Setting::example("sasl.mechanism", Text, r#""PLAIN""#, "any of its settings; `redrive check --kafka` prints the mechanisms of this build"),
            Setting::example("sasl.password_file", Text, r#""/etc/redrive/kafka-password""#, "KEY_file reads the value from a file, KEY_env from a variable"),
        ],
    },
];
