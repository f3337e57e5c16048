//! The declarations of `[engine]` and of the settings passed on to librdkafka. A table below `[engine]` belongs to the
//! engine of that name.

use super::form::Form::{DurationOr, File, Text, Texts, Words};
use super::table::{Header, Setting, SettingTable};

#[rustfmt::skip] // one line for each setting
pub(super) const TABLES: &[SettingTable] = &[
    SettingTable {
        path: "engine",
        header: Header::Active,
        about: "",
        settings: &[
            Setting::default("kind", Words(&["memory", "embedded", "kafka"]), r#""embedded""#, "where messages are stored: memory | embedded | kafka").flag("--engine", "ENGINE"),
            Setting::default("dir", File, r#""./redrive-data""#, "the directory of the embedded engine; one process at a time").flag("--dir", "DIR"),
            Setting::default("scrub", DurationOr("off"), r#""7d""#, "how often everything stored is read in the background to verify it, or \"off\"; embedded only").only("embedded"),
            Setting::example("brokers", Texts, r#"["kafka-1:9092"]"#, "Kafka brokers; this and all keys down to [engine.kafka] are for Kafka only").only("kafka").flag("--brokers", "HOST:PORT"),
            Setting::example("group", Text, r#""orders-delivery""#, "the Kafka consumer group").only("kafka").flag("--group", "GROUP"),
            Setting::example("member", Text, r#""redrive-0""#, "static membership: a restarted process gets its partitions back").only("kafka").flag("--member", "MEMBER"),
            Setting::example("start", Words(&["earliest", "latest"]), r#""latest""#, "where a new group begins: earliest | latest; never guessed").only("kafka").flag("--start", "EARLIEST|LATEST"),
            Setting::example("topics", Words(&["verify", "create"]), r#""verify""#, "what becomes of topics that are missing: verify | create").only("kafka").flag("--topics", "VERIFY|CREATE"),
            Setting::example("state_dir", File, r#""./redrive-data""#, "local files: look-ahead, a mirror of the letters, replay jobs; Kafka holds the truth. `dir` is the same setting").only("kafka"),
            Setting::example("only", Words(&["everything", "source", "tiers"]), r#""source""#, "a part of the work: source | tiers (retries and replays) | everything, which holds unless set").only("kafka").flag("--only", "SOURCE|TIERS"),
        ],
    },
    SettingTable {
        path: "engine.kafka",
        header: Header::ExampleOpen,
        about: "passed on to librdkafka as it stands",
        settings: &[
            Setting::example("sasl.mechanism", Text, r#""PLAIN""#, "any of its settings; `redrive check --kafka` prints the mechanisms of this build"),
            Setting::example("sasl.password_file", Text, r#""/etc/redrive/kafka-password""#, "KEY_file reads the value from a file, KEY_env from a variable"),
        ],
    },
];
