//! `[[alert]]`, as it is declared.

use redrive_server::alerts::AlertKind;

use super::form::Form::{Address, Command, Duration, Open, Text, Texts, Whole, WordListOf};
use super::table::{Header, Setting, SettingTable};

/// More is a mistake, not a number.
const NUMBER_MAX: u64 = 1_000_000_000_000;

#[rustfmt::skip] // one line for each setting
pub(super) const TABLES: &[SettingTable] = &[
    SettingTable {
        path: "alert",
        header: Header::ExampleList,
        about: "tells somebody, for whoever has no Prometheus; as often as there are receivers",
        settings: &[
            Setting::example("on", WordListOf(alert_kinds), r#"["breaker_open", "dead_letters", "oldest_letter", "queue_depth", "poison_pill", "guard", "purging_stopped", "replay_stopped", "storage"]"#, "all of them, unless given"),
            Setting::example("pipelines", Texts, r#"["orders"]"#, "all of them, unless given"),
            Setting::example("webhook", Address, r#""https://chat.example.com/hooks/redrive""#, "gets a POST with JSON; or `command`"),
            Setting::example("headers", Open(&Text), r#"{ authorization_file = "/etc/redrive/alert-auth" }"#, "sent with the webhook; NAME_file reads the value from a file"),
            Setting::example("command", Command, r#"["/usr/local/bin/page-me"]"#, "a program and its arguments; the JSON is its standard input"),
            Setting::example("every", Duration, r#""15m""#, "the same alert of the same pipeline is told at most once in so long"),
            Setting::example("timeout", Duration, r#""10s""#, "how long one notice may take"),
            Setting::example("dead_letters", Whole(0, NUMBER_MAX), "100", "more new dead letters than this"),
            Setting::example("within", Duration, r#""10m""#, "in so long are told"),
            Setting::example("oldest_letter", Duration, r#""24h""#, "an open dead letter that is older is told"),
            Setting::example("queue_depth", Whole(0, NUMBER_MAX), "10000", "more messages that have not come to an end are told"),
        ],
    },
];

fn alert_kinds() -> Vec<&'static str> {
    AlertKind::ALL.iter().map(|kind| kind.name()).collect()
}
