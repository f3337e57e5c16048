//! The declarations of `[[pipeline]]` and its subtables, except those of sinks.

use redrive_core::policy::limits;
use redrive_core::profiles;

use super::form::Form::{
    Any, Duration, DurationOr, Durations, Inline, Number, Open, Pick, Rate, Share, Switch, Text, Texts,
    Whole, Words, WordsOf,
};
use super::table::{Header, Setting, SettingTable};

/// Larger numbers are mistakes.
const NUMBER_MAX: u64 = 1_000_000;

#[rustfmt::skip] // one line for each setting
pub(super) const TABLES: &[SettingTable] = &[
    SettingTable {
        path: "pipeline",
        header: Header::ActiveList,
        about: "",
        settings: &[
            Setting::default("name", Text, r#""orders""#, "the name of the pipeline, which prefixes everything it owns").flag("--name", "NAME"),
            Setting::example("source", Text, r#""orders""#, "the Kafka topic to consume; defaults to `name`, and `name` to it").flag("--source", "TOPIC"),
            Setting::example("id", Pick, r#""json:/order_id""#, "where the stable id comes from: json:POINTER | header:NAME; else given or generated"),
            Setting::example("tenant", Pick, r#""header:x-tenant""#, "the same for the tenant"),
            Setting::default("profile", WordsOf(profile_names), r#""tiered""#, "a named set of settings, over which the others go: tiered tiered-short tiered-long apns-worker push push-critical push-campaign emails webhooks webhooks-day payments worker; `config default` lists them").flag("--profile", "PROFILE"),
            Setting::default("tiers", Durations, r#"["5s", "30s", "5m"]"#, "one delay per retry, as in 5s,30s,5m; or `backoff`, never both").flag("--tiers", "DELAYS"),
            Setting::example("backoff", Inline, r#"{ base = "2s", multiplier = 2.0, cap = "120s" }"#, "or { fixed = \"60s\" }"),
            Setting::default("retries", Whole(0, limits::ATTEMPTS_MAX as u64 - 1), "3", "how often a message is tried again, or `attempts`; as many as there are tiers, unless set").flag("--max-retries", "RETRIES"),
            Setting::example("attempts", Whole(1, limits::ATTEMPTS_MAX as u64), "4", "retries + 1"),
            Setting::example("attempts_for", Open(&Whole(1, limits::ATTEMPTS_MAX as u64)), "{ rate_limited = 10 }", "attempts of a class of its own"),
            Setting::example("replay_attempts", Whole(1, limits::ATTEMPTS_MAX as u64), "3", "attempts of a replayed letter; those of the policy, unless set"),
            Setting::default("jitter", Text, r#""equal""#, "how delays are spread: none | full | equal | decorrelated | plus(50%) | plus(1s) | around(10%)").flag("--jitter", "JITTER"),
            Setting::default("retry_after_jitter", Text, r#""10%""#, "Retry-After is a floor; this is added at most"),
            Setting::default("retry_after_max", Duration, r#""24h""#, "a longer Retry-After is cut to this; jitter goes on top"),
            Setting::default("retry_after_min", Duration, r#""0s""#, "a shorter Retry-After waits this long"),
            Setting::default("retry_after_shared_max", Duration, r#""5m""#, "how long other messages of the same endpoint wait for it, at most"),
            Setting::example("ttl", Duration, r#""1h""#, "the age at which a message expires; never, unless set").flag("--ttl", "DURATION"),
            Setting::example("cap_ttl_share", Number, "0.5", "no delay is longer than this share of the ttl"),
            Setting::default("hold_max", Duration, r#""24h""#, "how long a message may wait without using up attempts"),
            Setting::default("ordering", Words(&["none", "key"]), r#""none""#, "whether messages with the same key are delivered in order: none | key").flag("--ordering", "NONE|KEY"),
            Setting::default("after_dead", Words(&["continue", "block_key"]), r#""continue""#, "continue | block_key: what happens to later messages of the key"),
            Setting::default("classify", Any(&[Words(&["on", "off"]), Switch]), r#""on""#, "whether permanent failures are dead-lettered at once: on | off").flag("--classify", "ON|OFF"),
            Setting::default("mode", Words(&["non-blocking", "blocking"]), r#""non-blocking""#, "where a message waits between attempts: non-blocking | blocking").flag("--mode", "MODE"),
            Setting::default("concurrency", Whole(1, limits::CONCURRENCY_MAX as u64), "64", "attempts that may run at once").flag("--concurrency", "CALLS"),
            Setting::default("timeout", Duration, r#""30s""#, "how long one attempt may take").flag("--timeout", "DURATION"),
            Setting::default("max_pending", Whole(0, i64::MAX as u64), "0", "waiting messages above which ingest answers 503; 0: no limit"),
            Setting::default("dedup", DurationOr("off"), r#""24h""#, "how long an id is remembered at ingest; or \"off\""),
            Setting::example("ledger_horizon", Duration, r#""7d""#, "how long the receiver remembers applied ids; a replay of letters first attempted before that needs --beyond-ledger"),
            Setting::default("outage_gate", Switch, "true", "no message is dead-lettered for running out of attempts while the sink is unhealthy"),
            Setting::example("letter_retention", Duration, r#""90d""#, "open letters that died longer ago are discarded, and recorded; never, unless set"),
            Setting::example("redact", Texts, r#"["/card", "header:x-user"]"#, "values that API, page and export do not show; delivered and stored as they are. For push sinks the receiver in a message, unless set"),
            Setting::default("log_delivered", Share, r#""0%""#, "share of the deliveries that are logged; all of them are with -v"),
        ],
    },
    SettingTable {
        path: "pipeline.budget",
        header: Header::Example,
        about: "how many retries the pipeline may make in all; no limit, unless set",
        settings: &[
            Setting::example("retries_per_minute", Whole(1, u32::MAX as u64), "100", "or share_of_successes"),
            Setting::example("share_of_successes", Share, r#""10%""#, "retries allowed per success"),
            Setting::example("on_exhausted", Words(&["defer", "dead_letter"]), r#""defer""#, "defer | dead_letter, while the sink is healthy"),
        ],
    },
    SettingTable {
        path: "pipeline.backoff",
        header: Header::Example,
        about: "the keys of `backoff`",
        settings: &[
            Setting::example("base", Duration, r#""2s""#, "the first delay of a backoff that grows").flag("--backoff-base", "DELAY"),
            Setting::example("multiplier", Number, "2.0", "each delay is this many times the one before"),
            Setting::example("cap", Duration, r#""120s""#, "the longest delay of a backoff that grows").flag("--backoff-cap", "DELAY"),
            Setting::example("fixed", Duration, r#""60s""#, "the same delay every time, instead of one that grows").flag("--backoff-fixed", "DELAY"),
        ],
    },
    SettingTable {
        path: "pipeline.breaker",
        header: Header::Example,
        about: "on with these values, unless set",
        settings: &[
            Setting::default("enabled", Switch, "true", "stop deliveries to a sink that fails too often"),
            Setting::default("cooldown", Duration, r#""30s""#, "the first pause before probing"),
            Setting::default("cooldown_max", Duration, r#""5m""#, "the longest pause; it doubles up to this"),
            Setting::default("probes", Whole(1, NUMBER_MAX), "5", "messages that are sent to test whether it is back"),
            Setting::default("reload", Number, "2.0", "calls per second after an outage begin at this many times those before it, and grow by half of those every 30s; 0 = no limit"),
        ],
    },
    SettingTable {
        path: "pipeline.breaker.fast",
        header: Header::Example,
        about: "",
        settings: &[
            Setting::default("window", Duration, r#""10s""#, "length of the window"),
            Setting::default("failures", Share, r#""50%""#, "opens at this share of failures in the window"),
            Setting::default("min", Whole(0, NUMBER_MAX), "20", "and at least this many messages in the window"),
        ],
    },
    SettingTable {
        path: "pipeline.breaker.slow",
        header: Header::Example,
        about: "",
        settings: &[
            Setting::default("window", Duration, r#""5m""#, "length of the window; counts first attempts, judged once it is full"),
            Setting::default("failures", Share, r#""20%""#, "opens above this share of failures in the window"),
            Setting::default("counts", Texts, r#"["5xx", "timeout", "refused", "other"]"#, "which failures count; also a status such as \"503\""),
            Setting::default("action", Words(&["open", "alert"]), r#""open""#, "open | alert"),
        ],
    },
    SettingTable {
        path: "pipeline.crash",
        header: Header::Example,
        about: "",
        settings: &[
            Setting::default("threshold", Whole(1, limits::CRASH_THRESHOLD_MAX as u64), "3", "crashes within the window that make a message a poison pill"),
            Setting::default("window", Duration, r#""5m""#, "longer than the longest delay, so that two crashes of a message that is retried fall into one window (attempts are bounded in any case)"),
        ],
    },
    SettingTable {
        path: "pipeline.guard",
        header: Header::Example,
        about: "on with these values, unless set; share = \"100%\" turns it off",
        settings: &[
            Setting::default("share", Share, r#""50%""#, "pause when more than this share of the finished messages are dead letters, and at least 100"),
            Setting::default("over", Duration, r#""1m""#, "within this time"),
            Setting::default("times_baseline", Whole(0, NUMBER_MAX), "10", "and that is this many times the usual share"),
        ],
    },
    SettingTable {
        path: "pipeline.auto_replay",
        header: Header::Example,
        about: "replays letters whose cause has passed without being asked; never permanent, gone or poison",
        settings: &[
            Setting::default("enabled", Switch, "false", "off, unless set"),
            Setting::default("rate", Rate, r#""5/s""#, "no faster than this; ten letters go first, and failures stop it"),
            Setting::default("healthy_for", Duration, r#""10m""#, "how long the sink must have been healthy and a letter dead; also the least time between two replays"),
            Setting::default("age_max", Duration, r#""24h""#, "older letters wait for an operator"),
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
