//! The declarations of `[[pipeline]]` and its subtables, except those of sinks.

use std::time::Duration;

use redrive::internal::replay::pace::RATE_MAX;
use redrive_core::policy::{Mode, OnExhausted, limits};
use redrive_core::profiles;
use redrive_core::schedule::DELAY_MAX;
use redrive_sinks::webhook::options::TIMEOUT_MAX;

use super::super::protection::ACTIONS;
use super::super::words::{AFTER_DEAD, ORDERINGS};
use super::form::Form::{
    Any, Inline, Number, Open, Pick, Rate, Share, Span, SpanOr, Spans, Switch, Text, Texts, Whole, Words,
};
use super::form::{FOREVER, words};
use super::table::{Header, Setting, SettingTable};

/// Larger numbers are mistakes.
const NUMBER_MAX: u64 = 1_000_000;
/// The shortest time above zero.
const TICK: Duration = Duration::from_millis(1);
const YEAR: Duration = Duration::from_hours(24 * 366);

#[rustfmt::skip] // one line for each setting
pub(super) const TABLES: &[SettingTable] = &[
    SettingTable {
        path: "pipeline",
        header: Header::ActiveList,
        about: "",
        settings: &[
            Setting::default("name", Text, r#""orders""#, "the name of the pipeline, which prefixes everything it owns").flag("--name", "NAME"),
            Setting::example("source", Text, r#""orders""#, "Kafka topic to consume; defaults to `name`, and `name` to it").flag("--source", "TOPIC"),
            Setting::example("id", Pick, r#""json:/order_id""#, "where to read the message id: json:POINTER | header:NAME; otherwise taken from the request or generated"),
            Setting::example("tenant", Pick, r#""header:x-tenant""#, "where to read the tenant: json:POINTER | header:NAME"),
            Setting::default("profile", Words(profile_names), r#""tiered""#, "preset that other settings override").flag("--profile", "PROFILE"),
            Setting::default("tiers", Spans(TICK, DELAY_MAX), r#"["5s", "30s", "5m"]"#, "one delay per retry, as in 5s,30s,5m; or `backoff`, never both").flag("--tiers", "DELAYS"),
            Setting::example("backoff", Inline, r#"{ base = "2s", multiplier = 2.0, cap = "120s" }"#, "or { fixed = \"60s\" }"),
            Setting::default("retries", Whole(0, limits::ATTEMPTS_MAX as u64 - 1), "3", "number of retries (or set `attempts`); defaults to the number of tiers").flag("--max-retries", "RETRIES"),
            Setting::example("attempts", Whole(1, limits::ATTEMPTS_MAX as u64), "4", "retries + 1"),
            Setting::example("attempts_for", Open(&Whole(1, limits::ATTEMPTS_MAX as u64)), "{ rate_limited = 10 }", "attempts for single classes"),
            Setting::example("replay_attempts", Whole(1, limits::ATTEMPTS_MAX as u64), "3", "attempts of a replayed letter; defaults to `attempts`"),
            Setting::default("jitter", Text, r#""equal""#, "how delays are spread: none | full | equal | decorrelated | plus(50%) | plus(1s) | around(10%)").flag("--jitter", "JITTER"),
            Setting::default("retry_after_jitter", Text, r#""10%""#, "random extra delay on top of Retry-After, at most"),
            Setting::default("retry_after_max", Span(TICK, DELAY_MAX), r#""24h""#, "upper bound for Retry-After; jitter is added on top"),
            Setting::default("retry_after_min", Span(Duration::ZERO, DELAY_MAX), r#""0s""#, "lower bound for Retry-After"),
            Setting::default("retry_after_shared_max", Span(TICK, DELAY_MAX), r#""5m""#, "how long other messages of the same endpoint wait for it, at most"),
            Setting::example("ttl", Span(TICK, limits::SPAN_MAX), r#""1h""#, "the age at which a message expires; default: never").flag("--ttl", "DURATION"),
            Setting::example("cap_ttl_share", Number(0.0, 1.0), "0.5", "caps every delay at this share of the ttl"),
            Setting::default("hold_max", Span(Duration::ZERO, limits::SPAN_MAX), r#""24h""#, "how long a message may wait without using up attempts"),
            Setting::default("ordering", Words(|| words(&ORDERINGS)), r#""none""#, "whether messages with the same key are delivered in order").flag("--ordering", "NONE|KEY"),
            Setting::default("after_dead", Words(|| words(&AFTER_DEAD)), r#""continue""#, "what happens to later messages of a key when one becomes a dead letter; needs `ordering = \"key\"`"),
            Setting::default("classify", Any(&[Words(|| vec!["on", "off"]), Switch]), r#""on""#, "whether permanent failures are dead-lettered at once").flag("--classify", "ON|OFF"),
            Setting::default("mode", Words(|| Mode::ALL.map(Mode::name).to_vec()), r#""non-blocking""#, "where a message waits between attempts").flag("--mode", "MODE"),
            Setting::default("concurrency", Whole(1, limits::CONCURRENCY_MAX as u64), "64", "attempts that may run at once").flag("--concurrency", "CALLS"),
            Setting::default("timeout", Span(TICK, TIMEOUT_MAX), r#""30s""#, "how long one attempt may take").flag("--timeout", "DURATION"),
            Setting::default("max_pending", Whole(0, i64::MAX as u64), "0", "pending messages above which ingest answers 503; 0 = no limit"),
            Setting::default("dedup", SpanOr(TICK, YEAR, "off"), r#""24h""#, "how long an id is remembered at ingest; or \"off\""),
            Setting::example("ledger_horizon", Span(Duration::ZERO, FOREVER), r#""7d""#, "how long the receiver remembers applied ids; a replay of letters first attempted before that needs --beyond-ledger"),
            Setting::default("outage_gate", Switch, "true", "no message is dead-lettered for running out of attempts while the sink is unhealthy"),
            Setting::example("letter_retention", Span(Duration::from_hours(24), FOREVER), r#""90d""#, "open letters older than this are discarded, and the action is recorded; default: never"),
            Setting::example("redact", Texts, r#"["/card", "header:x-user"]"#, "values that the API, the page and exports hide; deliveries and stored messages keep them. Default for push sinks: the receiver"),
            Setting::default("log_delivered", Share, r#""0%""#, "share of deliveries that are logged; -v logs all"),
        ],
    },
    SettingTable {
        path: "pipeline.budget",
        header: Header::Example,
        about: "how many retries the pipeline may make in total; default: no limit",
        settings: &[
            Setting::example("retries_per_minute", Whole(1, u32::MAX as u64), "100", "or share_of_successes"),
            Setting::example("share_of_successes", Share, r#""10%""#, "retries allowed per success"),
            Setting::default("on_exhausted", Words(|| OnExhausted::ALL.map(OnExhausted::name).to_vec()), r#""defer""#, "what happens to a retry without budget while the sink is healthy"),
        ],
    },
    SettingTable {
        path: "pipeline.backoff",
        header: Header::Example,
        about: "the keys of `backoff`",
        settings: &[
            Setting::example("base", Span(TICK, DELAY_MAX), r#""2s""#, "first delay of an exponential backoff").flag("--backoff-base", "DELAY"),
            Setting::example("multiplier", Number(1.0, 1_000.0), "2.0", "factor from each delay to the next"),
            Setting::example("cap", Span(TICK, DELAY_MAX), r#""120s""#, "longest delay of an exponential backoff").flag("--backoff-cap", "DELAY"),
            Setting::example("fixed", Span(TICK, DELAY_MAX), r#""60s""#, "the same delay every time, instead of an exponential backoff").flag("--backoff-fixed", "DELAY"),
        ],
    },
    SettingTable {
        path: "pipeline.breaker",
        header: Header::Example,
        about: "on by default, with these values",
        settings: &[
            Setting::default("enabled", Switch, "true", "stop deliveries to a sink that fails too often"),
            Setting::default("cooldown", Span(Duration::ZERO, FOREVER), r#""30s""#, "the first pause before probing"),
            Setting::default("cooldown_max", Span(Duration::ZERO, FOREVER), r#""5m""#, "the longest pause; it doubles up to this"),
            Setting::default("probes", Whole(1, NUMBER_MAX), "5", "messages that are sent to test whether the sink is back"),
            Setting::default("reload", Number(0.0, 100.0), "2.0", "calls per second after an outage begin at this many times those before it, and grow by half of those every 30s; 0 = no limit"),
        ],
    },
    SettingTable {
        path: "pipeline.breaker.fast",
        header: Header::Example,
        about: "",
        settings: &[
            Setting::default("window", Span(Duration::ZERO, FOREVER), r#""10s""#, "length of the window"),
            Setting::default("failures", Share, r#""50%""#, "opens at this share of failures in the window"),
            Setting::default("min", Whole(0, NUMBER_MAX), "20", "and at least this many messages in the window"),
        ],
    },
    SettingTable {
        path: "pipeline.breaker.slow",
        header: Header::Example,
        about: "",
        settings: &[
            Setting::default("window", Span(Duration::ZERO, FOREVER), r#""5m""#, "length of the window; counts first attempts, judged once it is full"),
            Setting::default("failures", Share, r#""20%""#, "opens above this share of failures in the window"),
            Setting::default("counts", Texts, r#"["5xx", "timeout", "refused", "other"]"#, "which failures count; also a status such as \"503\""),
            Setting::default("action", Words(|| words(&ACTIONS)), r#""open""#, "what it does"),
        ],
    },
    SettingTable {
        path: "pipeline.crash",
        header: Header::Example,
        about: "",
        settings: &[
            Setting::default("threshold", Whole(1, limits::CRASH_THRESHOLD_MAX as u64), "3", "crashes within the window that make a message a poison pill"),
            Setting::default("window", Span(TICK, limits::SPAN_MAX), r#""5m""#, "window in which crashes are counted; keep it longer than the longest delay"),
        ],
    },
    SettingTable {
        path: "pipeline.guard",
        header: Header::Example,
        about: "on by default, with these values; share = \"100%\" turns it off",
        settings: &[
            Setting::default("share", Share, r#""50%""#, "pause when more than this share of the finished messages are dead letters, and at least 100"),
            Setting::default("over", Span(Duration::ZERO, FOREVER), r#""1m""#, "within this time"),
            Setting::default("times_baseline", Whole(0, NUMBER_MAX), "10", "and only if that is this many times the usual share"),
        ],
    },
    SettingTable {
        path: "pipeline.auto_replay",
        header: Header::Example,
        about: "automatically replays letters once the sink has recovered; never permanent, gone or poison-pill letters",
        settings: &[
            Setting::default("enabled", Switch, "false", "whether letters are replayed without an operator"),
            Setting::default("rate", Rate(0.0, RATE_MAX), r#""5/s""#, "upper bound for the rate; ten letters go first, and failures stop it"),
            Setting::default("healthy_for", Span(Duration::from_secs(1), FOREVER), r#""10m""#, "how long the sink must have been healthy and a letter dead; also the least time between two replays"),
            Setting::default("age_max", Span(Duration::ZERO, FOREVER), r#""24h""#, "older letters wait for an operator"),
            Setting::default("tenant_max", Whole(0, NUMBER_MAX), "0", "no more letters of one tenant than this in a replay; 0: no limit"),
        ],
    },
    SettingTable {
        path: "pipeline.group",
        header: Header::ExampleList,
        about: "dead letters whose error matches are one group, whatever else the error says",
        settings: &[
            Setting::example("match", Text, r#""timeout*payments""#, "text in the error, in any case; * stands for any text between two parts"),
            Setting::example("as", Text, r#""payments are slow""#, "what the group is called"),
        ],
    },
];

fn profile_names() -> Vec<&'static str> {
    profiles::ALL.iter().map(|profile| profile.name).collect()
}
