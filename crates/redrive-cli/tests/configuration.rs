//! What the configuration accepts, what it refuses, and that it never tells a secret.

mod support;

use std::fs;

use clap::Parser as _;
use redrive::{Failure, MemoryStores, Message, Pipeline, Policy, Redrive};
use redrive_cli::Cli;
use redrive_cli::commands::Command;
use redrive_cli::config::{
    Config, Environment, Faults, HeaderValue, Loaded, ProcessorFlags, SinkConfig, Source, Target, load,
};
use redrive_cli::output::Paint;
use redrive_server::Scope;
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

/// The report of a text that is wrong.
fn wrong(text: &str) -> String {
    let loaded = loaded(text);
    assert!(loaded.config.is_none(), "{text} was accepted");
    report(&loaded.faults)
}

/// The same pipeline with more lines in it.
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
    let SinkConfig::Webhook(webhook) = &orders.sink;
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
    let SinkConfig::Webhook(webhook) = &push.sink;
    assert_eq!(webhook.headers[1].value, HeaderValue::File("/run/auth".into()));
    assert_eq!(webhook.headers[1].name, "authorization");
    assert_eq!(webhook.classes[0], ("404".to_owned(), "gone".to_owned()));
    assert_eq!((webhook.classes.len(), webhook.per_endpoint), (5, Some(3)));
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
fn the_keys_of_kafka_belong_to_it_and_what_it_needs_is_asked_for() {
    let report = wrong(&format!("[engine]\nkind = \"kafka\"\nstart = \"newest\"\n{ORDERS}"));
    assert!(report.contains("`start = \"newest\"` is not one of earliest, latest"), "{report}");
    assert!(report.contains("there are no `brokers`; brokers = [\"localhost:9092\"]"), "{report}");
    assert!(report.contains("there is no `group`"), "{report}");
    let report =
        wrong(&format!("[engine]\nkind = \"kafka\"\nbrokers = [\"http://k\"]\ngroup = \"\"\n{ORDERS}"));
    assert!(report.contains("`http://k` is not a broker"), "{report}");
    assert!(report.contains("`group = \"\"` is no name"), "{report}");
    let report = wrong(&format!("[engine]\nbrokers = [\"k:9092\"]\n{ORDERS}"));
    assert!(
        report.contains("`brokers` means something to the kafka engine only, and this is embedded"),
        "{report}"
    );
}

const KAFKA: &str = "[engine]\nkind = \"kafka\"\nbrokers = [\"k:9092\"]\ngroup = \"g\"\n";

#[test]
fn a_kafka_pipeline_is_named_after_its_topic_or_the_other_way_round() {
    let both = |lines: &str| {
        let text =
            format!("{KAFKA}[[pipeline]]\n{lines}\n[pipeline.sink.webhook]\nurl = \"http://127.0.0.1:1/\"\n");
        let found = config(&text).pipelines.remove(0);
        (found.name, found.source.unwrap())
    };
    assert_eq!(both("source = \"shop.orders\""), ("shop.orders".into(), "shop.orders".into()));
    assert_eq!(both("name = \"orders\""), ("orders".into(), "orders".into()));
    assert_eq!(both("name = \"mails\"\nsource = \"orders\""), ("mails".into(), "orders".into()));
}

#[test]
fn two_pipelines_of_one_group_cannot_share_a_topic() {
    let sink = "[pipeline.sink.webhook]\nurl = \"http://127.0.0.1:1/\"\n";
    let text = format!(
        "{KAFKA}[[pipeline]]\nsource = \"orders\"\n{sink}[[pipeline]]\nname = \"mails\"\nsource = \"orders\"\n{sink}"
    );
    let report = wrong(&text);
    assert!(
        report.contains("the pipelines `orders` and `mails` read the topic orders in one group"),
        "{report}"
    );
    assert!(report.contains("each with a `group` of its own"), "{report}");
}

#[test]
fn a_part_of_the_work_keeps_no_key_order() {
    let text = format!("{KAFKA}only = \"tiers\"\n{}", orders_with("ordering = \"key\""));
    let report = wrong(&text);
    assert!(report.contains("`ordering` is key, and this process takes on only the tiers"), "{report}");
    let by_flag = flags(&["--only", "source", "--ordering", "key"]);
    let loaded = loaded_with(&format!("{KAFKA}{ORDERS}"), &by_flag, &Environment::default());
    assert!(loaded.config.is_none());
}

