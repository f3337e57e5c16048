//! `[engine]` and what it passes on to librdkafka, as they are declared. A table below `[engine]` is for the engine of its
//! name.

use super::form::Form::{DurationOr, File, Text, Texts, Words};
use super::table::{Header, Setting, SettingTable};

#[rustfmt::skip] // one line for each setting
pub(super) const TABLES: &[SettingTable] = &[
    SettingTable {
        path: "engine",
        header: Header::Active,
        about: "",
        settings: &[
            Setting::default("kind", Words(&["memory", "embedded", "kafka"]), r#""embedded""#, "memory | embedded | kafka"),
            Setting::default("dir", File, r#""./redrive-data""#, "the store of the embedded engine; one process at a time"),
            Setting::default("scrub", DurationOr("off"), r#""7d""#, "how often everything stored is read in the background to verify it, or \"off\"; embedded only").only("embedded"),
            Setting::example("brokers", Texts, r#"["kafka-1:9092"]"#, "kafka only, as all keys down to [engine.kafka]").only("kafka"),
            Setting::example("group", Text, r#""orders-delivery""#, "the consumer group").only("kafka"),
            Setting::example("member", Text, r#""redrive-0""#, "static membership: a restarted process gets its partitions back").only("kafka"),
            Setting::example("start", Words(&["earliest", "latest"]), r#""latest""#, "earliest | latest, where a new group begins; never guessed").only("kafka"),
            Setting::example("topics", Words(&["verify", "create"]), r#""verify""#, "verify | create: what becomes of topics that are missing").only("kafka"),
            Setting::example("state_dir", File, r#""./redrive-data""#, "local files: look-ahead, a mirror of the letters, replay jobs; Kafka holds the truth. `dir` is the same setting").only("kafka"),
            Setting::example("only", Words(&["everything", "source", "tiers"]), r#""source""#, "everything | source | tiers: a part of the work; everything, unless set").only("kafka"),
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
