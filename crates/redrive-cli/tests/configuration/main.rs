//! What the configuration accepts and refuses, and that it never reveals a secret.

mod files;
mod flags;
mod kafka;
mod secrets;
#[path = "../support/mod.rs"]
mod support;

use std::fs;

use clap::Parser as _;
use redrive::{Failure, MemoryStores, Message, Pipeline, Policy, Redrive};
use redrive_cli::Cli;
use redrive_cli::commands::Command;
use redrive_cli::config::{
    Config, Environment, Faults, HeaderValue, Loaded, ProcessorFlags, Source, Target, WebhookConfig, load,
};
use redrive_cli::output::Paint;
use redrive_server::{Reads, Scope};
use support::{ORDERS, redrive, redrive_with, with_config};

fn loaded(text: &str) -> Loaded {
    loaded_with(text, &ProcessorFlags::default(), &Environment::default())
}

fn loaded_with(text: &str, flags: &ProcessorFlags, environment: &Environment) -> Loaded {
    load::build(Some(Source::new("redrive.toml", text)), flags, environment)
}

fn report(faults: &Faults) -> String {
    faults.lines(Paint::OFF).join("\n")
}

fn config(text: &str) -> Config {
    let loaded = loaded(text);
    let report = report(&loaded.faults);
    loaded.config.unwrap_or_else(|| panic!("{report}"))
}

/// The report for a faulty text.
fn wrong(text: &str) -> String {
    let loaded = loaded(text);
    assert!(loaded.config.is_none(), "{text} was accepted");
    report(&loaded.faults)
}

/// The orders pipeline with additional lines.
fn orders_with(lines: &str) -> String {
    ORDERS.replace("[pipeline.sink.webhook]", &format!("{lines}\n[pipeline.sink.webhook]"))
}

