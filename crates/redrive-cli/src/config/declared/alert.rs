//! The declaration of `[[alert]]`.

use std::time::Duration;

use redrive_server::alerts::AlertKind;

use super::form::Form::{Address, Command, Open, Span, Text, Texts, Whole, WordListOf};
use super::table::{Header, Setting, SettingTable};

/// Larger numbers are mistakes.
const NUMBER_MAX: u64 = 1_000_000_000_000;
const SECOND: Duration = Duration::from_secs(1);
const MONTH: Duration = Duration::from_hours(24 * 31);

#[rustfmt::skip] // one line for each setting
pub(super) const TABLES: &[SettingTable] = &[
    SettingTable {
        path: "alert",
        header: Header::ExampleList,
        about: "alerts without Prometheus; one table per recipient",
        settings: &[
            Setting::default("on", WordListOf(alert_kinds), r#"["breaker_open", "dead_letters", "oldest_letter", "queue_depth", "poison_pill", "guard", "purging_stopped", "new_group", "group_regressed", "replay_stopped", "storage"]"#, "which alerts; default: all"),
            Setting::example("pipelines", Texts, r#"["orders"]"#, "which pipelines; default: all"),
            Setting::example("webhook", Address, r#""https://chat.example.com/hooks/redrive""#, "gets a POST with JSON; or `command`"),
            Setting::example("headers", Open(&Text), r#"{ authorization_file = "/etc/redrive/alert-auth" }"#, "sent with the webhook; NAME_file reads the value from a file"),
            Setting::example("command", Command, r#"["/usr/local/bin/page-me"]"#, "a program and its arguments; the JSON is its standard input"),
            Setting::default("every", Span(SECOND, MONTH), r#""15m""#, "minimum time between two notifications of the same alert of a pipeline"),
            Setting::default("timeout", Span(SECOND, Duration::from_mins(5)), r#""10s""#, "how long sending one notification may take"),
            Setting::default("dead_letters", Whole(0, NUMBER_MAX), "100", "alert on more new dead letters than this"),
            Setting::default("within", Span(SECOND, MONTH), r#""10m""#, "within this time"),
            Setting::default("oldest_letter", Span(SECOND, Duration::from_hours(24 * 31 * 12)), r#""24h""#, "alert on an open dead letter older than this"),
            Setting::default("queue_depth", Whole(0, NUMBER_MAX), "10000", "alert on more pending messages than this"),
        ],
    },
];

fn alert_kinds() -> Vec<&'static str> {
    AlertKind::ALL.iter().map(|kind| kind.name()).collect()
}