#[cfg(feature = "kafka")]
#[test]
fn what_is_passed_on_to_the_client_is_checked_and_never_shown() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("password");
    fs::write(&file, "hunter2\n").unwrap();
    let table = |lines: &str| format!("{KAFKA}[engine.kafka]\n{lines}\n{ORDERS}");
    let good = table(&format!("\"sasl.password_file\" = \"{}\"\nsession.timeout.ms = 6000", file.display()));
    let shown = format!("{:?}", config(&good).engine);
    assert!(shown.contains("sasl.password") && !shown.contains("hunter2"), "{shown}");
    let resolved: Vec<String> = config(&good).resolved().iter().flat_map(|table| table.text(true)).collect();
    assert!(!resolved.join("\n").contains("hunter2"), "{resolved:?}");

    let config = with_config(&table(
        "\"acks\" = \"0\"\n\"no.such.key\" = \"hunter2\"\n\"ssl.ca.location_file\" = \"/nowhere\"\n\"sasl.username_env\" = \"NOT_SET_ANYWHERE\"",
    ));
    let ran = redrive(config.path(), &["config", "check"]);
    let said = ran.stderr + &ran.stdout;
    assert_eq!(ran.code, Some(2), "{said}");
    for part in [
        "`kafka.acks` cannot be passed on: it is always all",
        "`kafka.no.such.key` cannot be passed on",
        "`kafka.ssl.ca.location` cannot be read",
        "the variable NOT_SET_ANYWHERE is not set",
    ] {
        assert!(said.contains(part), "{part} is not in {said}");
    }
    assert!(!said.contains("hunter2"), "{said}");
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
        "; \"404\" = \"gone\"",
        "`sink.webhook.classes.9xx` is not a status",
        "`sink.webhook.classes.500 = \"crash\"` is not one of",
        "`sink.webhook.classes.501` must be a text in quotes",
    ] {
        assert!(report.contains(said), "{said}\n{report}");
    }
}

#[test]
fn an_address_beyond_loopback_needs_tokens() {
    let open = format!("[server]\nlisten = \"0.0.0.0:7333\"\n{ORDERS}");
    assert!(wrong(&open).contains("is reachable from other machines, and there is no [[server.token]]"));
    // A token from the environment is a token; plain HTTP is still worth a word.
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
fn flags_go_over_variables_over_the_file_over_defaults() {
    let text = format!(
        "[engine]\ndir = \"file\"\n[server]\nlisten = \"127.0.0.1:1\"\n{}",
        orders_with("tiers = [\"1s\"]")
    );
    let environment = Environment {
        dir: Some("variable".to_owned()),
        listen: Some("127.0.0.1:2".to_owned()),
        ..Environment::default()
    };
    let flags = flags(&["--listen", "127.0.0.1:3", "--backoff-base", "2s", "--max-retries", "9"]);
    let config = loaded_with(&text, &flags, &environment).config.unwrap();
    assert_eq!(config.engine.dir.to_str(), Some("variable"));
    assert_eq!(config.server.listen.port(), 3);
    assert_eq!(
        config.pipelines[0].policy.retries(),
        9,
        "the flag's backoff took the place of the file's tiers"
    );
    let shown: Vec<String> = config.resolved().iter().flat_map(|table| table.text(true)).collect();
    for (setting, origin) in [
        ("kind = ", "# default"),
        ("dir = ", "# REDRIVE_DIR"),
        ("listen = ", "# --listen"),
        ("backoff = ", "# --backoff-base"),
        ("retries = ", "# --max-retries"),
        ("name = ", "# redrive.toml:6"),
        ("jitter = ", "# profile tiered"),
    ] {
        let line = shown.iter().find(|line| line.starts_with(setting)).unwrap();
        assert!(line.ends_with(origin), "{line}");
    }
}

#[test]
fn a_pipeline_from_flags_goes_through_the_same_validator_and_its_faults_name_the_flag() {
    let right = flags(&[
        "--mode",
        "blocking",
        "--max-retries",
        "3",
        "--tiers",
        "5s,30s,5m",
        "--jitter",
        "full",
        "--classify",
        "off",
        "--ordering",
        "key",
        "--sink-url",
        "http://127.0.0.1:8000/",
    ]);
    let loaded = load::build(None, &right, &Environment::default());
    let config = loaded.config.unwrap();
    assert_eq!((config.pipelines[0].name.as_str(), config.pipelines[0].policy.retries()), ("default", 3));

    let mistaken = flags(&[
        "--tiers",
        "30s,5s",
        "--max-retries",
        "7",
        "--jitter",
        "fool",
        "--sink-url",
        "x",
        "--listen",
        "?",
    ]);
    let told = report(&load::build(None, &mistaken, &Environment::default()).faults);
    for said in [
        "`--tiers` must grow: 5s comes after 30s; --tiers 5s,30s",
        "both `--max-retries 7` and 2 tiers are set; 2 tiers allow at most 2 retries",
        "`--jitter fool` is not a jitter",
        "`--sink-url` must begin with http:// or https://",
        "`--listen ?` is not an address with a port",
        "5 errors.",
    ] {
        assert!(told.contains(said), "{said}\n{told}");
    }
    let both = flags(&["--tiers", "5s", "--backoff-base", "1s", "--sink-url", "http://h/"]);
    let told = report(&load::build(None, &both, &Environment::default()).faults);
    assert!(told.contains("both `--tiers` and `backoff` are set"), "{told}");
}

#[test]
fn flags_over_a_file_with_several_pipelines_need_a_name() {
    let two = format!("{ORDERS}{}", ORDERS.replace("orders", "push"));
    let told = report(&loaded_with(&two, &flags(&["--jitter", "full"]), &Environment::default()).faults);
    assert!(told.contains("the file has 2 pipelines; say with `--name` which one is meant"), "{told}");
    let named = flags(&["--jitter", "full", "--name", "push"]);
    let config = loaded_with(&two, &named, &Environment::default()).config.unwrap();
    let jitters: Vec<String> = config.pipelines.iter().map(|p| p.policy.jitter().to_string()).collect();
    assert_eq!(jitters, ["equal", "full"]);
    let strange = flags(&["--jitter", "full", "--name", "nobody"]);
    let told = report(&loaded_with(&two, &strange, &Environment::default()).faults);
    assert!(told.contains("the file has no pipeline `nobody`"), "{told}");
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
            Some(note) => format!("{}: {note}", fault.problem),
            None => fault.problem.clone(),
        })
        .collect();
    assert_eq!(file, library);
}