fn flags(args: &[&str]) -> ProcessorFlags {
    let cli = Cli::try_parse_from([&["redrive", "processor"], args].concat()).unwrap();
    match cli.command {
        Command::Processor(args) => args.flags,
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_smallest_file_gives_a_whole_configuration() {
    let config = config(ORDERS);
    assert_eq!(config.engine.dir.to_str(), Some("./redrive-data"));
    assert_eq!(config.server.listen.to_string(), "127.0.0.1:7333");
    let [orders] = &config.pipelines[..] else { panic!("one pipeline") };
    assert_eq!(
        (orders.name.as_str(), orders.policy.attempts(), orders.policy.concurrency()),
        ("orders", 4, 64)
    );
    let webhook: &WebhookConfig = orders.sink.settings_of().unwrap();
    assert!(matches!(&webhook.target, Target::Url(url) if url == "http://127.0.0.1:8000/orders"));
    assert_eq!(orders.dedup, Some(std::time::Duration::from_hours(24)));
}

#[test]
fn every_kind_of_setting_arrives() {
    let text = r#"
[engine]
dir = "/var/lib/redrive"
[server]
listen = "0.0.0.0:80"
tls_cert_file = "c.pem"
tls_key_file = "k.pem"
[[server.token]]
name = "ops"
scopes = ["read", "replay", "read"]
secret_file = "/run/ops"
[[pipeline]]
name = "push"
id = "json:/id"
tenant = "header:x-tenant"
backoff = { base = "2s", multiplier = 3.0, cap = "1m" }
attempts = 6
attempts_for = { rate_limited = 10 }
jitter = "full"
ttl = "1h"
ordering = "key"
after_dead = "block_key"
classify = false
mode = "blocking"
max_pending = 1000
dedup = "off"
[pipeline.sink.webhook]
endpoint = "header:x-endpoint"
headers = { x-source = "redrive", authorization_file = "/run/auth" }
ca_file = "ca.pem"
timeout = "10s"
concurrency = 7
per_endpoint = 3
per_endpoint_rate = "600/m"
allow_private_addresses = true
classes = { "404" = "gone", 5xx = "permanent", "409" = "ok", timeout = "permanent", preset = "seed-strict" }
"#;
    let config = config(text);
    assert_eq!(config.server.tokens[0].scopes, [Scope::Read, Scope::Replay]);
    let push = &config.pipelines[0];
    assert_eq!((push.policy.attempts(), push.policy.concurrency()), (6, 7));
    assert_eq!(push.policy.timeout(), std::time::Duration::from_secs(10));
    assert!(!push.policy.classify());
    assert_eq!((push.max_pending, push.dedup), (1_000, None));
    let webhook: &WebhookConfig = push.sink.settings_of().unwrap();
    assert_eq!(webhook.headers[1].value, HeaderValue::File("/run/auth".into()));
    assert_eq!(webhook.headers[1].name, "authorization");
    assert_eq!(webhook.classes[0], ("404".to_owned(), "gone".to_owned()));
    assert_eq!((webhook.classes.len(), webhook.per_endpoint), (5, Some(3)));
    assert_eq!(webhook.options().unwrap().per_endpoint_rate, Some(10.0));
}

/// Every key, each with a value that is not the default.
const UNUSUAL: &str = r#"
[engine]
kind = "embedded"
dir = "/var/lib/redrive"
scrub = "12h"
[server]
listen = "127.0.0.1:7444"
reads = "open"
[[server.token]]
name = "ops"
scopes = ["read"]
secret_file = "/run/ops"
[[pipeline]]
name = "push"
id = "json:/id"
tenant = "header:x-tenant"
profile = "push"
backoff = { base = "3s", multiplier = 3.0, cap = "1m" }
retries = 7
attempts_for = { rate_limited = 10 }
replay_attempts = 2
jitter = "none"
retry_after_jitter = "5%"
retry_after_max = "2h"
retry_after_min = "2s"
retry_after_shared_max = "3m"
ttl = "2h"
cap_ttl_share = 0.25
hold_max = "3h"
ordering = "key"
after_dead = "block_key"
classify = "off"
mode = "blocking"
concurrency = 7
timeout = "10s"
max_pending = 1000
log_delivered = "12.5%"
dedup = "off"
ledger_horizon = "9d"
letter_retention = "95d"
redact = ["/card", "header:x-user"]
outage_gate = false
budget = { retries_per_minute = 9, on_exhausted = "dead_letter" }
crash = { threshold = 4, window = "10m" }
[pipeline.breaker]
enabled = false
cooldown = "31s"
cooldown_max = "6m"
probes = 6
reload = 1.5
[pipeline.breaker.fast]
window = "11s"
failures = "51%"
min = 21
[pipeline.breaker.slow]
window = "6m"
failures = "21%"
counts = ["5xx", "429"]
action = "alert"
[pipeline.guard]
share = "51%"
over = "2m"
times_baseline = 11
[pipeline.auto_replay]
enabled = true
rate = "7/s"
healthy_for = "11m"
age_max = "2h"
tenant_max = 7
[[pipeline.group]]
match = "timeout*payments"
as = "payments are slow"
[pipeline.sink.webhook]
endpoint = "header:x-endpoint"
headers = { x-key_file = "/run/key" }
ca_file = "/run/ca.pem"
client_cert_file = "/run/client.pem"
client_key_file = "/run/client.key"
auth = { kind = "oauth2", token_url = "https://login.example/token", client_id = "shop", client_secret_file = "/run/client", scopes = ["hooks"] }
signing_secret_file = "/run/whsec"
endpoint_secrets_file = "/run/secrets"
endpoint_secret_command = ["/usr/local/bin/secret-of", "--endpoint"]
endpoint_secret = "header:x-secret"
format = "cloudevents"
limit_by = "tenant"
per_endpoint = 3
per_endpoint_rate = "600/m"
allow_private_addresses = true
hash_key_file = "/run/hash.key"
proxy = "http://proxy.example:3128"
proxy_auth_file = "/run/proxy"
classes = { "404" = "gone" }
[[alert]]
on = ["guard"]
pipelines = ["push"]
command = ["/usr/local/bin/page-me", "now"]
every = "16m"
timeout = "11s"
dead_letters = 101
within = "11m"
oldest_letter = "25h"
queue_depth = 10001
"#;

/// The settings of `config show`, as a valid configuration.
fn shown(config: &Config) -> String {
    config.resolved().iter().flat_map(|table| table.text(false)).collect::<Vec<_>>().join("\n")
}

#[test]
fn what_config_show_prints_is_the_whole_configuration() {
    let unusual = config(UNUSUAL);
    let shown_once = shown(&unusual);
    // Alternatives to settings already given, and settings of another engine or of a server with TLS.
    let others = [
        "tiers",
        "attempts",
        "fixed",
        "share_of_successes",
        "url",
        "webhook",
        "stdout",
        "webpush",
        "vapid_key_file",
        "previous_vapid_key_files",
        "subject",
        "hash_key_file",
        "purge",
        "on_purged",
        "apns",
        "key_file",
        "key_id",
        "team_id",
        "certificate_file",
        "certificate_key_file",
        "environment",
        "topic",
        "connections",
        "fcm",
        "service_account_file",
        "rate",
        "source",
        "brokers",
        "group",
        "member",
        "start",
        "topics",
        "state_dir",
        "only",
        "kafka",
        "tls_cert_file",
        "tls_key_file",
        "user",
        "password_file",
        "token_file",
    ];
    for key in redrive_cli::config::sinks::KEYS.tables().iter().flat_map(|table| &table.keys) {
        let forms = [format!("{key} = "), format!("{key}]"), format!(".{key}.")];
        let set = forms.iter().any(|form| UNUSUAL.contains(form));
        assert!(set || others.contains(key), "`{key}` is a new key: give it an unusual value here");
    }
    // Reading it again gives the same settings, so none is missing.
    assert_eq!(shown(&config(&shown_once)), shown_once);
    let settings = |text: &str| -> Vec<String> {
        let mut table = "";
        let mut all = Vec::new();
        for line in text.lines().filter(|line| !line.is_empty()) {
            match line.split_once(" = ").filter(|_| !line.starts_with('[')) {
                Some((key, _)) => all.push(format!("{table} {key}")),
                None => table = line,
            }
        }
        all
    };
    let printed = settings(&shown_once);
    for setting in settings(UNUSUAL) {
        assert!(printed.contains(&setting), "{setting} is not shown in\n{shown_once}");
    }
    // Defaults are shown as well.
    let shown = shown(&config(ORDERS));
    for line in [
        "[pipeline.breaker]",
        "enabled = true",
        "cooldown = \"30s\"",
        "[pipeline.guard]",
        "times_baseline = 10",
        "[pipeline.auto_replay]",
        "enabled = false",
        "healthy_for = \"10m\"",
        "counts = [\"5xx\", \"timeout\", \"refused\", \"other\"]",
    ] {
        assert!(shown.lines().any(|shown| shown == line), "{line} is not shown in\n{shown}");
    }
}

#[test]
fn what_excludes_each_other_is_told_with_both_places() {
    let report = wrong(&orders_with("tiers = [\"5s\"]\nbackoff = { fixed = \"60s\" }"));
    assert!(
        report.contains(
            "both `tiers` and `backoff` are set, and both define the delay; keep `tiers` or `backoff`"
        ),
        "{report}"
    );
    assert!(report.contains("redrive.toml:3,4"), "{report}");
    let report = wrong(&orders_with("retries = 3\nattempts = 4"));
    assert!(report.contains("both `retries = 3` and `attempts = 4` are set; keep `retries = 3`"), "{report}");
    let report = wrong(&format!("{}timeout = \"1s\"\n", orders_with("timeout = \"10s\"")));
    assert!(report.contains("both `timeout` and `sink.webhook.timeout` are set"), "{report}");
    let report = wrong(&format!("{ORDERS}endpoint = \"json:/url\"\n"));
    assert!(report.contains("both `url` and `endpoint` are set"), "{report}");
    let report = wrong(&format!("{ORDERS}[pipeline.sink.apns]\nkey = 1\n"));
    assert!(report.contains("it has 2 sinks, `webhook` and `apns`; exactly one delivers"), "{report}");
}

#[test]
fn a_pipeline_may_print_its_messages_instead() {
    let text = "[[pipeline]]\nname = \"orders\"\n[pipeline.sink.stdout]\ntimeout = \"5s\"\n";
    let config = config(text);
    assert_eq!(config.pipelines[0].policy.timeout(), std::time::Duration::from_secs(5));
    let shown = shown(&config);
    assert!(shown.contains("[pipeline.sink.stdout]") && shown.contains("timeout = \"5s\""), "{shown}");
    let report = wrong(&text.replace("timeout", "timeot"));
    assert!(
        report.contains("unknown key `sink.stdout.timeot`; did you mean `sink.stdout.timeout`?"),
        "{report}"
    );
}

#[test]
fn a_pipeline_needs_a_name_and_a_sink() {
    let report = wrong("[[pipeline]]\ntiers = [\"5s\"]\n");
    assert!(report.contains("pipeline 1: it has no `name`; add name = \"orders\""), "{report}");
    assert!(report.contains("pipeline 1: it has no sink; add [pipeline.sink.webhook]"), "{report}");
    assert!(wrong("").contains("there is no pipeline; add [[pipeline]]"));
    assert!(wrong("[pipeline]\nname = \"a\"").contains("`pipeline` must be written [[pipeline]]"));
}

#[test]
fn two_pipelines_of_one_topic_need_a_name() {
    let text =
        "[engine]\nkind = \"kafka\"\n[[pipeline]]\nsource = \"orders\"\n[[pipeline]]\nsource = \"orders\"\n";
    let report = wrong(text);
    let said = "two pipelines are named `orders` (both read the topic orders); give one a `name`";
    assert!(report.contains(said), "{report}");
    assert!(report.contains("redrive.toml:4,6"), "{report}");
}

#[test]
fn unknown_keys_come_with_the_nearest_name_or_the_right_table() {
    let report =
        wrong(&format!("listen = \"127.0.0.1:1\"\n{}", orders_with("teirs = [\"5s\"]\nxylophone = 1")));
    assert!(report.contains("unknown key `listen`; `listen` belongs into [server]"), "{report}");
    assert!(report.contains("unknown key `teirs`; did you mean `tiers`?"), "{report}");
    assert!(report.contains("unknown key `xylophone`; there are name, source"), "{report}");
    let report = wrong(&orders_with("backoff = { bse = \"1s\" }"));
    assert!(report.contains("unknown key `backoff.bse`; did you mean `backoff.base`?"), "{report}");
}

#[test]
fn a_value_of_the_wrong_kind_is_shown_where_it_stands() {
    let report =
        wrong(&orders_with("retries = \"3\"\ntimeout = 30\nhold_max = \"1 day\"\ntiers = [5, \"30s\"]"));
    for said in [
        "`retries` must be a whole number, not a text",
        "  fix: retries = 3",
        "`timeout` must be a text in quotes, not a whole number",
        "`hold_max = \"1 day\"` is not a duration",
        "`tiers` must be a list of texts",
        "6│ tiers = [5, \"30s\"]\n │          ^ this is a whole number",
    ] {
        assert!(report.contains(said), "{said}\n{report}");
    }
    assert!(report.contains("4 errors."), "{report}");
}

#[test]
fn the_class_table_takes_statuses_and_classes_only() {
    let report =
        wrong(&format!("{ORDERS}classes = {{ 404 = \"gon\", 9xx = \"gone\", 500 = \"crash\", 501 = 3 }}\n"));
    for said in [
        "`sink.webhook.classes.404 = \"gon\"` is not one of ok, transient",
        "; sink.webhook.classes.404 = \"gone\"",
        "`sink.webhook.classes.9xx` is not a status",
        "`sink.webhook.classes.500 = \"crash\"` is not one of",
        "`sink.webhook.classes.501` must be a text in quotes",
        "timeout, refused, dns, tls, reset, blocked, credential, proxy, proxy_auth",
    ] {
        assert!(report.contains(said), "{said}\n{report}");
    }
    let report = wrong(&format!("{ORDERS}classes = {{ proxy-auth = \"transient\" }}\n"));
    assert!(report.contains("; rename it to `sink.webhook.classes.proxy_auth`"), "{report}");
    config(&format!("{ORDERS}classes = {{ proxy = \"permanent\", proxy_auth = \"transient\" }}\n"));
}

#[test]
fn a_share_is_at_most_the_whole() {
    let report = wrong(&orders_with("[pipeline.breaker.fast]\nfailures = \"150%\""));
    assert!(report.contains("150%") && report.contains("failures"), "{report}");
}

#[test]
fn a_rate_per_endpoint_needs_endpoints_and_is_a_rate() {
    let report = wrong(&format!("{ORDERS}per_endpoint_rate = \"20/s\"\n"));
    assert!(report.contains("is for messages that name their endpoints"), "{report}");
    let endpoint = ORDERS.replace("url = \"http://127.0.0.1:8000/orders\"", "endpoint = \"json:/url\"");
    let report = wrong(&format!("{endpoint}per_endpoint_rate = \"often\"\n"));
    assert!(report.contains("`often` is not a rate; write it like 20, 20/s"), "{report}");
    let report = wrong(&format!("{endpoint}per_endpoint_rate = \"0.5/h\"\n"));
    assert!(report.contains("is less than one an hour"), "{report}");
}

#[test]
fn a_limit_per_endpoint_is_not_ignored_where_all_messages_go_to_one() {
    let report = wrong(&format!("{ORDERS}per_endpoint = 3\n"));
    for said in [
        "`sink.webhook.per_endpoint` is for messages that name their endpoints",
        "`concurrency` limits how many",
        "; remove `sink.webhook.per_endpoint`",
        "redrive.toml:5",
    ] {
        assert!(report.contains(said), "{said}\n{report}");
    }
    let by_tenant = config(&format!("{ORDERS}limit_by = \"tenant\"\nper_endpoint = 3\n"));
    let webhook: &WebhookConfig = by_tenant.pipelines[0].sink.settings_of().unwrap();
    assert_eq!(webhook.options().unwrap().per_endpoint, Some(3));
}

#[test]
fn an_address_beyond_loopback_needs_tokens() {
    let open = format!("[server]\nlisten = \"0.0.0.0:7333\"\n{ORDERS}");
    assert!(wrong(&open).contains("is reachable from other machines, and there is no [[server.token]]"));
    // A token from the environment counts as a token; plain HTTP still gives a warning.
    let environment = Environment { token: true, ..Environment::default() };
    let loaded = loaded_with(&open, &ProcessorFlags::default(), &environment);
    assert!(loaded.config.is_some());
    assert!(
        report(&loaded.faults)
            .contains("warning: server: `listen = \"0.0.0.0:7333\"` takes tokens over plain HTTP")
    );
}

#[test]
fn secrets_are_never_told() {
    let texts = [
        format!("{ORDERS}headers = {{ authorization = \"Bearer hunter2\", x = 1 }}\n"),
        format!("{ORDERS}headers = {{ authorization = \"hunter2\", authorization_file = \"f\" }}\n"),
        ORDERS.replace("http://127.0.0.1:8000/orders", "ftp://user:hunter2@host"),
        ORDERS.replace("http://127.0.0.1:8000/orders", "hunter2"),
        format!("[[server.token]]\nname = \"ops\"\nscopes = []\nsecret = \"hunter2\"\n{ORDERS}"),
        format!("{ORDERS}headers = {{ authorization = \"hunter2\n"),
        format!("password = \"hunter2\"\n{ORDERS}"),
        format!("{ORDERS}[pipeline.sink.webhook.headers]\nauthorization = \"hunter2\" oops\n"),
        format!("{ORDERS}headers = {{ x = \"a\\nhunter2\" }}\n"),
    ];
    for text in texts {
        let loaded = loaded(&text);
        assert!(loaded.config.is_none(), "{text} was accepted");
        let told = format!("{}{}", report(&loaded.faults), loaded.faults.to_json());
        assert!(!told.contains("hunter2"), "{told}");
    }
    let text = format!("{ORDERS}headers = {{ authorization = \"Bearer hunter2\" }}\n")
        .replace("http://127", "http://me:hunter2@127");
    let loaded = loaded(&text);
    let told = report(&loaded.faults);
    assert!(told.contains("warning: pipeline `orders`: `sink.webhook.headers.authorization` puts a secret into the configuration; `authorization_file` reads it from a file"), "{told}");
    let config = loaded.config.unwrap();
    let shown: Vec<String> = config.resolved().iter().flat_map(|table| table.text(true)).collect();
    assert!(!format!("{told}{config:?}{}", shown.join("\n")).contains("hunter2 "), "{shown:?}");
    assert!(shown.iter().any(|line| line.contains("url = \"http://…@127.0.0.1:8000/orders\"")), "{shown:?}");
    assert!(!shown.join("\n").contains("hunter2"), "{shown:?}");
}

#[test]
fn broken_toml_is_shown_and_the_rest_of_the_file_is_still_checked() {
    let report = wrong(&format!("{}[[pipeline]\nname = \"x\"\n", orders_with("retries = -1\nmax_retry = 4")));
    assert!(report.contains("this is not TOML"), "{report}");
    assert!(report.contains("did you mean `retries`?"), "{report}");
    assert!(report.contains("`retries = -1` must lie between 0 and"), "{report}");
}

#[test]
fn the_library_says_the_same_about_the_same_mistake() {
    async fn handler(_: &Message) -> Result<(), Failure> {
        Ok(())
    }
    let built = Redrive::builder()
        .engine(MemoryStores::new())
        .pipeline(
            Pipeline::new("orders")
                .policy(Policy::tiers(["30s", "5s", "5m"]).retries(5).jitter("fool"))
                .handler(handler),
        )
        .build();
    let library: Vec<String> = built.unwrap_err().faults.into_iter().map(|fault| fault.problem).collect();
    let faults =
        loaded(&orders_with("tiers = [\"30s\", \"5s\", \"5m\"]\nretries = 5\njitter = \"fool\"")).faults;
    let file: Vec<String> = faults
        .all
        .iter()
        .map(|fault| match &fault.note {
            // The accepted forms are a note here, and the fix there.
            Some(note) if !note.starts_with("write it like") => format!("{}: {note}", fault.problem),
            _ => fault.problem.clone(),
        })
        .collect();
    assert_eq!(file, library);
}

#[test]
fn credentials_for_endpoints_that_messages_name_are_a_warning() {
    let endpoint = |headers: &str| {
        let text = ORDERS.replace("url = \"http://127.0.0.1:8000/orders\"", "endpoint = \"json:/url\"");
        let loaded = loaded(&format!("{text}headers = {{ {headers} }}\n"));
        assert!(loaded.config.is_some(), "{}", report(&loaded.faults));
        report(&loaded.faults)
    };
    let warned = "goes to every endpoint that a message names";
    for header in ["authorization", "Cookie", "x-api-key", "x-my-token", "client-secret", "x-plain_file"] {
        let told = endpoint(&format!("{header} = \"x\""));
        assert!(told.contains(warned) && told.contains("redrive.toml:5,4"), "{header}: {told}");
    }
    assert!(!endpoint("x-source = \"redrive\"").contains(warned));
    let one_url = loaded(&format!("{ORDERS}headers = {{ authorization_file = \"f\" }}\n"));
    assert!(!report(&one_url.faults).contains(warned));
}

/// The fix was once the opposite of what was meant: a window of 24 h for `false`, and no limit at all for `1k`.
#[test]
fn a_fix_says_what_was_meant() {
    for (given, fix) in [
        ("dedup = false", "fix: dedup = \"off\""),
        ("dedup = true", "fix: dedup = \"24h\""),
        ("max_pending = \"1k\"", "fix: max_pending = 1000"),
        ("max_pending = \"10_000\"", "fix: max_pending = 10000"),
        ("max_pending = \"2M\"", "fix: max_pending = 2000000"),
    ] {
        let report = wrong(&orders_with(given));
        assert!(report.contains(fix), "{given}: {report}");
    }
}
