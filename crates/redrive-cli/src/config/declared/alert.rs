//! The declaration of `[[alert]]`.

use redrive_server::alerts::AlertKind;

use super::form::Form::{Address, Command, Duration, Open, Text, Texts, Whole, WordListOf};
use super::table::{Header, Setting, SettingTable};

/// Larger numbers are mistakes.
const NUMBER_MAX: u64 = 1_000_000_000_000;

#[rustfmt::skip] // one line for each setting
pub(super) const TABLES: &[SettingTable] = &[
    SettingTable {
        path: "alert",
        header: Header::ExampleList,
        about: "alerts without Prometheus; one table per recipient",
        settings: &[
            Setting::example("on", WordListOf(alert_kinds), r#"["breaker_open", "dead_letters", "oldest_letter", "queue_depth", "poison_pill", "guard", "purging_stopped", "new_group", "group_regressed", "replay_stopped", "storage"]"#, "all of them, unless given"),
            Setting::example("pipelines", Texts, r#"["orders"]"#, "all of them, unless given"),
            Setting::example("webhook", Address, r#""https://chat.example.com/hooks/redrive""#, "gets a POST with JSON; or `command`"),
            Setting::example("headers", Open(&Text), r#"{ authorization_file = "/etc/redrive/alert-auth" }"#, "sent with the webhook; NAME_file reads the value from a file"),
            Setting::example("command", Command, r#"["/usr/local/bin/page-me"]"#, "a program and its arguments; the JSON is its standard input"),
            Setting::example("every", Duration, r#""15m""#, "the same alert of the same pipeline is sent at most this often"),
            Setting::example("timeout", Duration, r#""10s""#, "how long sending one notification may take"),
            Setting::example("dead_letters", Whole(0, NUMBER_MAX), "100", "alert on more new dead letters than this"),
            Setting::example("within", Duration, r#""10m""#, "within this time"),
            Setting::example("oldest_letter", Duration, r#""24h""#, "alert on an open dead letter older than this"),
            Setting::example("queue_depth", Whole(0, NUMBER_MAX), "10000", "alert on more pending messages than this"),
        ],
    },
];

fn alert_kinds() -> Vec<&'static str> {
    AlertKind::ALL.iter().map(|kind| kind.name()).collect()
}