#[test]
fn the_file_is_found_by_flag_variable_or_place() {
    let dir = with_config(ORDERS);
    assert_eq!(redrive(dir.path(), &["config", "check"]).code, Some(0));
    fs::rename(dir.path().join("redrive.toml"), dir.path().join("other.toml")).unwrap();
    let ran = redrive(dir.path(), &["config", "check"]);
    assert_eq!(ran.code, Some(2));
    assert!(ran.stderr.contains("there is no redrive.toml here and no --config"), "{}", ran.stderr);
    assert_eq!(redrive(dir.path(), &["--config", "other.toml", "config", "check"]).code, Some(0));
    let ran = redrive_with(
        dir.path(),
        &["config", "show", "--origin"],
        &[("REDRIVE_CONFIG", "other.toml"), ("REDRIVE_DIR", "d")],
    );
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert!(ran.stdout.contains("dir = \"d\"") && ran.stdout.contains("# REDRIVE_DIR"), "{}", ran.stdout);
    assert_eq!(redrive(dir.path(), &["--config", "nowhere.toml", "check"]).code, Some(2));
    fs::write(dir.path().join("bytes.toml"), [0xff, 0xfe]).unwrap();
    let ran = redrive(dir.path(), &["--config", "bytes.toml", "check"]);
    assert!(ran.stderr.contains("not UTF-8"), "{}", ran.stderr);
}

