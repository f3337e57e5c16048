//! Settings of the Kafka engine.

use super::*;

#[test]
fn the_keys_of_kafka_belong_to_it_and_what_it_needs_is_asked_for() {
    let report = wrong(&format!("[engine]\nkind = \"kafka\"\nstart = \"newest\"\n{ORDERS}"));
    assert!(report.contains("`start = \"newest\"` is not one of earliest, latest"), "{report}");
    assert!(report.contains("there are no `brokers`; brokers = [\"localhost:9092\"]"), "{report}");
    assert!(report.contains("there is no `group`"), "{report}");
    let report =
        wrong(&format!("[engine]\nkind = \"kafka\"\nbrokers = [\"http://k\"]\ngroup = \"\"\n{ORDERS}"));
    assert!(report.contains("`http://k` is not a broker"), "{report}");
    assert!(report.contains("`group = \"\"` is not a name"), "{report}");
    let report = wrong(&format!("[engine]\nbrokers = [\"k:9092\"]\n{ORDERS}"));
    assert!(
        report.contains("`brokers` applies to the kafka engine only; `engine.kind` is embedded"),
        "{report}"
    );
}

const KAFKA: &str = "[engine]\nkind = \"kafka\"\nbrokers = [\"k:9092\"]\ngroup = \"g\"\n";

#[test]
fn a_member_without_a_name_is_refused() {
    let report = wrong(&format!("{KAFKA}member = \"\"\n{ORDERS}"));
    assert!(
        report.contains("is empty: give each process its own name") && report.contains("redrive-0"),
        "{report}"
    );
}

#[test]
#[cfg(feature = "kafka")]
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
    assert!(report.contains("each with its own `group`"), "{report}");
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

/// `config show --origin` once called it a default, because it looked for only one of the two names.
#[test]
#[cfg(feature = "kafka")]
fn the_local_directory_has_two_names_and_is_no_default_by_either() {
    for key in ["dir", "state_dir"] {
        let found = config(&format!("{KAFKA}{key} = \"/var/lib/redrive\"\n{ORDERS}"));
        let shown: Vec<String> = found.resolved().iter().flat_map(|table| table.text(true)).collect();
        let line = shown.iter().find(|line| line.starts_with("state_dir = ")).unwrap();
        assert!(line.contains("/var/lib/redrive") && line.contains("# redrive.toml:"), "{key}: {line}");
    }
}