/// What `config check` accepts, `processor` starts with: each of these was a ✓ and then an exit 2.
#[test]
fn what_would_stop_a_processor_is_told_by_the_check() {
    let token = |scopes: &str, file: &str| {
        format!("[[server.token]]\nname = \"ops\"\nscopes = {scopes}\nsecret_file = \"{file}\"\n{ORDERS}")
    };
    let url = |url: &str| ORDERS.replace("http://127.0.0.1:8000/orders", url);
    let read = "[\"read\"]";
    let cases = [
        (ORDERS.replace("\"orders\"", "\"LOCK\""), "`LOCK` has its own meaning in the engine's directory"),
        (token(read, "missing"), "`secret_file = \"missing\"` cannot be used: No such file"),
        (token(read, "empty"), "`secret_file = \"empty\"` cannot be used: the file is empty"),
        (
            token(read, "short"),
            "`secret_file = \"short\"` holds no usable secret: the secret of token `ops` has 7 bytes",
        ),
        (token("[]", "good"), "`scopes = []` allows nothing; name some of read"),
        (format!("{ORDERS}headers = {{ x-key_file = \"missing\" }}\n"), "missing: No such file"),
        (format!("{ORDERS}headers = {{ X-Key_file = \"empty\" }}\n"), "empty: the file is empty"),
        (format!("{ORDERS}headers = {{ host = \"hunter2\" }}\n"), "belongs to the connection"),
        (format!("{ORDERS}ca_file = \"missing\"\n"), "`sink.webhook.ca_file` is \"missing\""),
        (format!("{ORDERS}ca_file = \"short\"\n"), "there is no certificate in it"),
        (format!("{ORDERS}timeout = \"2h\"\n"), "`sink.webhook.timeout` is 7200s"),
        (url("http://user:hunter2@127.0.0.1:8000"), "`sink.webhook.url` cannot be used"),
        (url("http://[::1/hunter2"), "`sink.webhook.url` cannot be used"),
        (
            format!("[server]\ntls_cert_file = \"c\"\ntls_key_file = \"k\"\n{ORDERS}"),
            "this build serves no TLS",
        ),
    ];
    for (text, problem) in cases {
        let dir = with_config(&text);
        fs::write(dir.path().join("empty"), " \n").unwrap();
        fs::write(dir.path().join("short"), "hunter2").unwrap();
        fs::write(dir.path().join("good"), "correct-horse-battery").unwrap();
        for command in [&["config", "check"][..], &["check"], &["processor"]] {
            let ran = redrive(dir.path(), command);
            assert_eq!(ran.code, Some(2), "{command:?} with\n{text}\n{}{}", ran.stdout, ran.stderr);
            assert!(ran.stderr.contains(problem), "{command:?}: {}", ran.stderr);
            assert!(ran.stderr.contains("redrive.toml:"), "no place in {}", ran.stderr);
            assert!(ran.stderr.contains("1 error"), "{}", ran.stderr);
            assert!(!format!("{}{}", ran.stdout, ran.stderr).contains("hunter2"), "{}", ran.stderr);
        }
    }
}

#[test]
fn faults_of_files_are_told_together_with_those_of_the_text() {
    let text = format!(
        "[[server.token]]\nname = \"ops\"\nscopes = [\"read\"]\nsecret_file = \"missing\"\n\
         {}ca_file = \"none.pem\"\nheaders = {{ x-key_file = \"gone\" }}\n",
        orders_with("jitter = \"fool\"").replace("http://127.0.0.1:8000/orders", "ftp://host")
    );
    let dir = with_config(&text);
    let ran = redrive(dir.path(), &["config", "check", "--json"]);
    let faults: serde_json::Value = serde_json::from_str(&ran.stdout).unwrap();
    let faults = faults["faults"].as_array().unwrap_or_else(|| panic!("{faults}"));
    let told: Vec<(&str, u64)> = faults
        .iter()
        .map(|fault| (fault["key"].as_str().unwrap(), fault["line"].as_u64().unwrap()))
        .collect();
    let expected = [
        ("secret_file", 4),
        ("jitter", 7),
        ("sink.webhook.url", 9),
        ("sink.webhook.ca_file", 10),
        ("sink.webhook.headers.x-key_file", 11),
    ];
    assert_eq!(told, expected);
    assert!(faults.iter().all(|fault| fault["fix"].is_string()), "{faults:?}");
}

/// The secrets of a processor may be unreadable for who only looks at it; its address is in the same file.
#[test]
fn a_client_needs_no_file_that_the_configuration_names() {
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let dir = with_config(&format!(
        "[server]\nlisten = \"127.0.0.1:{port}\"\n[[server.token]]\nname = \"ops\"\nscopes = [\"read\"]\n\
         secret_file = \"missing\"\n{ORDERS}"
    ));
    let ran = redrive(dir.path(), &["status"]);
    assert_eq!(ran.code, Some(75), "{}", ran.stderr);
    assert!(ran.stderr.contains(&format!("127.0.0.1:{port}")), "{}", ran.stderr);
    assert!(!ran.stderr.contains("faults"), "{}", ran.stderr);
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

/// A filter may begin with a minus, which is its word for "not".
#[test]
fn a_filter_that_begins_with_not_is_a_filter_and_no_flag() {
    use clap::Parser as _;
    for command in ["inspect", "replay", "export"] {
        let parsed =
            redrive_cli::Cli::try_parse_from(["redrive", "dlq", command, "orders", "--filter", "-key:acme"]);
        assert!(parsed.is_ok(), "{command}: {}", parsed.unwrap_err());
    }
}
